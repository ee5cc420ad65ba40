"""Checkpoints: whole or not at all, one epoch for all runs of a fleet, and a clear line for what cannot be used."""

import hashlib
import json

import pytest
import torch
from cases import fleets
from cases.fleets import spec
from safetensors import safe_open
from safetensors.torch import save_file

from creditscope.engine import checkpoint
from creditscope.engine.checkpoint import FleetState, checkpoint_path, encode_checkpoint, read_checkpoint, restore
from creditscope.errors import BadFile, CannotWrite
from creditscope.records import RunSpec

RUNS = [spec("dfa-rms", seed=1), spec("dfa-rms+pen0.1", seed=2), spec("fa", seed=1)]


def state_of(fleet):
    return {
        **{f"param/{n}": t.clone() for n, t in fleet.params.items()},
        **{f"first/{n}": t.clone() for n, t in fleet.optimiser.first.items()},
        **{f"second/{n}": t.clone() for n, t in fleet.optimiser.second.items()},
    }


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def made():
    return fleets.trained(RUNS, epochs=2)[0]


def test_saved_and_restored_a_fleet_goes_on_bitwise(made, tmp_path):
    FleetState(made, 2).save(tmp_path)
    assert files(tmp_path) == sorted(f"{run.run_id}.safetensors" for run in RUNS)
    fresh = fleets.fleet(RUNS)
    assert restore(fresh, tmp_path).epoch == 2
    assert same(state_of(fresh), state_of(made))
    for one in (fresh, made):
        one.train_epoch(3)
    assert same(state_of(fresh), state_of(made))


def test_a_state_is_a_copy(made, tmp_path):
    state, before = FleetState(made, 2), state_of(made)
    made.train_epoch(3)
    state.save(tmp_path)
    fresh = fleets.fleet(RUNS)
    restore(fresh, tmp_path)
    assert same(state_of(fresh), before)


def test_a_file_tells_all_about_its_run(made, tmp_path):
    FleetState(made, 2).save(tmp_path)
    for run, one in enumerate(made.specs):
        tensors, metadata = read_checkpoint(checkpoint_path(tmp_path, one.run_id))
        assert RunSpec.model_validate_json(metadata["spec"]) == one
        assert (metadata["epoch"], metadata["step"]) == ("2", "10")
        assert json.loads(metadata["rng"])["seed"] == one.seed
        assert json.loads(metadata["fleet"]) == [other.run_id for other in made.specs]
        assert metadata["threads"] == str(torch.get_num_threads())
        for kind, stack in (("param", made.params), ("init", made.init)):
            assert all(torch.equal(tensors[f"{kind}/{name}"], t[run]) for name, t in stack.items())
        feedback = made.state_of(run)
        assert {n for n in tensors if n.startswith("state/")} == {f"state/{name}" for name in feedback}
        assert all(torch.equal(tensors[f"state/{name}"], b) for name, b in feedback.items())


def test_the_saved_feedback_counts_not_a_redrawn_one(made, tmp_path):
    """Another version of torch could draw other numbers from the same seed."""
    made.state_of(0)["B.0"].add_(1)
    FleetState(made, 2).save(tmp_path)
    fresh = fleets.fleet(RUNS)
    restore(fresh, tmp_path)
    assert torch.equal(fresh.state_of(0)["B.0"], made.state_of(0)["B.0"])


def test_nothing_saved_is_epoch_0(tmp_path):
    fresh = fleets.fleet(RUNS)
    before = state_of(fresh)
    assert restore(fresh, tmp_path).epoch == 0
    assert same(state_of(fresh), before)


@pytest.mark.parametrize("survivors", [0, 1, 2])
def test_a_crash_between_two_replacements_leaves_the_older_epoch(made, tmp_path, monkeypatch, survivors):
    FleetState(made, 2).save(tmp_path)
    older = state_of(made)
    made.train_epoch(3)
    calls = []

    def crash(path, data, resume=False):
        if len(calls) == survivors:
            raise KeyboardInterrupt
        calls.append(path)
        write(path, data)

    write = checkpoint.write_atomic
    monkeypatch.setattr(checkpoint, "write_atomic", crash)
    with pytest.raises(KeyboardInterrupt):
        FleetState(made, 3).save(tmp_path)
    monkeypatch.undo()
    fresh = fleets.fleet(RUNS)
    assert restore(fresh, tmp_path).epoch == 2
    assert same(state_of(fresh), older)
    assert files(tmp_path) == sorted(f"{run.run_id}.safetensors" for run in RUNS)
    assert restore(fresh, tmp_path).epoch == 2


def test_a_crash_while_tidying_up_leaves_the_newer_epoch(made, tmp_path):
    FleetState(made, 2).save(tmp_path)
    kept = checkpoint_path(tmp_path, made.specs[1].run_id).read_bytes()
    made.train_epoch(3)
    FleetState(made, 3).save(tmp_path)
    (tmp_path / f"{made.specs[1].run_id}.safetensors.previous").write_bytes(kept)
    assert restore(fleets.fleet(RUNS), tmp_path).epoch == 3
    assert files(tmp_path) == sorted(f"{run.run_id}.safetensors" for run in RUNS)


def test_a_full_disk_keeps_what_was_saved(made, tmp_path, monkeypatch):
    FleetState(made, 2).save(tmp_path)

    def full(path, data, resume=False):
        raise CannotWrite("cannot write: No space left on device")

    monkeypatch.setattr(checkpoint, "write_atomic", full)
    with pytest.raises(CannotWrite):
        FleetState(made, 3).save(tmp_path)
    assert restore(fleets.fleet(RUNS), tmp_path).epoch == 2


def test_a_file_that_cannot_be_replaced_is_one_line(made, tmp_path):
    FleetState(made, 2).save(tmp_path)
    (tmp_path / f"{made.specs[0].run_id}.safetensors.previous").mkdir()
    with pytest.raises(CannotWrite, match="the checkpoints cannot be replaced"):
        FleetState(made, 3).save(tmp_path)


@pytest.mark.parametrize("content", [b"", b"junk", b"\x00" * 64], ids=["empty", "junk", "zeros"])
def test_a_file_of_junk_is_named(made, tmp_path, content):
    FleetState(made, 2).save(tmp_path)
    path = checkpoint_path(tmp_path, made.specs[0].run_id)
    path.write_bytes(content)
    with pytest.raises(BadFile, match=r"dfa-rms.*.safetensors: not a readable checkpoint .* delete it"):
        restore(fleets.fleet(RUNS), tmp_path)


def test_a_half_written_file_is_named(made, tmp_path):
    FleetState(made, 2).save(tmp_path)
    path = checkpoint_path(tmp_path, made.specs[0].run_id)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadFile, match="not a readable checkpoint"):
        restore(fleets.fleet(RUNS), tmp_path)


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({}, {"epoch": "2"}, "param/embed.weight is missing or misshapen"),
        ({"param/embed.weight": torch.zeros(2)}, {"epoch": "2"}, "param/embed.weight is missing or misshapen"),
        ({}, {}, "its metadata names no epoch"),
        ({}, {"epoch": "-1"}, "its metadata names no epoch"),
        ({}, {"epoch": "9" * 5000}, "its metadata names no epoch"),
    ],
)
def test_a_foreign_file_is_named(made, tmp_path, tensors, metadata, message):
    FleetState(made, 2).save(tmp_path)
    path = checkpoint_path(tmp_path, made.specs[0].run_id)
    path.write_bytes(encode_checkpoint({"x": torch.zeros(1), **tensors}, metadata))
    with pytest.raises(BadFile, match=message):
        restore(fleets.fleet(RUNS), tmp_path)


# The checksum


def test_the_file_is_plain_safetensors_and_its_checksum_is_of_all_that_is_in_it(tmp_path):
    tensors = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.tensor(1.5, dtype=torch.float64), "c": torch.empty(0)}
    path = tmp_path / "x.safetensors"
    path.write_bytes(encode_checkpoint(tensors, {"epoch": "3", "é": "ü"}))
    with safe_open(path, framework="np") as file:
        found, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    assert {name: array.tolist() for name, array in found.items()} == {
        "a": 1.5,
        "b": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
        "c": [],
    }
    whole = b'{"epoch": "3", "\\u00e9": "\\u00fc"}'
    for name in ("a", "b", "c"):
        kind = f"torch.{found[name].dtype}"
        whole += json.dumps([name, kind, list(found[name].shape)]).encode() + found[name].tobytes()
    assert metadata == {"epoch": "3", "é": "ü", "sha256": hashlib.sha256(whole).hexdigest()}


def test_any_flipped_bit_is_refused_or_changes_nothing(tmp_path):
    tensors, metadata = {"param/w": torch.ones(2, 2), "init/w": torch.zeros(3)}, {"epoch": "3", "spec": "{}"}
    whole = encode_checkpoint(tensors, metadata)
    path = tmp_path / "x.safetensors"
    harmless = 0
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            found = read_checkpoint(path)
        except BadFile:
            continue
        harmless += 1  # white space in the header
        assert found[1] == metadata
        assert same(found[0], tensors)
    assert harmless < 20


def test_a_flipped_bit_in_the_numbers_is_named(made, tmp_path):
    FleetState(made, 2).save(tmp_path)
    path = checkpoint_path(tmp_path, made.specs[0].run_id)
    flip_last_bit(path)
    with pytest.raises(BadFile, match="damaged, its checksum is not that of its content; delete it"):
        restore(fleets.fleet(RUNS), tmp_path)


def test_a_checkpoint_without_a_checksum_is_refused(tmp_path):
    save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors", {"epoch": "3"})
    with pytest.raises(BadFile, match="without a checksum"):
        read_checkpoint(tmp_path / "x.safetensors")


def test_until_the_last_epoch_the_older_file_is_kept(made, tmp_path):
    FleetState(made, 2).save(tmp_path)
    older = state_of(made)
    made.train_epoch(3)
    FleetState(made, 3).save(tmp_path)
    newest = [checkpoint_path(tmp_path, run.run_id) for run in RUNS]
    assert files(tmp_path) == sorted(path.name + kind for path in newest for kind in ("", ".previous"))
    newest[1].unlink()  # as when its damage was found
    fresh = fleets.fleet(RUNS)
    assert restore(fresh, tmp_path).epoch == 2
    assert same(state_of(fresh), older)
    FleetState(made, fleets.EPOCHS).save(tmp_path)
    assert files(tmp_path) == sorted(path.name for path in newest)


def flip_last_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
