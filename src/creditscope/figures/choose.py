"""Which cells a penalty figure compares: one flavour of one rule, and for each role the cell most like it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from creditscope.figures.style import family
from creditscope.figures.table import Role
from creditscope.protocol.cells import Cell

CANONICAL_PENALTY = 1e-2
LIGHT_PENALTY = 1e-4

_AGREE = (
    "model",
    "architecture",
    "data",
    "depth",
    "width",
    "terminal_ln",
    "epochs",
    "targets",
    "view",
    "classes",
    "batch",
    "optimiser",
)


@dataclass(frozen=True)
class Flavour:
    """All cells of one rule and normalisation, by penalty.

    Args:
        name: Method name without penalty, for example ``dfa-rms``.
        rule: The credit rule.
        credit_norm: The normalisation, as logged.
    """

    name: str
    rule: str
    credit_norm: str | None


def penalty(cell: Cell) -> float:
    """λ of a cell; 0 without a penalty.

    Args:
        cell: The cell.
    """
    return cell.spec.penalty or 0.0


def trains_all(cell: Cell) -> bool:
    """Whether every block and the embedding train.

    Args:
        cell: The cell.
    """
    spec = cell.spec
    return spec.train_last in (None, "all", spec.depth) and spec.train_embedding is not False


def is_frozen(cell: Cell) -> bool:
    """Whether this is an ``@frozen`` baseline (embedding and head train, no block does).

    Args:
        cell: The cell.
    """
    return cell.spec.is_baseline and cell.spec.train_embedding is not False


def role_of(cell: Cell) -> Role:
    """Whether a cell is a baseline, a penalised run or neither.

    Args:
        cell: The cell.
    """
    return "baseline" if cell.spec.is_baseline else "penalised" if cell.spec.penalty else "claim"


def rank(cell: Cell) -> tuple[int, int, bool, str]:
    """Drawing order: claims before penalised runs before baselines; BP, FA, DFA, others; the normalised form first.

    Args:
        cell: The cell.
    """
    role = ("claim", "penalised", "baseline").index(role_of(cell))
    place = ("bp", "fa", "dfa", "other").index(family(cell.spec.rule))
    return role, place, cell.spec.credit_norm != "rms", cell.label


def choose_flavour(cells: Sequence[Cell]) -> Flavour | None:
    """The local rule whose penalised runs the logs hold most of; DFA and the normalised form first when equal.

    Args:
        cells: All cells.
    """
    flavours: dict[Flavour, list[Cell]] = {}
    for cell in cells:
        if trains_all(cell) and cell.spec.rule != "bp":
            flavours.setdefault(flavour_of(cell), []).append(cell)

    def weight(item: tuple[Flavour, list[Cell]]) -> tuple[int, bool, bool, int]:
        flavour, members = item
        penalised = len({penalty(cell) for cell in members if penalty(cell)})
        return penalised, flavour.rule == "dfa", flavour.credit_norm == "rms", len(members)

    return max(flavours.items(), key=weight)[0] if flavours else None


def flavour_of(cell: Cell) -> Flavour:
    """The rule and normalisation of a cell.

    Args:
        cell: The cell.
    """
    spec = cell.spec
    plain = spec.model_copy(update={"penalty": None, "train_last": "all", "train_embedding": True})
    return Flavour(plain.method, spec.rule, "rms" if spec.credit_norm == "rms" else None)


def nearest(cells: Iterable[Cell], like: Cell | None, wanted: Callable[[Cell], bool]) -> Cell | None:
    """Among the cells that are wanted, the one whose spec agrees best with another cell's; then the one with most runs.

    Args:
        cells: Candidates.
        like: The cell to agree with; None: only the number of runs counts.
        wanted: Which candidates count.
    """
    found = [cell for cell in cells if wanted(cell)]

    def likeness(cell: Cell) -> tuple[int, int]:
        return (0 if like is None else _agreement(cell, like)), len(cell.runs)

    return max(found, key=likeness) if found else None


def _agreement(cell: Cell, like: Cell) -> int:
    score = 0
    for name in _AGREE:
        mine, theirs = getattr(cell.spec, name), getattr(like.spec, name)
        if mine is not None and theirs is not None:
            score += 1 if mine == theirs else -1
    return score
