"""Credit adapters: what a method delivers at each state, for methods that are not ours.

An adapter is any object with ``deliver(task, params, batch)`` that returns c_0..c_L, one tensor a state, shaped like
the state, per sample and for the sum of the losses; None where the signal is not known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from creditscope.blocks import Batch, Blocks, CreditRule, LossFn, Params, RuleState, Step, Task
from creditscope.blocks.partition import hooks, state_of, with_state
from creditscope.errors import BadInput, NotMeasured, did_you_mean
from creditscope.rules.build import rule_named
from creditscope.scope.guard import current
from creditscope.scope.inputs import Inputs, as_given, call, told
from creditscope.scope.restore import plain_model, spared_gradients
from creditscope.scope.true_backward import TrueBlocks

Backward = Callable[[nn.Module, Any, Tensor], Any]


@runtime_checkable
class CreditAdapter(Protocol):
    """Says what a method delivers at each state."""

    def deliver(self, task: Task, params: Params, batch: Batch) -> Sequence[Tensor | None]:
        """Credit c_0..c_L per sample, None where it is not known.

        Args:
            task: The partitioned model, its per-sample loss and the shapes of its states.
            params: Parameters now; probes also ask in float64.
            batch: Probe samples.
        """


@dataclass(frozen=True)
class RuleCredit:
    """The credit of one of our rules with the feedback that the run used.

    Args:
        rule: The rule.
        feedback: Its matrices, by name.
    """

    rule: CreditRule
    feedback: RuleState

    def deliver(self, task: Task, params: Params, batch: Batch) -> Sequence[Tensor | None]:
        """What the rule delivers."""
        return self.rule.deliver(task, params, self.feedback, batch)

    def require_feedback(self, task: Task) -> None:
        """Refuse feedback that is not what the rule feeds back through.

        Args:
            task: The partitioned model.
        """
        params = {name: p.detach() for name, p in task.blocks.model.named_parameters()}
        drawn = self.rule.init(task, params, torch.Generator())
        wanted = {name: tuple(matrix.shape) for name, matrix in drawn.items()}
        got = {name: tuple(matrix.shape) for name, matrix in self.feedback.items()}
        odd = next((name for name in sorted({*wanted, *got}) if wanted.get(name) != got.get(name)), None)
        if odd is not None:
            asked = f"feedback {odd} of shape {wanted[odd]}" if odd in wanted else f"no feedback {odd}"
            raise BadInput(
                f"wanted {asked}, got {got.get(odd, 'none')}; the rule feeds back through "
                f"{', '.join(wanted) or 'no matrix'}: pass the run's own"
            )


def rule_credit(rule: str | CreditRule, feedback: Mapping[str, Tensor] | None = None) -> RuleCredit:
    """The credit of one of our rules.

    Args:
        rule: A rule, or its name: ``bp``, ``fa``, ``fa-block``, ``dfa``, ``dfa-rms``.
        feedback: The run's own matrices, e.g. ``{"B.0": ..., "B.1": ...}`` for dfa; none for bp.
    """
    if isinstance(rule, str):
        rule = rule_named(rule)
    return RuleCredit(rule, dict(feedback or {}))


@dataclass(frozen=True)
class BackwardCredit:
    """The signal that arrives at each state during the model's own backward pass, read by tensor hooks.

    Computed in the model's own dtype: it is what the run delivers, rounding included.

    Args:
        model: The model.
        backward: Runs forward and backward on (model, x, y) for a mean loss; None: the loss of the audit.
        feedback: Names of the feedback tensors, whose entries are shuffled for the null; none: no null.
        redraws: K of that null.
        held: Context in which the feedback that the backward pass uses stands in those tensors; None: it always does.
        unread: States whose signal is not what the block trains on: it substitutes another inside.
    """

    model: nn.Module
    backward: Backward | None = None
    feedback: tuple[str, ...] = ()
    redraws: int = 999
    held: Callable[[nn.Module], AbstractContextManager[None]] | None = None
    unread: tuple[int, ...] = ()

    def deliver(self, task: Task, params: Params, batch: Batch) -> Sequence[Tensor | None]:
        """One forward and one backward pass of the model itself."""
        asked = next(iter(params.values()))
        signals, _ = self.read(task, batch)
        return [None if c is None or level in self.unread else c.to(asked.dtype) for level, c in enumerate(signals)]

    def read(
        self, task: Task, batch: Batch, instead: Callable[[int, Tensor], Tensor] | None = None
    ) -> tuple[list[Tensor | None], dict[str, Tensor]]:
        """What arrives at each state in one pass, and what the same pass writes into ``.grad``.

        Args:
            task: The partitioned model.
            batch: The samples.
            instead: What goes on into the block in the place of what arrived at (state, gradient); None: the same.
        """
        own = next(self.model.parameters())
        x = batch.x.to(own.dtype) if batch.x.is_floating_point() else batch.x
        inputs = task.blocks.inputs(x) if isinstance(task.blocks, TrueBlocks) else x
        with spared_gradients(self.model), self.holding():
            signals = delivered_in_backward(task.blocks, task.loss, inputs, batch.y, self.backward, instead)
            written = {n: p.grad.detach().clone() for n, p in self.model.named_parameters() if p.grad is not None}
        return signals, written

    def holding(self) -> AbstractContextManager[None]:
        """The context ``held``, or none."""
        return nullcontext() if self.held is None else self.held(self.model)

    def tensors(self) -> list[Tensor]:
        """The feedback tensors themselves."""
        return [_tensor(self.model, name) for name in self.feedback]


def backward_credit(
    model: nn.Module, *, backward: Backward | None = None, feedback: Sequence[str] = (), redraws: int = 999
) -> BackwardCredit:
    """The credit of a method written as custom autograd functions, backward hooks or tensor hooks.

    Args:
        model: The model.
        backward: Your own forward and backward pass on (model, x, y), for a mean loss; None: loss.backward().
        feedback: Names of the fixed feedback tensors in the model (buffers, parameters or attributes) with independent
            entries: shuffling them gives the fresh-feedback null.
        redraws: How many shuffles.
    """
    if isinstance(feedback, str):
        raise BadInput(f"wanted a list of feedback names, got one string; pass feedback=[{feedback!r}]")
    credit = BackwardCredit(plain_model(model), backward, tuple(feedback), redraws)
    credit.tensors()
    return credit


def delivered_in_backward(
    blocks: Blocks,
    loss: LossFn,
    x: Inputs,
    y: Tensor,
    backward: Backward | None,
    instead: Callable[[int, Tensor], Tensor] | None = None,
) -> list[Tensor | None]:
    """Run a model's own backward and read the gradient that arrives at each state; None where none does.

    Each state goes on as a view of itself: a hook that the next block sets on what it is given has then done its work
    before the gradient is read.

    Args:
        blocks: The partitioned model.
        loss: Per-sample loss.
        x: Inputs.
        y: Targets.
        backward: The user's own pass; it is taken to use a mean loss.
        instead: What goes on into the block in the place of what arrived at (state, gradient); None: the same.
    """
    arrived: dict[int, Tensor] = {}

    def read(level: int, h: Tensor) -> Tensor:
        def keep(grad: Tensor) -> Tensor | None:
            arrived[level] = arrived[level] + grad if level in arrived else grad
            return None if instead is None else instead(level, grad)

        if h.requires_grad:
            h.register_hook(keep)  # type: ignore[no-untyped-call]
        return h.view_as(h)

    def leave(level: int) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(module: nn.Module, _: Any, output: Any) -> Any:
            handed = read(level, state_of(output))
            # A backward hook of the old kind sits on the last operation of the module, which would be ours.
            old = module._backward_hooks and not module._is_full_backward_hook
            return None if old else with_state(output, handed, detach=False)

        return hook

    def enter(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (read(0, state_of(args)), *args[1:])

    with hooks() as handles, torch.enable_grad():
        handles.append(blocks.modules[0].register_forward_pre_hook(enter))
        handles += [module.register_forward_hook(leave(level + 1)) for level, module in enumerate(blocks.modules)]
        run_backward(blocks.model, loss, x, y, backward)
    scale = 1 if backward is None else len(y)
    arrived = {level: grad.detach().movedim(blocks.batch_axis, 0) for level, grad in arrived.items()}
    return [arrived[level] * scale if level in arrived else None for level in range(blocks.depth + 1)]


def run_backward(model: nn.Module, loss: LossFn, x: Inputs, y: Tensor, backward: Backward | None) -> None:
    """The user's own forward and backward pass, or that of the summed loss.

    Args:
        model: The model.
        loss: Per-sample loss.
        x: Inputs.
        y: Targets.
        backward: The user's own.
    """
    with torch.enable_grad(), _undone():
        if backward is not None:
            with told("backward=... failed", "it is called as backward(model, x, y) on a part of the probe samples"):
                backward(model, as_given(x), y)
            return
        total = loss(call(model, x), y).sum()
        if not total.requires_grad:
            raise BadInput(
                "no gradient: the loss depends on no parameter that requires one; unfreeze what trains, or pass "
                "backward=..."
            )
        own = "pass backward=... that runs its own backward pass, or the credit adapter of its library"
        with told("loss.backward() fails on this model", own):
            total.backward()  # type: ignore[no-untyped-call]


@contextmanager
def _undone() -> Iterator[None]:
    """What a pass wrote into the model is undone after it: it may take the optimiser's step too."""
    try:
        yield
    finally:
        if (guard := current()) is not None:
            guard.put_back()


@dataclass(frozen=True)
class AdapterRule(CreditRule):
    """A user's adapter in the place of a rule: it delivers credit, and nothing else is known of it.

    Args:
        adapter: The adapter.
        states: Per state, whether its credit was seen to be the true gradient whatever the feedback.
    """

    adapter: CreditAdapter
    states: tuple[bool, ...]

    name = "adapter"
    family = "signal"
    formula = "as the adapter says"
    paper = "not stated"

    @property
    def injection(self) -> str:
        """Where the credit enters."""
        return f"as {type(self.adapter).__name__} says"

    def step(
        self, task: Task, params: Params, state: RuleState, batch: Batch, noise: Mapping[str, Tensor], phase: str
    ) -> Step:
        """An adapter writes no parameter gradients."""
        raise NotMeasured("parameter gradients: a credit adapter delivers signals, no parameter gradients")

    def deliver(self, task: Task, params: Params, state: RuleState, batch: Batch) -> tuple[Tensor, ...]:
        """The adapter's signals, each checked; NaN, which reads as not measured, where it knows none."""
        signals = self.adapter.deliver(task, params, batch)
        shapes = [(len(batch.x), *shape) for shape in task.shapes]
        if not isinstance(signals, (tuple, list)) or len(signals) != len(shapes):
            got = len(signals) if isinstance(signals, (tuple, list)) else type(signals).__name__
            raise BadInput(
                f"wanted credit for the {len(shapes)} states h_0..h_{len(shapes) - 1}, got {got}; "
                "return one tensor a state, None where it is not known"
            )
        like = next(iter(params.values()))
        return tuple(
            torch.full(shape, torch.nan, dtype=like.dtype, device=like.device)
            if signal is None
            else _checked(level, signal, shape).to(like)
            for level, (signal, shape) in enumerate(zip(signals, shapes, strict=True))
        )

    def exact(self, depth: int) -> tuple[bool, ...]:
        """Where it was seen to be."""
        return self.states


def _checked(level: int, signal: Any, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(signal, Tensor) or tuple(signal.shape) != shape:
        got = tuple(signal.shape) if isinstance(signal, Tensor) else type(signal).__name__
        raise BadInput(
            f"wanted credit of shape {shape} at state {level}, like the state, got {got}; "
            "deliver it per sample where it acts"
        )
    return signal.detach()


def _tensor(model: nn.Module, name: str) -> Tensor:
    path, _, leaf = name.rpartition(".")
    modules = dict(model.named_modules())
    found = getattr(modules.get(path), leaf, None)
    if not isinstance(found, Tensor):
        known = [n for n, _ in (*model.named_buffers(), *model.named_parameters())]
        raise BadInput(f"the model has no tensor {name!r} to take as feedback; {did_you_mean(name, known)}")
    return found
