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
from creditscope.records import RunSpec
from creditscope.sweeps.choose import FEW_STEPS
from creditscope.sweeps.turns import Workshop
from creditscope.sweeps.worker import Order, save_data

# After Ctrl-C a process saves what it has; one that does not come back is ended.
PATIENCE_SECONDS = 30.0
# Seconds of training from which further processes are worth starting: each needs a few to begin.
PROCESS_SECONDS = 20.0


def process_count(workshop: Workshop, fleets: Sequence[Sequence[RunSpec]]) -> int:
    """How many processes train these fleets of our own models fastest on this machine's cores; 1: this one alone.

    One stack on all threads is timed against a share of it on one thread, neither of them traced: that takes seconds,
    and as much from both. Fleets that were begun by several processes go on in as many.

    Args:
        workshop: Where they would be trained.
        fleets: Their runs.
    """
    cores = len(os.sched_getaffinity(0))
    begun = [workshop.begun(members) for members in fleets]
    if cores == 1 or not fleets:
        return 1
    if any(header is not None and header.threads == 1 for header in begun):
        return min(cores, len(fleets))
    new = [members for members, header in zip(fleets, begun, strict=True) if header is None]
    if not new or torch.get_num_threads() == 1:  # who asked for one thread has other plans for the cores
        return 1
    members = max(new, key=len)
    count = min(cores, len(members))
    whole = workshop.build(members, traced=False)
    if count == 1 or whole.planned_steps < FEW_STEPS:
        return 1
    together = step_seconds(whole)
    if together * whole.planned_steps < PROCESS_SECONDS:
        return 1
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        share = step_seconds(workshop.build(members[::count], traced=False))
    finally:
        torch.set_num_threads(threads)
    return count if share < together else 1


class Hand:
    """One training process.

    Args:
        keeps: Files that it holds open: the lock of the output folder outlives a killed parent with it.
    """

    def __init__(self, keeps: Sequence[int]) -> None:
        self.pipe, theirs = Pipe()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "creditscope.sweeps.worker", str(theirs.fileno())],
            pass_fds=(theirs.fileno(), *keeps),
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C comes from the parent alone, once
        )
        theirs.close()
        self.members: tuple[RunSpec, ...] = ()

    def take(self, order: Order) -> None:
        """Begin a fleet."""
        self.members = order.members
        self.pipe.send(order)

    def stop(self, how: signal.Signals) -> None:
        """Send a signal, if it is still there to get it."""
        with suppress(ProcessLookupError):
            self.process.send_signal(how)


def train_in_processes(
    fleets: Sequence[Sequence[RunSpec]], count: int, workshop: Workshop, keeps: Sequence[int]
) -> None:
    """Train fleets of our own models on this machine's cores, a fleet a process at a time.

    Args:
        fleets: Their runs.
        count: How many processes.
        workshop: Where and with what; rows and progress are heard in this process.
        keeps: Open files that the processes share.
    """
    hands: dict[Connection, Hand] = {}
    with tempfile.TemporaryDirectory(prefix="creditscope-") as temporary:
        saved: dict[str, Path] = {}

        def order(members: Sequence[RunSpec]) -> Order:
            data = workshop.load(members[0])
            if data.name not in saved:
                saved[data.name] = Path(temporary) / f"{len(saved)}.npz"
                save_data(data, saved[data.name])
            return Order(tuple(members), workshop.folder, saved[data.name], data.name, data.classes, workshop.resume)

        try:
            waiting = deque(order(members) for members in fleets)
            for _ in range(min(count, len(waiting))):
                hand = Hand(keeps)
                hands[hand.pipe] = hand
                hand.take(waiting.popleft())
            while hands:
                for pipe in wait(list(hands)):
                    assert isinstance(pipe, Connection)
                    if not _hear(hands[pipe], workshop):
                        continue
                    if waiting:
                        hands[pipe].take(waiting.popleft())
                    else:
                        pipe.close()
                        hands.pop(pipe).process.wait()
        except BaseException:
            _call_off(list(hands.values()))
            raise


def _hear(hand: Hand, workshop: Workshop) -> bool:
    """Take one message of a process; whether its fleet is done."""
    try:
        kind, *told = hand.pipe.recv()
    except (EOFError, ConnectionError):
        raise _ended(hand) from None
    if kind == "step":
        workshop.progress.step(hand.members)
    elif kind == "stage":
        workshop.progress.stage(hand.members, *told)
    elif kind == "row":
        answer = workshop.on_row(*told)
        try:
            hand.pipe.send(answer)
        except ConnectionError:
            raise _ended(hand) from None
    elif kind == "note":
        workshop.note(*told)
    elif kind == "failed":
        raise told[0]
    return bool(kind == "done")


def _ended(hand: Hand) -> CreditscopeError:
    """Why a process is no longer there."""
    code = hand.process.wait()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return CreditscopeError(f"a training process ended by {how}; what it had saved is kept, go on with --resume")


def _call_off(hands: Sequence[Hand]) -> None:
    """Stop every process: each saves its last whole epoch, as it would alone."""
    for hand in hands:
        hand.stop(signal.SIGINT)
    for hand in hands:
        with suppress(OSError):  # what it still has to say is not waited for
            hand.pipe.close()
    for hand in hands:
        try:
            hand.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            hand.stop(signal.SIGKILL)
            hand.process.wait()
