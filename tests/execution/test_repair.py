"""What is damaged is set aside, and nothing else."""

import json
import re
import shutil

import pytest
import torch
from cases.fleets import context, train_fleets
from cases.fleets import spec as small
from cases.sweeps import contents, tiny_runs

from creditscope.data import load_data
from creditscope.engine import loop
from creditscope.engine.checkpoint import encode_checkpoint, read_checkpoint
from creditscope.errors import BadFile
from creditscope.execution.context import Quiet
from creditscope.execution.plan import survey
from creditscope.execution.repair import repair
from creditscope.records import ProbeSpec, RunLog


def train_all(runs, folder, progress=None):
    """One fleet in this process, going on with what is there."""
    where = context(folder, load=lambda spec: load_data("synthetic"), progress=progress or Quiet(), resume=True)
    train_fleets(where, [runs])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    runs = tiny_runs(folder)
    train_all(runs, folder)
    return folder, runs


@pytest.fixture
def copy(finished, tmp_path):
    folder, runs = finished
    shutil.copytree(folder, tmp_path / "runs")
    return tmp_path / "runs", runs


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_fleet_is_left_alone(copy):
    folder, runs = copy
    before = names(folder)
    assert repair(folder, runs) == []
    assert names(folder) == before


def test_a_fleet_that_never_saved_is_left_alone(tmp_path, finished):
    assert repair(tmp_path, finished[1]) == []


def test_an_unreadable_checkpoint_is_kept_under_another_name(copy):
    folder, runs = copy
    path = folder / f"{runs[0].run_id}.safetensors"
    path.write_bytes(b"half")
    (line,) = repair(folder, runs)
    assert line.startswith(f"{path.name}: not a readable checkpoint")
    assert line.endswith(f"kept as {path.name}.damaged, the fleet goes on from an earlier epoch")
    assert path.with_name(path.name + ".damaged").read_bytes() == b"half"
    assert not path.exists()


def test_a_log_that_lacks_rows_sends_the_fleet_back_to_its_beginning(copy):
    folder, runs = copy
    path = folder / f"{runs[0].run_id}.jsonl"
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:2]))
    assert repair(folder, runs) == [
        f"{path.name} lost rows that its checkpoint (epoch 2) counts on; the fleet begins again"
    ]
    assert not list(folder.glob("*.safetensors"))
    assert len(list(folder.glob("*.safetensors.damaged"))) == len(runs)


class Stopper(Quiet):
    """Hears what goes on, and presses Ctrl-C at an epoch."""

    def __init__(self, at=None):
        self.at, self.epochs, self.notes = at, [], []

    def note(self, line):
        self.notes.append(line)

    def stage(self, fleet, epoch, doing):
        self.epochs.append(epoch)
        if epoch == self.at:
            raise KeyboardInterrupt


def test_a_fleet_goes_on_from_the_checkpoint_before_a_damaged_one(tmp_path, monkeypatch):
    runs = tiny_runs(tmp_path, epochs=4)
    peace, war = tmp_path / "peace", tmp_path / "war"
    for folder in (peace, war):
        folder.mkdir()
    train_all(runs, peace)
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1)  # at every epoch
    with pytest.raises(KeyboardInterrupt):
        train_all(runs, war, Stopper(at=3))
    names = [f"{run.run_id}.safetensors" for run in runs]
    newest, older = ({read_checkpoint(war / (name + kind))[1]["epoch"] for name in names} for kind in ("", ".previous"))
    assert (newest, older) == ({"2"}, {"2"})  # the stop saved the same epoch once more
    with pytest.raises(KeyboardInterrupt):
        train_all(runs, war, Stopper(at=4))
    damaged = bytearray((war / names[0]).read_bytes())
    damaged[-1] ^= 1
    (war / names[0]).write_bytes(damaged)
    heard = Stopper()
    train_all(runs, war, heard)
    (note,) = heard.notes
    assert note.startswith(f"{names[0]}: damaged, its checksum is not that of its content; kept as {names[0]}.damaged")
    assert min(heard.epochs) > 1
    assert contents(war) == contents(peace)


# Bound to its run


def rewritten(path, tensors=lambda tensors: tensors, **metadata):
    """A checkpoint whose checksum is right and whose content is not."""
    held, said = read_checkpoint(path)
    path.write_bytes(encode_checkpoint(tensors(held), said | metadata))


def other_run(folder, runs):
    return folder / f"{runs[1].run_id}.safetensors"


def broken_parameter(tensors):
    name = next(name for name in tensors if name.startswith("param/"))
    return tensors | {name: torch.full_like(tensors[name], float("nan"))}


def in_double(tensors):
    return {name: tensor.double() for name, tensor in tensors.items()}


FORGED = {
    "another run": (
        lambda path, other, runs: path.write_bytes(other.read_bytes()),
        r"it is of another run \(bp-s2-\w+\) than its name says",
    ),
    "another rule": (
        lambda path, other, runs: rewritten(path, spec=runs[0].model_copy(update={"rule": "fa"}).model_dump_json()),
        r"it is of another run \(fa-s1-\w+\) than its name says",
    ),
    "no spec": (lambda path, other, runs: rewritten(path, spec="{}"), "its metadata holds no run spec"),
    "beyond the plan": (
        lambda path, other, runs: rewritten(path, epoch="3", step="24"),
        "it is of epoch 3, and the run has 2",
    ),
    "another step": (
        lambda path, other, runs: rewritten(path, step="9"),
        "it is of epoch 2, which is step 16, and names another step",
    ),
    "another dtype": (
        lambda path, other, runs: rewritten(path, in_double),
        r"is of torch.float64, and the run trains in float32",
    ),
    "not finite": (
        lambda path, other, runs: rewritten(path, broken_parameter),
        "is not finite, and the run did not diverge",
    ),
}


@pytest.mark.parametrize(("forge", "message"), FORGED.values(), ids=FORGED)
def test_a_checkpoint_that_is_not_of_this_run_is_set_aside(copy, forge, message):
    folder, runs = copy
    path = folder / f"{runs[0].run_id}.safetensors"
    forge(path, other_run(folder, runs), runs)
    (line,) = repair(folder, runs)
    assert re.search(message, line)
    assert line.endswith(f"kept as {path.name}.damaged, the fleet goes on from an earlier epoch")
    assert not path.exists()
    assert "delete" not in line


def test_a_run_that_diverged_or_was_stopped_may_hold_anything(copy):
    folder, runs = copy
    for run, status in zip(runs, ("diverged", "stopped"), strict=False):
        rewritten(folder / f"{run.run_id}.safetensors", broken_parameter)
        log = folder / f"{run.run_id}.jsonl"
        log.write_text(log.read_text().replace('"finished"', f'"{status}"'))
    for run in runs[:1]:  # a run that diverges is not probed then
        drop(folder / f"{run.run_id}.jsonl", lambda row: row["kind"] == "probe" and row["epoch"] == 2)
    assert repair(folder, runs) == []


def test_a_forged_checkpoint_is_recomputed_and_the_logs_are_as_undisturbed(copy, finished, tmp_path):
    folder, runs = copy
    for run in runs:
        drop(folder / f"{run.run_id}.jsonl", lambda row: row["kind"] == "end" or row.get("epoch", 0) > 1)
    rewritten(folder / f"{runs[0].run_id}.safetensors", broken_parameter)
    train_all(runs, folder)
    assert contents(folder) == contents(finished[0])


# A log that is whole


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def put(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def drop(path, which):
    put(path, [row for row in rows_of(path) if not which(row)])


def of(kind, epoch):
    return lambda row: (row["kind"], row.get("epoch")) == (kind, epoch)


def twice(rows, which):
    return [row for each in rows for row in ([each, each] if which(each) else [each])]


UNSOUND = {
    "an epoch is missing": (lambda rows: [row for row in rows if not of("epoch", 1)(row)], "its epoch rows up to"),
    "a probe is missing": (lambda rows: [row for row in rows if not of("probe", 0)(row)], "its probe rows up to"),
    "a probe stands twice": (lambda rows: twice(rows, of("probe", 0)), "its probe rows up to"),
    "an epoch stands twice": (lambda rows: twice(rows, of("epoch", 1)), "epoch 1 follows epoch 1"),
    "epochs are swapped": (lambda rows: swapped(rows, "epoch"), "epoch 3 follows epoch 4"),
    "probes are swapped": (lambda rows: swapped(rows, "probe"), "its probe rows up to"),
}


def swapped(rows, kind):
    a, b = [at for at, row in enumerate(rows) if row["kind"] == kind][-2:]
    rows[a], rows[b] = rows[b], rows[a]
    return rows


@pytest.fixture
def probed(tmp_path):
    """A run that was killed after its third epoch of four, probed at 0 and 2, its checkpoint of epoch 3."""
    run = small("dfa", probe=ProbeSpec(n=16, batch=6, epochs=(0, 2), redraws=3, directions=2))
    (tmp_path / "runs").mkdir()

    def stop(header, row):
        if row.kind == "epoch" and row.epoch == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_fleets(context(tmp_path / "runs", on_row=stop), [[run]])
    return tmp_path / "runs", run


@pytest.mark.parametrize(("spoil", "message"), UNSOUND.values(), ids=UNSOUND)
def test_a_log_whose_rows_are_not_in_order_is_refused(probed, spoil, message):
    folder, run = probed
    path = folder / f"{run.run_id}.jsonl"
    put(path, spoil(rows_of(path)))
    before = path.read_bytes()
    with pytest.raises(BadFile, match=message) as caught:
        train_fleets(context(folder, resume=True), [[run]])
    assert "\n" not in str(caught.value)
    assert "delete" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_whole_log_goes_on(probed):
    folder, run = probed
    train_fleets(context(folder, resume=True), [[run]])
    assert RunLog.read(folder / f"{run.run_id}.jsonl").finished


def test_a_log_of_another_seed_is_refused(probed):
    folder, run = probed
    path = folder / f"{run.run_id}.jsonl"
    header, *rest = rows_of(path)
    header["spec"]["seed"] = 7
    put(path, [header, *rest])
    with pytest.raises(BadFile, match="holds another run than its name says; restore it, or use another out="):
        survey(folder, [run], resume=True)
