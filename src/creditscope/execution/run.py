"""The one loop behind ``train``, ``sweep`` and ``reproduce``: fleets go to an executor, how they ended comes back."""

from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from creditscope.errors import BadInput, CannotWrite, CreditscopeError, argument
from creditscope.execution.context import RunProgress
from creditscope.execution.job import Ended, FleetJob, Outcome
from creditscope.execution.plan import Plan
from creditscope.records import RunLog, write_atomic


class Executor(Protocol):
    """Who trains the fleets. It is entered before the first job and left after the last."""

    keeps_files: bool
    """Whether files are left in the output folder by the work itself; if not, each outcome carries them."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def takes(self, job: FleetJob) -> bool:
        """Whether it takes a job now; with none at hand it takes any."""

    def submit(self, job: FleetJob) -> None:
        """Take a job."""

    def next_end(self) -> Ended:
        """Wait until a job ends. A bug is raised; a user's mistake and a lack of memory are outcomes."""


def run(plan: Plan, executor: Executor, folder: Path, progress: RunProgress) -> list[RunLog]:
    """Train every fleet of a plan; a fleet that does not fit is halved, one that fails does not stop the others.

    Args:
        plan: The plan, which is written down first.
        executor: Who trains.
        folder: The output folder, held by the caller.
        progress: Hears how each fleet ended.

    Returns:
        The logs, in the order of the runs that were asked for.
    """
    if not plan.jobs:
        plan.forget(folder)  # whoever wrote it may have been killed when all was done
    else:
        plan.write(folder)
        failures: list[CreditscopeError] = []
        over = False
        try:
            with executor:
                failures = _train(plan, executor, folder, progress)
            over = not failures
        finally:
            if over or not any((folder / f"{run_id}.jsonl").exists() for job in plan.jobs for run_id in job.run_ids):
                plan.forget(folder)
        if failures:
            raise _summed(failures, alone=len(plan.jobs) == 1)
    return [RunLog.read(folder / f"{spec.run_id}.jsonl") for spec in plan.runs]


def _train(plan: Plan, executor: Executor, folder: Path, progress: RunProgress) -> list[CreditscopeError]:
    """Train every fleet; the failures."""
    waiting = deque(plan.jobs)
    running = 0
    failures: list[CreditscopeError] = []
    while waiting or running:
        while waiting and executor.takes(waiting[0]):
            executor.submit(waiting.popleft())
            running += 1
        ended = executor.next_end()
        running -= 1
        job, outcome = ended
        if isinstance(outcome.error, CannotWrite) and executor.keeps_files:
            raise outcome.error  # the next fleet would meet the same disk
        if outcome.out_of_memory and not job.begun and executor.keeps_files:
            _discard(job, folder)
        if outcome.out_of_memory and not job.begun and len(job.specs) > 1:
            plan = plan.halved(job)
            plan.write(folder)
            waiting.extendleft(reversed(job.halves()))
        elif outcome.out_of_memory:
            failures.append(_no_room(job))
        elif outcome.error is not None:
            failures.append(outcome.error)
        elif not executor.keeps_files:
            _keep(job, outcome, folder)
        progress.ended(ended)
    return failures


def _no_room(job: FleetJob) -> BadInput:
    if job.begun and len(job.specs) > 1:
        return BadInput(f"the fleet of {job.run_ids[0]} was begun with more memory than there is now; free some")
    return BadInput(f"{job.run_ids[0]} alone does not fit into the memory; lower its batch, width or depth")


def _summed(failures: list[CreditscopeError], alone: bool) -> CreditscopeError:
    """The first failure, which says how many more there are, and what became of the others."""
    first = failures[0]
    if alone:
        return first
    more = f" (and {len(failures) - 1} more fleets)" if len(failures) > 1 else ""
    return type(first)(*first.args, f"{more}; what finished is kept, and ", argument("resume", True), " does the rest")


def _discard(job: FleetJob, folder: Path) -> None:
    """Leave nothing of a fleet that did not fit: half a fleet is another fleet, and begins anew."""
    for stem in job.run_ids:
        for kind in (".jsonl", ".safetensors", ".safetensors.previous"):
            (folder / f"{stem}{kind}").unlink(missing_ok=True)


def _keep(job: FleetJob, outcome: Outcome, folder: Path) -> None:
    """Write what a worker handed back; the names are ours, never the worker's. Logs last: an end row means complete."""
    for kind in (".safetensors", ".jsonl"):
        for stem in job.run_ids:
            if stem + kind in outcome.files:
                write_atomic(folder / (stem + kind), outcome.files[stem + kind], resume=True)
