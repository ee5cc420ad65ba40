"""Fleets trained by several processes of one thread each: on a CPU often faster than one stack on all cores."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Self

from creditscope.errors import CreditscopeError, argument
from creditscope.execution.context import TrainContext
from creditscope.execution.folder import SCRATCH
from creditscope.execution.job import Ended, FleetJob, Outcome
from creditscope.execution.worker import SavedData, WorkerJob, save_data
from creditscope.records import RunSpec

# After Ctrl-C a process saves what it has; one that does not come back is ended.
PATIENCE_SECONDS = 30.0


class WorkerProcess:
    """One training process.

    Args:
        keeps: Files that it holds open: the lock of the output folder outlives a killed parent with it.
    """

    def __init__(self, keeps: Sequence[int]) -> None:
        self.pipe, theirs = Pipe()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "creditscope.execution.worker", str(theirs.fileno())],
            pass_fds=(theirs.fileno(), *keeps),
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C comes from the parent alone, once
        )
        theirs.close()
        self.job: FleetJob | None = None

    def take(self, asked: WorkerJob) -> None:
        """Begin a fleet."""
        self.job = asked.job
        self.pipe.send(asked)

    def stop(self, how: signal.Signals) -> None:
        """Send a signal, if it is still there to get it."""
        with suppress(ProcessLookupError):
            self.process.send_signal(how)

    def died(self) -> Outcome:
        """Why it is no longer there."""
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        said = f"a training process ended by {how}; what it had saved is kept, go on with "
        return Outcome(error=CreditscopeError(said, argument("resume", True)))


class Processes:
    """Trains fleets of our own models on this machine's cores, a fleet a process at a time.

    Args:
        context: Where and with what; rows and progress are heard in this process.
        count: How many processes.
        keeps: Open files that the processes share.
    """

    keeps_files = True

    def __init__(self, context: TrainContext, count: int, keeps: Sequence[int]) -> None:
        self._context = context
        self._count = count
        self._keeps = keeps
        self._workers: dict[Connection, WorkerProcess] = {}
        self._saved: dict[str, SavedData] = {}

    def __enter__(self) -> Self:
        self._temporary = tempfile.TemporaryDirectory(prefix=SCRATCH, dir=self._context.folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        workers = list(self._workers.values())
        if kind is not None:  # each saves its last whole epoch, as it would alone
            for worker in workers:
                worker.stop(signal.SIGINT)
                worker.stop(signal.SIGCONT)  # one that was stopped hears it only so
        for worker in workers:
            with suppress(OSError):  # what it still has to say is not waited for
                worker.pipe.close()
        until = time.monotonic() + PATIENCE_SECONDS
        for worker in workers:
            try:
                worker.process.wait(max(0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.stop(signal.SIGKILL)
                worker.process.wait()
        self._temporary.cleanup()

    def takes(self, job: FleetJob) -> bool:
        """Whether a process is idle, or one more may be started."""
        return sum(worker.job is not None for worker in self._workers.values()) < self._count

    def submit(self, job: FleetJob) -> None:
        """Give a job to an idle process, or to a new one."""
        context = self._context
        idle = (worker for worker in self._workers.values() if worker.job is None and worker.process.poll() is None)
        worker = next(idle, None)
        if worker is None:
            worker = WorkerProcess(self._keeps)
            self._workers[worker.pipe] = worker
        worker.take(WorkerJob(job, self._data(job.specs[0]), context.folder, context.resume, context.rules))

    def next_end(self) -> Ended:
        """Hear what the processes say until a fleet ends."""
        while True:
            for pipe in wait([pipe for pipe, worker in self._workers.items() if worker.job is not None]):
                assert isinstance(pipe, Connection)
                worker = self._workers[pipe]
                outcome = self._hear(worker)
                if outcome is not None:
                    assert worker.job is not None
                    job, worker.job = worker.job, None
                    return Ended(job, outcome)

    def _hear(self, worker: WorkerProcess) -> Outcome | None:
        """Take one message of a process; how its fleet ended, when it did."""
        assert worker.job is not None
        try:
            kind, *told = worker.pipe.recv()
        except (EOFError, ConnectionError):
            self._workers.pop(worker.pipe).pipe.close()
            return worker.died()
        if kind == "step":
            self._context.progress.step(worker.job.specs)
        elif kind == "stage":
            self._context.progress.stage(worker.job.specs, *told)
        elif kind == "note":
            self._context.progress.note(*told)
        elif kind == "row":
            answer = self._context.on_row(*told)
            with suppress(ConnectionError):  # if it has died, the next message says so
                worker.pipe.send(answer)
        elif kind == "bug":
            raise told[0]
        return told[0] if kind == "ended" else None

    def _data(self, spec: RunSpec) -> SavedData:
        data = self._context.load(spec)
        if data.name not in self._saved:
            path = Path(self._temporary.name) / f"{len(self._saved)}.npz"
            self._saved[data.name] = save_data(data, path)
        return self._saved[data.name]
