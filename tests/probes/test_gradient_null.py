"""The gradient null against a plain loop over redraws."""

from dataclasses import replace

import numpy as np
import pytest
from cases.models import assign
from cases.snapshots import mlp_snapshot

from creditscope.errors import NotMeasured
from creditscope.probes import gradient_null
from creditscope.probes.gradient_null import GradientNull
from creditscope.probes.nulls import redraw
from creditscope.probes.parameters import block_parameters


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
