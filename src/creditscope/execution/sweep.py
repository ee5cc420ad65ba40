"""Run a sweep: which runs are still to be done, in which fleets, done by whom; finished runs are never done again."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from creditscope.engine.memory import split
from creditscope.errors import BadFile, CannotWrite, CreditscopeError
from creditscope.execution.job import FleetJob, Outcome, is_out_of_memory, train_job
from creditscope.execution.local import PlanProgress, hold, open_folder
from creditscope.execution.pack import existing_logs, plan_fleets
from creditscope.execution.store import download
from creditscope.records import RunLog, RunSpec, write_atomic

SWEEP_LOCK = ".sweep.lock"
OnFleet = Callable[[FleetJob, Outcome], None]


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep will do.

    Args:
        runs: Every run asked for.
        done: Ids of those that ended before: they are left alone.
        jobs: The fleets to be trained.
    """

    runs: tuple[RunSpec, ...]
    done: frozenset[str]
    jobs: tuple[FleetJob, ...]


class Executor(Protocol):
    """Who trains the fleets."""

    keeps_files: bool
    """Whether files are left in the output folder by the work itself; if not, each outcome carries them."""

    @property
    def window(self) -> int:
        """How many jobs it takes at once."""

    def submit(self, job: FleetJob) -> None:
        """Take a job."""

    def result(self) -> tuple[FleetJob, Outcome]:
        """Wait until a job ends, and hand its outcome over."""


@dataclass
class InProcess:
    """Trains one fleet after another in this process, its logs growing in the output folder.

    Args:
        folder: The output folder.
        progress: Hears what is going on.
    """

    folder: Path
    progress: PlanProgress | None = None
    keeps_files: bool = True
    window: int = 1
    _jobs: deque[FleetJob] = field(default_factory=deque)

    def submit(self, job: FleetJob) -> None:
        """Take a job."""
        self._jobs.append(job)

    def result(self) -> tuple[FleetJob, Outcome]:
        """Train the next fleet."""
        job = self._jobs.popleft()
        begun = [path for path in self._files(job) if path.exists()]
        try:
            train_job(job, self.folder, self.progress)
        except CannotWrite:
            raise  # the next fleet would meet the same disk
        except CreditscopeError as error:
            return job, Outcome(error=str(error))
        except BaseException as error:  # without memory, saving what there is can fail in any way, a panic included
            if not is_out_of_memory(error):
                raise
            if begun:
                return job, Outcome(error=f"fleet {job.number} was begun with more memory than there is now")
            for path in self._files(job):  # half a fleet is another fleet: it begins anew
                path.unlink(missing_ok=True)
            return job, Outcome(out_of_memory=True)
        return job, Outcome()

    def _files(self, job: FleetJob) -> list[Path]:
        return [self.folder / f"{stem}{kind}" for stem in job.run_ids for kind in (".jsonl", ".safetensors")]


def plan_sweep(
    specs: Sequence[RunSpec],
    folder: Path,
    *,
    data: dict[str, str],
    resume: bool = False,
    limit: int | None = None,
    fleet_size: int | None = None,
    job: FleetJob | None = None,
    where: str = "cuda",
) -> SweepPlan:
    """Decide what is still to be done, and in which fleets.

    Args:
        specs: The runs asked for.
        folder: The output folder; need not exist.
        data: By the name in a spec, what to load: a name or an ``.npz`` file.
        resume: Whether the folder may already hold some of these runs.
        limit: Bytes that a fleet may take; None: any.
        fleet_size: Runs that a fleet may hold; None: any.
        job: Where the settings of every job come from.
        where: On what the limit holds, ``cpu`` or ``cuda``.
    """
    pattern = job or FleetJob(0, (), "")
    fleets = plan_fleets(folder, specs, resume)
    logs = existing_logs(folder, specs)
    jobs: list[FleetJob] = []
    for fleet in fleets:
        # A fleet that was begun keeps its composition: a bitwise resume needs the same company.
        begun = any(spec.run_id in logs for spec in fleet)
        for part in [fleet] if begun else split(fleet, limit, fleet_size, where):
            name = part[0].data.name if part[0].data is not None else ""
            jobs.append(replace(pattern, number=len(jobs) + 1, specs=tuple(part), data=data[name]))
    done = frozenset(run_id for run_id, log in logs.items() if log.end is not None)
    return SweepPlan(tuple(specs), done, tuple(jobs))


def fetch_done(store: str, specs: Sequence[RunSpec], folder: Path) -> int:
    """Fetch the logs that a store already holds, so that their runs are not done again.

    Args:
        store: The store's address.
        specs: The runs asked for.
        folder: The output folder.
    """
    return download(store, [f"{spec.run_id}.jsonl" for spec in specs], open_folder(folder))


def hold_sweep(folder: Path, stack: ExitStack, alone: bool) -> None:
    """Hold the output folder for a whole sweep.

    Args:
        folder: The folder; made if need be.
        stack: What lets it go.
        alone: Also keep out ``creditscope train``, which holds the folder by itself when a fleet is trained here.
    """
    open_folder(folder)
    stack.enter_context(hold(folder, SWEEP_LOCK))
    if alone:
        stack.enter_context(hold(folder))


def run_sweep(plan: SweepPlan, folder: Path, executor: Executor, on_fleet: OnFleet = lambda job, outcome: None) -> None:
    """Train every fleet of a plan; a fleet that does not fit is halved, one that fails does not stop the others.

    Args:
        plan: The plan.
        folder: The output folder, held by the caller.
        executor: Who trains.
        on_fleet: Hears each job that ended.
    """
    waiting = deque(plan.jobs)
    running = 0
    failures: list[str] = []
    while waiting or running:
        while waiting and running < executor.window:
            executor.submit(waiting.popleft())
            running += 1
        job, outcome = executor.result()
        running -= 1
        if outcome.out_of_memory and len(job.specs) > 1:
            waiting.extendleft(reversed(job.halves()))
        elif outcome.out_of_memory:
            failures.append(f"{job.run_ids[0]} alone does not fit into the memory; lower its batch, width or depth")
        elif outcome.error is not None:
            failures.append(outcome.error)
        elif not executor.keeps_files:
            _keep(job, outcome, folder)
        on_fleet(job, outcome)
    if failures:
        more = f" (and {len(failures) - 1} more fleets)" if len(failures) > 1 else ""
        raise BadFile(f"{failures[0]}{more}; what finished is kept, and --resume does the rest")


def read_logs(plan: SweepPlan, folder: Path) -> list[RunLog]:
    """The logs of a finished sweep, in the order of its runs.

    Args:
        plan: The plan.
        folder: The output folder.
    """
    return [RunLog.read(folder / f"{spec.run_id}.jsonl") for spec in plan.runs]


def _keep(job: FleetJob, outcome: Outcome, folder: Path) -> None:
    """Write what a worker handed back; the names are ours, never the worker's. Logs last: an end row means complete."""
    for kind in (".safetensors", ".jsonl"):
        for stem in job.run_ids:
            if stem + kind in outcome.files:
                write_atomic(folder / (stem + kind), outcome.files[stem + kind])
