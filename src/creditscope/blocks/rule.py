"""CreditRule: how a rule tells every block what to change. Written for one run; it knows nothing of runs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vjp

from creditscope.blocks.partition import Blocks, Params
from creditscope.records import FeedbackSpec

Feedback = dict[str, Tensor]
LossFn = Callable[[Tensor, Tensor], Tensor]


class Batch(NamedTuple):
    """Inputs and targets, first axis samples."""

    x: Tensor
    y: Tensor


class Spread(NamedTuple):
    """How one feedback matrix is drawn: independent N(0, sd²) entries.

    Args:
        shape: Its shape.
        sd: Standard deviation of an entry.
    """

    shape: tuple[int, ...]
    sd: float


class Credit(NamedTuple):
    """What a rule assigns on one batch.

    Args:
        loss: Task loss per sample, never with a penalty in it.
        grads: What the optimiser gets, by parameter name, for the mean over the batch.
    """

    loss: Tensor
    grads: dict[str, Tensor]


class Task(NamedTuple):
    """What is trained: the cut model, its loss, and the shape of one sample's state at every level.

    Args:
        blocks: The cut model.
        loss: Per-sample loss of (logits, targets).
        shapes: Shape of one sample's state, per level 0..L.
        outputs: Number of outputs C.
        input_shape: Shape of one input sample.
        buffers: The model's buffers by name.
        input_dtype: Dtype of inputs that are indices; None for numbers, which take the parameters' dtype.
    """

    blocks: Blocks
    loss: LossFn
    shapes: tuple[tuple[int, ...], ...]
    outputs: int
    input_shape: tuple[int, ...]
    buffers: dict[str, Tensor]
    input_dtype: torch.dtype | None = None

    @classmethod
    def of(cls, blocks: Blocks, loss: LossFn, x: Tensor) -> "Task":
        """Find shapes, outputs and skips by running the model.

        Args:
            blocks: The cut model.
            loss: Per-sample loss of (logits, targets).
            x: A few inputs.
        """
        buffers = dict(blocks.model.named_buffers())
        # A layer in training mode updates its buffers in place: it gets copies, to leave the model as found.
        copies = {name: buffer.clone() for name, buffer in buffers.items()}
        with torch.no_grad():
            seen = blocks.forward({**dict(blocks.model.named_parameters()), **copies}, x)
        shapes = tuple(tuple(h.shape[1:]) for h in seen.states)
        return cls(
            blocks.with_skips(x), loss, shapes, seen.logits.shape[-1], tuple(x.shape[1:]), buffers, _input_dtype(x)
        )

    def error(self, logits: Tensor, y: Tensor) -> Tensor:
        """The output error e = ∂ℓ_i/∂logits per sample (softmax − onehot for cross-entropy)."""
        return input_gradient(lambda z: self.loss(z, y), logits)


def _input_dtype(x: Tensor) -> torch.dtype | None:
    return None if x.is_floating_point() else x.dtype


class CreditRule(ABC):
    """A credit rule. Feedback is state passed in and handed back; nothing hides on the rule."""

    @property
    @abstractmethod
    def injection(self) -> str:
        """In words, where the credit enters; written into every log."""

    @property
    @abstractmethod
    def feedback_spec(self) -> FeedbackSpec:
        """How the feedback is drawn (without seed and hash)."""

    @abstractmethod
    def spreads(self, task: Task, params: Params) -> dict[str, Spread]:
        """Which matrices the rule feeds back through, and how wide each is drawn.

        Args:
            task: What is trained.
            params: Parameters at initialisation.
        """

    def init(self, task: Task, params: Params, generator: torch.Generator) -> Feedback:
        """Draw the fixed feedback: on the CPU and in float64, so the same on every device and in every dtype.

        Args:
            task: What is trained.
            params: Parameters at initialisation.
            generator: CPU generator of the run's feedback stream.
        """
        like = next(iter(params.values()))
        return {
            name: (torch.randn(shape, generator=generator, dtype=torch.float64) * sd).to(like)
            for name, (shape, sd) in self.spreads(task, params).items()
        }

    @abstractmethod
    def assign(self, task: Task, params: Params, feedback: Feedback, batch: Batch, penalty: Tensor | None) -> Credit:
        """The update signal of every parameter on one batch.

        Args:
            task: What is trained.
            params: Parameters now.
            feedback: As ``init`` drew it.
            batch: The batch.
            penalty: λ as a scalar tensor, or None where no run of this call has one.
        """

    @abstractmethod
    def deliver(self, task: Task, params: Params, feedback: Feedback, batch: Batch) -> tuple[Tensor, ...]:
        """The task credit c_0..c_L per sample, sum-reduced, at the states where it acts.

        Args:
            task: What is trained.
            params: Parameters now.
            feedback: As ``init`` drew it.
            batch: The batch.
        """

    def deliver_observed(
        self, task: Task, params: Params, feedback: Feedback, batch: Batch, top: Tensor, error: Tensor
    ) -> tuple[Tensor, ...]:
        """As ``deliver``, where a forward pass was seen already; a rule to which that says nothing makes its own.

        Args:
            task: What is trained.
            params: Parameters now.
            feedback: As ``init`` drew it.
            batch: The batch.
            top: h_L.
            error: e per sample.
        """
        return self.deliver(task, params, feedback, batch)

    @abstractmethod
    def exact(self, depth: int) -> tuple[bool, ...]:
        """Per state 0..L, whether the credit is the true gradient by construction.

        Args:
            depth: L.
        """


def input_gradient(function: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """Gradient of Σ_i function(value)_i with respect to value: per sample, sum-reduced."""
    out, pullback = vjp(function, value)  # type: ignore[misc]
    return pullback(torch.ones_like(out))[0]  # type: ignore[no-any-return]


def published_index(signals: Sequence[Tensor], exact: Sequence[bool]) -> tuple[Tensor, ...]:
    """The credit that the published cosine pairs with g_l: block l's, one block off; c_L at l = L.

    A rule that is exact at every state has no feedback to be off by: it is paired with itself.

    Args:
        signals: c_0..c_L.
        exact: Which are exact by construction.
    """
    if all(exact):
        return tuple(signals)
    return (*signals[1:], signals[-1])
