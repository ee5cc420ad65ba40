"""Optimisers over stacked runs: a few calls for the whole fleet, with a learning rate per segment of runs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from creditscope.records import OptimiserSpec

Stack = dict[str, Tensor]


@dataclass(frozen=True)
class Segment:
    """Neighbouring runs of a fleet that share a learning rate and the set of trained parameters.

    Args:
        start: First run.
        stop: One past the last.
        lr: Learning rate before the schedule.
        trained: Names of the parameters that train.
        state: Entries of the rule's state that train with them, of these runs alone.
        state_first: Their first moments.
        state_second: Their second moments, where the optimiser has such.
    """

    start: int
    stop: int
    lr: float
    trained: frozenset[str]
    state: Stack = field(default_factory=dict)
    state_first: Stack = field(default_factory=dict)
    state_second: Stack = field(default_factory=dict)


class _Part(NamedTuple):
    """What one segment passes to a step, each list in the order of ``names``; the tensors are views of the stack.

    Args:
        names: Names of the parameters that train.
        params: The parameters.
        first: First moments.
        second: Second moments, where the optimiser has such.
        steps: How many steps each has done.
        lr: The learning rate now.
    """

    names: list[str]
    params: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]
    lr: Tensor

    def only(self, chosen: Sequence[bool]) -> "_Part":
        """Some of its tensors, the same ones.

        Args:
            chosen: For each name, whether it is wanted.
        """
        return _Part(
            list(compress(self.names, chosen)),
            list(compress(self.params, chosen)),
            list(compress(self.first, chosen)),
            list(compress(self.second, chosen)),
            list(compress(self.steps, chosen)),
            self.lr,
        )


class FleetOptimiser(ABC):
    """An optimiser over views of the stacked parameters.

    It is elementwise, so a stack of runs is one large tensor to it. What does not train is not passed to it: no
    update, no decay, no memory traffic.

    Args:
        params: Stacked parameters, first axis runs; updated in place.
        segments: Which runs share what.
        spec: The constants; the learning rate is each segment's own.
    """

    def __init__(self, params: Stack, segments: Iterable[Segment], spec: OptimiserSpec) -> None:
        self.first: Stack = {name: torch.zeros_like(p) for name, p in params.items()}
        kept = params if moments_of(spec) == 2 else {}
        self.second: Stack = {name: torch.zeros_like(p) for name, p in kept.items()}
        self.spec = spec
        self.segments = tuple(segments)
        self._parts = [self._part(params, segment) for segment in self.segments]

    def _part(self, params: Stack, segment: Segment) -> _Part:
        names = [name for name in params if name in segment.trained]
        device = next(iter(params.values())).device
        # The fused kernel reads its learning rate as float32 on CUDA; elsewhere it is not rounded.
        exact = torch.float32 if device.type == "cuda" else torch.float64
        own, first, second = (
            [*(stack[name][segment.start : segment.stop] for name in names if name in stack), *state.values()]
            for stack, state in (
                (params, segment.state),
                (self.first, segment.state_first),
                (self.second, segment.state_second),
            )
        )
        names += segment.state
        steps = [torch.zeros((), device=device) for _ in names]
        return _Part(names, own, first, second, steps, torch.tensor(segment.lr, dtype=exact, device=device))

    @abstractmethod
    def _take(self, part: _Part, grads: list[Tensor]) -> None:
        """One step of a segment, in place.

        Args:
            part: Its tensors.
            grads: In the order of its names.
        """

    @abstractmethod
    def last_update(self, moments: Sequence[Tensor], steps: float, lr: float) -> Tensor:
        """The last step of a parameter net of decay.

        Args:
            moments: Its moments after that step, the first and, where there is one, the second.
            steps: Steps done.
            lr: Learning rate that was in force.
        """

    @property
    def tensors(self) -> list[Tensor]:
        """Everything of its own that a step changes."""
        return [*self.first.values(), *self.second.values(), *(count for part in self._parts for count in part.steps)]

    @property
    def steps(self) -> Tensor:
        """Steps that the parameters of each run took; fewer than were done where a rule rests on some batches."""
        counts = [part.steps[0].expand(s.stop - s.start) for s, part in zip(self.segments, self._parts, strict=True)]
        return torch.cat(counts)

    def schedule(self, factor: float) -> None:
        """Set every learning rate to its own base times a factor.

        Args:
            factor: From the schedule, 0..1.
        """
        for segment, part in zip(self.segments, self._parts, strict=True):
            part.lr.fill_(segment.lr * factor)

    def set_steps(self, taken: Callable[[Segment], tuple[int, int]]) -> None:
        """Say how many steps were done, as after loading a checkpoint.

        Args:
            taken: Of a segment, how many its parameters took, and how many the entries of its rule's state.
        """
        for segment, part in zip(self.segments, self._parts, strict=True):
            of_weights, of_state = taken(segment)
            for name, count in zip(part.names, part.steps, strict=True):
                count.fill_(of_state if name in segment.state else of_weights)

    def shrink(self, segment: Segment, decay: Mapping[str, Tensor]) -> None:
        """Decoupled decay on top of the optimiser's own: each tensor times 1 − learning rate·decay.

        Args:
            segment: Which runs.
            decay: By name, one number a run.
        """
        part = self._parts[self.segments.index(segment)]
        for name, p in zip(part.names, part.params, strict=True):
            if name in decay:
                kept = 1 - part.lr.to(decay[name].dtype) * decay[name]
                p.mul_(kept.view(-1, *[1] * (p.ndim - 1)))

    def step(self, grads: Mapping[tuple[str, int], Tensor]) -> None:
        """One step of everything that has a gradient; the rest keeps its moments and its count of steps.

        Args:
            grads: By (name of a parameter or trained entry, first run of the segment), stacked over its runs.
        """
        for segment, part in zip(self.segments, self._parts, strict=True):
            given = [(name, segment.start) in grads for name in part.names]
            if not any(given):
                continue
            moving = part if all(given) else part.only(given)
            pairs = zip(moving.names, moving.params, strict=True)
            self._take(moving, [_laid_like(p, grads[name, segment.start]) for name, p in pairs])


class FleetAdamW(FleetOptimiser):
    """torch's fused AdamW."""

    def _take(self, part: _Part, grads: list[Tensor]) -> None:
        beta1, beta2 = self.spec.betas
        adamw(
            part.params,
            grads,
            part.first,
            part.second,
            [],
            part.steps,
            fused=True,
            capturable=part.lr.is_cuda,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=part.lr,
            weight_decay=self.spec.weight_decay,
            eps=self.spec.eps,
            maximize=False,
        )

    def last_update(self, moments: Sequence[Tensor], steps: float, lr: float) -> Tensor:
        """−lr·m̂/(√v̂ + ε)."""
        (first, second), (beta1, beta2) = moments, self.spec.betas
        mean: Tensor = first / (1 - beta1**steps)
        square: Tensor = second / (1 - beta2**steps)
        step: Tensor = mean / (square.sqrt() + self.spec.eps) * -lr
        return step


class FleetSGD(FleetOptimiser):
    """SGD with momentum and decoupled decay: m ← μ·m + g, θ ← (1 − ηλ)·θ − η·m.

    The decay stays out of the momentum, as in AdamW; without momentum that is torch's SGD with its decay.
    """

    def _take(self, part: _Part, grads: list[Tensor]) -> None:
        torch._foreach_mul_(part.first, self.spec.momentum or 0.0)
        torch._foreach_add_(part.first, grads)
        torch._foreach_mul_(part.params, 1 - part.lr * self.spec.weight_decay)
        # One factor for each parameter: a scaled copy of the moments would take as much memory as they do.
        torch._foreach_addcmul_(part.params, part.first, [-part.lr] * len(part.params))
        torch._foreach_add_(part.steps, 1)

    def last_update(self, moments: Sequence[Tensor], steps: float, lr: float) -> Tensor:
        """−lr·m."""
        (first,) = moments
        return first * -lr


OPTIMISERS: dict[str, type[FleetOptimiser]] = {"adamw": FleetAdamW, "sgd": FleetSGD}


def moments_of(spec: OptimiserSpec) -> int:
    """How many moments an optimiser keeps of each parameter."""
    return 1 if spec.name == "sgd" else 2


def _laid_like(p: Tensor, grad: Tensor) -> Tensor:
    """A gradient in its parameter's order in memory: fused kernels would meet the wrong entries in another one."""
    return grad if grad.stride() == p.stride() else torch.empty_like(p).copy_(grad)
