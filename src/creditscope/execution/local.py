"""Train a list of specs on this machine, in this process or in several: one way for ``train`` and for sweeps here."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from creditscope.data import DATASETS, load_data
from creditscope.data.dataset import Dataset
from creditscope.engine.loop import OnRow
from creditscope.engine.memory import all_bytes, free_bytes
from creditscope.engine.start import Factory, default_model
from creditscope.errors import BadInput
from creditscope.execution.calibrate import TimedFleet, available_cores, process_count
from creditscope.execution.context import Quiet, RunProgress, TrainContext, checked, pick_device, unheard
from creditscope.execution.folder import hold, open_folder
from creditscope.execution.in_process import InProcess
from creditscope.execution.plan import Limits, Plan, Survey, survey
from creditscope.execution.processes import Processes
from creditscope.execution.run import Executor, run
from creditscope.models import MODELS
from creditscope.records import RunLog, RunSpec
from creditscope.rules.build import Given, unused_rules


def train(
    specs: Iterable[RunSpec],
    out: Path | str,
    *,
    data: Dataset | None = None,
    model: Factory | None = None,
    device: str = "auto",
    resume: bool = False,
    on_row: OnRow | None = None,
    progress: RunProgress | None = None,
    rules: Sequence[object] = (),
) -> list[RunLog]:
    """Train runs and return their logs.

    Args:
        specs: The runs; those of equal shapes are stacked.
        out: Folder for logs and checkpoints; made if need be.
        data: The data set of every run; None: each spec's, by name (``CREDITSCOPE_DATA`` names the folder).
        model: Builds a run's model from (spec, data set); None: the spec's own model.
        device: ``auto``, ``cpu`` or ``cuda``.
        resume: Go on with runs that the folder already holds.
        on_row: Hears every row; a text it returns stops that run.
        progress: Hears what is going on.
        rules: Rules from outside: ``package.module:Name``, or Python objects.
    """
    folder = open_folder(Path(out))
    where = pick_device(device)
    progress = progress or Quiet()
    loaded: dict[str, Dataset] = {}

    def load(spec: RunSpec) -> Dataset:
        if data is not None:
            return checked(spec, data)
        name = _data_name(spec)
        if name not in loaded:
            if name not in DATASETS.names():
                raise BadInput(f"data {name!r} is not known by its name alone; pass the data set as data=")
            loaded[name] = load_data(name)
        return checked(spec, loaded[name])

    runs = list(dict.fromkeys(_with_data(spec, load(spec)) for spec in specs))
    if not runs:
        raise BadInput("no run to train: wanted at least one method and one seed")
    if model is not None and runs[0].model in MODELS.names():
        raise BadInput(
            f"a model of your own needs a name of its own, the spec says {runs[0].model!r}: its log would claim to be "
            f"ours; pass changes={{'model': 'my-net'}} to specs()"
        )
    factory = model or default_model
    context = TrainContext(folder, load, where, progress, on_row or unheard, resume, factory, tuple(rules))
    return train_here(runs, context, progress)


def train_here(
    runs: Sequence[RunSpec], context: TrainContext, progress: RunProgress, fleet_size: int | None = None
) -> list[RunLog]:
    """Plan runs, train them on this machine, and return their logs.

    Args:
        runs: The runs, their data known.
        context: Where and with what.
        progress: Hears the plan, and how each fleet ended.
        fleet_size: Most runs of a new fleet; None: as many as fit the memory.
    """
    with hold(context.folder) as lock:
        for line in unused_rules(context.given, runs):
            progress.note(line)
        limits = local_limits(context.device, fleet_size, context.given)
        found = survey(context.folder, runs, context.resume, limits)
        plan, timed = _plan(found, context)
        progress.plan(plan)
        executor: Executor = InProcess(context, timed)
        if plan.processes > 1:
            executor = Processes(context, plan.processes, keeps=(lock.fileno(),))
        return run(plan, executor, context.folder, progress)


def local_limits(device: torch.device, fleet_size: int | None, rules: Given) -> Limits:
    """How large a new fleet may be on this machine now.

    Args:
        device: Where it would live.
        fleet_size: Runs that it may hold; None: any.
        rules: Rules from outside, by name.
    """
    return Limits(device.type, free_bytes(device), fleet_size, rules, all_bytes(device))


def _plan(found: Survey, context: TrainContext) -> tuple[Plan, TimedFleet | None]:
    """How many processes train; what was begun by several goes on in as many."""
    if context.device.type == "cuda":
        return found.plan(threads=None), None
    cores, timed = available_cores(), None
    if not context.can_travel:
        processes = 1
    elif found.kept and found.processes is not None:
        processes = min(cores, found.processes)
    elif any(job.threads == 1 for job in found.kept):  # of a folder without a plan
        processes = min(cores, len(found.kept) + len(found.new))
    else:
        processes, timed = process_count(context, found.new)
    threads = 1 if processes > 1 else torch.get_num_threads()
    return found.plan(threads, processes), timed


def _with_data(spec: RunSpec, data: Dataset) -> RunSpec:
    """The spec with the data set's hashes filled in."""
    return spec.model_copy(update={"data": data.spec, "classes": data.classes})


def _data_name(spec: RunSpec) -> str:
    if spec.data is None:
        raise BadInput("a run without data cannot be trained; name a data set in its spec")
    return spec.data.name
