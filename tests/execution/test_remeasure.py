"""A checkpoint measured again says what the run's own last probe said."""

import numpy as np
import pytest
import torch
from cases.fleets import features, spec

import creditscope as cs
from creditscope.engine.checkpoint import encode_checkpoint, read_checkpoint
from creditscope.errors import BadFile, BadInput
from creditscope.execution.remeasure import probe_checkpoint
from creditscope.records import ProbeSpec, RunLog

RUN = spec("dfa-rms", epochs=2, probe=ProbeSpec(n=12, batch=8, epochs=(), redraws=9, directions=4))


@pytest.fixture
def saved(tmp_path):
    data = features()
    np.savez(
        tmp_path / "synthetic.npz",
        x_train=data.x_train.numpy(),
        y_train=data.y_train.numpy(),
        x_test=data.x_test.numpy(),
        y_test=data.y_test.numpy(),
    )
    cs.train([RUN], tmp_path / "runs", data=data, device="cpu")
    return tmp_path / "runs" / f"{RUN.run_id}.safetensors"


def again(path, **options):
    return probe_checkpoint(path, data=str(path.parent.parent / "synthetic.npz"), device="cpu", **options)


def test_the_same_numbers_and_a_row_more(saved):
    log = RunLog.read(saved.with_suffix(".jsonl"))
    row = again(saved)
    clock = {"time_probe"}
    assert row.model_dump(exclude=clock) == log.probes[-1].model_dump(exclude=clock)
    after = RunLog.read(saved.with_suffix(".jsonl"))
    assert len(after.probes) == len(log.probes) + 1
    assert after.end == log.end


def test_more_redraws_on_request(saved):
    row = again(saved, redraws=29, directions=2)
    assert row.null.redraws == 29


@pytest.mark.parametrize("split", ["y_train", "y_test"])
def test_other_data_is_refused(saved, split):
    data = dict(np.load(saved.parent.parent / "synthetic.npz"))
    data[split] = (data[split] + 1) % 3
    np.savez(saved.parent.parent / "synthetic.npz", **data)
    with pytest.raises(BadInput, match="content hash differs"):
        again(saved)


def test_a_checkpoint_without_its_log(saved):
    saved.with_suffix(".jsonl").unlink()
    with pytest.raises(BadFile, match="jsonl is missing beside the checkpoint"):
        again(saved)


def test_a_foreign_checkpoint(saved):
    saved.write_bytes(encode_checkpoint({"x": torch.zeros(1)}, {"epoch": "1"}))
    with pytest.raises(BadFile, match="its metadata holds no run spec"):
        again(saved)


def test_a_checkpoint_or_a_log_of_another_run_is_refused(saved):
    other = saved.with_name("bp-s1-00000000.safetensors")
    other.write_bytes(saved.read_bytes())
    other.with_suffix(".jsonl").write_bytes(saved.with_suffix(".jsonl").read_bytes())
    with pytest.raises(BadFile, match="holds another run"):
        again(other)
    log = saved.with_suffix(".jsonl")
    log.write_text(log.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(BadFile, match="holds another run than its name says"):
        again(saved)


@pytest.mark.parametrize(
    ("metadata", "message"), [({"epoch": "3", "step": "15"}, "the run has 2"), ({"step": "7"}, "names another step")]
)
def test_a_checkpoint_of_another_epoch_is_refused(saved, metadata, message):
    tensors, held = read_checkpoint(saved)
    saved.write_bytes(encode_checkpoint(tensors, held | metadata))
    with pytest.raises(BadFile, match=message):
        again(saved)


def test_values_that_are_not_finite_are_refused(saved):
    tensors, held = read_checkpoint(saved)
    tensors["param/head.weight"][0, 0] = float("inf")
    saved.write_bytes(encode_checkpoint(tensors, held))
    with pytest.raises(BadFile, match=r"param/head\.weight is not finite, and the run did not diverge"):
        again(saved)


@pytest.mark.parametrize("lost", [2, 3])
def test_a_log_that_lacks_a_row_is_refused(saved, lost):
    log = saved.with_suffix(".jsonl")
    lines = log.read_text().splitlines()
    log.write_text("".join(line + "\n" for at, line in enumerate(lines) if at != lost))
    before = log.read_bytes()
    with pytest.raises(BadFile, match="rows up to epoch 2 are not one for each epoch"):
        again(saved)
    assert log.read_bytes() == before


def test_a_run_that_has_not_ended_is_gone_on_with_first(saved):
    log = saved.with_suffix(".jsonl")
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines()[:-1]))
    with pytest.raises(BadFile, match=r"has not ended, .* go on with it first \(resume=True\)") as caught:
        again(saved)
    assert caught.value.with_flags.endswith("go on with it first (--resume)")


def test_a_run_can_be_measured_again_and_again(saved):
    assert again(saved).epoch == again(saved).epoch == 2


def test_the_log_in_place_of_the_checkpoint_is_told_apart(saved):
    log = saved.with_suffix(".jsonl")
    before = log.read_bytes()
    with pytest.raises(BadInput, match=rf"wanted the checkpoint .* got {log.name}; give {saved.name}, which lies"):
        again(log)
    with pytest.raises(BadInput, match=r"there is no file none\.safetensors"):
        again(saved.with_name("none.safetensors"))
    saved.unlink()
    with pytest.raises(BadInput, match=rf"got {log.name}; no {saved.name} lies beside it"):
        again(log)
    assert log.read_bytes() == before
