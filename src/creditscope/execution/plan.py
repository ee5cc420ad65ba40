"""Which fleets there are: equal shapes train as one stack, and what was begun or planned keeps its company.

The plan is written into the output folder before anything is trained. A bitwise resume needs the same company and the
same number of threads, also of fleets that had not begun when everything was stopped.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from creditscope.engine.checkpoint import checkpoint_path, reached
from creditscope.engine.memory import fleet_bytes, least_bytes, split
from creditscope.errors import BadFile, BadInput, CannotWrite, argument
from creditscope.execution.folder import existing_logs, missing_spec, own_log
from creditscope.execution.job import FleetJob, is_out_of_memory
from creditscope.models import MODELS
from creditscope.records import RunLog, RunSpec, write_atomic
from creditscope.records.files import open_regular
from creditscope.records.log import explain
from creditscope.records.rows import MAX_THREADS
from creditscope.records.spec_parts import Frozen
from creditscope.rules.build import Given

PLAN_FILE = ".plan.json"
# A spec takes about 1.2 KB, and a sweep has at most 100,000 runs.
MAX_PLAN_BYTES = 2**28
_MAX_NAME = 200


class PlannedFleet(Frozen):
    """One fleet of a plan file: the ids of its runs, and its threads on a CPU."""

    runs: tuple[str, ...] = Field(min_length=1)
    threads: int | None = Field(default=None, ge=1, le=MAX_THREADS)


class PlanFile(Frozen):
    """What a plan file holds: every fleet, the specs of its runs by run id, and how many processes train."""

    version: Literal[1] = 1
    processes: int = Field(default=1, ge=1, le=MAX_THREADS)
    specs: dict[str, RunSpec]
    fleets: tuple[PlannedFleet, ...]

    @model_validator(mode="after")
    def _is_of_one_piece(self) -> Self:
        for run_id, spec in self.specs.items():
            # File names are made from ids, so an id must be its spec's own, and nothing but a name.
            if spec.origin != "engine" or spec.run_id != run_id or len(run_id) > _MAX_NAME or not is_name(run_id):
                raise ValueError(f"{run_id[:80]!r} is not the id of its spec")
        placed = [run_id for fleet in self.fleets for run_id in fleet.runs]
        if len(set(placed)) < len(placed) or set(placed) != set(self.specs):
            raise ValueError("wanted every run in one fleet")
        if any(len({self.specs[run_id].stack_key for run_id in fleet.runs}) > 1 for fleet in self.fleets):
            raise ValueError("the runs of a fleet differ in shape")
        return self


def is_name(text: str) -> bool:
    """Whether a text can name a file of a folder, and nothing outside it."""
    return text.isprintable() and "/" not in text and not text.startswith(".")


def read_plan(folder: Path) -> PlanFile | None:
    """The plan that a folder holds.

    Args:
        folder: The output folder.
    """
    advice = "; remove it: fleets that have begun go on all the same"
    try:
        if not os.path.lexists(folder / PLAN_FILE):
            return None
        with open_regular(folder / PLAN_FILE, follow=False) as file:
            data = file.read(MAX_PLAN_BYTES + 1)
        if len(data) > MAX_PLAN_BYTES:
            raise BadFile(f"{PLAN_FILE} is longer than {MAX_PLAN_BYTES} bytes, not a plan of ours{advice}")
        return PlanFile.model_validate_json(data)
    except ValidationError as error:
        raise BadFile(f"{PLAN_FILE} is not a plan of ours ({explain(error)}){advice}") from None


@dataclass(frozen=True)
class Plan:
    """What will be trained.

    Args:
        runs: Every run asked for.
        done: Ids of those that ended before: they are left alone.
        jobs: The fleets to be trained.
        processes: How many processes of this machine train them.
        others: Fleets that were planned in this folder before, and are not asked for now.
    """

    runs: tuple[RunSpec, ...]
    done: frozenset[str]
    jobs: tuple[FleetJob, ...]
    processes: int = 1
    others: tuple[FleetJob, ...] = ()

    def halved(self, job: FleetJob) -> "Plan":
        """The plan with the halves of a job in its place."""
        jobs = [part for each in self.jobs for part in (job.halves() if each == job else (each,))]
        return replace(self, jobs=tuple(jobs))

    def write(self, folder: Path) -> None:
        """Put the plan into its folder, whole or not at all; without a fleet, the file of an earlier one goes.

        Args:
            folder: The output folder, held by the caller.
        """
        fleets = (*self.jobs, *self.others)
        if not fleets:
            (folder / PLAN_FILE).unlink(missing_ok=True)
            return
        file = PlanFile.model_construct(
            processes=self.processes,
            specs={spec.run_id: spec for job in fleets for spec in job.specs},
            fleets=tuple(PlannedFleet(runs=tuple(job.run_ids), threads=job.threads) for job in fleets),
        )
        write_atomic(folder / PLAN_FILE, file.model_dump_json().encode(), resume=True)

    def forget(self, folder: Path) -> None:
        """Take the fleets of this plan out of the folder's file: none of them is begun, or all of them have ended."""
        replace(self, jobs=()).write(folder)


@dataclass(frozen=True)
class Limits:
    """How large a new fleet may be.

    Args:
        device: Where it will live, ``cpu`` or ``cuda``.
        bytes: Memory that it may take; None: any.
        runs: Runs that it may hold; None: any.
        rules: Rules from outside, by name.
        all_bytes: Memory that the device has; None: not known.
    """

    device: str = "cpu"
    bytes: int | None = None
    runs: int | None = None
    rules: Given = field(default_factory=dict)
    all_bytes: int | None = None

    def cut(self, fleet: Sequence[RunSpec]) -> list[list[RunSpec]]:
        """A fleet in as few parts as fit; refused where a run alone takes more than the device has."""
        if self.all_bytes is not None and fleet[0].model in MODELS.names():
            self._refuse(fleet[0], least_bytes(fleet[0]))  # what is far too large is not even forecast
            self._refuse(fleet[0], known_bytes(fleet[:1], self.device, self.rules) or 0)
        known = self.bytes is not None and known_bytes(fleet, self.device, self.rules) is not None
        return split(fleet, self.bytes if known else None, self.runs, self.device, self.rules)

    def _refuse(self, spec: RunSpec, takes: int) -> None:
        if self.all_bytes is not None and takes > self.all_bytes:
            what = f"{spec.run_id} alone takes about {takes / 2**30:,.1f} GiB"
            has = f"this {self.device} has {self.all_bytes / 2**30:.1f}"
            raise BadInput(f"{what}, and {has}; lower its width, depth or batch")

    def order(self, fleets: list[list[RunSpec]]) -> list[list[RunSpec]]:
        """The largest first: it takes longest."""
        if self.device == "cpu":
            return sorted(fleets, key=len, reverse=True)
        return sorted(fleets, key=lambda fleet: -(known_bytes(fleet, self.device, self.rules) or 0))


@dataclass(frozen=True)
class Survey:
    """What there is to do in a folder.

    Args:
        runs: Every run asked for.
        done: Ids of those that ended before.
        kept: Fleets that were begun or planned before, as they were.
        new: Fleets of the other runs.
        processes: How many processes the folder's plan names; None where there is no plan.
        others: Planned fleets that are not asked for now.
    """

    runs: tuple[RunSpec, ...]
    done: frozenset[str]
    kept: tuple[FleetJob, ...]
    new: tuple[tuple[RunSpec, ...], ...]
    processes: int | None
    others: tuple[FleetJob, ...]

    def plan(self, threads: int | None, processes: int = 1) -> Plan:
        """Number the fleets; for several processes each new one is dealt out, a run to each in turn.

        Args:
            threads: Threads of new fleets.
            processes: How many processes.
        """
        parts = [fleet[at::processes] for fleet in self.new for at in range(min(processes, len(fleet)))]
        jobs = [*self.kept, *(FleetJob(0, part, threads) for part in parts)]
        numbered = tuple(replace(job, number=number) for number, job in enumerate(jobs, 1))
        return Plan(self.runs, self.done, numbered, processes, self.others)


def survey(
    folder: Path,
    specs: Sequence[RunSpec],
    resume: bool,
    limits: Limits | None = None,
    stored: bool = False,
) -> Survey:
    """What is still to be done, and in which fleets. Runs that ended are left out, if their checkpoint says so too.

    Args:
        folder: The output folder; need not exist.
        specs: The runs asked for.
        resume: Whether runs that the folder already holds may be gone on with.
        limits: How large a new fleet may be; None: as large as it is.
        stored: Whether checkpoints lie in a store, where an end row is written only after them.
    """
    logs = existing_logs(folder, specs)
    if logs and not resume:
        raise CannotWrite(
            f"the output folder already holds {len(logs)} of these {len(specs)} runs (such as {next(iter(logs))}); ",
            "pass ",
            argument("resume", True),
            " to go on with them, or choose another ",
            argument("out"),
        )
    limits = limits or Limits()
    planned = read_plan(folder) if resume else None
    asked = {spec.run_id: spec for spec in specs}
    known = {**(planned.specs if planned else {}), **asked}
    done = {run_id for run_id, log in logs.items() if _is_over(folder, log, stored)}
    placed = set(done)
    kept: list[FleetJob] = []
    others: list[FleetJob] = []
    for run_id, log in logs.items():
        if run_id not in placed:
            members = _company(folder, log, known, logs)
            kept.append(FleetJob(0, members, log.header.threads, _has_begun(folder, members, logs)))
            placed |= set(kept[-1].run_ids)
    for fleet in planned.fleets if planned else ():
        job = FleetJob(0, tuple(known[run_id] for run_id in fleet.runs), fleet.threads)
        if not any(run_id in asked for run_id in fleet.runs):
            others.append(job)
        elif not any(run_id in placed or _log_ended(folder, known[run_id], stored) for run_id in fleet.runs):
            kept.append(replace(job, begun=_has_begun(folder, job.specs, logs)))
            placed |= set(fleet.runs)
    rest = pack(spec for spec in specs if spec.run_id not in placed)
    new = limits.order([part for fleet in rest for part in limits.cut(fleet)])
    return Survey(
        runs=tuple(specs),
        done=frozenset(done.difference(*(job.run_ids for job in kept))),
        kept=tuple(kept),
        new=tuple(map(tuple, new)),
        processes=planned.processes if planned else None,
        others=tuple(others),
    )


def pack(specs: Iterable[RunSpec]) -> list[list[RunSpec]]:
    """Group runs by ``stack_key``, in the order in which the keys first appear.

    Args:
        specs: The runs.
    """
    fleets: dict[str, list[RunSpec]] = {}
    for spec in specs:
        fleets.setdefault(spec.stack_key, []).append(spec)
    return list(fleets.values())


def known_bytes(fleet: Sequence[RunSpec], device: str, rules: Given) -> int | None:
    """What a fleet of our own models takes; None where it is not known.

    Args:
        fleet: Its runs.
        device: ``cpu`` or ``cuda``.
        rules: Rules from outside, by name.
    """
    if not all(spec.model in MODELS.names() for spec in fleet):
        return None
    try:
        return fleet_bytes(fleet, device, rules)
    except (AssertionError, TypeError, ValueError):  # it cannot be built, and whoever builds it says why
        return None
    except RuntimeError as error:
        if is_out_of_memory(error):  # not even its shapes can be asked for here
            return sum(map(least_bytes, fleet))
        raise


def _company(folder: Path, log: RunLog, known: dict[str, RunSpec], logs: dict[str, RunLog]) -> tuple[RunSpec, ...]:
    """The fleet that a log says its run was begun in; every other log of that fleet must say the same."""
    ids = log.header.fleet or [log.spec.run_id]
    members = tuple(known.get(run_id) or missing_spec(folder, run_id) for run_id in ids)
    others = (_log(folder, spec, logs) for spec in members)
    agreed = all(other is None or (other.header.fleet or [other.spec.run_id]) == ids for other in others)
    if log.spec.run_id not in ids or len(set(ids)) < len(ids) or len({spec.stack_key for spec in members}) > 1:
        said = f"{log.name}: its header names a fleet that it cannot be in; restore it, or use another "
        raise BadFile(said, argument("out"))
    if not agreed:
        said = f"{log.name}: its header names a fleet whose other logs name another; restore them, or use another "
        raise BadFile(said, argument("out"))
    return members


def _log(folder: Path, spec: RunSpec, logs: dict[str, RunLog]) -> RunLog | None:
    path = folder / f"{spec.run_id}.jsonl"
    return logs.get(spec.run_id) or (own_log(path, spec) if os.path.lexists(path) else None)


def _has_begun(folder: Path, members: Sequence[RunSpec], logs: dict[str, RunLog]) -> bool:
    """Whether a fleet has more than the headers of its logs."""
    for spec in members:
        log = _log(folder, spec, logs)
        if (log is not None and log.last is not None) or checkpoint_path(folder, spec.run_id).exists():
            return True
    return False


def _is_over(folder: Path, log: RunLog, stored: bool) -> bool:
    """Whether a run ended and left all that it leaves: an end row alone may be of a run that lost its checkpoint."""
    return log.end is not None and (stored or (reached(folder, log.spec.run_id) or 0) >= log.end.epoch)


def _log_ended(folder: Path, spec: RunSpec, stored: bool) -> bool:
    log = _log(folder, spec, {})
    return log is not None and _is_over(folder, log, stored)
