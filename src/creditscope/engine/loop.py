"""The loop: train a fleet epoch by epoch, log every run, keep checkpoints, go on when a run diverges."""

import hashlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from creditscope.blocks import RuleState
from creditscope.engine.checkpoint import Ending, FleetState, restore
from creditscope.engine.cuda_streams import Ready, at_once
from creditscope.engine.fleet import Fleet
from creditscope.engine.movement import broken_feedback
from creditscope.engine.state import FleetObservation, Scores
from creditscope.engine.step import precision, schedule_factor
from creditscope.errors import BadFile, BadInput
from creditscope.models import MODELS
from creditscope.probes.expensive import measure_expensive
from creditscope.probes.per_epoch import epoch_fields
from creditscope.probes.precision import switched_off
from creditscope.probes.schedule import expensive_epochs, is_expensive
from creditscope.records import EndRow, EpochRow, HeaderRow, LogWriter, ProbeRow, RuleCard, RunLog, RunSpec
from creditscope.records.images import image_fields, sequence_fields
from creditscope.records.log import MAX_LINE_VALUES
from creditscope.records.provenance import OFF, now, provenance

CHECKPOINT_SECONDS = 30.0
LoggedRow = EpochRow | ProbeRow | EndRow
OnRow = Callable[[HeaderRow, LoggedRow], str | None]


class Progress(Protocol):
    """What a progress display is told."""

    def stage(self, members: Sequence[RunSpec], epoch: int, doing: str) -> None:
        """A fleet begins something: ``train``, ``measure`` or ``probe``."""

    def step(self, members: Sequence[RunSpec]) -> None:
        """One optimiser step of a whole fleet is done."""


class Reached(NamedTuple):
    """A fleet at the end of an epoch, as it is written down.

    Args:
        state: A copy of its state.
        loss: Mean training loss of each run; None at epoch 0.
        scores: Test results.
        look: The per-epoch numbers.
    """

    state: FleetState
    loss: Tensor | None
    scores: Scores
    look: FleetObservation


class FleetLoop:
    """Trains one fleet and writes its logs.

    Args:
        fleet: The fleet.
        folder: Where logs and checkpoints go.
        on_row: Hears every row as it is written; a text it returns stops that run, and is its reason.
        progress: Hears what is going on.
    """

    def __init__(self, fleet: Fleet, folder: Path, on_row: OnRow, progress: Progress) -> None:
        self.fleet = fleet
        self.folder = folder
        self.on_row = on_row
        self.progress = progress
        self.headers = [self._header(run) for run in range(len(fleet.specs))]
        self.writers = [LogWriter(folder / f"{spec.run_id}.jsonl") for spec in fleet.specs]
        self.active = set(range(len(fleet.specs)))
        self._endings: dict[int, Ending] = {}
        self.began = time.monotonic()
        self.measured_at = self.saved_at = time.monotonic()
        self._writer = ThreadPoolExecutor(1, "checkpoints") if fleet.streams.ahead else None
        self._writing: Future[None] | None = None

    def run(self, resume: bool) -> None:
        """Train to the end, from the newest checkpoint where there is one.

        Args:
            resume: Whether logs of these runs may exist; their rows past the checkpoint are dropped.
        """
        try:
            for _ in self.turns(resume):
                pass
        finally:
            self.written()

    def turns(self, resume: bool) -> Generator[Ready, None, None]:
        """The same in turns, so that several fleets keep a GPU busy; yields what must come true before the next.

        It hands over when the steps of an epoch were asked for or the GPU is full, and between two expensive probes.
        A GPU is asked for the next epoch before this one is written down, so that it never waits for the host. The
        last checkpoint may still be on its way at the end: ``written`` waits for it.

        Args:
            resume: As in ``run``.
        """
        fleet = self.fleet
        epochs = fleet.spec.epochs or 0
        start, endings = restore(fleet, self.folder) if resume else (0, {})
        if resume:
            self._reopen_logs(start)
        self._open_logs()
        boundary, loss = None, None
        try:
            for epoch in range(start, epochs + 1):
                if epoch > start:
                    yield fleet.streams.idle
                reached = Reached(FleetState(fleet, epoch), loss, fleet.evaluate(), fleet.observe())
                mark = fleet.streams.mark()
                training = self._train(epoch + 1)
                first = next(training, None) if fleet.streams.ahead and epoch < epochs else None
                if epoch > start or start == 0:
                    yield from self._write_down(reached, mark)
                else:
                    self._endings = self._left_open(epoch, endings)
                boundary = reached.state
                boundary.endings = self._endings
                # An end row says that nothing is missing, so a fleet's last checkpoint comes before its last end rows.
                over = self._endings.keys() >= self.active
                with fleet.streams.reading(mark):
                    if over or (start < epoch < epochs and time.monotonic() - self.saved_at > CHECKPOINT_SECONDS):
                        self._save(boundary)
                        self.saved_at = time.monotonic()
                if over:
                    yield self.saved
                    self.written()
                    boundary = None
                with fleet.streams.reading(mark):
                    self._finish(reached)
                if over:
                    break
                if epoch < epochs:
                    self.progress.stage(fleet.specs, epoch + 1, "train")
                    if first is not None:
                        yield first
                    yield from training
                    loss = fleet.loss_sum / fleet.steps_per_epoch
        finally:
            # On a stop: the last epoch boundary is what a resume goes on from.
            fleet.streams.wait()
            if boundary is not None:
                self._save(boundary)

    def _train(self, epoch: int) -> Iterator[Ready]:
        """Ask for the steps of an epoch; others may have a turn where the GPU takes no more."""

        def step() -> None:
            self.fleet.step()
            self.progress.step(self.fleet.specs)

        self.fleet.begin_epoch(epoch)
        yield from self.fleet.streams.paced(self.fleet.steps_per_epoch, step)

    def _save(self, boundary: FleetState) -> None:
        """Write a checkpoint: beside the training where that is a GPU's work, else at once."""
        self.written()
        if self._writer is None:
            boundary.save(self.folder)
        else:
            boundary.fetch()
            self._writing = self._writer.submit(boundary.save, self.folder)

    def saved(self) -> bool:
        """Whether no checkpoint is being written."""
        return self._writing is None or self._writing.done()

    def written(self) -> None:
        """Wait for the checkpoint that is being written; what went wrong with it is raised here."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _open_logs(self) -> None:
        """Write every header before the first step: it says how the fleet is trained, which a resume must repeat."""
        for writer, header in zip(self.writers, self.headers, strict=True):
            if not os.path.lexists(writer.path):
                writer.create(header)
            else:
                refuse_other_rule(RunLog.read(writer.path, follow=False), header.rule)

    def _reopen_logs(self, epoch: int) -> None:
        """Bring every log back to the checkpoint's epoch; a run that ended by then stays ended.

        A checkpoint is written after the rows of its epoch, so up to there a log is whole. Epoch 0 is measured
        again.
        """
        for run, writer in enumerate(self.writers):
            if epoch == 0:
                if os.path.lexists(writer.path):
                    writer.truncate_after(-1)
                continue
            log = RunLog.read(writer.path, follow=False)
            if log.end is not None and log.end.epoch <= epoch:
                self.active.discard(run)
            elif log.last is None or log.last.epoch < epoch:
                raise BadFile(
                    f"{log.name}: lacks rows up to epoch {epoch}, where its checkpoint stands; restore the log, or "
                    f"delete the checkpoint to start the fleet again"
                )
            else:
                writer.truncate_after(epoch)

    def _write_down(self, reached: Reached, mark: torch.cuda.Event | None) -> Iterator[Ready]:
        """Measure and log every active run; others may have a turn after each expensive probe."""
        measuring = self._measure(reached)
        while True:
            with self.fleet.streams.reading(mark):
                if next(measuring, reached) is reached:
                    return
            yield at_once

    def _measure(self, reached: Reached) -> Iterator[None]:
        """Probe and log every active run after an epoch, in pieces that end with an expensive probe."""
        fleet = self.fleet
        epochs = fleet.spec.epochs or 0
        state, train_loss, scores, look = reached
        epoch = state.epoch
        self.progress.stage(fleet.specs, epoch, "measure")
        summaries, moved = fleet.summaries(look), fleet.movements(look)
        feedback = broken_feedback(fleet.groups, [rule[0] for rule in state.state.rules])
        loss, accuracy, balanced = (column.tolist() for column in scores[:3])
        trained = None if train_loss is None else train_loss.tolist()
        factor = schedule_factor(fleet.spec.schedule or "constant", epoch, epochs) if epoch else None
        seconds = time.monotonic() - self.measured_at
        for run in sorted(self.active):
            spec, group = fleet.specs[run], fleet.group_of(run)
            row = EpochRow(
                epoch=epoch,
                step=epoch * fleet.steps_per_epoch,
                lr=None if factor is None or spec.optimiser is None else spec.optimiser.lr * factor,
                train_loss=None if trained is None else trained[run],
                test_loss=loss[run],
                test_accuracy=accuracy[run],
                balanced_accuracy=balanced[run],
                movement=moved[run],
                time_epoch=seconds,
                **epoch_fields(summaries[run], group.exact, group.rule.family == "signal"),
            )
            broken = [_nonfinite(row), feedback[run] and f"the learned {feedback[run]}"]
            if self._log(run, row, state, " and ".join(filter(None, broken))):
                yield
        self.measured_at += seconds

    def _log(self, run: int, row: EpochRow, state: FleetState, broken: str) -> bool:
        """Write down a run's epoch; says whether the expensive set was measured for it.

        Args:
            run: Which.
            row: The epoch.
            state: The fleet at that epoch.
            broken: What shows that the run diverged; empty where nothing does.
        """
        header = self.headers[run]
        epoch, epochs = state.epoch, self.fleet.spec.epochs or 0
        reason = self._write(run, row)
        probed = not broken and is_expensive(epoch, epochs, expensive_epochs(header.spec))
        if probed:
            self.progress.stage(self.fleet.specs, epoch, "probe")
            reason = self._write(run, self._expensive(run, state, epoch == epochs)) or reason
        if broken:
            self._endings[run] = Ending("diverged", f"{broken} became non-finite")
        elif epoch == epochs:
            self._endings[run] = Ending("finished")
        elif reason:
            self._endings[run] = Ending("stopped", reason)
        return probed

    def _expensive(self, run: int, state: FleetState, last: bool) -> ProbeRow:
        probe = self.fleet.specs[run].probe
        assert probe is not None
        snapshot = self.fleet.snapshot(run, state.epoch, state.state)
        # Three nulls of a number a state and redraw: none is kept where they would make a row that nobody reads.
        fits = 3 * probe.redraws * ((self.fleet.spec.depth or 0) + 1) < MAX_LINE_VALUES // 2
        return measure_expensive(snapshot, probe.redraws, probe.directions, keep_draws=last and fits)

    def _write(self, run: int, row: LoggedRow) -> str | None:
        self.writers[run].append(row)
        return self.on_row(self.headers[run], row)

    def _left_open(self, epoch: int, endings: dict[int, Ending]) -> dict[int, Ending]:
        """How the runs ended whose end row is all that a kill left to be written."""
        done = epoch == (self.fleet.spec.epochs or 0)
        found = {run: endings.get(run, Ending("finished") if done else None) for run in sorted(self.active)}
        return {run: ending for run, ending in found.items() if ending is not None}

    def _finish(self, reached: Reached) -> None:
        """Write the end rows of the runs that end at this epoch."""
        for run, (status, reason) in self._endings.items():
            self._write(
                run,
                EndRow(
                    status=status,
                    epoch=reached.state.epoch,
                    reason=reason,
                    test_accuracy=reached.scores.accuracy[run].item(),
                    time_total=time.monotonic() - self.began,
                    **self._each_sample(reached.scores.correct[run]),
                ),
            )
            self.active.discard(run)
        self._endings = {}

    def _each_sample(self, correct: Tensor) -> dict[str, Any]:
        data, found = self.fleet.data, correct.cpu().numpy()
        if data.spec.tokens is not None:
            return sequence_fields(found)
        return image_fields(found, data.y_test.cpu().numpy(), data.spec.unequal)

    def _header(self, run: int) -> HeaderRow:
        fleet = self.fleet
        spec, group = fleet.specs[run], fleet.group_of(run)
        rule, state = group.rules[run - group.start], group.state_of(run)
        drawn = rule.feedback_spec
        if state:
            drawn = drawn.model_copy(update={"seed": spec.seed, "hash": state_hash(state)})
        device = fleet.device.type
        with precision(spec):
            off = switched_off(device)
        return HeaderRow(
            spec=spec.model_copy(update={"feedback": drawn, "injection": rule.injection}),
            rule=rule.card,
            exact=list(group.exact),
            blocks=list(fleet.task.blocks.names),
            partition="model" if spec.model in MODELS.names() else "found",
            locality=fleet.locality[run],
            parameters=sum(p[run].numel() for p in fleet.params.values()),
            fleet=[other.run_id for other in fleet.specs],
            path=fleet.path,
            threads=torch.get_num_threads(),
            provenance=provenance(device, torch.cuda.get_device_name() if device == "cuda" else None) | {OFF: off},
            time_created=now(),
        )


def refuse_other_rule(log: RunLog, rule: RuleCard | None) -> None:
    """A log goes on with the rule it was begun with, not with another of the same name.

    Args:
        log: The log.
        rule: The card of the rule at hand.
    """
    begun = log.header.rule
    if begun is None or rule is None or begun == rule:
        return
    names = [name for name in RuleCard.model_fields if getattr(begun, name) != getattr(rule, name)]
    raise BadInput(
        f"{log.name}: begun with another rule {begun.name!r} (its {', '.join(names)} differs); pass that one, or give "
        f"this one a name of its own"
    )


def state_hash(state: RuleState) -> str:
    """SHA-256 over names and float64 values, in order of name."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].detach().cpu().double().numpy().tobytes())
    return digest.hexdigest()


def _nonfinite(row: EpochRow) -> str | None:
    """Which quantity shows that the run diverged, if one does."""
    loss = row.train_loss if row.train_loss is not None else 0.0
    norms = [*(row.hidden.median if row.hidden else ()), *(row.reference.median if row.reference else ())]
    if not np.isfinite(loss):
        return "the training loss"
    if not np.isfinite(row.test_loss if row.test_loss is not None else 0.0):
        return "the test loss"
    return None if all(v is not None and np.isfinite(v) for v in norms) else "a state or gradient norm"
