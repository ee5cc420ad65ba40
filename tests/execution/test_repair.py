"""What is damaged is set aside, and nothing else."""

import shutil

import pytest
from cases.fleets import context, train_fleets
from cases.sweeps import contents, tiny_runs

from creditscope.data import load_data
from creditscope.engine import loop
from creditscope.engine.checkpoint import read_checkpoint
from creditscope.execution.context import Quiet
from creditscope.execution.repair import repair


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
