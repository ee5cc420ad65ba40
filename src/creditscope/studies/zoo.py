"""The zoo, trained: learning rates chosen alike for every method, then every method at its own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from creditscope.data import load_data
from creditscope.data.dataset import Dataset, hold_out
from creditscope.engine.estimate import step_seconds
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.errors import BadInput, did_you_mean
from creditscope.execution.context import RunProgress, pick_device
from creditscope.execution.local import train
from creditscope.plans.presets import SEEDS
from creditscope.plans.zoo import RATES, SMALL, ZOO, Part, parts_of
from creditscope.records import ProbeSpec, RunLog, RunSpec, Tuning
from creditscope.records.load import load_logs
from creditscope.records.table import Table


@dataclass(frozen=True)
class Planned:
    """What will be trained of one part.

    Args:
        part: The part.
        data: Its data set.
        methods: Every method, twins included.
        left_out: Rules that cannot train this model, with the reason.
    """

    part: Part
    data: Dataset
    methods: tuple[str, ...]
    left_out: dict[str, str]

    @property
    def count(self) -> int:
        """How many runs there are, those that choose a rate among them."""
        return len(self.methods) * (len(RATES) + len(SEEDS))

    @property
    def tuning(self) -> list[RunSpec]:
        """One run for each method and learning rate, on what is left of the training split."""
        spec, classes = hold_out(self.data, self.part.held_out).spec, self.data.classes
        return [
            each
            for method in self.methods
            for lr in RATES
            for each in self.part.runs(spec, classes, method, None, lr, epochs=self.part.tuning_epochs)
        ]

    def final(self, tuned: dict[str, Tuning]) -> list[RunSpec]:
        """Every method at its best rate.

        Args:
            tuned: By method.
        """
        spec, classes = self.data.spec, self.data.classes
        return [
            each
            for method in self.methods
            for each in self.part.runs(spec, classes, method, tuned[method], tuned[method].best)
        ]


def plan_zoo(
    small: bool, parts: Sequence[str] | None, rules: Sequence[str] | None, data_dir: Path | None
) -> list[Planned]:
    """What the zoo, or some of it, would train; nothing is trained but a single step of each rule.

    Args:
        small: Whether the small zoo on the bundled images is meant.
        parts: Which models; None: all.
        rules: Which rules, as a part names them; None: all.
        data_dir: Where data that is not bundled lies.
    """
    chosen = parts_of(SMALL if small else ZOO, parts)
    known = list(dict.fromkeys(name for part in chosen for name in part.named()))
    for name in rules or ():
        if name not in known:
            raise BadInput(f"these parts of the zoo have no rule {name!r}; {did_you_mean(name, known)}")
    loaded = {name: load_data(name, data_dir) for name in dict.fromkeys(part.data for part in chosen)}
    return [_planned(part, loaded[part.data], rules) for part in chosen]


def _planned(part: Part, data: Dataset, rules: Sequence[str] | None) -> Planned:
    methods: dict[str, None] = {}
    left_out: dict[str, str] = {}
    for name in part.named():
        if rules is not None and name not in rules:
            continue
        try:
            found = part.methods(name)
            _try(part, data, found[0])
        except BadInput as error:
            left_out[name] = str(error)
        else:
            methods |= dict.fromkeys(found)
    return Planned(part, data, tuple(methods), left_out)


def _try(part: Part, data: Dataset, method: str) -> None:
    """One step on four samples, on the CPU: what a rule refuses, it refuses here."""
    changes = {"batch": 2, "epochs": 1, "probe": ProbeSpec(n=2, epochs=())}
    (spec,) = part.runs(data.spec, data.classes, method, None, RATES[0], **changes)
    few = replace(
        data, x_train=data.x_train[:4], y_train=data.y_train[:4], x_test=data.x_test[:4], y_test=data.y_test[:4]
    )
    Fleet([spec], few, default_model, torch.device("cpu"), traced=False).train_epoch(1, steps=1)


def plan_table(planned: Sequence[Planned]) -> Table:
    """How many runs each part has.

    Args:
        planned: The plan.
    """
    rows = []
    for each in planned:
        part = each.part
        tuning, final = len(each.methods) * len(RATES), len(each.methods) * len(SEEDS)
        rows.append(
            (
                part.name,
                part.data,
                str(len(each.methods)),
                f"{tuning} of {part.tuning_epochs} epochs",
                f"{final} of {part.fields['epochs']} epochs",
                ", ".join(each.left_out) or "–",
            )
        )
    return Table(("part", "data", "methods", "runs that choose a rate", "runs", "left out"), tuple(rows))


def training_seconds(planned: Planned, device: str) -> float:
    """Seconds that the steps of a part will take, from a few steps of one run of each method.

    Args:
        planned: The part.
        device: ``auto``, ``cpu`` or ``cuda``.
    """
    part, data = planned.part, planned.data
    if not planned.methods:
        return 0.0
    specs = [each for method in planned.methods for each in part.runs(data.spec, data.classes, method, None, RATES[0])]
    fleet = Fleet(specs, data, default_model, pick_device(device))
    per_epoch = step_seconds(fleet) * fleet.steps_per_epoch
    held = 1 - part.held_out / len(data.x_train)
    return per_epoch * (len(RATES) * part.tuning_epochs * held + len(SEEDS) * (fleet.spec.epochs or 0))


def train_zoo(
    planned: Sequence[Planned], out: Path, device: str, resume: bool, progress: RunProgress | None = None
) -> list[RunLog]:
    """Choose learning rates, then train, part by part; returns the logs of every part that the folder holds.

    Args:
        planned: What to train.
        out: Folder; each part has its own, with ``tuning`` and ``runs``.
        device: ``auto``, ``cpu`` or ``cuda``.
        resume: Go on with what the folder already holds.
        progress: Hears what is going on.
    """
    for each in planned:
        folder = out / each.part.name
        if not each.methods:
            continue
        held = hold_out(each.data, each.part.held_out)
        tried = train(each.tuning, folder / "tuning", data=held, device=device, resume=resume, progress=progress)
        final = each.final(tunings(each, tried))
        train(final, folder / "runs", data=each.data, device=device, resume=resume, progress=progress)
    return zoo_logs(out)


def zoo_logs(out: Path) -> list[RunLog]:
    """The logs of every part that a folder holds, those that chose learning rates left out.

    Args:
        out: The zoo's folder.
    """
    return [log for folder in sorted(out.glob("*/runs")) for log in load_logs(folder).logs]


def tunings(planned: Planned, tried: Sequence[RunLog]) -> dict[str, Tuning]:
    """What the runs that choose a rate say, by method.

    Args:
        planned: The part.
        tried: Their logs.
    """
    found: dict[str, dict[float, float | None]] = {method: {} for method in planned.methods}
    for log in tried:
        assert log.spec.optimiser is not None
        reached = log.last.test_accuracy if log.last is not None and log.finished else None
        found[log.spec.method][log.spec.optimiser.lr] = reached
    part = planned.part
    return {
        method: Tuning(
            rates=RATES,
            held_out=part.held_out,
            seed=SEEDS[0],
            epochs=part.tuning_epochs,
            accuracy=tuple(by_rate[rate] for rate in RATES),
        )
        for method, by_rate in found.items()
    }
