"""Fleets trained by other processes; on a CPU, one thread each, often faster than one stack on all cores."""

import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
        device: Where it trains; on a CPU it has one thread.
    """

    def __init__(self, keeps: Sequence[int], device: torch.device) -> None:
        self.pipe, theirs = Pipe()
        one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} if device.type == "cpu" else {}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "creditscope.sweeps.worker", str(theirs.fileno())],
            pass_fds=(theirs.fileno(), *keeps),
            env={**os.environ, **one_thread},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C comes from the parent alone, once
        )
        theirs.close()
        self.fleets: dict[str, Sequence[RunSpec]] = {}  # by the name of each run

    def take(self, order: Order) -> None:
        """Begin some fleets."""
        self.fleets = {spec.run_id: members for members in order.fleets for spec in members}
        self.pipe.send(order)

    def hear(self, workshop: Workshop) -> bool:
        """Take one message; whether its fleets are done."""
        try:
            kind, *told = self.pipe.recv()
        except (EOFError, ConnectionError):
            raise self._ended() from None
        if kind == "step":
            workshop.progress.step(self.fleets[told[0]])
        elif kind == "stage":
            workshop.progress.stage(self.fleets[told[0]], *told[1:])
        elif kind == "row":
            answer = workshop.on_row(*told)
            try:
                self.pipe.send(answer)
            except ConnectionError:
                raise self._ended() from None
        elif kind == "note":
            workshop.note(*told)
        elif kind == "failed":
            raise told[0]
        return bool(kind == "done")

    def dismiss(self) -> None:
        """Nothing more is to be done."""
        self.pipe.close()
        self.process.wait()

    def stop(self, how: signal.Signals) -> None:
        """Send a signal, if it is still there to get it."""
        with suppress(ProcessLookupError):
            self.process.send_signal(how)

    def _ended(self) -> CreditscopeError:
        """Why the process is no longer there."""
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return CreditscopeError(f"a training process ended by {how}; what it had saved is kept, go on with --resume")


@contextmanager
def orders(workshop: Workshop) -> Iterator[Callable[[Sequence[Sequence[RunSpec]]], Order]]:
    """Makes orders for fleets of one data set each; its files are there until the exit.

    Args:
        workshop: Where and with what they are trained.
    """
    saved: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix="creditscope-") as temporary:

        def order(fleets: Sequence[Sequence[RunSpec]]) -> Order:
            data = workshop.load(fleets[0][0])
            if data.name not in saved:
                saved[data.name] = Path(temporary) / f"{len(saved)}.npz"
                save_data(data, saved[data.name])
            members = tuple(tuple(fleet) for fleet in fleets)
            where = workshop.folder, saved[data.name]
            return Order(members, *where, data.name, data.classes, workshop.resume, workshop.device.type)

        yield order


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
    with orders(workshop) as order:
        try:
            waiting = deque(order([members]) for members in fleets)
            for _ in range(min(count, len(waiting))):
                hand = Hand(keeps, workshop.device)
                hands[hand.pipe] = hand
                hand.take(waiting.popleft())
            while hands:
                for pipe in wait(list(hands)):
                    assert isinstance(pipe, Connection)
                    if not hands[pipe].hear(workshop):
                        continue
                    if waiting:
                        hands[pipe].take(waiting.popleft())
                    else:
                        hands.pop(pipe).dismiss()
        except BaseException:
            call_off(list(hands.values()))
            raise


def call_off(hands: Sequence[Hand]) -> None:
    """Stop processes: each saves its last whole epoch, as it would alone.

    Args:
        hands: The processes.
    """
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
