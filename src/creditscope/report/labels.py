"""Names for the cells of an audit that are short and tell every two of them apart."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from creditscope.protocol.audit import Audit, JudgedCell
from creditscope.protocol.check import Check
from creditscope.protocol.present import asked
from creditscope.records.labels import labels_of
from creditscope.records.select import OF_THE_METHOD
from creditscope.records.spec import RunSpec, digest
from creditscope.records.table import visible
from creditscope.rules import RULES

_OF_THE_RUN = {"seed", "feedback", "probe", "injection", "matmul", "origin"}


@dataclass(frozen=True)
class Named:
    """A judged cell under the name that the page gives it.

    Args:
        judged: The cell; its own label bears the experiment's letter where there is more than one.
        label: Unique within the page when read after the experiment's name.
        group: Index of the experiment.
        colour: Index of the colour; a baseline has that of the method it is the twin of.
        dash: 0 solid, 1 dashed (penalised), 2 dotted (baseline).
    """

    judged: JudgedCell
    label: str
    group: int
    colour: int
    dash: int


@dataclass(frozen=True)
class Names:
    """All cells of a page, in reading order, and the experiments they belong to.

    Args:
        cells: By experiment, claims first, backprop first.
        groups: Name of each experiment; it begins with a letter where there are several.
        audit: The audit under these names and in this order: its own tables can stand on the page as they are.
    """

    cells: tuple[Named, ...]
    groups: tuple[str, ...]
    audit: Audit

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks of the protocol, less those required ones that apply to no claim of the page."""
        shown, protocol = asked(self.audit), self.audit.protocol
        return tuple(check for check in protocol.checks if check.name in shown or check in protocol.advisory)

    def index(self, named: Named) -> int:
        """The number by which the page's script knows a cell.

        Args:
            named: The cell.
        """
        return next(i for i, other in enumerate(self.cells) if other is named)

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each cell by the label that the tables give it."""
        return {named.judged.cell.label: i for i, named in enumerate(self.cells)}

    @property
    def claims(self) -> tuple[Named, ...]:
        """The cells with a verdict."""
        return tuple(named for named in self.cells if named.judged.verdict is not None)


def name_cells(audit: Audit) -> Names:
    """Name every cell of an audit.

    Args:
        audit: The audit.
    """
    keys = {id(cell): _experiment(cell.cell.spec) for cell in audit.cells}
    claims = Counter(keys[id(cell)] for cell in audit.claims)
    sizes = Counter(keys.values())
    # The experiment with most claims is read first.
    order = sorted(sizes, key=lambda key: (-claims[key], -sizes[key]))
    specs = [next(c.cell.spec for c in audit.cells if keys[id(c)] == key) for key in order]
    described = _distinct([_describe(spec) for spec in specs])
    groups = [f"{letter(i)}: {text}" for i, text in enumerate(described)] if len(order) > 1 else described
    found: list[Named] = []
    colours: dict[str, int] = {}  # a method has one colour in all experiments, and none that another of its own has
    for index, key in enumerate(order):
        members = sorted((c for c in audit.cells if keys[id(c)] == key), key=_reading_order)
        labels = _distinct([visible(label, keep="") for label in labels_of([cell.cell.spec for cell in members])])
        bases = dict.fromkeys(_base(cell.cell.spec) for cell in members)
        for base in bases:
            taken = {colours[other] for other in bases if other in colours}
            colours.setdefault(base, next(number for number in count() if number not in taken))
        for cell, label in zip(members, labels, strict=True):
            colour = colours[_base(cell.cell.spec)]
            dash = 2 if cell.verdict is None else 1 if cell.cell.spec.penalty else 0
            full = label if len(order) == 1 else f"{label} ({letter(index)})"
            named = replace(cell, cell=replace(cell.cell, label=full))
            found.append(Named(named, label, index, colour, dash))
    claims_first = sorted((named.judged for named in found), key=lambda judged: judged.verdict is None)
    return Names(tuple(found), tuple(groups), replace(audit, cells=tuple(claims_first)))


def letter(index: int) -> str:
    """A to Z, then A1 to Z1 and so on."""
    return chr(ord("A") + index % 26) + (str(index // 26) if index >= 26 else "")


def _experiment(spec: RunSpec) -> str:
    return digest(spec.model_dump(mode="json", exclude={*OF_THE_METHOD, *_OF_THE_RUN}))


def _describe(spec: RunSpec) -> str:
    parts = [spec.model or "model not stated"]
    if spec.depth:
        parts.append(f"{spec.depth} blocks" + (f" of width {spec.width}" if spec.width else ""))
    if spec.terminal_ln is False:
        parts.append("no terminal LN")
    parts.append(spec.data.name if spec.data else "data not stated")
    if spec.targets == "random":
        parts.append("random targets")
    if spec.epochs is not None:
        parts.append(f"{spec.epochs} epoch{'' if spec.epochs == 1 else 's'}")
    return visible(", ".join(parts), keep="")


def _distinct(labels: Sequence[str]) -> list[str]:
    """The labels, numbered where two are the same."""
    counts, seen = Counter(labels), Counter[str]()
    found = []
    for label in labels:
        seen[label] += 1
        found.append(label if counts[label] == 1 else f"{label} #{seen[label]}")
    return found


def _base(spec: RunSpec) -> str:
    """The method whose colour a cell has: a frozen twin shares its claim's."""
    return str(replace(spec.as_method, train_last="all", train_embedding=True))


def _reading_order(cell: JudgedCell) -> tuple[bool, int, str, float, str]:
    spec = cell.cell.spec
    known = RULES.names()
    rank = known.index(spec.rule) if spec.rule in known else len(known)
    return cell.verdict is None, rank, spec.credit_norm or "", spec.penalty or 0.0, spec.method
