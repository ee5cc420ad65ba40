"""Judge a method in one call: its own training, over seeds, with every control that a verdict needs."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import nn

from creditscope.errors import BadInput, CannotWrite, argument
from creditscope.execution.folder import hold, open_folder
from creditscope.protocol.audit import Audit, audit
from creditscope.protocol.presets import Protocol
from creditscope.records import LogWriter, RunLog
from creditscope.scope.audit_model import model_log
from creditscope.scope.controls import freeze, frozen_names, require_held
from creditscope.scope.credit import CreditAdapter, rule_credit
from creditscope.scope.fingerprint import fingerprint
from creditscope.scope.probe_data import Loader
from creditscope.scope.randomness import seeded
from creditscope.scope.restore import plain_model
from creditscope.scope.subject import LossOf

Build = Callable[[int], nn.Module]
Fit = Callable[[Any, Any, int], object]
Credit = Callable[[nn.Module], CreditAdapter]
BlockNames = Sequence[str] | Callable[[str, nn.Module], bool] | None
# What a control must have in common with the claim: one function trains both.
_RECIPE = ("epochs", "batch", "optimiser", "schedule")
_BP = "bp"


@dataclass(frozen=True)
class _Run:
    """One training.

    Args:
        method: What trains it.
        seed: Of it.
        fit: The user's function.
        credit: What its blocks are delivered; None: not measured.
        part: What trains: ``all``, ``frozen`` (all but the blocks) or ``readout`` (the head alone).
    """

    method: str
    seed: int
    fit: Fit
    credit: Credit | None = None
    part: str = "all"

    @property
    def label(self) -> str:
        """The method, what trains, and the seed."""
        return f"{self.method}{'' if self.part == 'all' else f'@{self.part}'}-s{self.seed}"


@dataclass(frozen=True)
class _Trial:
    """What all runs share: how a model is built, on what it is trained and how it is measured."""

    build: Build
    data: Any
    loader: Loader
    blocks: BlockNames
    loss_fn: LossOf | None
    redraws: int
    directions: int
    recipe: str

    def train(self, run: _Run) -> RunLog:
        """Build, freeze, train, see that what was frozen stayed, measure.

        Args:
            run: Which training.
        """
        try:
            with seeded(run.seed):
                model = self.build(run.seed)
                inner = plain_model(model)
                if run.part != "all":
                    freeze(inner, run.part, self.blocks, self.loader, self.loss_fn)
            start = {name: value.detach().clone() for name, value in inner.state_dict().items()}
            frozen = frozen_names(inner)
            with seeded(run.seed):
                returned = run.fit(model, self.data, run.seed)
        except Exception as error:
            error.add_note(f"creditscope: in the run {run.label}")
            raise
        if isinstance(returned, nn.Module) and returned is not model:
            raise BadInput("fit returned another model; train the model that it is given, in place")
        require_held(inner, start, frozen, run.label)
        whole = run.part == "all"
        log = model_log(
            model,
            loader=self.loader,
            blocks=self.blocks,
            loss_fn=self.loss_fn,
            credit=run.credit(inner) if run.credit is not None else None,
            backward=None,
            init=start if whole else None,
            recipe=None,
            name=run.method,
            seed=run.seed,
            redraws=self.redraws,
            directions=self.directions,
            expensive=whole,
        )
        changes = {"recipe": dict.fromkeys(_RECIPE, self.recipe), "train_embedding": run.part != "readout"}
        if not whole:
            changes |= {"train_last": 0, "injection": None}
        source = {**(log.header.source or {}), "start": fingerprint(start)}
        header = log.header.model_copy(update={"spec": log.spec.model_copy(update=changes), "source": source})
        return replace(log, name=f"{run.label}.jsonl", header=header)


def judge(
    build: Build,
    fit: Fit,
    data: Any,
    blocks: BlockNames = None,
    rule: str | Credit | None = None,
    fit_backprop: Fit | None = None,
    seeds: int | Sequence[int] = 3,
    out: str | Path | None = None,
    *,
    name: str | None = None,
    loss_fn: LossOf | None = None,
    protocol: str | Protocol = "standard",
    redraws: int = 999,
    directions: int = 8,
) -> Audit:
    """Train a method with its own code, and every control beside it, measure all of them, and give a verdict.

    For each seed the model is built and trained three times: whole, with its blocks frozen, and with everything but
    the head frozen. With ``fit_backprop`` also two times by backprop: the control which shows that the task rewards
    trained blocks. A frozen tensor that ``fit`` changes anyway is refused by name.

    Args:
        build: ``build(seed)`` gives the untrained model; called again it must give the same.
        fit: ``fit(model, data, seed)`` trains it in place, and leaves alone what does not require a gradient.
        data: Handed to ``fit`` as it is. Measured on is its test part: the second of a pair ``(train, test)``, its
            ``test``, or its ``x_test`` and ``y_test``; a pair of tensors, or batches (x, y).
        blocks: Names of the blocks, or a predicate on (name, module); None finds them.
        rule: What the blocks are delivered: ``bp`` where ``fit`` is plain backprop, or a function of the model that
            gives its credit, such as ``cs.backward_credit``; None: direction is not measured.
        fit_backprop: Trains the same model by backprop and otherwise as ``fit`` does; None: no positive control.
        seeds: How many, or which.
        out: Folder for one log a run: a call that was killed goes on there. None keeps them in memory.
        name: What the method is called; None: as ``fit`` is.
        loss_fn: As in ``audit_model``.
        protocol: ``standard``, ``published``, or a ``Protocol``.
        redraws: K, redraws of the fresh-feedback null.
        directions: M, random directions of ρ.
    """
    runs = _runs(_method_name(name, rule, fit), fit, rule, fit_backprop, _seeds(seeds))
    said = "as fit trains" if fit_backprop is None else "as fit and fit_backprop train"
    trial = _Trial(build, data, _tested_on(data), _names(blocks), loss_fn, redraws, directions, said)
    code = fingerprint(build, fit, fit_backprop, rule, data, blocks, loss_fn, redraws, directions)
    logs: list[RunLog] = []
    with _held(out) as folder, _progress() as bar:
        task = bar.add_task("", total=len(runs))
        for run in runs:
            bar.update(task, description=run.label)
            logs.append(_once(trial, run, folder, code))
            bar.advance(task)
    for log in logs:
        first = next(other for other in logs if other.spec.seed == log.spec.seed)
        if (log.header.source or {})["start"] != (first.header.source or {})["start"]:
            raise BadInput(
                f"build({log.spec.seed}) gave other weights when called again: no control can be matched; "
                "draw them from the seed alone"
            )
    return audit(logs, protocol)


def _runs(
    method: str, fit: Fit, rule: str | Credit | None, fit_backprop: Fit | None, seeds: Sequence[int]
) -> list[_Run]:
    """Seed by seed, so that whoever stops early has whole seeds."""
    exact: Credit = lambda model: rule_credit(_BP)  # noqa: E731
    credit = exact if isinstance(rule, str) else rule
    runs = []
    for seed in seeds:
        runs += [_Run(method, seed, fit, credit), *(_Run(method, seed, fit, None, p) for p in ("frozen", "readout"))]
        if fit_backprop is not None and rule != _BP:
            runs += [_Run(_BP, seed, fit_backprop, exact), _Run(_BP, seed, fit_backprop, None, "frozen")]
    return runs


def _once(trial: _Trial, run: _Run, folder: Path | None, code: str) -> RunLog:
    """The run's log: the one that the folder holds, or of a training now."""
    if folder is None:
        return trial.train(run)
    path = folder / f"{run.label}.jsonl"
    if path.exists():
        log = RunLog.read(path)
        source = log.header.source or {}
        if source.get("code") != code:
            raise BadInput(
                f"{path.name} was trained by other code, data or settings than are given now; choose another ",
                argument("out"),
            )
        return replace(log, problems=(*log.problems, *json.loads(source["notes"])))
    log = trial.train(run)
    kept = {**(log.header.source or {}), "code": code, "notes": json.dumps(log.problems)}
    _write(path, replace(log, header=log.header.model_copy(update={"source": kept})))
    return log


def _write(path: Path, log: RunLog) -> None:
    """A log under its name at once or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        writer = LogWriter(part)
        writer.create(log.header)
        for row in (*log.epochs, *log.probes, *([log.end] if log.end is not None else ())):
            writer.append(row)
        os.replace(part, path)
    except OSError as error:
        raise CannotWrite(
            f"{path.name}: cannot be written ({error.strerror}); choose another ", argument("out")
        ) from None


@contextmanager
def _held(out: str | Path | None) -> Iterator[Path | None]:
    if out is None:
        yield None
        return
    folder = open_folder(Path(out))
    with hold(folder):
        yield folder


def _progress() -> Progress:
    """A bar over the trainings with the time that is left; none where stderr is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    return Progress(*columns, *times, console=console, disable=not console.is_terminal, speed_estimate_period=86400)


def _method_name(name: str | None, rule: str | Credit | None, fit: Fit) -> str:
    if isinstance(rule, str) and rule != _BP:
        raise BadInput(
            f"wanted rule as 'bp' or a function of the model that gives its credit, got {rule!r}; "
            "e.g. rule=cs.backward_credit"
        )
    if rule == _BP:
        if name not in (None, _BP):
            raise BadInput(f"wanted no name beside rule='bp', got {name!r}: backprop is called bp in every log")
        return _BP
    if name == _BP:
        raise BadInput("a method called bp is taken for backprop; say rule='bp' where it is, or choose another name")
    own = getattr(fit, "__name__", "")
    return name if name is not None else own if own.isidentifier() and own != _BP else "method"


def _seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    whole = all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in numbers)
    if not numbers or not whole or len(set(numbers)) < len(numbers):
        raise BadInput(f"wanted seeds as a number of at least 1 or a list of different ones, got {seeds!r}; seeds=3")
    return numbers


def _names(blocks: BlockNames) -> BlockNames:
    named = isinstance(blocks, Sequence) and not isinstance(blocks, str) and all(isinstance(b, str) for b in blocks)
    if blocks is None or named or (callable(blocks) and not isinstance(blocks, nn.Module)):
        return blocks
    raise BadInput("wanted blocks by name: each run has modules of its own; e.g. blocks=['layers.0', 'layers.1']")


def _tested_on(data: Any) -> Loader:
    """The test part of a user's data."""
    if isinstance(data, (tuple, list)) and len(data) == 2 and not any(isinstance(part, torch.Tensor) for part in data):
        return data[1]  # type: ignore[no-any-return]
    if hasattr(data, "x_test") and hasattr(data, "y_test"):
        return data.x_test, data.y_test
    if hasattr(data, "test"):
        return data.test  # type: ignore[no-any-return]
    raise BadInput(
        f"wanted data as a pair (train, test), or with .test or .x_test and .y_test, got a {type(data).__name__}; "
        "pass data=((x, y), (x_test, y_test))"
    )
