"""Measure a saved run again: the expensive set of a checkpoint, appended to its log."""

from collections.abc import Sequence
from pathlib import Path

from creditscope.data import load_data
from creditscope.engine.checkpoint import check_owner, check_values, load_run, read_checkpoint, saved_spec
from creditscope.engine.fleet import Fleet
from creditscope.engine.loop import refuse_other_rule
from creditscope.engine.start import Factory, default_model
from creditscope.errors import BadFile, BadInput, argument
from creditscope.execution.context import pick_device
from creditscope.execution.folder import own_log
from creditscope.execution.repair import check_rows, ended_early
from creditscope.probes.expensive import measure_expensive
from creditscope.records import LogWriter, ProbeRow, RunLog, RunSpec
from creditscope.rules.build import given_rules


def probe_checkpoint(
    path: Path,
    *,
    data: str | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
    redraws: int | None = None,
    directions: int | None = None,
    model: Factory | None = None,
    rules: Sequence[object] = (),
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
        rules: Rules from outside: ``package.module:Name``, or Python objects.
    """
    for name, number in (("redraws", redraws), ("directions", directions)):
        if number is not None and not 0 <= number <= 10**6:
            raise BadInput(argument(name, number), ": wanted a whole number from 0 to 1000000")
    _check_name(path)
    tensors, metadata = read_checkpoint(path)
    spec = saved_spec(path, metadata)
    log = _ended_log(path, spec)
    if spec.data is None or spec.probe is None:
        raise BadFile(f"{path.name}: its spec names no data or no probe; only runs of our engine can be measured again")
    epoch = check_owner(path, metadata, spec)
    check_values(path, tensors, spec, ended_early(log, epoch))
    where = pick_device(device)
    dataset = load_data(data or spec.data.name, data_dir)
    if (dataset.spec.hash_train, dataset.spec.hash_test) != (spec.data.hash_train, spec.data.hash_test):
        raise BadInput(f"data {dataset.name!r} is not what this run was trained on (its content hash differs)")
    fleet = Fleet([spec], dataset, model or default_model, where, rules=given_rules(rules))
    refuse_other_rule(log, fleet.groups[0].rule.card)
    load_run(fleet, 0, tensors)
    fleet.set_steps(epoch * fleet.steps_per_epoch)
    row = measure_expensive(
        fleet.snapshot(0, epoch),
        spec.probe.redraws if redraws is None else redraws,
        spec.probe.directions if directions is None else directions,
        keep_draws=True,
    )
    LogWriter(path.with_suffix(".jsonl")).append(row)
    return row


def _check_name(path: Path) -> None:
    """Refuse what is no checkpoint by its name, above all the log that lies beside one."""
    wanted = "wanted the checkpoint of a run, a .safetensors file that training leaves beside its log"
    if path.suffix != ".safetensors":
        stem = path.name.removesuffix(".gz").removesuffix(".jsonl")
        beside = path.with_name(f"{stem}.safetensors")
        there = f"give {beside.name}, which lies beside it" if beside.is_file() else f"no {beside.name} lies beside it"
        raise BadInput(f"{wanted}, got {path.name}; {there}")
    if not path.is_file():
        raise BadInput(f"{wanted}; there is no file {path.name} in {path.parent}")


def _ended_log(path: Path, spec: RunSpec) -> RunLog:
    """The log beside a checkpoint, which must be of the same run, ended and whole."""
    beside = path.with_suffix(".jsonl")
    if not beside.exists():
        raise BadFile(f"{beside.name} is missing beside the checkpoint; put the run's log there")
    if spec.run_id != path.stem:
        raise BadFile(f"{path.name} holds another run ({spec.run_id}) than its name says; name files as they were")
    log = own_log(beside, spec)
    if log.end is None:
        said = f"{log.name}: the run has not ended, and a row more would stand in its way; go on with it first ("
        raise BadFile(said, argument("resume", True), ")")
    check_rows(log, log.end.epoch)
    return log
