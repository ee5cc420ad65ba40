"""Train a sweep: the runs that a spec file stands for, here or on a Ray cluster. Finished runs are never done again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from creditscope.engine.estimate import estimate
from creditscope.engine.fleet import Fleet
from creditscope.engine.loop import OnRow
from creditscope.engine.start import default_model
from creditscope.errors import BadInput, argument
from creditscope.execution.context import Quiet, RunProgress, TrainContext, load_named, pick_device, unheard
from creditscope.execution.folder import hold, open_folder
from creditscope.execution.local import local_limits, train_here
from creditscope.execution.plan import Limits, Plan, survey
from creditscope.execution.ray_cluster import RayFleets, RaySettings
from creditscope.execution.remote import RemoteContext
from creditscope.execution.run import run
from creditscope.execution.store import download
from creditscope.plans.grid import expand
from creditscope.plans.spec_file import spec_of
from creditscope.records import RunLog, RunSpec
from creditscope.rules.build import given_rules


@dataclass(frozen=True)
class SweepRuns:
    """The runs of a sweep, and where their data comes from.

    Args:
        runs: Every run, each once.
        remote: What loads their data, here and on other machines.
    """

    runs: tuple[RunSpec, ...]
    remote: RemoteContext


def sweep_runs(
    spec: Path | str | Mapping[str, Any], data_dir: Path | None = None, rules: Sequence[object] = ()
) -> SweepRuns:
    """The runs that a sweep spec stands for; their data is read.

    Args:
        spec: Path of a YAML file, or a mapping with its keys.
        data_dir: Folder of data that is not bundled; None: as ``CREDITSCOPE_DATA`` says.
        rules: Rules from outside: ``package.module:Name``, or Python objects.
    """
    given = given_rules(rules)
    wanted = spec_of(spec, given)
    loaded = {name: load_named(name, data_dir) for name in wanted.data}
    names = {data.spec.name: name for name, data in loaded.items()}
    if len(names) < len(loaded):
        raise BadInput(f"{wanted.name}: two data files share a name ({', '.join(loaded)}); rename one")
    runs = expand(wanted, {name: (data.spec, data.classes) for name, data in loaded.items()}, given)
    return SweepRuns(tuple(runs), RemoteContext(names, data_dir, rules=tuple(rules)))


def sweep(
    spec: Path | str | Mapping[str, Any] | SweepRuns,
    out: Path | str = "runs",
    *,
    on: str | RaySettings = "local",
    device: str = "auto",
    data_dir: Path | None = None,
    fleet_size: int | None = None,
    resume: bool = False,
    dry_run: bool = False,
    on_row: OnRow | None = None,
    progress: RunProgress | None = None,
    rules: Sequence[object] = (),
) -> list[RunLog]:
    """Train a sweep and return its logs, in the order of its runs.

    Args:
        spec: Which runs: path of a YAML file, a mapping with its keys, or what ``sweep_runs`` made of one.
        out: Folder for logs and checkpoints; made if need be.
        on: ``local``, ``ray`` for a Ray of our own on this machine, or the settings of a cluster.
        device: ``auto``, ``cpu`` or ``cuda``.
        data_dir: Folder of data that is not bundled; None: as ``CREDITSCOPE_DATA`` says.
        fleet_size: Most runs of a fleet; None: as many as fit the memory.
        resume: Go on with runs that the folder already holds.
        dry_run: Only tell ``progress`` the plan; no log is returned.
        on_row: Hears every row of runs that are trained here; a text it returns stops that run.
        progress: Hears the plan, and what is going on.
        rules: Rules from outside: ``package.module:Name``; for this machine alone also Python objects.
    """
    if on not in ("local", "ray") and not isinstance(on, RaySettings):
        raise BadInput(argument("on", on), ": wanted local or ray")
    settings = on if isinstance(on, RaySettings) else RaySettings() if on == "ray" else None
    if settings is not None and on_row is not None:
        raise BadInput(argument("on_row"), ": rows on other machines are not heard; read the logs when they are there")
    asked = spec if isinstance(spec, SweepRuns) else sweep_runs(spec, data_dir, rules)
    given = given_rules(asked.remote.rules)
    progress = progress or Quiet()
    where = pick_device(device if settings is None else "cpu")
    if dry_run:
        limits = local_limits(where, fleet_size, given) if settings is None else Limits(runs=fleet_size)
        stored = settings is not None and settings.store is not None
        progress.plan(survey(Path(out), asked.runs, True, limits, stored).plan(threads=None))
        return []
    folder = open_folder(Path(out))
    if settings is None:
        load = asked.remote.load
        context = TrainContext(folder, load, where, progress, on_row or unheard, resume, rules=asked.remote.rules)
        return train_here(asked.runs, context, progress, fleet_size)
    source = asked.remote
    remote = RemoteContext(source.data, source.data_dir, device, settings.store, settings.scratch, source.rules)
    with hold(folder):
        if settings.store is not None:
            fetch_done(settings.store, asked.runs, folder)
        stored = settings.store is not None
        found = survey(folder, asked.runs, resume or stored, Limits(runs=fleet_size), stored)
        plan = found.plan(threads=settings.cpus)
        progress.plan(plan)
        return run(plan, RayFleets(settings, remote, _say_slots(plan, progress)), folder, progress)


def fetch_done(store: str, specs: Sequence[RunSpec], folder: Path) -> int:
    """Fetch the logs that a store already holds, so that their runs are not done again.

    Args:
        store: The store's address.
        specs: The runs asked for.
        folder: The output folder.
    """
    return download(store, [f"{spec.run_id}.jsonl" for spec in specs], open_folder(folder))


def sweep_seconds(plan: Plan, source: RemoteContext, device: torch.device) -> float:
    """Seconds that the fleets of a plan would take one after another, from a short calibration on this device.

    A fleet is timed as it would train, all of its runs stacked; fleets of the same make are timed once.

    Args:
        plan: The plan.
        source: Where the data of its runs, and rules from outside, come from.
        device: The device to time on.
    """
    given = given_rules(source.rules)
    known: dict[tuple[object, ...], float] = {}
    total = 0.0
    for specs in (job.specs for job in plan.jobs):
        key = (specs[0].stack_key, *sorted((spec.rule, spec.is_baseline) for spec in specs))
        if key not in known:
            known[key] = estimate(Fleet(list(specs), source.load(specs[0]), default_model, device, rules=given)).total
        total += known[key]
    return total


def _say_slots(plan: Plan, progress: RunProgress) -> Callable[[int], None]:
    """Say when part of a cluster would stand idle."""

    def say(slots: int) -> None:
        if slots > len(plan.jobs):
            progress.note(
                f"room for {slots} fleets at once, and there are {len(plan.jobs)}; a smaller fleet size makes more"
            )

    return say
