"""AdamW over stacked runs: one fused call for the whole fleet, with a learning rate per segment of runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

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
    """

    start: int
    stop: int
    lr: float
    trained: frozenset[str]


class FleetAdamW:
    """torch's fused AdamW on views of the stacked parameters.

    AdamW is elementwise, so a stack of runs is one large tensor to it. What does not train is not handed to
    it: no update, no decay, no memory traffic.

    Args:
        params: Stacked parameters, first axis runs; updated in place.
        segments: Which runs share what.
        spec: The constants; the learning rate is each segment's own.
    """

    def __init__(self, params: Stack, segments: Iterable[Segment], spec: OptimiserSpec) -> None:
        self.first: Stack = {name: torch.zeros_like(p) for name, p in params.items()}
        self.second: Stack = {name: torch.zeros_like(p) for name, p in params.items()}
        self.spec = spec
        self.segments = tuple(segments)
        device = next(iter(params.values())).device
        # The fused kernel reads its learning rate as float32 on CUDA; elsewhere nothing need be rounded.
        exact = torch.float32 if device.type == "cuda" else torch.float64
        self._views: list[tuple[str, Segment, Tensor]] = []
        groups = []
        for segment in self.segments:
            views = [(name, segment, p[segment.start : segment.stop]) for name, p in params.items()]
            views = [view for view in views if view[0] in segment.trained]
            self._views += views
            groups.append(
                {"params": [p for _, _, p in views], "lr": torch.tensor(segment.lr, dtype=exact, device=device)}
            )
        self._optimiser = torch.optim.AdamW(
            groups,
            betas=spec.betas,
            eps=spec.eps,
            weight_decay=spec.weight_decay,
            fused=True,
            capturable=device.type == "cuda",
        )
        for name, segment, view in self._views:
            self._optimiser.state[view] = {
                "step": torch.zeros((), device=device),
                "exp_avg": self.first[name][segment.start : segment.stop],
                "exp_avg_sq": self.second[name][segment.start : segment.stop],
            }

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that a step changes besides the parameters."""
        counts = [self._optimiser.state[view]["step"] for _, _, view in self._views]
        return [*self.first.values(), *self.second.values(), *counts]

    @property
    def steps(self) -> Tensor:
        """Steps done."""
        steps: Tensor = self._optimiser.state[self._views[0][2]]["step"]
        return steps

    def schedule(self, factor: float) -> None:
        """Set every learning rate to its own base times a factor.

        Args:
            factor: From the schedule, 0..1.
        """
        for segment, group in zip(self.segments, self._optimiser.param_groups, strict=True):
            group["lr"].fill_(segment.lr * factor)

    def set_steps(self, steps: int) -> None:
        """Say how many steps were done, as after loading a checkpoint."""
        for _, _, view in self._views:
            self._optimiser.state[view]["step"].fill_(steps)

    def step(self, grads: Mapping[tuple[str, int], Tensor]) -> None:
        """One step of the segments that have gradients.

        Args:
            grads: By (parameter name, first run of the segment), stacked over the segment's runs.
        """
        for name, segment, view in self._views:
            grad = grads.get((name, segment.start))
            if grad is not None and grad.stride() != view.stride():
                # The fused kernels go through memory: what lies in another order would meet the wrong entries.
                grad = torch.empty_like(view).copy_(grad)
            view.grad = grad
        self._optimiser.step()
        for _, _, view in self._views:
            view.grad = None

    def last_update(self, name: str, run: int, lr: float) -> Tensor:
        """The last step of one run's parameter net of decay: −lr·m̂/(√v̂ + ε).

        Args:
            name: Parameter name.
            run: Index in the fleet.
            lr: Learning rate that was in force.
        """
        steps = float(self.steps)
        beta1, beta2 = self.spec.betas
        first: Tensor = self.first[name][run] / (1 - beta1**steps)
        second: Tensor = self.second[name][run] / (1 - beta2**steps)
        step: Tensor = first / (second.sqrt() + self.spec.eps) * -lr
        return step
