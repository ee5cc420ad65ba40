"""What was found out about a rule: layer by layer, as a card to paste."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from creditscope.records.table import Table

# What may reach a layer, from the fewest unknowns to the most; the word that the card prints.
KINDS: Mapping[str, str] = {
    "gradient": "the true gradient",
    "weight": "the next layer's signal, back through its own weight",
    "sign of weight": "the next layer's signal, back through the signs of its weight",
    "target": "the target through a matrix (or the sign of the error, which softmax makes the same)",
    "sign of error": "the sign of the error through a matrix",
    "error": "the error through a matrix",
    "transport": "the next layer's signal, back through another matrix",
    "next signal": "a later layer's signal through a matrix, without the derivative between them",
    "target, normalised": "the target through a matrix, each sample's signal divided by its size",
    "sign of error, normalised": "the sign of the error through a matrix, each sample's signal divided by its size",
    "error, normalised": "the error through a matrix, each sample's signal divided by its size",
    "leak": "a mixture: the true gradient leaks into a direct signal",
    "still": "nothing: this layer never moves",
    "unknown": "unknown: no explanation holds",
}


@dataclass(frozen=True)
class LayerIdentity:
    """One layer.

    Args:
        layer: Name of its module.
        kind: What reaches it, one of ``KINDS``.
        r2: Share of the signal that this predicts on samples held out; of the best explanation where none holds.
        gradient: The same for the true gradient alone.
        matrix: What the matrix on the way is like; empty where there is none.
        likeness: Cosine of that matrix with the weight (or with the gradient's own map); None where there is none.
        signs: Share of its entries with the sign of the weight's.
        moves: Whether that matrix is another one after some steps; None where there is none.
        bias: Whether the bias takes the same step as the weights; None where it has none.
        decay: Share of the weight that one step takes off; None where that cannot be told.
        guess: The best explanation, where none holds.
        only: Whether direct and transported signals are one and the same here, next to the output layer.
    """

    layer: str
    kind: str
    r2: float | None = None
    gradient: float | None = None
    matrix: str = ""
    likeness: float | None = None
    signs: float | None = None
    moves: bool | None = None
    bias: bool | None = None
    decay: float | None = None
    guess: str = ""
    only: bool = False


@dataclass(frozen=True)
class Identity:
    """Which rule a code really is, with the evidence.

    Args:
        name: What it is called.
        rule: In words; starts with ``unknown`` where it cannot be told.
        layers: Hidden layers in the order of the forward pass, then the output layer.
        output: Name of the output layer; None where none puts out what the model does.
        samples: On how many samples, half of them held out.
        steps: Steps between the two looks.
        left_out: Modules that were not looked into, and why.
    """

    name: str
    rule: str
    layers: tuple[LayerIdentity, ...]
    output: str | None
    samples: int
    steps: int
    left_out: Mapping[str, str]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """The card as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, sort_keys=True)

    def to_text(self, width: int | None = 100) -> str:
        """The card for a terminal.

        Args:
            width: Columns; None never wraps.
        """
        return "\n\n".join([f"{self.name}: {self.rule}", self._table().to_text(width), *self._notes()])

    def to_markdown(self) -> str:
        """The card in Markdown."""
        return "\n\n".join([f"### {self.name}: {self.rule}", self._table().to_markdown(), *self._notes()])

    def _repr_html_(self) -> str:
        return self._table().to_html()

    def _table(self) -> Table:
        rows = []
        for found in self.layers:
            what = KINDS[found.kind] + (f"; nearest: {KINDS[found.guess]}" if found.guess else "")
            rows.append(
                (
                    found.layer + (" (output)" if found.layer == self.output else ""),
                    what,
                    _number(found.r2),
                    _number(found.gradient),
                    "; ".join(filter(None, [found.matrix, _moves(found.moves)])) or "–",
                    "–" if found.bias is None else "yes" if found.bias else "no",
                    "–" if found.decay is None else f"{found.decay:.1e}" if found.decay else "none",
                )
            )
        columns = ("layer", "what reaches it", "R²", "R² of the gradient", "the matrix", "bias alike", "decay a step")
        return Table(columns, tuple(rows))

    def _notes(self) -> list[str]:
        said = [
            f"R² on {self.samples - self.samples // 2} samples held out of {self.samples}, one step on each; "
            f"the matrices looked at again after {self.steps} steps."
        ]
        if self.left_out:
            said.append("not looked into: " + "; ".join(f"{name} ({why})" for name, why in self.left_out.items()))
        return said


def named(hidden: Sequence[LayerIdentity], output: LayerIdentity | None) -> str:
    """The rule that the layers speak for together.

    Args:
        hidden: The hidden layers.
        output: The output layer.
    """
    if not hidden:
        return "unknown: no hidden layer could be looked into"
    moving = [layer for layer in hidden if layer.kind != "still"]
    still = [layer.layer for layer in hidden if layer.kind == "still"]
    if not moving:
        return "no hidden layer moves: only the readout is trained"
    tail = f"; never moves: {', '.join(still)}" if still else ""
    tail += "" if output is None or output.kind in ("gradient", "still") else "; the output layer is not trained on e"
    unknown = [layer for layer in moving if layer.kind == "unknown"]
    if unknown:
        return f"unknown: what reaches {', '.join(layer.layer for layer in unknown)} is not explained{tail}"
    return _of_kinds(moving) + tail


def _of_kinds(layers: Sequence[LayerIdentity]) -> str:
    normalised = any("normalised" in layer.kind for layer in layers)
    layers = [replace(layer, kind=layer.kind.removesuffix(", normalised")) for layer in layers]
    return _of_plain_kinds(layers) + (", normalised" if normalised else "")


def _of_plain_kinds(layers: Sequence[LayerIdentity]) -> str:
    kinds = {layer.kind for layer in layers}
    if "leak" in kinds:
        return "a direct rule with a leak of the true gradient"
    if kinds <= {"gradient", "weight"}:
        return "backprop" if kinds == {"gradient"} or "gradient" in kinds else "the weights' own transport of a signal"
    transported = [layer for layer in layers if layer.kind in ("transport", "sign of weight")]
    direct = [layer for layer in layers if layer.kind == "error" and not layer.only]
    if "target" in kinds:
        return "direct target projection (DRTP), or the sign of the error (sDFA): with softmax the two are one"
    if "sign of error" in kinds:
        return "direct feedback of the sign of the error (sDFA)"
    if "next signal" in kinds:
        return f"block feedback: a matrix for each block, without the derivative{_matrices(layers)}"
    if transported and direct:
        return f"both transported and direct feedback{_matrices(layers)}"
    if transported:
        signs = [
            layer for layer in transported if layer.kind == "sign of weight" or layer.matrix.startswith("the signs")
        ]
        head = "sign-symmetric feedback" if len(signs) == len(transported) else "feedback alignment"
        return head + _matrices(layers)
    if direct:
        return f"direct feedback alignment{_matrices(layers)}"
    return f"the error through a matrix, to the last hidden layer alone: fa and dfa are one here{_matrices(layers)}"


def _matrices(layers: Sequence[LayerIdentity]) -> str:
    moves = {layer.moves for layer in layers if layer.moves is not None}
    return (
        ""
        if not moves
        else ", matrices that move"
        if moves == {True}
        else (", fixed matrices" if moves == {False} else ", some matrices move")
    )


def _moves(moves: bool | None) -> str:
    return "" if moves is None else "moves between steps" if moves else "the same after the steps"


def _number(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.4f}"
