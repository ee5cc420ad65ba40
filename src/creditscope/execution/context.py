"""Where and with what fleets are trained, and who hears of it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import torch

from creditscope.data import load_data
from creditscope.data.dataset import Dataset
from creditscope.engine.fleet import Fleet
from creditscope.engine.loop import OnRow, Progress
from creditscope.engine.start import Factory, default_model
from creditscope.errors import BadInput, argument
from creditscope.execution.job import Ended
from creditscope.execution.plan import Plan
from creditscope.records import EndRow, EpochRow, HeaderRow, ProbeRow, RunSpec
from creditscope.rules.build import Given, given_rules

logger = logging.getLogger("creditscope")


class FleetProgress(Progress, Protocol):
    """Hears what a fleet does, and lines that a user should read."""

    def note(self, line: str) -> None:
        """Something that a user should read, such as a damaged file that was set aside."""


class RunProgress(FleetProgress, Protocol):
    """Also hears the plan, and how each fleet ended."""

    def plan(self, plan: Plan) -> None:
        """What is about to be trained."""

    def ended(self, ended: Ended) -> None:
        """A fleet ended."""


class Quiet:
    """A progress display that shows nothing; what a user must know is logged as a warning."""

    def plan(self, plan: Plan) -> None:
        """What is about to be trained."""

    def note(self, line: str) -> None:
        """Something that a user should read."""
        logger.warning(line)

    def stage(self, members: Sequence[RunSpec], epoch: int, doing: str) -> None:
        """A fleet begins something."""

    def step(self, members: Sequence[RunSpec]) -> None:
        """One step is done."""

    def ended(self, ended: Ended) -> None:
        """A fleet ended."""


def unheard(header: HeaderRow, row: EpochRow | ProbeRow | EndRow) -> None:
    """Hears rows and does nothing."""


@dataclass(frozen=True)
class TrainContext:
    """Where and with what fleets are trained.

    Args:
        folder: Where logs and checkpoints lie.
        load: The data set of a run.
        device: Where the fleets live.
        progress: Hears what is going on.
        on_row: Hears every row; a text it returns stops that run.
        resume: Whether fleets may have begun before.
        factory: Builds a run's model.
        rules: Rules from outside: ``package.module:Name``, or a Python object, which no other process can be given.
    """

    folder: Path
    load: Callable[[RunSpec], Dataset]
    device: torch.device
    progress: FleetProgress
    on_row: OnRow = unheard
    resume: bool = False
    factory: Factory = default_model
    rules: tuple[object, ...] = ()

    @property
    def can_travel(self) -> bool:
        """Whether another process can be told the same: the models are ours, and the rules have names."""
        return self.factory is default_model and all(isinstance(rule, str) for rule in self.rules)

    def build(self, members: Sequence[RunSpec], fused: bool = False) -> Fleet:
        """A fleet at initialisation.

        Args:
            members: Its runs.
            fused: Whether it is compiled.
        """
        return Fleet(members, self.load(members[0]), self.factory, self.device, fused, rules=self.given)

    @cached_property
    def given(self) -> Given:
        """The rules from outside, by name."""
        return given_rules(self.rules)


def check_device(name: str) -> None:
    """Refuse a device that is none of ours; whether this machine has it is not asked.

    Args:
        name: ``auto``, ``cpu`` or ``cuda``.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise BadInput(argument("device", name), ": wanted auto, cpu or cuda")


def pick_device(name: str) -> torch.device:
    """The device to train on.

    Args:
        name: ``auto``: CUDA where there is one, else the CPU.
    """
    check_device(name)
    if name == "cuda" and not torch.cuda.is_available():
        advice = (argument("device", "cpu"), " or auto")
        raise BadInput(argument("device", name), ": this torch sees no CUDA device; use ", *advice)
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


@lru_cache(maxsize=2)
def load_named(name: str, data_dir: Path | None) -> Dataset:
    """A data set, read once a process for the fleets that follow each other there.

    Args:
        name: Its name, an ``.npz`` or a ``.txt`` file.
        data_dir: Folder of data that is not bundled.
    """
    return load_data(name, data_dir)


def checked(spec: RunSpec, data: Dataset) -> Dataset:
    """A run's data set, refused where the run names other content.

    Args:
        spec: The run.
        data: The data set of that name.
    """
    named = spec.data
    if named is not None and (
        named.hash_train not in (None, data.spec.hash_train) or named.hash_test not in (None, data.spec.hash_test)
    ):
        raise BadInput(f"data {named.name!r} is not the data this run was specified on (its content hash differs)")
    return data
