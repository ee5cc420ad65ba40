"""Fleet: many runs of equal shapes trained as one stack. Only this room knows the run axis.

Runs are ordered so that each rule is one neighbouring group (its frozen twins another where arithmetic is the bound),
mapped by one ``vmap``; λ, learning rates, masks and seeds differ freely inside it. Everything random is drawn outside,
per run, from named seed streams, so a run depends on its own seed alone: alone and in company its parameters agree over
20 steps to 1e-4 of their size in float32, where only the order of sums differs.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from creditscope.blocks import Batch, Blocks, Credit, Feedback, Snapshot, Task, observe
from creditscope.data.batches import normalise
from creditscope.data.dataset import Dataset
from creditscope.data.order import epoch_order
from creditscope.engine.cuda_streams import Lanes, Streams
from creditscope.engine.draws import Draws
from creditscope.engine.graph import Recorded, records
from creditscope.engine.groups import Group, build_groups, build_segments, fleet_order
from creditscope.engine.optim import FleetAdamW, Stack, last_update
from creditscope.engine.start import Factory, refuse_other_depth, seeded_model, stack_models
from creditscope.engine.state import FleetObservation, Scores, State
from creditscope.engine.step import (
    assign_one,
    cross_entropy,
    dtype_of,
    schedule_factor,
    trained_parameters,
    weight_matrices,
)
from creditscope.engine.traced import Traced
from creditscope.probes.functional.movement import movements
from creditscope.probes.per_epoch import SampleNumbers, Summary, sample_numbers, summarise
from creditscope.records import RunSpec
from creditscope.records.rows import Movement

EVAL_CHUNK = 500
# Steps of training from which on half a second a group for tracing is won back.
WORTH_TRACING = 200


class Fleet:
    """A stack of runs.

    Args:
        specs: Runs of one ``stack_key``; put into fleet order.
        data: The data set they share.
        factory: Builds a run's model; called under the run's own seed.
        device: Where the stack lives.
        fused: Whether the credit of each group is compiled; the same values, and seconds a group until it runs.
        traced: Whether it is traced, where training is long enough to win the time back.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        data: Dataset,
        factory: Factory,
        device: torch.device,
        fused: bool = False,
        traced: bool = True,
    ) -> None:
        self.specs = tuple(sorted(specs, key=fleet_order))
        self.spec = self.specs[0]
        self.device = device
        self.data = data.to(device)
        self.dtype = dtype_of(self.spec)
        self.draws = Draws(self.specs, self.data, fused)
        model = seeded_model(factory, self.spec, data).to(device, self.dtype)
        few = self._inputs(self.data.x_train[:2])
        self.task = Task.of(Blocks.of(model), cross_entropy, few)
        refuse_other_depth(self.task, self.spec)
        self.parts = self.task.blocks.parts(few)
        self.trained = tuple(trained_parameters(spec, self.task.blocks, self.parts) for spec in self.specs)
        self.params = stack_models(factory, self.specs, data, model)
        self.init: Stack = {name: p.clone() for name, p in self.params.items()}
        self.groups = tuple(build_groups(self.specs, self.task, self.params, self.trained))
        assert self.spec.optimiser is not None
        self.optimiser = FleetAdamW(self.params, build_segments(self.specs, self.trained), self.spec.optimiser)
        self.loss_sum = torch.zeros(len(self.specs), device=device, dtype=torch.float64)
        self.matrices = weight_matrices(self.task.blocks, self.parts)
        self.fused = fused
        assigners = [_assigner(group, self.task) for group in self.groups]
        traced = fused or (traced and self.planned_steps >= WORTH_TRACING)
        self._assign = [Traced(assign, compiled=fused) for assign in assigners] if traced else assigners
        self._lanes = Lanes(len(self.groups), device)
        # They are handed this fleet's methods at each call: a fleet that held them would outlive its last user.
        self._train: Recorded[None] = Recorded(device)
        self._evaluate: Recorded[Scores] = Recorded(device)
        self._summarise: Recorded[Summary] = Recorded(device)
        self._move: Recorded[Tensor] = Recorded(device)
        self.streams = Streams(device)
        self.streams.wait()

    @property
    def path(self) -> str:
        """How the steps are run: ``graph`` on CUDA, else ``stacked``; ``fused`` behind it where they are compiled."""
        return ("graph" if records(self.device) else "stacked") + (", fused" if self.fused else "")

    @property
    def state(self) -> State:
        """What training has made of the runs; the tensors are the fleet's own, and go on changing."""
        return State(self.params, self.optimiser.first, self.optimiser.second, self.optimiser.steps)

    def rewind(self) -> None:
        """Back to initialisation, as after a calibration."""
        with torch.no_grad():
            for name, p in self.params.items():
                p.copy_(self.init[name])
            for moment in (*self.optimiser.first.values(), *self.optimiser.second.values()):
                moment.zero_()
        self.optimiser.set_steps(0)
        self.streams.wait()

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in an epoch."""
        return self.draws.steps

    @property
    def planned_steps(self) -> int:
        """Optimiser steps of the whole training."""
        return self.steps_per_epoch * (self.spec.epochs or 0)

    def train_epoch(self, epoch: int, steps: int | None = None) -> Tensor:
        """Train every run for one epoch.

        Args:
            epoch: Which, counted from 1.
            steps: Steps to do; None: the whole epoch.

        Returns:
            Mean training loss of each run.
        """
        self.begin_epoch(epoch)
        count = self.steps_per_epoch if steps is None else min(steps, self.steps_per_epoch)
        for _ in range(count):
            self.step()
        return self.loss_sum / max(1, count)

    def begin_epoch(self, epoch: int) -> None:
        """Draw the batches of an epoch, set its learning rate, and begin to sum its loss.

        Args:
            epoch: Which, counted from 1.
        """
        assert self.spec.schedule is not None
        assert self.spec.epochs is not None
        self.draws.begin(epoch)
        self.optimiser.schedule(schedule_factor(self.spec.schedule, epoch, self.spec.epochs))
        self.loss_sum.zero_()

    def step(self) -> None:
        """One optimiser step of every run."""
        with self._precision(), torch.no_grad():
            self._train(self._step, self._live)

    def _live(self) -> list[Tensor]:
        return [*self.params.values(), *self.optimiser.tensors, self.loss_sum, self.draws.at]

    def _step(self) -> None:
        """As ``step``, free of host decisions so that a CUDA graph can hold it."""
        x, y = self.draws.next_batch()
        for at in range(len(self.groups)):
            with self._lanes.lane(at):
                self.optimiser.step(self.assign(at, x, y))
        self._lanes.join()

    def assign(self, at: int, x: Tensor, y: Tensor) -> dict[tuple[str, int], Tensor]:
        """The credit of a group's runs on their own batches; their loss is added to ``loss_sum``.

        Args:
            at: Which group.
            x: Inputs of all runs, first axis runs.
            y: Targets, likewise.

        Returns:
            Update signals by (parameter name, first run of the segment), as the optimiser takes them.
        """
        group = self.groups[at]
        runs = group.runs
        loss, grads = self._assign[at](self._params(runs), group.feedback, x[runs], y[runs])
        self.loss_sum[runs].add_(loss.mean(1))
        segments = [s for s in self.optimiser.segments if group.start <= s.start < group.stop]
        return {
            (name, s.start): grad[s.start - group.start : s.stop - group.start]
            for s in segments
            for name, grad in grads.items()
        }

    def evaluate(self) -> Scores:
        """Loss, accuracy and per-image correctness of every run on the test split."""
        with self._precision(), torch.no_grad():
            return self._evaluate(self._scores)

    def _scores(self) -> Scores:
        forward = vmap(self._logits, in_dims=(0, None))
        losses, hits = [], []
        labels = self.data.y_test
        for x, y in zip(*(torch.split(t, EVAL_CHUNK) for t in (self.data.x_test, labels)), strict=True):
            logits = forward(self.params, self._inputs(x))
            losses.append(cross_entropy(logits.flatten(0, 1).double(), y.repeat(len(logits))).view(len(logits), -1))
            hits.append(logits.argmax(-1) == y)
        correct = torch.cat(hits, 1)
        of_class = (labels[:, None] == torch.arange(self.data.classes, device=self.device)).double()
        size = of_class.sum(0)
        per_class = correct.double() @ of_class / size
        balanced = torch.where(size > 0, per_class, 0).sum(1) / (size > 0).sum()
        return Scores(torch.cat(losses, 1).mean(1), correct.double().mean(1), balanced, correct)

    def _logits(self, params: Stack, x: Tensor) -> Tensor:
        return self.task.blocks.forward({**self.task.buffers, **params}, x).logits

    def observe(self) -> FleetObservation:
        """The per-epoch numbers of every run; on a GPU they are asked for, and not waited for."""
        with torch.no_grad():
            return FleetObservation(self._summarise(self._summary), self._move(self._movements))

    def summaries(self, look: FleetObservation) -> list[Summary]:
        """Every run's own numbers of the probe data, on the CPU.

        Args:
            look: From ``observe``.
        """
        summary = _map(Tensor.cpu, look.summary)
        return [_map(itemgetter(run), summary) for run in range(len(self.specs))]

    def movements(self, look: FleetObservation) -> list[Movement]:
        """How far each weight matrix of the blocks moved from its start, run by run.

        Args:
            look: From ``observe``.
        """
        return [
            Movement(
                weights=dict(zip(self._names(), moved, strict=True)),
                blocks=self.matrices,
                trainable=[all(name in trained for name in block) for block in self.matrices],
            )
            for moved, trained in zip(look.moved.T.tolist(), self.trained, strict=True)
        ]

    def _summary(self) -> Summary:
        """The numbers of the probe data of every run; each group looks for itself, all are summed up together."""
        found: list[SampleNumbers] = []
        batches = self._probe()
        for lane, group in enumerate(self.groups):

            def look(params: Stack, feedback: Feedback, batch: Batch, group: Group = group) -> SampleNumbers:
                seen = observe(self.task, params, group.rule, feedback, batch)
                return sample_numbers(seen, self.spec.view or "flat", group.exact)

            with self._lanes.lane(lane):
                params = self._params(group.runs)
                found.append(
                    _joined([vmap(look, in_dims=(0, 0, None))(params, group.feedback, b) for b in batches], -1)
                )
        self._lanes.join()
        return summarise(_joined(found, 0))

    def _movements(self) -> Tensor:
        return torch.stack([movements(self.params[name], self.init[name]) for name in self._names()])

    def _names(self) -> list[str]:
        return [name for block in self.matrices for name in block]

    def snapshot(self, run: int, epoch: int, state: State | None = None) -> Snapshot:
        """One run as the probes see it.

        Args:
            run: Index in the fleet.
            epoch: Epochs done.
            state: A copy of the fleet's state at that epoch; None: as it is now.
        """
        state = state or self.state
        spec, group = self.specs[run], self.group_of(run)
        assert spec.probe is not None
        assert spec.batch is not None
        assert spec.seed is not None
        assert spec.view is not None
        n = spec.probe.n or 1024
        fit, test = 4 * n, 2 * n
        own = epoch_order(spec.seed, 1, len(self.data.x_train), spec.batch)[0].to(self.device)
        return Snapshot(
            task=self.task,
            params={name: p[run] for name, p in state.params.items()},
            init={name: p[run] for name, p in self.init.items()},
            rule=group.rule,
            feedback=self.feedback_of(run),
            probe=Batch(self._inputs(self.data.x_test[:n]), self.data.y_test[:n]),
            batch=self._probe_batch(),
            view=spec.view,
            seed=spec.seed,
            epoch=epoch,
            step=epoch * self.steps_per_epoch,
            trained=self.trained[run],
            train=Batch(self._inputs(self.data.x_train[own]), self.draws.targets[run][own]),
            update=self._last_update(run, epoch, state),
            fit=Batch(self._inputs(self.data.x_train[:fit]), self.data.y_train[:fit]),
            test=Batch(self._inputs(self.data.x_test[:test]), self.data.y_test[:test]),
        )

    def group_of(self, run: int) -> Group:
        """The group that holds a run."""
        return next(group for group in self.groups if group.start <= run < group.stop)

    def feedback_of(self, run: int) -> Feedback:
        """One run's own feedback."""
        group = self.group_of(run)
        return {name: f[run - group.start] for name, f in group.feedback.items()}

    def _last_update(self, run: int, epoch: int, state: State) -> dict[str, Tensor] | None:
        if epoch == 0:
            return None
        spec = self.specs[run]
        assert spec.optimiser is not None
        lr = spec.optimiser.lr * schedule_factor(spec.schedule or "constant", epoch, spec.epochs or epoch)
        steps = float(state.steps)
        return {
            name: last_update(state.first[name][run], state.second[name][run], steps, lr, spec.optimiser)
            for name in self.trained[run]
        }

    def _probe(self) -> list[Batch]:
        assert self.spec.probe is not None
        n = self.spec.probe.n or 1024
        x, y = self._inputs(self.data.x_test[:n]), self.data.y_test[:n]
        size = self._probe_batch()
        return [Batch(*pair) for pair in zip(torch.split(x, size), torch.split(y, size), strict=True)]

    def _probe_batch(self) -> int:
        """Samples are independent, so the batches are a matter of speed alone: a GPU takes them all at once."""
        assert self.spec.probe is not None
        return (self.spec.probe.n or 1024) if self.device.type == "cuda" else (self.spec.probe.batch or 128)

    def _inputs(self, x: Tensor) -> Tensor:
        return normalise(x, self.data.mean, self.data.std).to(self.dtype)

    def _params(self, runs: slice) -> Stack:
        return {name: p[runs] for name, p in self.params.items()}

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.spec.matmul == "tf32" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def _map(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A function of every tensor in nested named tuples."""
    if isinstance(value, Tensor):
        return function(value)
    return type(value)(*(_map(function, part) for part in value)) if isinstance(value, tuple) else value


def _joined(parts: Sequence[SampleNumbers], axis: int) -> SampleNumbers:
    return SampleNumbers(*(torch.cat(column, axis) for column in zip(*parts, strict=True)))


def _assigner(group: Group, task: Task) -> Callable[..., tuple[Tensor, Stack]]:
    """The credit of a group's runs as one function of stacked tensors; what trains in none of them is held fixed."""

    def one(params: Stack, feedback: Feedback, x: Tensor, y: Tensor, penalty: Tensor | None) -> Credit:
        moving = {name: p for name, p in params.items() if name in group.trained}
        fixed = {name: p for name, p in params.items() if name not in group.trained}
        held = task._replace(buffers={**task.buffers, **fixed})
        return assign_one(group.rule, held, moving, feedback, x, y, penalty)

    mapped = vmap(one, in_dims=(0, 0, 0, 0, None if group.penalty is None else 0))

    def assign(params: Stack, feedback: Feedback, x: Tensor, y: Tensor) -> tuple[Tensor, Stack]:
        credit = mapped(params, feedback, x, y, group.penalty)
        return credit.loss, credit.grads

    return assign
