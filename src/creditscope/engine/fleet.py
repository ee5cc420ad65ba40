"""Fleet: many runs of equal shapes trained as one stack. Only this room knows the run axis.

Runs are ordered so that each rule is one neighbouring group, mapped by one ``vmap``; λ, learning rates, masks
and seeds differ freely inside it. Everything random is drawn outside, per run, from named seed streams.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import vmap

from creditscope.blocks import Batch, Blocks, CreditRule, Feedback, Snapshot, Task, observe
from creditscope.data.batches import augment, normalise, pad_images
from creditscope.data.dataset import Dataset
from creditscope.data.order import epoch_crops, epoch_order, random_targets, stream
from creditscope.engine.optim import FleetAdamW, Segment, Stack
from creditscope.engine.step import assign_one, cross_entropy, dtype_of, schedule_factor, trained_parameters
from creditscope.errors import BadInput
from creditscope.probes.cheap import SampleNumbers, sample_numbers
from creditscope.records import RunSpec
from creditscope.rules import build_rule

Factory = Callable[[RunSpec, Dataset], nn.Module]
EVAL_CHUNK = 500


@dataclass(frozen=True)
class Group:
    """Neighbouring runs with one rule.

    Args:
        rule: The rule.
        start: First run.
        stop: One past the last.
        feedback: Stacked over the group's runs.
        penalty: λ per run, or None where no run has one.
        exact: Per state, whether the credit is exact by construction.
    """

    rule: CreditRule
    start: int
    stop: int
    feedback: Feedback
    penalty: Tensor | None
    exact: tuple[bool, ...]


class Scores(NamedTuple):
    """Test results, one entry per run.

    Args:
        loss: Mean test loss, in nats.
        correct: Per-image correctness, (runs, images).
    """

    loss: Tensor
    correct: Tensor


class Fleet:
    """A stack of runs.

    Args:
        specs: Runs of one ``stack_key``; put into fleet order.
        data: The data set they share.
        factory: Builds a run's model; called under the run's own seed.
        device: Where the stack lives.
    """

    def __init__(self, specs: Sequence[RunSpec], data: Dataset, factory: Factory, device: torch.device) -> None:
        self.specs = tuple(sorted(specs, key=_fleet_order))
        self.spec = self.specs[0]
        self.device = device
        self.data = data.to(device)
        self.dtype = dtype_of(self.spec)
        model = _seeded_model(factory, self.spec, data).to(device, self.dtype)
        _refuse_stateful(model)
        self.task = Task.of(Blocks.of(model), cross_entropy, self._inputs(self.data.x_train[:2]))
        self.parts = self.task.blocks.parts(self._inputs(self.data.x_train[:2]))
        self.params = self._stack_init(factory, data)
        self.init: Stack = {name: p.clone() for name, p in self.params.items()}
        self.trained = tuple(trained_parameters(spec, self.parts) for spec in self.specs)
        self.groups = tuple(self._groups())
        assert self.spec.optimiser is not None
        self.optimiser = FleetAdamW(self.params, self._segments(), self.spec.optimiser)
        self.targets = self._targets()
        augmented = self.spec.augment == "crop4+flip"
        self.images = pad_images(self.data.x_train, self.data.mean) if augmented else self.data.x_train
        self.loss_sum = torch.zeros(len(self.specs), device=device, dtype=torch.float64)
        self.at = torch.zeros(1, device=device, dtype=torch.int64)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._draws(epoch=1)

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in an epoch; the last short batch is dropped."""
        assert self.spec.batch is not None
        return len(self.data.x_train) // self.spec.batch

    def train_epoch(self, epoch: int, on_step: Callable[[], None] = lambda: None, steps: int | None = None) -> Tensor:
        """Train every run for one epoch.

        Args:
            epoch: Which, counted from 1.
            on_step: Called after every step.
            steps: Steps to do; None: the whole epoch.

        Returns:
            Mean training loss of each run.
        """
        assert self.spec.schedule is not None
        assert self.spec.epochs is not None
        with self._precision(), torch.no_grad():
            self._draws(epoch)
            self.optimiser.schedule(schedule_factor(self.spec.schedule, epoch, self.spec.epochs))
            step = self._step
            if self.device.type == "cuda":
                self._graph = self._graph or self._capture()
                step = self._graph.replay
            self.loss_sum.zero_()
            self.at.zero_()
            count = self.steps_per_epoch if steps is None else min(steps, self.steps_per_epoch)
            for _ in range(count):
                step()
                on_step()
        return self.loss_sum / count

    def _step(self) -> None:
        """One optimiser step of every run, free of host decisions so that a CUDA graph can hold it."""
        index = self.order.index_select(1, self.at)[:, 0]
        x = self.images[index]
        if self.spec.augment == "crop4+flip":
            down, right, flip = (draw.index_select(1, self.at)[:, 0] for draw in self.crops)
            x = augment(x, down, right, flip)
        x = self._inputs(x)
        y = self.targets.gather(1, index) if self.targets.ndim == 2 else self.targets[index]
        grads: dict[tuple[str, int], Tensor] = {}
        for group in self.groups:
            runs = slice(group.start, group.stop)
            one = partial(assign_one, group.rule, self.task)
            dims = (0, 0, 0, 0, None if group.penalty is None else 0)
            credit = vmap(one, in_dims=dims)(self._params(runs), group.feedback, x[runs], y[runs], group.penalty)
            self.loss_sum[runs] += credit.loss.mean(1)
            for segment in self.optimiser.segments:
                if group.start <= segment.start < group.stop:
                    part = slice(segment.start - group.start, segment.stop - group.start)
                    grads |= {(name, segment.start): grad[part] for name, grad in credit.grads.items()}
        self.optimiser.step(grads)
        self.at += 1

    def evaluate(self) -> Scores:
        """Loss and per-image correctness of every run on the test split."""
        forward = vmap(self._logits, in_dims=(0, None))
        losses, correct = [], []
        with self._precision(), torch.no_grad():
            pairs = zip(*(torch.split(t, EVAL_CHUNK) for t in (self.data.x_test, self.data.y_test)), strict=True)
            for x, y in pairs:
                logits = forward(self.params, self._inputs(x))
                losses.append(cross_entropy(logits.flatten(0, 1).double(), y.repeat(len(logits))).view(len(logits), -1))
                correct.append(logits.argmax(-1) == y)
        return Scores(torch.cat(losses, 1).mean(1), torch.cat(correct, 1))

    def _logits(self, params: Stack, x: Tensor) -> Tensor:
        return self.task.blocks.forward({**self.task.buffers, **params}, x).logits

    def numbers(self) -> list[SampleNumbers]:
        """Every run's per-sample numbers on the probe data."""
        runs: list[SampleNumbers] = []
        assert self.spec.view is not None
        with torch.no_grad():
            for group in self.groups:

                def look(params: Stack, feedback: Feedback, batch: Batch, group: Group = group) -> SampleNumbers:
                    seen = observe(self.task, params, group.rule, feedback, batch)
                    return sample_numbers(seen, self.spec.view or "flat", group.exact)

                params = self._params(slice(group.start, group.stop))
                parts = [vmap(look, in_dims=(0, 0, None))(params, group.feedback, batch) for batch in self._probe()]
                joined = SampleNumbers(*(torch.cat(column, -1).cpu() for column in zip(*parts, strict=True)))
                runs += [SampleNumbers(*(column[i] for column in joined)) for i in range(group.stop - group.start)]
        return runs

    def snapshot(self, run: int, epoch: int) -> Snapshot:
        """One run as the probes see it.

        Args:
            run: Index in the fleet.
            epoch: Epochs done.
        """
        spec, group = self.specs[run], self.group_of(run)
        assert spec.probe is not None
        assert spec.batch is not None
        assert spec.seed is not None
        assert spec.view is not None
        inside = run - group.start
        n = spec.probe.n or 1024
        fit, test = 4 * n, 2 * n
        own = epoch_order(spec.seed, 1, len(self.data.x_train), spec.batch)[0].to(self.device)
        return Snapshot(
            task=self.task,
            params={name: p[run] for name, p in self.params.items()},
            init={name: p[run] for name, p in self.init.items()},
            rule=group.rule,
            feedback={name: f[inside] for name, f in group.feedback.items()},
            probe=Batch(self._inputs(self.data.x_test[:n]), self.data.y_test[:n]),
            batch=spec.probe.batch or 128,
            view=spec.view,
            seed=spec.seed,
            epoch=epoch,
            step=epoch * self.steps_per_epoch,
            trained=self.trained[run],
            train=Batch(self._inputs(self.data.x_train[own]), self.data.y_train[own]),
            update=self._last_update(run, epoch),
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

    def _last_update(self, run: int, epoch: int) -> dict[str, Tensor] | None:
        if epoch == 0:
            return None
        spec = self.specs[run]
        assert spec.optimiser is not None
        lr = spec.optimiser.lr * schedule_factor(spec.schedule or "constant", epoch, spec.epochs or epoch)
        return {name: self.optimiser.last_update(name, run, lr) for name in self.trained[run]}

    def _probe(self) -> list[Batch]:
        assert self.spec.probe is not None
        n, size = self.spec.probe.n or 1024, self.spec.probe.batch or 128
        if self.device.type == "cuda":
            size = n  # samples are independent: the batches are a matter of speed alone
        x, y = self._inputs(self.data.x_test[:n]), self.data.y_test[:n]
        return [Batch(*pair) for pair in zip(torch.split(x, size), torch.split(y, size), strict=True)]

    def _inputs(self, x: Tensor) -> Tensor:
        return normalise(x, self.data.mean, self.data.std).to(self.dtype)

    def _params(self, runs: slice) -> Stack:
        return {name: p[runs] for name, p in self.params.items()}

    def _draws(self, epoch: int) -> None:
        """Draw the epoch's order and crops into fixed buffers: a CUDA graph reads them at one address."""
        batch, n = self.spec.batch or 1, len(self.data.x_train)
        seeds = [spec.seed or 0 for spec in self.specs]
        orders = {seed: epoch_order(seed, epoch, n, batch) for seed in set(seeds)}
        draws = [torch.stack([orders[seed] for seed in seeds])]
        if self.spec.augment == "crop4+flip":
            crops = {seed: epoch_crops(seed, epoch, self.steps_per_epoch, batch) for seed in set(seeds)}
            draws += [torch.stack([crops[seed][k] for seed in seeds]) for k in range(3)]
        if not hasattr(self, "order"):
            self.order, *crop_buffers = (draw.to(self.device) for draw in draws)
            self.crops = tuple(crop_buffers)
            return
        for buffer, draw in zip((self.order, *self.crops), draws, strict=True):
            buffer.copy_(draw)

    def _stack_init(self, factory: Factory, data: Dataset) -> Stack:
        runs = [_seeded_model(factory, spec, data) for spec in self.specs]
        names = [name for name, _ in runs[0].named_parameters()]
        states = [dict(run.named_parameters()) for run in runs]
        return {
            name: torch.stack([state[name].detach() for state in states]).to(self.device, self.dtype) for name in names
        }

    def _groups(self) -> Iterator[Group]:
        start = 0
        for _, members in groupby(self.specs, key=_rule_order):
            specs = list(members)
            rule = build_rule(specs[0].rule, specs[0].credit_norm or "none")
            drawn = []
            for offset, spec in enumerate(specs):
                own = {name: p[start + offset] for name, p in self.params.items()}
                drawn.append(rule.init(self.task, own, stream(spec.seed or 0, "feedback")))
            feedback = {name: torch.stack([d[name] for d in drawn]) for name in drawn[0]}
            weights = torch.tensor([spec.penalty or 0.0 for spec in specs], device=self.device, dtype=self.dtype)
            penalty = weights if bool((weights > 0).any()) else None
            exact = rule.exact(self.task.blocks.depth)
            yield Group(rule, start, start + len(specs), feedback, penalty, exact)
            start += len(specs)

    def _segments(self) -> Iterator[Segment]:
        start = 0
        for _, members in groupby(range(len(self.specs)), key=lambda run: _fleet_order(self.specs[run])[:-1]):
            runs = list(members)
            optimiser = self.specs[start].optimiser
            assert optimiser is not None
            yield Segment(start, start + len(runs), optimiser.lr, self.trained[start])
            start += len(runs)

    def _targets(self) -> Tensor:
        """Labels shared by all runs, or one row a run where some run trains on random targets."""
        if all(spec.targets == "labels" for spec in self.specs):
            return self.data.y_train
        n = len(self.data.y_train)
        rows = [
            random_targets(spec.seed or 0, n, self.data.classes).to(self.device)
            if spec.targets == "random"
            else self.data.y_train
            for spec in self.specs
        ]
        return torch.stack(rows)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record one step as a CUDA graph; the warm-up steps it needs are undone."""
        live = [*self.params.values(), *self.optimiser.first.values(), *self.optimiser.second.values()]
        kept = [t.clone() for t in (*live, self.loss_sum, self.at)]
        steps = int(self.optimiser.steps)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step()
                self.at.zero_()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        for tensor, old in zip((*live, self.loss_sum, self.at), kept, strict=True):
            tensor.copy_(old)
        self.optimiser.set_steps(steps)
        return graph

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.spec.matmul == "tf32" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


def _rule_order(spec: RunSpec) -> tuple[str, str]:
    return spec.rule, spec.credit_norm or "none"


def _fleet_order(spec: RunSpec) -> tuple[str, str, str, bool, float, str]:
    """Sorts runs so that rules, masks and learning rates are neighbours; the run id makes it total."""
    lr = spec.optimiser.lr if spec.optimiser is not None else 0.0
    return (*_rule_order(spec), str(spec.train_last), spec.train_embedding is not False, lr, spec.run_id)


def _seeded_model(factory: Factory, spec: RunSpec, data: Dataset) -> nn.Module:
    """The run's model at initialisation, from its own stream; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(spec.seed or 0, "init").initial_seed())
        return factory(spec, data)


def _refuse_stateful(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise BadInput(f"{name!r} is a batch norm: runs of a fleet share no running statistics; use GroupNorm")
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise BadInput(f"{name!r} drops out units: not supported in a fleet; set its p to 0")
