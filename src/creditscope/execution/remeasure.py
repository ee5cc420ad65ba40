"""Measure a saved run again: the expensive set of a checkpoint, appended to its log."""

from pathlib import Path

from pydantic import ValidationError

from creditscope.data import load_data
from creditscope.engine.checkpoint import load_run, read_checkpoint, saved_epoch
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import Factory, default_model
from creditscope.errors import BadFile, BadInput
from creditscope.execution.local import pick_device
from creditscope.probes.expensive import measure_expensive
from creditscope.records import LogWriter, ProbeRow, RunSpec
from creditscope.records.log import explain


def probe_checkpoint(
    path: Path,
    *,
    data: str | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
    redraws: int | None = None,
    directions: int | None = None,
    model: Factory | None = None,
) -> ProbeRow:
    """Measure the expensive set of a checkpoint and append the row to the log beside it.

    Args:
        path: The checkpoint.
        data: Name or file of its data set; None: the name in its spec.
        data_dir: Where data that is not bundled lies.
        device: ``auto``, ``cpu`` or ``cuda``.
        redraws: K; None: as the run was specified.
        directions: M; None: as the run was specified.
        model: Builds the model of a run that was trained on one of the user's own.
    """
    tensors, metadata = read_checkpoint(path)
    try:
        spec = RunSpec.model_validate_json(metadata.get("spec", ""))
    except ValidationError as error:
        raise BadFile(
            f"{path.name}: its metadata holds no run spec ({explain(error)}); is it of creditscope?"
        ) from None
    log = path.with_suffix(".jsonl")
    if not log.exists():
        raise BadFile(f"{log.name} is missing beside the checkpoint; put the run's log there")
    if spec.data is None or spec.probe is None:
        raise BadFile(f"{path.name}: its spec names no data or no probe; only runs of our engine can be measured again")
    dataset = load_data(data or spec.data.name, data_dir)
    if (dataset.spec.hash_train, dataset.spec.hash_test) != (spec.data.hash_train, spec.data.hash_test):
        raise BadInput(f"data {dataset.name!r} is not what this run was trained on (its content hash differs)")
    fleet = Fleet([spec], dataset, model or default_model, pick_device(device))
    load_run(fleet, 0, tensors)
    epoch = saved_epoch(path, metadata)
    fleet.optimiser.set_steps(epoch * fleet.steps_per_epoch)
    row = measure_expensive(
        fleet.snapshot(0, epoch),
        spec.probe.redraws if redraws is None else redraws,
        spec.probe.directions if directions is None else directions,
        keep_draws=True,
    )
    LogWriter(log).append(row)
    return row
