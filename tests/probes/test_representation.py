"""Readout accuracy and participation ratio on whole networks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.models import resmlp
from cases.snapshots import conv_snapshot, mlp_snapshot, vit_snapshot

from creditscope.blocks import Batch
from creditscope.errors import NotMeasured
from creditscope.probes.functional.ridge import ridge_right
from creditscope.probes.representation import IdleProbe, ParticipationProbe, ReadoutProbe
from creditscope.protocol.inference import read_bits


@torch.no_grad()
def states(x: torch.Tensor) -> list[torch.Tensor]:
    model = resmlp()
    out = [model.embed(x)]
    for block in model.blocks:
        out.append(block(out[-1]))
    return out


def test_readouts_are_fitted_on_one_set_and_tested_on_another() -> None:
    snapshot = mlp_snapshot("dfa")
    (x, y), (test_x, test_y) = snapshot.fit, snapshot.test
    right = [ridge_right(a, y, b, test_y, 4) for a, b in zip(states(x), states(test_x), strict=True)]
    values = ReadoutProbe().measure(snapshot).values
    assert values["probe_accuracy"] == [float(each.mean()) for each in right]
    ladder, depth = values["ladder"], snapshot.depth
    assert (ladder.state, ladder.n) == (depth - -(-depth // 3), len(test_y))
    for packed, each in ((ladder.lower, right[ladder.state]), (ladder.top, right[depth])):
        assert read_bits(packed, ladder.n).tolist() == each.tolist()


def test_a_state_that_holds_the_label_is_read() -> None:
    snapshot = mlp_snapshot("bp")
    fit, test = (Batch(b.x, b.x[:, :4].argmax(1)) for b in (snapshot.fit, snapshot.test))
    got = ReadoutProbe().measure(replace(snapshot, fit=fit, test=test)).values["probe_accuracy"]
    assert got[0] > 0.6


def test_what_cannot_be_read_out_is_named() -> None:
    snapshot = mlp_snapshot("bp")
    with pytest.raises(NotMeasured, match="no samples to fit"):
        ReadoutProbe().measure(replace(snapshot, fit=None))
    with pytest.raises(NotMeasured, match="class labels"):
        ReadoutProbe().measure(replace(snapshot, fit=Batch(snapshot.fit.x, snapshot.fit.x)))
    broken = snapshot.test.x.clone()
    broken[0] = torch.inf
    with pytest.raises(NotMeasured, match="state 0 is not finite"):
        ReadoutProbe().measure(replace(snapshot, test=Batch(broken, snapshot.test.y)))


@torch.no_grad()
def test_a_removed_block_adds_nothing_and_the_rest_is_as_it_is() -> None:
    snapshot = mlp_snapshot("dfa")
    model, (x, y) = resmlp(), snapshot.test
    model.load_state_dict(dict(snapshot.params))
    answers = []
    for out in (None, *range(snapshot.depth)):
        h = model.embed(x)
        for at, block in enumerate(model.blocks):
            h = h if at == out else h + block.branch(h)
        answers.append((model.head(model.out_ln(h)).argmax(1) == y).numpy().astype(int))
    idle = IdleProbe().measure(snapshot).values["idle"]
    differences = np.array(answers[1:]) - answers[0]
    assert idle.n == len(y)
    assert idle.change == pytest.approx(differences.mean(axis=1), abs=1e-12)
    assert idle.se == pytest.approx(differences.std(axis=1, ddof=1) / len(y) ** 0.5, abs=1e-12)
    assert any(idle.change)


def test_without_a_skip_nothing_passes_a_removed_block() -> None:
    snapshot = conv_snapshot()
    blocks, x = snapshot.task.blocks, snapshot.probe.x[:3]
    for level, adds in enumerate(blocks.skips):
        with blocks.removed(level):
            seen = blocks.forward({**snapshot.task.buffers, **snapshot.params}, x)
        after = seen.states[level] if adds else torch.zeros_like(seen.states[level + 1])
        assert torch.equal(seen.states[level + 1], after)


def test_removal_needs_labels() -> None:
    snapshot = mlp_snapshot("bp")
    with pytest.raises(NotMeasured, match="no test samples"):
        IdleProbe().measure(replace(snapshot, test=None))
    with pytest.raises(NotMeasured, match="class labels"):
        IdleProbe().measure(replace(snapshot, test=Batch(snapshot.test.x, snapshot.test.x)))


def test_participation_from_the_spectrum_of_each_state() -> None:
    snapshot = mlp_snapshot("dfa")
    for h, got in zip(
        states(snapshot.probe.x), ParticipationProbe().measure(snapshot).values["participation"], strict=True
    ):
        spectrum = np.linalg.eigvalsh(np.cov(h.numpy().T))
        assert got == pytest.approx(spectrum.sum() ** 2 / (spectrum**2).sum(), rel=1e-9)


def test_a_collapsed_stream_has_little_more_than_one_direction() -> None:
    snapshot = mlp_snapshot("bp")
    weight = torch.ones(6, 5, dtype=torch.float64) + 0.01 * snapshot.params["embed.weight"]
    got = ParticipationProbe().measure(replace(snapshot, params=dict(snapshot.params) | {"embed.weight": weight}))
    assert got.values["participation"][0] < 1.05


@pytest.mark.parametrize("view", ["cls", "mean", "all"])
def test_token_streams_and_feature_maps(view: str) -> None:
    for snapshot in (vit_snapshot("dfa", view), conv_snapshot()):
        for probe in (ReadoutProbe(), ParticipationProbe()):
            values = next(iter(probe.measure(snapshot).values.values()))
            assert len(values) == snapshot.depth + 1
            # The class token enters the first block alike for every sample: nothing varies there.
            assert [value is None for value in values[1:]] == [False] * snapshot.depth
            assert (values[0] is None) == (view == "cls" and snapshot.view == "cls" and probe == ParticipationProbe())
