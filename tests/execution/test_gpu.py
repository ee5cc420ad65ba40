"""Fleets on a GPU: as many as fit, the largest first."""

import pytest
import torch
from cases.fleets import context, features, spec

from creditscope.engine.memory import fleet_bytes
from creditscope.execution import choose, gpu
from creditscope.execution.local import train
from creditscope.execution.turns import TrainContext


@pytest.mark.parametrize(("room", "waves"), [(10**12, [3]), (1, [1, 1, 1])])
def test_as_many_fleets_as_its_memory_holds(tmp_path, monkeypatch, room, waves):
    monkeypatch.setattr(gpu, "free_bytes", lambda device: room)
    fleets = [[spec("bp", width=width)] for width in (4, 5, 6)]
    assert [len(wave) for wave in gpu._waves(fleets, context(tmp_path))] == waves


def test_the_largest_fleet_is_built_first(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "free_bytes", lambda device: 10**12)
    waves = []
    monkeypatch.setattr(gpu, "take_turns", waves.append)
    monkeypatch.setattr(TrainContext, "turns_of", lambda self, members: len(members))
    fleets = [[spec("bp", width=4)], [spec("bp", seed=s, width=5) for s in range(3)], [spec("bp"), spec("fa")]]
    gpu.train_on_gpu(fleets, context(tmp_path))
    sizes = {len(members): fleet_bytes(members) for members in fleets}
    assert waves == [sorted(sizes, key=sizes.get, reverse=True)]


def test_a_fleet_larger_than_the_card_is_cut(tmp_path, monkeypatch):
    members = [spec(method, seed=seed) for method in ("bp", "dfa") for seed in (1, 2)]
    monkeypatch.setattr(gpu, "free_bytes", lambda device: 10**12)
    assert [list(part) for part in gpu._fitting(members, context(tmp_path))] == [members]
    half = max(fleet_bytes(members[:2]), fleet_bytes(members[2:]))
    monkeypatch.setattr(gpu, "free_bytes", lambda device: half)
    parts = gpu._fitting(members, context(tmp_path))
    assert [run for part in parts for run in part] == members
    assert len(parts) == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_a_compiled_fleet_trains_beside_another(tmp_path, monkeypatch):
    monkeypatch.setattr(choose, "FEW_STEPS", 0)
    monkeypatch.setattr(choose, "pays_to_fuse", lambda fleet, seconds: fleet.spec.depth == 3)
    three = [spec(method, features(), dtype="float32") for method in ("bp", "fa", "dfa-rms@frozen")]
    runs = [*three, *(run.model_copy(update={"depth": 2}) for run in three)]
    on_card, on_host = (train(runs, tmp_path / where, data=features(), device=where) for where in ("cuda", "cpu"))
    assert {log.spec.depth: log.header.path for log in on_card} == {3: "graph, fused", 2: "graph"}
    for ours, theirs in zip(on_card, on_host, strict=True):
        losses = [row.test_loss for row in theirs.epochs]
        assert [row.test_loss for row in ours.epochs] == pytest.approx(losses, rel=1e-3)
