"""Samples that feel each other and tails that are not the rest of the network are found."""

from dataclasses import replace

import pytest
import torch
from cases.models import CONV_BLOCKS, TokenNet, batch_of, conv_net, params_of, scrambled, task_of, tuple_net
from cases.snapshots import conv_snapshot, mlp_snapshot, snapshot_of, vit_snapshot
from cases.unfit import Bypassed, Normed
from torch import Tensor

from creditscope.blocks import Batch, Snapshot
from creditscope.errors import NotMeasured
from creditscope.probes.guards import Guards, samples_are_independent, tail_is_the_rest
from creditscope.rules.backprop import Backprop


@pytest.mark.parametrize("make", [mlp_snapshot, vit_snapshot, conv_snapshot])
def test_our_models_have_independent_samples_and_honest_tails(make) -> None:
    snapshot = make("dfa")
    assert samples_are_independent(snapshot)
    assert tail_is_the_rest(snapshot)


@pytest.mark.parametrize("running", [True, False])
def test_batch_norm_is_independent_only_with_running_statistics(running: bool) -> None:
    model = scrambled(Normed(running)).eval()
    assert samples_are_independent(snapshot_of(model, Backprop(), (5,), 3)) == running


def test_a_loss_over_the_batch_is_found() -> None:
    snapshot = mlp_snapshot("bp")
    plain = snapshot.task.loss

    def contrast(logits: Tensor, y: Tensor) -> Tensor:
        return plain(logits - logits.mean(0), y)

    assert not samples_are_independent(replace(snapshot, task=snapshot.task._replace(loss=contrast)))


def test_inputs_that_are_indices() -> None:
    model = scrambled(TokenNet())
    x = torch.randint(7, (6, 3), generator=torch.Generator().manual_seed(0))
    y = torch.randint(3, (6,), generator=torch.Generator().manual_seed(1))
    snapshot = Snapshot(
        task=task_of(model, x), params=params_of(model), init=None, rule=None, state={},
        probe=Batch(x, y), batch=6, view="mean", seed=0,
    )  # fmt: skip
    assert samples_are_independent(snapshot)
    with pytest.raises(NotMeasured, match="first two probe samples are equal"):
        samples_are_independent(replace(snapshot, probe=Batch(x[:1].expand(6, -1), y)))


def test_one_sample_depends_on_nobody() -> None:
    snapshot = mlp_snapshot("dfa")
    assert samples_are_independent(replace(snapshot, probe=Batch(snapshot.probe.x[:1], snapshot.probe.y[:1])))


@pytest.mark.parametrize("make", [Bypassed, None])
def test_a_stream_past_the_blocks_is_found(make) -> None:
    model = scrambled(make()) if make else tuple_net()
    snapshot = snapshot_of(model, Backprop(), (5,), 3)
    assert samples_are_independent(snapshot)
    assert not tail_is_the_rest(snapshot)


def test_guards_answer_in_words_and_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = snapshot_of(scrambled(Bypassed()), Backprop(), (5,), 3)
    guards = Guards(snapshot)
    guards.check(("references",))
    with pytest.raises(NotMeasured, match="by-passes the blocks"):
        guards.check(("tail",))
    monkeypatch.setattr(Snapshot, "tail_loss", None)
    with pytest.raises(NotMeasured, match="by-passes the blocks"):
        guards.check(("tail",))
    dependent = snapshot_of(scrambled(Normed(running=False)), Backprop(), (5,), 3)
    with pytest.raises(NotMeasured, match="not independent"):
        Guards(dependent).check(("references",))
    Guards(dependent).check(("train", "fit"))


def test_nothing_is_left_behind() -> None:
    model = conv_net()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    snapshot = snapshot_of(model, Backprop(), (1, 4, 4), 3, where=CONV_BLOCKS)
    x = batch_of((1, 4, 4), 3).x
    samples_are_independent(snapshot)
    tail_is_the_rest(snapshot)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert x.isfinite().all()
