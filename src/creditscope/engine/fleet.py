"""Fleet: many runs of equal shapes trained as one stack. Only ``engine`` knows the run axis.

Runs are ordered so that each rule is one neighbouring group (its frozen twins another where arithmetic is the bound),
mapped by one ``vmap``; λ, learning rates, masks and seeds differ freely inside it. Everything random is drawn outside,
from each run's own seed. Alone and in company its parameters agree over 20 steps to 1e-4 in float32 (relative).
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_leaves

from creditscope.blocks import Batch, Blocks, CreditRule, Moment, RuleState, Snapshot, Step, Task
from creditscope.data.batches import in_dtype, normalise
from creditscope.data.dataset import Dataset
from creditscope.engine.answers import in_own_ways
from creditscope.engine.claims import check_claims, explained
from creditscope.engine.cuda_streams import Lanes, Streams
from creditscope.engine.draws import Draws
from creditscope.engine.graph import Recorded, records
from creditscope.engine.groups import Group, build_groups, build_segments, fleet_order, one_answer
from creditscope.engine.movement import FleetMovement
from creditscope.engine.noise import FleetNoise
from creditscope.engine.optim import OPTIMISERS, Stack
from creditscope.engine.scores import scores_of
from creditscope.engine.snapshot import take_snapshot
from creditscope.engine.start import Factory, refuse_other_depth, seeded_model, stack_models
from creditscope.engine.state import FleetObservation, Scores, State, map_tensors
from creditscope.engine.step import (
    Sent,
    cross_entropy,
    dtype_of,
    in_training,
    precision,
    schedule_factor,
    take_step,
    trained_parameters,
    weight_matrices,
    with_numbers,
)
from creditscope.engine.traced import Traced
from creditscope.errors import BadInput
from creditscope.probes.epoch_cosines import in_float64, samples_of
from creditscope.probes.per_epoch import EpochNumbers, Summary, epoch_numbers, joined, summarise
from creditscope.probes.precision import full_precision
from creditscope.records import RunSpec
from creditscope.records.measured import Movement
from creditscope.rules.anchor import unanchored
from creditscope.rules.build import Given

# From this many steps on, tracing (half a second a group) saves more time than it takes.
WORTH_TRACING = 200


class Fleet:
    """A stack of runs.

    Args:
        specs: Runs of one ``stack_key``; put into fleet order.
        data: The data set they share.
        factory: Builds a run's model; called under the run's own seed.
        device: The stack's device.
        fused: Whether the credit of each group is compiled; the same values, and seconds a group until it runs.
        traced: Whether it is traced, where training is long enough to win the time back.
        rules: Rules from outside, by name.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        data: Dataset,
        factory: Factory,
        device: torch.device,
        fused: bool = False,
        traced: bool = True,
        rules: Given | None = None,
    ) -> None:
        self.specs = tuple(sorted(specs, key=fleet_order))
        self.rules = rules or {}
        self.spec = self.specs[0]
        self.device = device
        self.data = data.to(device)
        self.dtype = dtype_of(self.spec)
        self.draws = Draws(self.specs, self.data, fused)
        model = seeded_model(factory, self.spec, data).to(device, self.dtype)
        # Steps are taken in the modes that the model came in; everything is measured in eval mode.
        self._training = [module for module in model.modules() if module.training]
        model.eval()
        few = self.inputs(self.data.x_train[:2])
        self.task = Task.of(Blocks.of(model), cross_entropy, few)
        refuse_other_depth(self.task, self.spec)
        self.parts = self.task.blocks.parts(few)
        self.trained = tuple(trained_parameters(spec, self.task.blocks, self.parts) for spec in self.specs)
        self.params, self.buffers = stack_models(factory, self.specs, data, model)
        self.init: Stack = {name: p.clone() for name, p in self.params.items()}
        self.first_buffers: Stack = {name: b.clone() for name, b in self.buffers.items()}
        self.groups = tuple(build_groups(self.specs, self.task, self.params, self.trained, self.rules))
        assert self.spec.optimiser is not None
        segments = build_segments(self.groups, self.specs, self.trained)
        self.optimiser = OPTIMISERS[self.spec.optimiser.name](self.params, segments, self.spec.optimiser)
        self.loss_sum = torch.zeros(len(self.specs), device=device, dtype=torch.float64)
        matrices = weight_matrices(self.task.blocks, self.parts)
        self._movement = FleetMovement(self.params, self.init, self.groups, matrices, self.trained)
        self.fused = fused
        self.traced = fused or (traced and self.planned_steps >= WORTH_TRACING)
        # One function, and one recording, for each kind of step: the host knows which comes next.
        self._credit: dict[tuple[int, str], Callable[[Sent], Step]] = {}
        self._train: dict[tuple[str, ...], Recorded[None]] = {}
        self.noise = FleetNoise(self.groups, self.specs, self.params)
        self._steps = 0
        self._lanes = Lanes(len(self.groups), device)
        # They get this fleet's methods at each call: stored methods would keep the fleet alive after its last user.
        self._evaluate: Recorded[Scores] = Recorded(device)
        self._summarise: dict[tuple[str, ...], Recorded[Summary]] = {}
        self._move: Recorded[tuple[Tensor, tuple[Tensor, ...]]] = Recorded(device)
        self.streams = Streams(device)
        with torch.no_grad():
            # Of each run, whether its locality was shown; None where the rule claims none.
            self.locality = check_claims(self)
        self.streams.wait()

    @property
    def path(self) -> str:
        """How the steps are run: ``graph`` on CUDA, else ``stacked``; ``fused`` behind it where they are compiled."""
        return ("graph" if records(self.device) else "stacked") + (", fused" if self.fused else "")

    @property
    def state(self) -> State:
        """The runs as training has left them so far; the tensors are the fleet's own and keep changing."""
        rules = tuple((group.state, group.first, group.second) for group in self.groups)
        optimiser = self.optimiser
        return State(self.params, optimiser.first, optimiser.second, self.buffers, rules, optimiser.steps)

    def rewind(self) -> None:
        """Back to initialisation, as after a calibration."""
        with torch.no_grad():
            pairs = [(self.params, self.init), (self.buffers, self.first_buffers)]
            pairs += [(group.state, group.initial) for group in self.groups if group.rule.learns]
            for stack, start in pairs:
                for name, tensor in stack.items():
                    tensor.copy_(start[name])
            moments = [self.optimiser.first, self.optimiser.second]
            moments += [stack for group in self.groups for stack in (group.first, group.second)]
            for moment in (moment for stack in moments for moment in stack.values()):
                moment.zero_()
        self.set_steps(0)
        self.streams.wait()

    def set_steps(self, steps: int) -> None:
        """Say how many steps were done, as after loading a checkpoint; a rule may rest on some of them.

        Args:
            steps: How many.
        """
        self._steps = steps
        moments = [self.moment(step) for step in range(steps)]
        counts = {group.start: group.steps_taken(moments) for group in self.groups}
        self.optimiser.set_steps(lambda segment: counts[self.group_of(segment.start).start])

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
        self.noise.begin(epoch)
        self._steps = (epoch - 1) * self.steps_per_epoch
        self.optimiser.schedule(schedule_factor(self.spec.schedule, epoch, self.spec.epochs))
        self.loss_sum.zero_()

    def step(self) -> None:
        """One optimiser step of every run."""
        phases = self._phases()
        train = self._train.setdefault(phases, Recorded(self.device))
        self._steps += 1
        self.noise.draw()
        with precision(self.spec), torch.no_grad():
            train(partial(self._step, phases), self._live)

    def _phases(self, of: Callable[[CreditRule], CreditRule] = lambda rule: rule) -> tuple[str, ...]:
        """Which kind of step comes next, group by group.

        Args:
            of: Which part of a rule is asked.
        """
        moment = self.moment(self._steps)
        return tuple(one_answer(group.variants, "phase", lambda rule: of(rule).phase(moment)) for group in self.groups)

    def moment(self, step: int) -> Moment:
        """A step of the training, counted from 0; after the last one, the last."""
        return Moment(min(step, max(0, self.planned_steps - 1)), self.steps_per_epoch, self.spec.epochs or 0)

    def _live(self) -> list[Tensor]:
        return [*tree_leaves(self.state), *self.optimiser.tensors, self.loss_sum, self.draws.at]

    def _step(self, phases: tuple[str, ...]) -> None:
        """As ``step``, free of host decisions so that a CUDA graph can hold it."""
        x, y = self.draws.next_batch()
        for at, phase in enumerate(phases):
            with self._lanes.lane(at):
                self.optimiser.step(self.credit(at, x, y, phase))
        self._lanes.join()

    def credit(self, at: int, x: Tensor, y: Tensor, phase: str = "") -> dict[tuple[str, int], Tensor]:
        """The credit of a group's runs on their own batches.

        Their loss is added to ``loss_sum``; state and buffers become what the rule made of them.

        Args:
            at: Which group.
            x: Inputs of all runs, first axis runs.
            y: Targets, likewise.
            phase: Which kind of step.

        Returns:
            Update signals by (name, first run of the segment).
        """
        group = self.groups[at]
        runs = group.runs
        first = (at, phase) not in self._credit
        if first:
            mapped = partial(_mapped, group, self.task, phase)
            self._credit[at, phase] = Traced(mapped, compiled=self.fused) if self.traced else mapped
        own, noise = {name: b[runs] for name, b in self.buffers.items()}, self.noise.of(at)
        sent = Sent(self._params(runs), group.state, own, group.numbers, noise, x[runs], y[runs])
        held = [*group.state.values(), *self.params.values()] if first else []
        versions = [tensor._version for tensor in held]
        try:
            with in_training(self._training):
                step = self._credit[at, phase](sent)
        except RuntimeError as error:
            raise explained(group.rule, error) from error
        if versions != [tensor._version for tensor in held]:
            raise BadInput(f"rule {group.rule.name} changes state or parameters in place; return new values instead")
        self.loss_sum[runs].add_(step.loss.mean(1))
        for name, value in step.state.items():
            group.state[name].copy_(value)
        for name, value in step.buffers.items():
            own[name].copy_(value)
        segments = [s for s in self.optimiser.segments if group.start <= s.start < group.stop]
        for s in segments:
            here = slice(s.start - group.start, s.stop - group.start)
            self.optimiser.shrink(s, {name: decay[here] for name, decay in step.decay.items()})
        return {
            (name, s.start): grad[s.start - group.start : s.stop - group.start]
            for s in segments
            for name, grad in step.grads.items()
        }

    def evaluate(self) -> Scores:
        """Loss, accuracy and per-image correctness of every run on the test split."""
        with precision(self.spec), torch.no_grad():
            return self._evaluate(self._scores)

    def _scores(self) -> Scores:
        def logits(params: Stack, buffers: Stack, x: Tensor) -> Tensor:
            return self.task._replace(buffers=buffers).forward(params, x).logits

        forward = vmap(logits, in_dims=(0, 0, None))

        def answered(raw: Tensor) -> Tensor:
            x = self.inputs(raw)
            return in_own_ways(self, forward(self.params, self.buffers, x), x)

        return scores_of(answered, self.data)

    def observe(self) -> FleetObservation:
        """The per-epoch numbers of every run; on a GPU the work is queued, not waited for."""
        with torch.no_grad(), full_precision():
            phases = self._phases(unanchored)
            summary = self._summarise.setdefault(phases, Recorded(self.device))
            return FleetObservation(summary(partial(self._summary, phases)), *self._move(self._movement.measure))

    def summaries(self, observation: FleetObservation) -> list[Summary]:
        """Every run's own numbers of the probe data, on the CPU.

        Args:
            observation: From ``observe``.
        """
        summary = map_tensors(Tensor.cpu, observation.summary)
        return [map_tensors(itemgetter(run), summary) for run in range(len(self.specs))]

    def movements(self, observation: FleetObservation) -> list[Movement]:
        """How far each weight matrix of the blocks, and learned feedback, moved from its start, run by run.

        Args:
            observation: From ``observe``.
        """
        return self._movement.rows(observation.moved, observation.feedback)

    def _summary(self, phases: tuple[str, ...]) -> Summary:
        """The numbers of the probe data of every run: each group is observed by itself, all are summarised together."""
        found: list[EpochNumbers] = []
        batches = self._probe()
        for lane, group in enumerate(self.groups):

            def numbers_of(
                params: Stack,
                state: RuleState,
                buffers: Stack,
                numbers: Stack,
                batch: Batch,
                few: int,
                group: Group = group,
                phase: str = phases[lane],
            ) -> EpochNumbers:
                options = {name: value for name, value in numbers.items() if name != "penalty"}
                task = self.task._replace(buffers=buffers, phase=phase)
                rule = with_numbers(group.rule, in_float64(options))
                return epoch_numbers(task, params, rule, state, batch, self.spec.view or "flat", few)

            with self._lanes.lane(lane):
                own = {name: b[group.runs] for name, b in self.buffers.items()}
                stacks = (self._params(group.runs), group.state, own, group.numbers)
                mapped = vmap(numbers_of, in_dims=(0, 0, 0, 0, None, None))
                found.append(
                    joined([mapped(*stacks, *each) for each in zip(batches, samples_of(batches), strict=True)], -1)
                )
        self._lanes.join()
        return summarise(joined(found, 0))

    def snapshot(self, run: int, epoch: int, state: State | None = None) -> Snapshot:
        """One run as the probes see it.

        Args:
            run: Index in the fleet.
            epoch: Epochs done.
            state: A copy of the fleet's state at that epoch; None: as it is now.
        """
        return take_snapshot(self, run, epoch, state or self.state)

    def group_of(self, run: int) -> Group:
        """The group that holds a run."""
        return next(group for group in self.groups if group.start <= run < group.stop)

    def state_of(self, run: int) -> RuleState:
        """One run's own state of its rule."""
        return self.group_of(run).state_of(run)

    def _probe(self) -> list[Batch]:
        assert self.spec.probe is not None
        n = self.spec.probe.n or 1024
        x, y = self.inputs(self.data.x_test[:n]), self.data.y_test[:n]
        size = self.probe_batch()
        return [Batch(*pair) for pair in zip(torch.split(x, size), torch.split(y, size), strict=True)]

    def probe_batch(self) -> int:
        """Size of a probe batch: samples are independent, so a GPU takes them all at once."""
        assert self.spec.probe is not None
        return (self.spec.probe.n or 1024) if self.device.type == "cuda" else (self.spec.probe.batch or 128)

    def inputs(self, x: Tensor) -> Tensor:
        """Raw inputs as the network sees them."""
        return in_dtype(normalise(x, self.data.mean, self.data.std), self.dtype)

    def _params(self, runs: slice) -> Stack:
        return {name: p[runs] for name, p in self.params.items()}


def _mapped(group: Group, task: Task, phase: str, sent: Sent) -> Step:
    """The steps of a group's runs as one function of stacked tensors; what trains in none of them is held fixed."""
    step: Step = vmap(partial(take_step, group.rule, task, group.trained, phase))(sent)
    return step
