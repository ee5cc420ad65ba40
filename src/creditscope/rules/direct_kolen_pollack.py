"""Direct Kolen–Pollack: direct feedback whose matrices learn from the error and the state that they serve."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import Tensor

from creditscope.blocks import Batch, RuleState
from creditscope.records.rule_card import Sketch
from creditscope.rules.direct_rule import EMBEDDING, DirectRule


@dataclass(frozen=True)
class DirectKolenPollack(DirectRule):
    """dfa with B_l trained: its gradient is the batch mean of eᵀ·h_{l+1}, as a readout of that state would have.

    B has the optimiser and the decoupled decay of the weights. Where one error serves a sequence of tokens, h is their
    mean.
    """

    name = "dkp"
    formula = "c_{l+1} = e·B_l, c_0 = e·B_0; B_l gets the gradient eᵀ·h_{l+1}"
    paper = "Webster, Choi & Ahn 2021"
    injection = "e·B_l at the output of block l, e·B_0 at the embedding, B learned; every token alike"
    learns = True
    sketch = Sketch(text="error times a learned matrix, straight to each block", route="direct")

    def sent(self, error: Tensor, batch: Batch) -> Tensor:
        """e."""
        return error

    def trained(self, state: RuleState, params: Collection[str]) -> frozenset[str]:
        """Every matrix."""
        return frozenset(state)

    def state_gradients(self, state: RuleState, error: Tensor, states: Sequence[Tensor]) -> dict[str, Tensor]:
        """The batch mean of eᵀ·h for each matrix."""
        served = {f"B.{level}": h for level, h in enumerate(states[1:])} | {EMBEDDING: states[0]}
        return {name: _outer(error, served[name]).reshape(b.shape) / len(error) for name, b in state.items()}


def _outer(error: Tensor, h: Tensor) -> Tensor:
    """Σ eᵀ·h over samples, and over tokens where each has an error of its own."""
    if error.ndim == 3:
        return error.flatten(0, 1).T @ h.flatten(0, 1)
    return error.T @ (h.mean(1) if h.ndim == 3 else h.flatten(1))
