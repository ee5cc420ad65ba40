"""One fleet as a unit of work for any process, and how it ended."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from creditscope.errors import CreditscopeError
from creditscope.records import RunSpec

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


@dataclass(frozen=True)
class FleetJob:
    """A fleet to be trained.

    Args:
        number: Its number in the plan, from 1.
        specs: Its runs.
        threads: Torch threads on a CPU; None: as torch chooses.
        begun: Whether it was begun before: then it is never halved, because a bitwise resume needs the same company.
    """

    number: int
    specs: tuple[RunSpec, ...]
    threads: int | None = None
    begun: bool = False

    @property
    def run_ids(self) -> list[str]:
        """The file stems of its runs."""
        return [spec.run_id for spec in self.specs]

    def halves(self) -> tuple["FleetJob", "FleetJob"]:
        """Two jobs of half the runs each."""
        middle = len(self.specs) // 2
        return replace(self, specs=self.specs[:middle]), replace(self, specs=self.specs[middle:])


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Args:
        files: Name and content of what was made, where it did not stay on the machine that made it.
        out_of_memory: Whether the fleet did not fit, or is thought not to have.
        error: Why it failed; None when it did not.
        notes: Lines that a user should read.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    out_of_memory: bool = False
    error: CreditscopeError | None = None
    notes: tuple[str, ...] = ()


class Ended(NamedTuple):
    """A job that ended, and how."""

    job: FleetJob
    outcome: Outcome


def outcome_of(error: BaseException) -> Outcome:
    """How a job ended that raised; what is neither a user's mistake nor a lack of memory is raised on.

    Args:
        error: What it raised; it lets go of the frames that it came through, and with them of the fleet.
    """
    if is_out_of_memory(error):
        return Outcome(out_of_memory=True)
    if isinstance(error, CreditscopeError):
        error.__context__ = None
        return Outcome(error=error.with_traceback(None))
    raise error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of the device or of the machine, ran out; or followed on one that does.

    Args:
        error: What was raised.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return False
    step: BaseException | None = error
    while step is not None:
        if isinstance(step, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(step, RuntimeError) and any(words in str(step) for words in _NO_MEMORY):
            return True
        step = step.__context__
    return False
