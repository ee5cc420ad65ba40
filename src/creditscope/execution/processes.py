"""Fleets trained by several processes of one thread each: on a CPU often faster than one stack on all cores."""

import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from creditscope.engine.estimate import step_seconds
from creditscope.errors import CreditscopeError
from creditscope.execution.choose import FEW_STEPS
from creditscope.execution.turns import TrainContext
from creditscope.execution.worker import WorkerJob, save_data
from creditscope.records import RunSpec

# After Ctrl-C a process saves what it has; one that does not come back is ended.
PATIENCE_SECONDS = 30.0
# Seconds of training from which further processes are worth starting: each needs a few to begin.
PROCESS_SECONDS = 20.0


def process_count(context: TrainContext, fleets: Sequence[Sequence[RunSpec]]) -> int:
    """How many processes train these fleets of our own models fastest on this machine's cores; 1: this one alone.

    One stack on all threads is timed against a share of it on one thread, neither of them traced: that takes seconds,
    and as much from both. Fleets that were begun by several processes go on in as many.

    Args:
        context: Where they would be trained.
        fleets: Their runs.
    """
    cores = len(os.sched_getaffinity(0))
    begun = [context.begun(members) for members in fleets]
    if cores == 1 or not fleets:
        return 1
    if any(header is not None and header.threads == 1 for header in begun):
        return min(cores, len(fleets))
    new = [members for members, header in zip(fleets, begun, strict=True) if header is None]
    if not new or torch.get_num_threads() == 1:  # who asked for one thread has other plans for the cores
        return 1
    members = max(new, key=len)
    count = min(cores, len(members))
    whole = context.build(members, traced=False)
    if count == 1 or whole.planned_steps < FEW_STEPS:
        return 1
    together = step_seconds(whole)
    if together * whole.planned_steps < PROCESS_SECONDS:
        return 1
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        share = step_seconds(context.build(members[::count], traced=False))
    finally:
        torch.set_num_threads(threads)
    return count if share < together else 1


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
        self.members: tuple[RunSpec, ...] = ()

    def take(self, order: WorkerJob) -> None:
        """Begin a fleet."""
        self.members = order.members
        self.pipe.send(order)

    def stop(self, how: signal.Signals) -> None:
        """Send a signal, if it is still there to get it."""
        with suppress(ProcessLookupError):
            self.process.send_signal(how)


def train_in_processes(
    fleets: Sequence[Sequence[RunSpec]], count: int, context: TrainContext, keeps: Sequence[int]
) -> None:
    """Train fleets of our own models on this machine's cores, a fleet a process at a time.

    Args:
        fleets: Their runs.
        count: How many processes.
        context: Where and with what; rows and progress are heard in this process.
        keeps: Open files that the processes share.
    """
    workers: dict[Connection, WorkerProcess] = {}
    with tempfile.TemporaryDirectory(prefix="creditscope-") as temporary:
        saved: dict[str, Path] = {}

        def order(members: Sequence[RunSpec]) -> WorkerJob:
            data = context.load(members[0])
            if data.name not in saved:
                saved[data.name] = Path(temporary) / f"{len(saved)}.npz"
                save_data(data, saved[data.name])
            return WorkerJob(tuple(members), context.folder, saved[data.name], data.name, data.classes, context.resume)

        try:
            waiting = deque(order(members) for members in fleets)
            for _ in range(min(count, len(waiting))):
                worker = WorkerProcess(keeps)
                workers[worker.pipe] = worker
                worker.take(waiting.popleft())
            while workers:
                for pipe in wait(list(workers)):
                    assert isinstance(pipe, Connection)
                    if not _hear(workers[pipe], context):
                        continue
                    if waiting:
                        workers[pipe].take(waiting.popleft())
                    else:
                        pipe.close()
                        workers.pop(pipe).process.wait()
        except BaseException:
            _call_off(list(workers.values()))
            raise


def _hear(worker: WorkerProcess, context: TrainContext) -> bool:
    """Take one message of a process; whether its fleet is done."""
    try:
        kind, *told = worker.pipe.recv()
    except (EOFError, ConnectionError):
        raise _ended(worker) from None
    if kind == "step":
        context.progress.step(worker.members)
    elif kind == "stage":
        context.progress.stage(worker.members, *told)
    elif kind == "row":
        answer = context.on_row(*told)
        try:
            worker.pipe.send(answer)
        except ConnectionError:
            raise _ended(worker) from None
    elif kind == "note":
        context.note(*told)
    elif kind == "failed":
        raise told[0]
    return bool(kind == "done")


def _ended(worker: WorkerProcess) -> CreditscopeError:
    """Why a process is no longer there."""
    code = worker.process.wait()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return CreditscopeError(f"a training process ended by {how}; what it had saved is kept, go on with --resume")


def _call_off(workers: Sequence[WorkerProcess]) -> None:
    """Stop every process: each saves its last whole epoch, as it would alone."""
    for worker in workers:
        worker.stop(signal.SIGINT)
    for worker in workers:
        with suppress(OSError):  # what it still has to say is not waited for
            worker.pipe.close()
    for worker in workers:
        try:
            worker.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            worker.stop(signal.SIGKILL)
            worker.process.wait()
