"""Task: the partitioned model with its loss, as a rule and a probe see it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vjp

from creditscope.blocks.partition import Blocks, Params, Pass

LossFn = Callable[[Tensor, Tensor], Tensor]


class Batch(NamedTuple):
    """Inputs and targets, first axis samples."""

    x: Tensor
    y: Tensor


class Task(NamedTuple):
    """What is trained: the partitioned model, its loss, and the shape of one sample's state at every level.

    Args:
        blocks: The partitioned model.
        loss: Per-sample loss of (logits, targets).
        shapes: Shape of one sample's state, per level 0..L.
        outputs: Number of outputs C.
        input_shape: Shape of one input sample.
        buffers: The model's buffers by name, as they are now.
        input_dtype: Dtype of inputs that are indices; None for numbers, which take the parameters' dtype.
        fixed: Parameters that do not train here, by name; no gradient is formed for them.
        penalty: λ of the penalty λ·‖f_l‖² whose gradient every backward pass adds at each branch; None: no penalty.
        normalise: Whether a rule that sends each block a signal divides it by its root mean square, per sample.
        phase: Which kind of step comes next, for whoever asks a rule for its credit; a step is told its own.
    """

    blocks: Blocks
    loss: LossFn
    shapes: tuple[tuple[int, ...], ...]
    outputs: int
    input_shape: tuple[int, ...]
    buffers: Mapping[str, Tensor]
    input_dtype: torch.dtype | None = None
    fixed: Params = MappingProxyType({})
    penalty: Tensor | None = None
    normalise: bool = False
    phase: str = ""

    @classmethod
    def of(cls, blocks: Blocks, loss: LossFn, x: Tensor) -> "Task":
        """Find shapes, outputs and skips by running the model.

        Args:
            blocks: The partitioned model.
            loss: Per-sample loss of (logits, targets).
            x: A few inputs.
        """
        buffers = dict(blocks.model.named_buffers())
        # A layer in training mode updates its buffers in place: it gets copies, so that the model stays as it was.
        copies = {name: buffer.clone() for name, buffer in buffers.items()}
        with torch.no_grad():
            seen = blocks.forward({**dict(blocks.model.named_parameters()), **copies}, x)
        shapes = tuple(tuple(h.shape[1:]) for h in seen.states)
        indices = None if x.is_floating_point() else x.dtype
        outputs = seen.logits.shape[-1] if seen.logits.ndim > 1 else 1
        return cls(blocks.with_skips(x), loss, shapes, outputs, tuple(x.shape[1:]), buffers, indices)

    def forward(
        self, params: Params, x: Tensor, *, taps: Mapping[int, Tensor] | None = None, detach: bool = False
    ) -> Pass:
        """A forward pass, observed at the block boundaries; the buffers that it changed are only in the result.

        Args:
            params: The parameters that train.
            x: Inputs.
            taps: Added to state l as it goes on; differentiating by a zero tap gives the gradient at the state.
            detach: Whether each state is detached as it goes on, so that gradients stay inside one block.
        """
        buffers = {name: buffer.clone() for name, buffer in self.buffers.items()}
        full = {**buffers, **self.fixed, **params}
        seen = self.blocks.forward(full, x, taps=taps, detach=detach, penalty=self.penalty)
        return seen._replace(buffers=buffers)

    def tail(self, params: Params, level: int, h: Tensor, x: Tensor) -> Tensor:
        """The output of the rest of the network from state ``level`` on.

        Args:
            params: The parameters that train.
            level: Which state h is.
            h: The state, first axis samples.
            x: Inputs; the first feeds the part that is thrown away.
        """
        buffers = {name: buffer.clone() for name, buffer in self.buffers.items()}
        return self.blocks.tail({**buffers, **self.fixed, **params}, level, h, x)

    def apart(self, params: Params, inputs: Mapping[int, Tensor], x: Tensor) -> Pass:
        """A forward pass in which parts get inputs of their own; ``states`` holds what comes out of each.

        Args:
            params: The parameters that train.
            inputs: What goes on in the place of state l: into block l, or for l = L into the readout.
            x: What goes into the embedding; one sample where nobody asks what becomes of it.
        """
        buffers = {name: buffer.clone() for name, buffer in self.buffers.items()}
        return self.blocks.forward({**buffers, **self.fixed, **params}, x, replace=inputs)

    def error(self, logits: Tensor, y: Tensor) -> Tensor:
        """The output error e = ∂ℓ_i/∂logits per sample (softmax − onehot for cross-entropy)."""
        return input_gradient(lambda z: self.loss(z, y), logits, self.blocks)

    def top_gradient(self, params: Params, top: Tensor, batch: Batch) -> Tensor:
        """g_L per sample: the exact gradient at the last state, through what follows the last block alone.

        Args:
            params: The parameters that train.
            top: h_L.
            batch: The batch.
        """
        depth = self.blocks.depth
        return input_gradient(
            lambda h: self.loss(self.tail(params, depth, h, batch.x), batch.y), top.detach(), self.blocks
        )


def input_gradient(function: Callable[[Tensor], Tensor], value: Tensor, blocks: Blocks | None = None) -> Tensor:
    """Gradient of Σ_i function(value)_i with respect to value: per sample, sum-reduced; zero where it has none.

    Args:
        function: Of the value; may run the model.
        value: Where.
        blocks: The model that it runs; None: it runs none.
    """
    out, pullback = (vjp if blocks is None else blocks.vjp)(function, value)
    found = pullback(torch.ones_like(out))[0]
    return torch.zeros_like(value) if found is None else found


def penalty_gradient(task: Task, params: Params, batch: Batch) -> dict[str, Tensor]:
    """The gradient of the task's penalty, each block's inside the block alone.

    Args:
        task: What is trained, with a penalty.
        params: The parameters that train.
        batch: The batch.
    """
    states, pullback = vjp(lambda p: task.forward(p, batch.x, detach=True).states[1:], dict(params))  # type: ignore[misc]
    return pullback(tuple(map(torch.zeros_like, states)))[0]  # type: ignore[no-any-return]
