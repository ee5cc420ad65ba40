"""Streams: what a GPU does side by side; on a CPU everything is done in turn, and nothing here does anything."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

# What must come true before work goes on.
Ready = Callable[[], bool]
# A GPU that is behind with large steps takes the next one when it has done one: nobody waits longer than this for it.
ASKING_SECONDS = 0.02


def at_once() -> bool:
    """Nothing must."""
    return True


class Streams:
    """A fleet's own stream, on which it trains beside other fleets, and one for reading what it has done meanwhile.

    Args:
        device: Where the fleet lives.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.ahead = device.type == "cuda"  # work is asked for before what went before it is done
        self._own = _stream(device) if self.ahead else None
        # The host waits for what is read, and nobody for single steps: those give way.
        self._reading = _stream(device, priority=-1) if self.ahead else None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """What is asked for inside is this fleet's."""
        if self._own is None:
            yield
            return
        with torch.cuda.stream(self._own):
            yield

    def idle(self) -> bool:
        """Whether the device has done all that this fleet asked it for."""
        return self._own is None or bool(self._own.query())

    def wait(self) -> None:
        """Until the device has done all that this fleet asked it for; others may be at work there."""
        if self._own is not None:
            torch.cuda.current_stream(self._device).synchronize()
            self._own.synchronize()

    def quiet(self) -> None:
        """Until the device has done all that anybody asked it for."""
        if self._own is not None:
            torch.cuda.synchronize(self._device)

    def paced(self, steps: int, step: Callable[[], None]) -> Iterator[Ready]:
        """Ask for steps; others may have a turn where the device takes them slowly, until half of those asked are done.

        Args:
            steps: How many.
            step: Asks for one.
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
        """A mark behind all that was asked for so far."""
        return None if self._own is None else torch.cuda.current_stream(self._device).record_event()

    @contextmanager
    def reading(self, mark: torch.cuda.Event | None) -> Iterator[None]:
        """What is asked for inside waits for a mark alone, not for what this fleet was asked since; it is done at exit.

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
    """Streams on which independent parts of a step run side by side; on a CPU they run in turn.

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
        """Run one part after all that was asked for before the lanes, beside the others."""
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
