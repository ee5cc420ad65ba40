"""Watch any training loop: scheduled probes, a log in our format, live alerts, at a price the user sets."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn

from creditscope.blocks.partition import Where
from creditscope.errors import BadInput
from creditscope.probes.guards import samples_are_independent
from creditscope.probes.precision import switched_off
from creditscope.probes.schedule import EXPENSIVE_EPOCHS
from creditscope.protocol.audit import Audit, Logs, audit
from creditscope.protocol.monitor import Alert, Monitor
from creditscope.protocol.presets import Protocol
from creditscope.records import EndRow, EpochRow, HeaderRow, ProbeRow, RunLog
from creditscope.scope.bounds import SOME, Bounds, Plan, Probes, first
from creditscope.scope.credit import Backward, CreditAdapter
from creditscope.scope.inputs import Forward
from creditscope.scope.left_out import passed_over, said_skipped, writer_in
from creditscope.scope.measure import (
    accuracy_fields,
    correct_fields,
    epoch_row,
    expensive_row,
    header_of,
    observe_model,
    require_true_reference,
)
from creditscope.scope.probe_data import Loader
from creditscope.scope.recipe import Recipe
from creditscope.scope.restore import device_of, plain_model, restoring
from creditscope.scope.steps import LastStep
from creditscope.scope.subject import LossOf, Subject

_COPIES = 0.1
# Share of the samples on which the expensive set is measured at the first look.
_FIRST = 0.25
_LOOK = ("per-epoch", "guard", "expensive")
OnRow = Callable[[HeaderRow, EpochRow | ProbeRow | EndRow], None]
logger = logging.getLogger("creditscope")


class Stopped(Exception):
    """Raised by ``Scope.epoch`` when an alert stops the run; the ``with`` block swallows it."""


def watch(
    model: nn.Module,
    *,
    probe: Loader,
    blocks: Where = None,
    loss_fn: LossOf | None = None,
    credit: CreditAdapter | None = None,
    backward: Backward | None = None,
    out: str | Path | None = None,
    every: int = 1,
    budget: float = 0.05,
    on_alert: Callable[[Alert], None] | None = None,
    on_row: OnRow | None = None,
    stop: bool = False,
    protocol: str | Protocol = "standard",
    recipe: Recipe | None = None,
    name: str = "model",
    seed: int = 0,
    redraws: int = 999,
    directions: int = 32,
    probes: Probes = "standard",
    memory: float | str | None = None,
    forward: Forward | None = None,
    batch_axis: int = 0,
) -> "Scope":
    """Watch a training loop: ``with cs.watch(model, probe=(x, y)) as scope:``, and ``scope.epoch()`` after each epoch.

    The model is measured at the start, after epochs as the budget allows, and always at the end, and left as
    it was each time.

    Args:
        model: The model as it will be trained, at initialisation.
        probe: Held-out samples to measure on: a pair of tensors, or batches (x, y) as in ``audit_model``.
        blocks: As in ``audit_model``.
        loss_fn: Likewise.
        credit: Likewise.
        backward: Likewise.
        out: Folder for the log, or a file that ends in ``.jsonl``; None keeps it in memory.
        every: Measure after every so many calls of ``epoch``.
        budget: Largest share of the time that measuring may take. The first look is made before anything can be
            known of the time; it counts, and so does the last, which is made on fewer samples where it would cost more.
        on_alert: Called with each alert; None logs a warning.
        on_row: Called with (header, row) for each row of the log, such as a sink of ``creditscope.integrations``.
        stop: Whether an alert ends the ``with`` block.
        protocol: ``standard``, ``published``, or a ``Protocol``: its required checks raise the alerts.
        recipe: How it is trained, as in ``audit_model``.
        name: What the method is called in the log.
        seed: The run's seed.
        redraws: K, redraws of the fresh-feedback null.
        directions: M, random directions of ρ.
        probes: As in ``audit_model``.
        memory: Likewise.
        forward: Likewise.
        batch_axis: Likewise.
    """
    if not (isinstance(every, int) and every >= 1):
        raise BadInput(f"wanted every to be a whole number of at least 1, got {every!r}; 1 measures after each epoch")
    if not (math.isfinite(budget) and 0 <= budget <= 1):
        raise BadInput(f"wanted budget as a share of the time in [0, 1], got {budget}; 0.05 is five per cent")
    inner = plain_model(model)
    with restoring(inner):
        bounds = Bounds(memory, None, probes)
        subject = Subject.of(inner, blocks, probe, loss_fn, credit, backward, seed, bounds, forward, batch_axis)
        planned = subject.planned(bounds, redraws, directions, keep_draws=False)
        last = replace(planned, probes=bounds.chosen(redraws, directions, keep_draws=True))
    return Scope(
        subject, name, out, every, budget, on_alert, on_row, stop, redraws, directions, recipe, protocol, planned, last
    )


class Scope:
    """What ``watch`` gives to the ``with`` block.

    Args:
        subject: The model and on what it is measured.
        name: What the method is called.
        out: Where the log goes.
        every: Measure after every so many epochs.
        budget: Largest share of the time for measuring.
        on_alert: Hears each alert.
        on_row: Hears each row.
        stop: Whether an alert ends the run.
        redraws: K.
        directions: M.
        recipe: How it is trained.
        protocol: Whose checks raise alerts, and judge unless ``audit`` is told otherwise.
        planned: What is measured on how much.
        last: Likewise, at the end.
    """

    def __init__(
        self,
        subject: Subject,
        name: str,
        out: str | Path | None,
        every: int,
        budget: float,
        on_alert: Callable[[Alert], None] | None,
        on_row: OnRow | None,
        stop: bool,
        redraws: int,
        directions: int,
        recipe: Recipe | None,
        protocol: str | Protocol,
        planned: Plan,
        last: Plan,
    ) -> None:
        self.alerts: list[Alert] = []
        self.skipped: list[int] = []
        self.stopped: Alert | None = None
        self._subject = subject
        self._every, self._budget = every, budget
        self._on_alert, self._on_row = on_alert, on_row
        # Nothing is judged by the first look, and nothing is known yet of the time.
        self._planned, self._last, self._first = planned, last, planned.smaller(_FIRST)
        self._protocol = protocol
        self._monitor = Monitor(protocol, mode="stop" if stop else "alert", on_problem=logger.warning)
        off = switched_off(device_of(subject.model).type)
        self._header = header_of(subject, name, redraws, directions, recipe, off)
        self._writer = writer_in(out, f"{self._header.spec.run_id}.jsonl") if out is not None else None
        self._name = self._writer.path.name if self._writer else name
        self._epochs: list[EpochRow] = []
        self._probes: list[ProbeRow] = []
        self._end: EndRow | None = None
        self._notes: tuple[str, ...] = ()
        self._epoch = self._step = 0
        self._last_step = LastStep(subject.partition)
        self._correct: Tensor | None = None
        self._given: dict[str, Any] = {}
        self._spent = self._copying = 0.0
        self._cost = {"per-epoch": 0.0, "guard": 0.0, "expensive": 0.0, "step": 0.0}
        self._independent: bool | None = None
        self._shrunk: str | None = None
        self._init: dict[str, Tensor] = {}
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._init = {n: p.detach().clone() for n, p in self._subject.model.named_parameters()}
        if self._writer is not None:
            self._writer.create(self._header)
        self._began = time.monotonic()
        self._measure(expensive=True, last=False)
        return self

    def step(self, decay: float = 0.0) -> None:
        """Say that the optimiser took a step; the last one before the expensive set shows whether steps go down.

        The weights of the blocks are copied twice an epoch, before and after its last step, as the budget allows; which
        that is follows from the number of steps in the epoch before.

        Args:
            decay: Share of the weights that decoupled decay took off (AdamW: lr × weight_decay).
        """
        self._step += 1
        began = time.monotonic()
        due = self._last_step.due
        # Copies have a small share of the budget, for looks are what it is there for.
        share = _COPIES * self._budget * (began - self._began)
        self._last_step.keep(decay, copy=self._copying + self._cost["step"] <= share)
        if due:
            self._copying += self._spend("step", began)

    def epoch(self, accuracy: float | None = None, train_loss: float | None = None, lr: float | None = None) -> None:
        """Say that an epoch is done; the model is measured if it is due and the budget allows.

        Args:
            accuracy: Your own test accuracy, a fraction; None: that on the probe samples.
            train_loss: Your mean training loss.
            lr: The learning rate used.
        """
        if self._end is not None:
            raise BadInput("this watch has ended; call epoch() inside its with block")
        if accuracy is not None and not 0 <= accuracy <= 1:
            raise BadInput(f"wanted accuracy as a fraction in [0, 1], got {accuracy}; write 0.91 for 91 %")
        self._epoch += 1
        self._given = {"test_accuracy": accuracy, "train_loss": train_loss, "lr": lr}
        try:
            self._look()
        finally:
            self._last_step.epoch()

    def _look(self) -> None:
        if self._epoch % self._every:
            return
        if not self._affordable("per-epoch"):
            self.skipped.append(self._epoch)
            self._add(passed_over(self._epoch, self._step, self._budget))
            return
        expensive = self._epoch in EXPENSIVE_EPOCHS and self._affordable("per-epoch", "guard", "expensive")
        self._measure(expensive, last=False)
        if self.stopped is not None:
            raise Stopped(self.stopped.message)

    @property
    def overhead(self) -> float:
        """Share of the time since the start that went into measuring."""
        elapsed = time.monotonic() - self._began
        return self._spent / elapsed if elapsed > 0 else 0.0

    @property
    def log(self) -> RunLog:
        """The log so far."""
        return RunLog(self._name, self._header, tuple(self._epochs), tuple(self._probes), self._end, self._notes)

    def audit(self, baseline: float | Logs | None = None, protocol: str | Protocol | None = None) -> Audit:
        """Judge the log so far.

        Args:
            baseline: The accuracy of a trained frozen twin, or its logs.
            protocol: ``standard``, ``published``, or a ``Protocol``; None: the one that was watched.
        """
        if isinstance(baseline, nn.Module):
            raise BadInput("wanted the twin's logs or its accuracy, got a module; watch its training too")
        return audit(self.log, self._protocol if protocol is None else protocol, baseline)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if kind is None or issubclass(kind, Stopped):
            self._last_observation()
        self._finish(kind, error)
        return kind is not None and issubclass(kind, Stopped)

    def _last_observation(self) -> None:
        """The epoch that is judged is always measured, on as many samples as the budget allows."""
        measured = bool(self._epochs) and self._epochs[-1].epoch == self._epoch
        probed = any(row.epoch == self._epoch and row.fidelity is not None for row in self._probes)
        if not (measured and probed):
            self._shrink()
        if not measured:
            self.skipped = [epoch for epoch in self.skipped if epoch != self._epoch]
            self._measure(expensive=True, last=True)
        elif not probed:
            self._expensive(last=True)

    def _finish(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        status, reason = "finished", said_skipped(self.skipped, self._budget, self._shrunk)
        planned = self._header.spec.epochs or self._epoch
        if self._epoch != planned:
            status, reason = "stopped", f"{self._epoch} epochs were done where the recipe says {planned}"
        if self._diverged():
            status, reason = "diverged", "a state or gradient norm became non-finite"
        elif self.stopped is not None:
            status, reason = "stopped", self.stopped.message
        elif kind is not None and issubclass(kind, Exception):
            status, reason = "failed", f"{kind.__name__}: {(str(error).splitlines() or [''])[0]}"
        elif kind is not None:
            status, reason = "stopped", kind.__name__
        last = self._epochs[-1].test_accuracy if self._epochs else None
        total = time.monotonic() - self._began
        self._add(
            EndRow(
                status=status,  # type: ignore[arg-type]
                epoch=self._epoch,
                reason=reason,
                test_accuracy=last,
                time_total=total,
                **correct_fields(self._subject, self._correct),
            )
        )

    def _affordable(self, *sets: str) -> bool:
        elapsed = time.monotonic() - self._began
        cost = sum(self._cost[name] for name in sets)
        # What the last look will cost is kept back, up to half of what there is: beyond that it is made smaller.
        last = min(sum(self._cost[name] for name in _LOOK), 0.5 * self._budget * elapsed)
        return self._spent + cost + last <= self._budget * (elapsed + cost + last)

    def _shrink(self) -> None:
        """The last look on so many samples that the budget holds, and not on fewer than a few."""
        elapsed, cost = time.monotonic() - self._began, sum(self._cost[name] for name in _LOOK)
        left = self._budget * (elapsed + cost) - self._spent
        if cost <= left:
            return
        self._last = self._last.smaller(max(left, 0.0) / cost)
        self._subject = self._subject.on_first(self._last.n)
        self._shrunk = f"the last look was made on {self._last.n} samples to keep the budget of {self._budget:.3g}"

    def _measure(self, expensive: bool, last: bool) -> None:
        began = time.monotonic()
        subject = self._subject
        with restoring(subject.model):
            snapshot = subject.snapshot(self._init, self._epoch, self._step, expensive=False)
            if expensive or self._independent is None:
                # Costs more than the per-epoch set, so not every time, but now and then, for a branch that starts
                # at zero hides what it mixes.
                self._independent = samples_are_independent(first(snapshot, SOME))
                self._spend("guard", began)
                began = time.monotonic()
            observed = observe_model(subject, snapshot, self._independent)
            self._notes = observed.notes
            given = dict(self._given)
            # An accuracy of the user's own is on samples that are not known here: no sample's correctness goes with it.
            self._correct = subject.correct(observed.answers) if given.get("test_accuracy") is None else None
            given |= accuracy_fields(subject, self._correct)
            row = epoch_row(subject, observed, self._init, self._epoch, step=self._step, **given)
            self._spend("per-epoch", began)
            if self._epoch == 0:
                require_true_reference(snapshot, observed)
        self._add(row)
        if expensive and observed.finite:
            self._expensive(last)

    def _expensive(self, last: bool) -> None:
        began = time.monotonic()
        with restoring(self._subject.model):
            snapshot = self._subject.snapshot(self._init, self._epoch, self._step)
            snapshot = replace(snapshot, update=self._last_step.update())
            plan = self._last if last else self._planned if self._epoch else self._first
            row = expensive_row(self._subject, snapshot, plan, last, self._independent)
        self._spend("expensive", began)
        self._add(row)

    def _spend(self, measured: str, began: float) -> float:
        taken = time.monotonic() - began
        self._spent += taken
        # The next one is expected to cost as much as the most expensive so far.
        self._cost[measured] = max(self._cost[measured], taken)
        return taken

    def _diverged(self) -> bool:
        rows = self._epochs[-1:]
        norms = [v for row in rows for part in (row.hidden, row.reference) if part is not None for v in part.median]
        return any(value is None or not math.isfinite(value) for value in norms)

    def _add(self, row: EpochRow | ProbeRow | EndRow) -> None:
        if isinstance(row, EpochRow):
            self._epochs.append(row)
        elif isinstance(row, ProbeRow):
            self._probes.append(row)
        else:
            self._end = row
        if self._writer is not None:
            self._writer.append(row)
        if self._on_row is not None:
            self._on_row(self._header, row)
        for alert in self._monitor.on_row(self._header, row):
            self.alerts.append(alert)
            if alert.stop and self.stopped is None:
                self.stopped = alert
            if self._on_alert is not None:
                self._on_alert(alert)
            else:
                logger.warning("%s", alert.message)
