"""CUDA streams: what a GPU does side by side. On a CPU all work runs in turn, and this module does nothing."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

# What must come true before work goes on.
Ready = Callable[[], bool]
# A GPU that is behind with large steps accepts the next one when one is done: no other fleet waits longer than this.
ASKING_SECONDS = 0.02


def at_once() -> bool:
    """Always: there is nothing to wait for."""
    return True


class Streams:
    """A fleet's CUDA stream for training, which runs next to those of other fleets, and one to read its results.

    Args:
        device: The fleet's device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.ahead = device.type == "cuda"  # work is queued before the work ahead of it is done
        self._own = _stream(device) if self.ahead else None
        # The host waits for what is read, but never for a single step: reading has the higher priority.
        self._reading = _stream(device, priority=-1) if self.ahead else None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Work queued inside runs on this fleet's CUDA stream."""
        if self._own is None:
            yield
            return
        with torch.cuda.stream(self._own):
            yield

    def idle(self) -> bool:
        """Whether the device has done all work of this fleet."""
        return self._own is None or bool(self._own.query())

    def wait(self) -> None:
        """Wait until the device has done all work of this fleet; other fleets may still run there."""
        if self._own is not None:
            torch.cuda.current_stream(self._device).synchronize()
            self._own.synchronize()

    def quiet(self) -> None:
        """Wait until the device has done all work."""
        if self._own is not None:
            torch.cuda.synchronize(self._device)

    def paced(self, steps: int, step: Callable[[], None]) -> Iterator[Ready]:
        """Queue steps; where the device is slow, others get a turn until half of the queued steps are done.

        Args:
            steps: How many.
            step: Queues one.
        """
        asked: deque[torch.cuda.Event] = deque()
        began = time.monotonic()
        for _ in range(steps):
            step()
            mark = self.mark()
            if mark is None:
                continue
            asked.append(mark)
            if time.monotonic() - began > ASKING_SECONDS:
                while asked and asked[0].query():  # type: ignore[no-untyped-call]
                    asked.popleft()
                yield asked[len(asked) // 2].query if asked else at_once
                began = time.monotonic()

    def mark(self) -> torch.cuda.Event | None:
        """A mark behind all work queued so far."""
        return None if self._own is None else torch.cuda.current_stream(self._device).record_event()

    @contextmanager
    def reading(self, mark: torch.cuda.Event | None) -> Iterator[None]:
        """Work queued inside waits only for a mark, not for what this fleet queued since; it is done at exit.

        Args:
            mark: From ``mark``.
        """
        if self._reading is None or mark is None:
            yield
            return
        self._reading.wait_event(mark)
        with torch.cuda.stream(self._reading):
            yield
        self._reading.synchronize()


class Lanes:
    """CUDA streams on which independent parts of a step run side by side; on a CPU they run in turn.

    Small kernels leave most of a GPU idle: the groups of a mixed fleet fill it together.

    Args:
        count: How many parts there are.
        device: Where they run.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        several = count > 1 and device.type == "cuda"
        self._streams = [_stream(device) for _ in range(count)] if several else []

    @contextmanager
    def lane(self, part: int) -> Iterator[None]:
        """Run one part after all work queued before the lanes, at the same time as the other parts."""
        if not self._streams:
            yield
            return
        stream = self._streams[part]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield

    def join(self) -> None:
        """What follows waits for every part."""
        for stream in self._streams:
            torch.cuda.current_stream().wait_stream(stream)


def _stream(device: torch.device, priority: int = 0) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
