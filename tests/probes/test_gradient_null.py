"""The gradient null against a plain loop over redraws."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from cases.models import assign
from cases.snapshots import mlp_snapshot

from creditscope.errors import NotMeasured
from creditscope.probes import gradient_null
from creditscope.probes.gradient_null import GradientNull
from creditscope.probes.nulls import redraw
from creditscope.probes.parameters import block_parameters
from creditscope.probes.seeds import probe_generator
from creditscope.rules.forward_gradient import ForwardGradient


def one_by_one(snapshot, redraws: int):
    for rows, chunk in redraw(snapshot, "gradient-null", redraws, 0):
        for index in range(rows.stop - rows.start):
            yield {key: stacked[index] for key, stacked in chunk.items()}


@pytest.mark.parametrize("method", ["dfa", "fa-block", "fa"])
def test_gradient_null_redraw_by_redraw(method: str) -> None:
    snapshot = mlp_snapshot(method)
    blocks = block_parameters(snapshot)
    rows = []
    for feedback in one_by_one(snapshot, 9):
        written = assign(snapshot.rule, snapshot.task, snapshot.params, feedback, snapshot.train, None).grads
        pairs = [
            [np.concatenate([side[n].numpy().ravel() for n in names]) for side in (written, snapshot.bp_grads)]
            for names in blocks
        ]
        rows.append([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs])
    got = GradientNull(9, keep_draws=True).measure(snapshot).values["gradient_null"]
    fixed = [False, False, method == "fa-block"]
    assert [p is None for p in got.p] == fixed
    for block in range(3):
        if not fixed[block]:
            np.testing.assert_allclose(got.draws[block], np.array(rows)[:, block], rtol=1e-9, atol=1e-12)


def test_gradient_null_is_capped_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = mlp_snapshot("dfa", depth=2)

    def drawn(redraws: int) -> int:
        return GradientNull(redraws).measure(snapshot).values["gradient_null"].redraws

    assert (drawn(999), drawn(5)) == (199, 5)
    monkeypatch.setattr(gradient_null, "_WORK_CPU", 1)
    assert (drawn(999), drawn(5)) == (19, 5)


def test_gradients_that_were_not_kept_are_named() -> None:
    snapshot = mlp_snapshot("dfa")
    grads = {name: p for name, p in snapshot.params.items() if name != "blocks.1.branch.3.bias"}
    with pytest.raises(NotMeasured, match=r"no gradient of blocks\.1\.branch\.3\.bias"):
        GradientNull(5).measure(replace(snapshot, grads=grads))


# Rules that deliver no credit: shuffled labels


@dataclass(frozen=True)
class Unlabelled(ForwardGradient):
    """Pulls every weight to zero, whatever the labels."""

    name = "unlabelled"

    def step(self, task, params, state, batch, noise, phase):
        step = super().step(task, params, state, batch, noise, phase)
        # Rounded in another way when it is mapped: a sum of many products.
        return step._replace(grads={name: p * (p.T @ p).sum() if p.ndim == 2 else p for name, p in params.items()})


def snapshot_of(method, last=3):
    """Of a run whose last blocks train."""
    found = mlp_snapshot(method)
    noise = found.rule.noise(found.task, found.params, len(found.train.x))
    generator = torch.Generator().manual_seed(5)
    drawn = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in noise.items()}
    frozen = tuple(f"blocks.{level}." for level in range(3 - last))
    trained = frozenset(name for name in found.params if not name.startswith(frozen or "none"))
    return replace(found, noise=drawn, trained=trained)


@pytest.mark.parametrize("method", ["pepita", "local", "ff", "fg", "local(sim=true)"])
def test_shuffles_one_by_one(method):
    snapshot = snapshot_of(method)
    generator = probe_generator(snapshot.seed, snapshot.epoch, "gradient-null/labels")
    rows = []
    for _ in range(9):
        y = snapshot.train.y[torch.randperm(len(snapshot.train.y), generator=generator)]
        batch = snapshot.train._replace(y=y)
        grads = snapshot.rule.step(snapshot.task, snapshot.params, snapshot.state, batch, snapshot.noise, "").grads
        rows.append(by_block(snapshot, grads))
    got = GradientNull(9, keep_draws=True).measure(snapshot).values["gradient_null"]
    np.testing.assert_allclose(np.array(got.draws).T, rows, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got.observed, by_block(snapshot, snapshot.rule_grads), rtol=1e-9, atol=1e-12)
    counts = (np.array(rows) >= np.array(got.observed) - 1e-9).sum(0)
    np.testing.assert_allclose(got.p, (1 + counts) / 10)
    assert got.kind == "shuffled labels"
    sizes = [sum(snapshot.params[name].numel() for name in names) for names in block_parameters(snapshot)]
    assert got.random_vector_mean == [0.0] * 3
    np.testing.assert_allclose(got.random_vector_sd, 1 / np.sqrt(sizes))


def by_block(snapshot, grads):
    pairs = [
        [np.concatenate([side[n].numpy().ravel() for n in names]) for side in (grads, snapshot.bp_grads)]
        for names in block_parameters(snapshot)
    ]
    return [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]


def test_a_gradient_without_labels_is_no_better_than_its_shuffles():
    """Rounding alone tells them apart: it must not look like significance."""
    snapshot = replace(snapshot_of("fg"), rule=Unlabelled())
    got = GradientNull(99).measure(snapshot).values["gradient_null"]
    assert got.p == [1.0] * 3


def test_blocks_that_do_not_train_have_no_test():
    got = GradientNull(5, keep_draws=True).measure(snapshot_of("pepita", last=1)).values["gradient_null"]
    assert [p is None for p in got.p] == [True, True, False]
    assert [sd is None for sd in got.random_vector_sd] == [True, True, False]
    with pytest.raises(NotMeasured, match="no block moves in this step"):
        GradientNull(5).measure(snapshot_of("pepita", last=0))


def test_without_a_shuffle_nothing_is_measured():
    with pytest.raises(NotMeasured, match="at least one shuffle of labels, got redraws = 0"):
        GradientNull(0).measure(snapshot_of("pepita"))


def test_of_shuffles_the_last_probe_has_all_and_others_what_is_affordable(monkeypatch):
    snapshot = snapshot_of("pepita")
    monkeypatch.setattr(gradient_null, "_WORK_CPU", 1)

    def drawn(redraws, keep):
        return GradientNull(redraws, keep).measure(snapshot).values["gradient_null"].redraws

    assert (drawn(999, True), drawn(999, False), drawn(5, False)) == (199, 19, 5)
