"""The expensive set as a whole: complete, every probe on its own feet, no traces left."""

from dataclasses import replace

import pytest
import torch
from cases.models import params_of, scrambled
from cases.snapshots import conv_snapshot, in_run_dtype, mlp_snapshot, snapshot_of, vit_snapshot
from cases.unfit import Bypassed, Normed

from creditscope.blocks import CreditRule
from creditscope.probes.expensive import expensive_probes, measure_expensive
from creditscope.probes.nulls import FeedbackNull
from creditscope.probes.perturbation import NudgeProbe
from creditscope.records import LogWriter, ProbeRow, RunLog
from creditscope.records.rows import HeaderRow
from creditscope.records.spec import RunSpec
from creditscope.rules.backprop import Backprop
from creditscope.rules.direct_feedback import DirectFeedback

FIELDS = {
    name
    for name in ProbeRow.model_fields
    if name not in ("kind", "epoch", "step", "not_measured", "nonfinite", "time_probe")
}


def expensive(snapshot, redraws: int = 5) -> ProbeRow:
    return measure_expensive(snapshot, redraws, 4, keep_draws=False)


def measured(row: ProbeRow) -> set[str]:
    return {name for name in FIELDS if getattr(row, name) is not None}


def test_the_registry_fills_every_field_of_a_row_once() -> None:
    probes = expensive_probes()
    filled = [name for probe in probes for name in probe.fields]
    assert sorted(filled) == sorted(FIELDS)
    assert len({probe.name for probe in probes}) == len(probes)


@pytest.mark.parametrize("probe", expensive_probes(), ids=lambda probe: probe.name)
def test_every_probe_says_what_it_is(probe) -> None:
    lines = [line.strip() for line in (type(probe).__doc__ or "").splitlines()]
    for head in ("Measures:", "Healthy:", "Fooled by:", "Null:"):
        assert sum(line.startswith(head) for line in lines) == 1, head
    assert probe.unit
    assert probe.needs


@pytest.mark.parametrize("method", ["dfa", "dfa-rms", "fa-block", "fa", "fa-exact-head"])
def test_a_rule_with_feedback_has_every_field(method: str) -> None:
    row = expensive(replace(mlp_snapshot(method), epoch=7, step=70))
    assert measured(row) == FIELDS
    assert row.not_measured == {}
    assert (row.epoch, row.step) == (7, 70)
    assert row.time_probe > 0


def test_bp_lacks_only_its_nulls_and_says_why() -> None:
    row = expensive(mlp_snapshot("bp"))
    absent = {"null", "null_published", "gradient_null"}
    assert measured(row) == FIELDS - absent
    assert set(row.not_measured) == absent
    assert all("exact-by-construction" in reason for reason in row.not_measured.values())


@pytest.mark.parametrize("snapshot", [vit_snapshot("dfa", view) for view in ("cls", "mean", "all")] + [conv_snapshot()])
def test_token_streams_and_feature_maps_have_every_field(snapshot) -> None:
    row = expensive(snapshot)
    assert measured(row) == FIELDS
    assert row.not_measured == {}


def test_a_float32_run() -> None:
    row = expensive(in_run_dtype(mlp_snapshot("dfa"), torch.float32))
    assert measured(row) == FIELDS
    assert row.fidelity.dtype == "float32"


def test_an_unknown_rule_loses_what_needs_it_and_keeps_the_rest() -> None:
    row = expensive(replace(mlp_snapshot("dfa"), rule=None, state={}, update=None, fit=None))
    assert measured(row) == {"fidelity", "clamp", "rho", "nudge", "drift", "participation", "idle"}
    assert set(row.not_measured) == (FIELDS - measured(row)) | {"rho.credit", "nudge.credit"}


def test_one_probe_that_raises_costs_only_its_own_field(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self, snapshot):
        raise ZeroDivisionError("a bug\nwith a second line")

    monkeypatch.setattr(NudgeProbe, "measure", fail)
    row = expensive(mlp_snapshot("dfa"))
    assert measured(row) == FIELDS - {"nudge"}
    assert row.not_measured == {"nudge": "ZeroDivisionError: a bug"}


def test_samples_that_feel_each_other_lose_everything_per_sample() -> None:
    row = expensive(snapshot_of(scrambled(Normed(running=False)), DirectFeedback(), (5,), 3))
    of_weights = {"gradient_cosine", "gradient_null", "step_descent"}
    assert measured(row) == of_weights | {"probe_accuracy", "participation", "ladder", "idle"}
    assert all("not independent" in reason for reason in row.not_measured.values())


def test_a_stream_past_the_blocks_loses_what_perturbs_it() -> None:
    row = expensive(snapshot_of(scrambled(Bypassed()), DirectFeedback(), (5,), 3))
    assert set(row.not_measured) == {"rho", "nudge"}
    assert all("by-passes" in reason for reason in row.not_measured.values())


def test_batch_norm_left_in_training_mode_is_refused_and_its_buffers_stay() -> None:
    model = scrambled(Normed(running=True))
    before = {name: b.clone() for name, b in model.named_buffers()}
    row = expensive(snapshot_of(model.eval(), DirectFeedback(), (5,), 3))
    assert row.not_measured == {}
    snapshot = snapshot_of(model, DirectFeedback(), (5,), 3)
    model.train()
    row = expensive(snapshot)
    assert {"fidelity", "rho", "null"} <= set(row.not_measured)
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())


def test_a_diverged_run_gives_reasons_not_a_crash() -> None:
    snapshot = mlp_snapshot("dfa")
    broken = {name: torch.full_like(p, torch.nan) for name, p in snapshot.params.items()}
    row = expensive(replace(snapshot, params=broken))
    assert set(row.not_measured) >= FIELDS - {"clamp"}
    assert "diverged" in row.not_measured["fidelity"]


def test_the_same_snapshot_gives_the_same_row() -> None:
    rows = [expensive(mlp_snapshot("dfa")).model_dump(exclude={"time_probe"}) for _ in range(2)]
    assert rows[0] == rows[1]


def test_nothing_is_left_behind() -> None:
    snapshot = mlp_snapshot("fa")
    model = snapshot.task.blocks.model
    held = params_of(model)
    given = {name: p.clone() for name, p in snapshot.params.items()}
    probe = snapshot.probe.x.clone()
    random_state = torch.get_rng_state()
    expensive(snapshot)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.is_grad_enabled()
    assert all(p.grad is None and torch.equal(p, held[name]) for name, p in model.named_parameters())
    assert all(torch.equal(p, given[name]) for name, p in snapshot.params.items())
    assert torch.equal(snapshot.probe.x, probe)
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())


class Broken(DirectFeedback):
    """Direct feedback whose credit is turned over on the way."""

    factor = 1.0

    def deliver(self, task, params, feedback, batch):
        return tuple(self.factor * c for c in super().deliver(task, params, feedback, batch))


class Flipped(Broken):
    factor = -1.0


class Silent(Broken):
    factor = 0.0


def gradient_feedback(snapshot) -> dict[str, torch.Tensor]:
    """Feedback that serves the loss as well as a fixed matrix can: the regression of g on e."""
    e = snapshot.observation.error
    fitted = (torch.linalg.lstsq(e, g).solution for g in snapshot.observation.references[1:])
    return {f"B.{level}": matrix for level, matrix in enumerate(fitted)}


def test_sabotaged_credit_is_told_from_sound_credit() -> None:
    snapshot = mlp_snapshot("dfa", n=64)
    sound = replace(snapshot, state=gradient_feedback(snapshot))
    rows = {rule: expensive(replace(sound, rule=rule()), redraws=199) for rule in (DirectFeedback, Flipped, Silent)}
    assert max(rows[DirectFeedback].null.p[1:]) < 0.01
    assert min(rows[Flipped].null.p[1:]) > 0.9
    assert max(rows[Flipped].rho.credit[1:]) < 0 < min(rows[DirectFeedback].rho.credit[1:])
    assert min(rows[Flipped].nudge.credit[1:]) > 0 > max(rows[DirectFeedback].nudge.credit[1:])
    assert rows[Silent].null.p == rows[Silent].null.observed == [None] * 4


def test_a_rule_of_the_users_own_without_feedback_has_no_null() -> None:
    class Signed(Backprop):
        def deliver(self, task, params, feedback, batch):
            return tuple(g.sign() for g in super().deliver(task, params, feedback, batch))

        def exact(self, depth: int) -> tuple[bool, ...]:
            return (False,) * (depth + 1)

    rule: CreditRule = Signed()
    row = expensive(snapshot_of(mlp_snapshot("bp").task.blocks.model, rule, (5,), 4))
    assert measured(row) == FIELDS - {"null", "null_published", "gradient_null"}
    assert "no feedback to redraw" in row.not_measured["null"]
    assert min(row.rho.credit) > 0.3


def test_draws_are_kept_on_request_and_rows_go_into_a_log(tmp_path) -> None:
    snapshot = mlp_snapshot("fa-block")
    row = measure_expensive(snapshot, 7, 4, keep_draws=True)
    assert [len(draws) for draws in row.null.draws] == [7, 7, 7, 0]
    writer = LogWriter(tmp_path / "run.jsonl")
    writer.create(HeaderRow(spec=RunSpec(rule="fa-block", origin="watch")))
    writer.append(row)
    assert RunLog.read(writer.path).probes[0].null == row.null
    assert FeedbackNull(7).measure(snapshot).values["null"].draws is None
