"""Reproduce a study in one go: train what is missing, audit, draw, report."""

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from creditscope.data import load_data
from creditscope.data.dataset import Dataset
from creditscope.engine.estimate import Estimate, estimate
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.errors import BadInput, did_you_mean
from creditscope.execution.context import RunProgress, pick_device
from creditscope.execution.local import train
from creditscope.execution.plan import pack
from creditscope.figures import draw_figure
from creditscope.plans.presets import PRESETS, build_specs, preset
from creditscope.protocol.audit import Audit, audit
from creditscope.records import RunLog, RunSpec, write_atomic
from creditscope.report import write_report
from creditscope.studies.partial import REDUCED, partial_audit


@dataclass(frozen=True)
class Picture:
    """One figure of a study.

    Args:
        artefact: Which figure.
        stem: File name without suffix.
        preset: Whose runs it shows.
    """

    artefact: str
    stem: str
    preset: str


@dataclass(frozen=True)
class Study:
    """What a study trains and draws.

    Args:
        about: One line for ``--help``.
        presets: The runs.
        pictures: The figures.
        partial: Whose dfa-rms runs the partial audit reduces to the published layout.
    """

    about: str
    presets: tuple[str, ...]
    pictures: tuple[Picture, ...]
    partial: str


STUDIES = {
    "demo": Study(
        f"{PRESETS['demo'].count} small runs on the bundled images, under two minutes on two cores",
        ("demo",),
        tuple(Picture(name, name, "demo") for name in ("hero", "penalty-rescue", "penalty-sweep", "snapshot")),
        "demo",
    ),
    "paper": Study(
        "the reference experiments on CIFAR-10; wants a GPU",
        ("audit", "penalty", "snapshot", "vit"),
        (
            Picture("hero", "hero", "audit"),
            Picture("penalty-rescue", "penalty-rescue", "penalty"),
            Picture("penalty-sweep", "penalty-sweep", "penalty"),
            Picture("snapshot", "snapshot-resmlp", "snapshot"),
            Picture("snapshot", "snapshot-vit", "vit"),
        ),
        "penalty",
    ),
}


@dataclass(frozen=True)
class Reproduced:
    """What a study left behind.

    Args:
        audit: The verdicts, protocol ``standard``.
        files: What was written besides the logs.
        warnings: Which series a figure lacks, and why.
    """

    audit: Audit
    files: tuple[Path, ...]
    warnings: tuple[str, ...]


def study(name: str) -> Study:
    """A study by name.

    Args:
        name: One of ``STUDIES``.
    """
    if name not in STUDIES:
        raise BadInput(f"unknown study {name!r}; {did_you_mean(name, STUDIES)}")
    return STUDIES[name]


def study_specs(chosen: Study, data_dir: Path | None) -> tuple[dict[str, list[RunSpec]], Dataset]:
    """The runs of every preset of a study, and the data set they share.

    Args:
        chosen: The study.
        data_dir: Where data that is not bundled lies.
    """
    data = load_data(preset(chosen.presets[0]).data, data_dir)
    return {name: build_specs(preset(name), data.spec, data.classes) for name in chosen.presets}, data


def plan(
    chosen: Study, data_dir: Path | None, device: str, on_fleet: Callable[[int, int], None] = lambda number, of: None
) -> list[tuple[list[RunSpec], Estimate]]:
    """The fleets of a study, each with the time it would take here, from a short calibration.

    Args:
        chosen: The study.
        data_dir: Where data that is not bundled lies.
        device: ``auto``, ``cpu`` or ``cuda``.
        on_fleet: Hears which fleet of how many is being timed.
    """
    specs, data = study_specs(chosen, data_dir)
    fleets = pack(dict.fromkeys(spec for runs in specs.values() for spec in runs))
    where = pick_device(device)
    timed = []
    for number, members in enumerate(fleets, 1):
        on_fleet(number, len(fleets))
        timed.append((members, estimate(Fleet(members, data, default_model, where))))
    return timed


def reproduce(
    chosen: Study,
    out: Path,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    resume: bool = False,
    progress: RunProgress | None = None,
    command: str | None = None,
) -> Reproduced:
    """Train a study's runs (only those that are missing, with ``resume``), judge them, draw and report.

    Args:
        chosen: The study.
        out: Folder; logs go into ``runs``, pictures into ``figures``.
        data_dir: Where data that is not bundled lies.
        device: ``auto``, ``cpu`` or ``cuda``.
        resume: Go on with what the folder already holds.
        progress: Hears what is going on.
        command: The command line, for the report.
    """
    specs, data = study_specs(chosen, data_dir)
    every = list(dict.fromkeys(spec for runs in specs.values() for spec in runs))
    logs = train(every, out / "runs", data=data, device=device, resume=resume, progress=progress)
    judged = audit(logs)
    files, warnings = _draw(chosen, out / "figures", specs, logs)
    files += _write_partial(out, _of(specs[chosen.partial], logs))
    files.append(write_report(logs, out / "report.html", command=command))
    return Reproduced(judged, tuple(files), tuple(warnings))


def _of(specs: Sequence[RunSpec], logs: Sequence[RunLog]) -> list[RunLog]:
    wanted = {spec.run_id for spec in specs}
    return [log for log in logs if log.spec.run_id in wanted]


def _draw(
    chosen: Study, folder: Path, specs: dict[str, list[RunSpec]], logs: Sequence[RunLog]
) -> tuple[list[Path], list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    warnings: list[str] = []
    for picture in chosen.pictures:
        drawn = draw_figure(picture.artefact, _of(specs[picture.preset], logs))
        forms = {".pdf": drawn.encode(".pdf"), ".png": drawn.encode(".png"), ".csv": drawn.table.to_csv().encode()}
        for suffix, content in forms.items():
            path = folder / f"{picture.stem}{suffix}"
            write_atomic(path, content)
            files.append(path)
        warnings += drawn.warnings
    return files, warnings


def _write_partial(out: Path, logs: Sequence[RunLog]) -> list[Path]:
    judged = partial_audit(logs)
    forms = {
        "txt": "\n\n".join([textwrap.fill(REDUCED, 100), judged.to_text()]),
        "md": "\n\n".join([REDUCED, judged.to_markdown()]),
        "json": json.dumps({"note": REDUCED, **judged.to_dict()}, indent=2, allow_nan=False),
    }
    files = []
    for suffix, text in forms.items():
        path = out / f"partial-audit.{suffix}"
        write_atomic(path, f"{text}\n".encode())
        files.append(path)
    return files
