"""Transport rules: the backward pass of backprop with another matrix in the place of each linear map's weight."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp

from creditscope.blocks import (
    Batch,
    CreditRule,
    FeedbackInit,
    FeedbackRule,
    Params,
    RuleState,
    Step,
    Task,
    penalty_gradient,
)
from creditscope.blocks.observe import zero_taps
from creditscope.blocks.partition import Blocks, hooks
from creditscope.errors import BadInput
from creditscope.records import FeedbackSpec
from creditscope.records.rule_card import Sketch
from creditscope.rules.linear_maps import linear_maps

LIKE_WEIGHTS = FeedbackSpec(dist="normal", scale="standard deviation of each weight at initialisation")


class TransportRule(CreditRule):
    """δ_in = δ_out·B in place of δ_out·W; a subclass says only which B.

    A carrier swaps the backward weight; the module stays unmodified. The map sees stopgrad(x), and an added term
    B(x − stopgrad x), of value zero, carries the error back (for a linear layer, without computing that zero).
    The head's own weights get their exact gradient; out_ln, below the head, does not.
    """

    family = "signal"
    penalty = "local"
    penalises = True

    @abstractmethod
    def matrices(
        self, task: Task, params: Params, state: RuleState, noise: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """``B.<module path>`` to the backward weight.

        Args:
            task: What is trained.
            params: The parameters that train.
            state: The rule's state now.
            noise: Fresh random numbers; empty where a probe asks for the credit.
        """

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """The gradient of the mean loss through the carriers; a penalty stays in its block, in a pass of its own."""
        plain = task._replace(penalty=None)

        def run(params: dict[str, Tensor]) -> tuple[Tensor, Mapping[str, Tensor]]:
            seen = plain.forward(params, batch.x)
            return seen.logits, seen.buffers

        with carriers(task.blocks, self.matrices(task, params, state, noise)):
            logits, pullback, buffers = vjp(run, dict(params), has_aux=True)  # type: ignore[misc]
            local = {} if task.penalty is None else penalty_gradient(task, params, batch)
        grads = pullback(task.error(logits, batch.y) / len(batch.x))[0]
        grads |= {name: grads[name] + grad for name, grad in local.items()}
        return Step(task.loss(logits, batch.y), grads, buffers=buffers)

    def deliver(self, task: Task, params: Params, state: RuleState, batch: Batch) -> tuple[Tensor, ...]:
        """What arrives at each state when the error is carried back."""

        def run(taps: dict[int, Tensor]) -> Tensor:
            return task.loss(task.forward(params, batch.x, taps=taps).logits, batch.y)

        with carriers(task.blocks, self.matrices(task, params, state, {})):
            loss, pullback = vjp(run, zero_taps(task, batch.x, params))  # type: ignore[misc]
        signals = pullback(torch.ones_like(loss))[0]
        return tuple(signals[level] for level in range(task.blocks.depth + 1))


class TransportFeedback(TransportRule, FeedbackRule):
    """A transport rule whose B is its state, drawn as wide as each weight at initialisation."""

    feedback_spec = LIKE_WEIGHTS

    def feedback_inits(self, task: Task, params: Params) -> dict[str, FeedbackInit]:
        """One matrix per linear map that has something trainable before it."""
        return drawn_like_weights(task, params)

    def matrices(
        self, task: Task, params: Params, state: RuleState, noise: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """The state."""
        return state


class LearnedFeedback(TransportFeedback):
    """A transport rule whose B starts as that of fa and learns to resemble W."""

    learns = True
    sketch = Sketch(text="learned backward weight in every linear map", route="chain", random=("head", "norm", "block"))
    injection = "gradient at the logits, back through a learned matrix per linear map, head included"


def weight_of(entry: str) -> str:
    """The parameter in whose place a feedback matrix stands.

    Args:
        entry: ``B.<module path>``.
    """
    return f"{entry.removeprefix('B.')}.weight"


def drawn_like_weights(task: Task, params: Params, exact_head: bool = False) -> dict[str, FeedbackInit]:
    """One normal matrix per linear map that something trainable precedes, of its weight's initial spread.

    Args:
        task: What is trained.
        params: Parameters at initialisation.
        exact_head: Whether the maps after the last block have none.
    """
    return {
        f"B.{name}": FeedbackInit(tuple(weight.shape), _standard_deviation(name, weight))
        for name, weight, after_blocks in linear_maps(task, params)
        if not (exact_head and after_blocks)
    }


def _standard_deviation(name: str, weight: Tensor) -> float:
    """The standard deviation of a weight; without one there is nothing to draw feedback like."""
    sd = float(weight.double().std())
    if not sd > 0:
        raise BadInput(
            f"fa cannot draw feedback like {name!r}: its {weight.numel()} initial weights have no positive standard "
            "deviation; start it at random values"
        )
    return sd


@contextmanager
def carriers(blocks: Blocks, feedback: Mapping[str, Tensor]) -> Iterator[None]:
    """While open, linear maps named in the feedback send their error back through it.

    Args:
        blocks: The partitioned model.
        feedback: ``B.<module path>`` to the backward weight.
    """

    def before(inputs: list[Tensor]) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            inputs.append(args[0])
            return (args[0].detach(), *args[1:])

        return hook

    def after(inputs: list[Tensor], matrix: Tensor) -> Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor]:
        def hook(module: nn.Module, _: tuple[Any, ...], output: Tensor) -> Tensor:
            x = inputs.pop()
            if isinstance(module, nn.Linear):
                return _Carrier.apply(output, x, matrix)  # type: ignore[no-untyped-call, no-any-return]
            return output + _apply(module, matrix, x - x.detach())

        return hook

    with hooks() as handles:
        for name, module in blocks.model.named_modules():
            matrix = feedback.get(f"B.{name}")
            if matrix is not None:
                inputs: list[Tensor] = []
                handles.append(module.register_forward_pre_hook(before(inputs)))
                handles.append(module.register_forward_hook(after(inputs, matrix)))
        yield


class _Carrier(torch.autograd.Function):
    """A linear layer's output as it is; the error goes back to the layer, and through B to its input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(output: Tensor, x: Tensor, matrix: Tensor) -> Tensor:
        return output.view_as(output)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor, Tensor, None]:
        (matrix,) = ctx.saved_tensors
        return error, error @ matrix, None


def _apply(module: nn.Module, matrix: Tensor, x: Tensor) -> Tensor:
    """The module's map with another weight and no bias."""
    weights = {"weight": matrix}
    bias = getattr(module, "bias", None)
    if bias is not None:
        weights["bias"] = matrix.new_zeros(bias.shape)
    # The hooks of the module are in force: forward() is called past them.
    bare = {f"module.{key}": value for key, value in weights.items()}
    return functional_call(_Bare(module), bare, (x,))  # type: ignore[no-any-return]


class _Bare(nn.Module):
    """Calls a module's forward without its hooks."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module.forward(x)  # type: ignore[no-any-return]
