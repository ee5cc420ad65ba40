"""Rules from outside the package train as the built-in ones do, alone and in company; their state moves and resumes."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from cases import fleets
from cases.fleets import spec
from extension.outside import RULES, KolenPollack, UniformDirect

from creditscope.blocks import CreditRule, Step
from creditscope.data import synthetic
from creditscope.engine.checkpoint import FleetState, restore
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.errors import BadInput
from creditscope.probes.expensive import measure_expensive
from creditscope.probes.nulls import redraw
from creditscope.records import parse_method
from creditscope.rules.build import full_method, given_rules

METHODS = (
    *(
        "bp",
        "dfa",
        "fa",
        "my-kp",
        "my-kp(start=weights)",
        "my-kp(pull=0.5)",
        "my-kp@frozen",
        "my-kp@fixed-feedback",
        "my-kp+pen0.1",
    ),
    *("my-wm", "my-wm(every=2)", "my-pepita", "udfa", "udfa-rms+pen0.1", "udfa@readout"),
)
GIVEN = given_rules(RULES)
IMAGES = {"model": "vit-mini", "width": 8, "depth": 2, "view": "cls", "epochs": 2}


def named(method, **changes):
    return spec(full_method(parse_method(method), GIVEN), **changes)


def run_of(fleet, method):
    return next(at for at, one in enumerate(fleet.specs) if one.method == method)


def state_of(fleet, method):
    return fleet.state_of(run_of(fleet, method))


def params_of(fleet, method):
    run = run_of(fleet, method)
    return {name: p[run] for name, p in fleet.params.items()}


def same(a, b, **tolerance):
    assert set(a) == set(b)
    for name, value in a.items():
        torch.testing.assert_close(value, b[name], **tolerance)


@pytest.fixture(scope="module")
def company():
    """Every method in one fleet, after 20 steps."""
    return fleets.trained([named(method) for method in METHODS], rules=RULES)[0]


def test_learned_feedback_moves_and_makes_another_rule(company):
    start = fleets.fleet([named("my-kp")], rules=RULES)
    for entry, matrix in state_of(company, "my-kp").items():
        assert not torch.equal(matrix, state_of(start, "my-kp")[entry]), entry
    ours, theirs = params_of(company, "my-kp"), params_of(company, "fa")
    assert all(not torch.equal(ours[name], theirs[name]) for name in ours if name.startswith("blocks"))
    moved = company.movements(company.observe())[run_of(company, "my-kp")].feedback
    assert set(moved) == set(state_of(company, "my-kp"))
    assert min(moved.values()) > 1e-3
    assert company.movements(company.observe())[run_of(company, "dfa")].feedback is None


def test_feedback_that_starts_as_the_weights_is_backprop_for_ever(company):
    same(params_of(company, "my-kp(start=weights)"), params_of(company, "bp"), rtol=1e-9, atol=1e-12)
    for entry, matrix in state_of(company, "my-kp(start=weights)").items():
        weight = params_of(company, "bp")[f"{entry.removeprefix('B.')}.weight"]
        torch.testing.assert_close(matrix, weight, rtol=1e-9, atol=1e-12)


def test_weights_and_feedback_approach_each_other_by_the_decay_alone(company):
    """Both get one gradient, and AdamW's moments differ in nothing: W - B shrinks by 1 - lr·decay at each step.

    The moments of W and B are those of the same gradients, so the steps are equal; what is left is the decay.
    """
    run = company.specs[run_of(company, "my-kp")]
    start = fleets.fleet([run], rules=RULES)
    rates = [run.optimiser.lr * 0.5 * (1 + np.cos(np.pi * epoch / run.epochs)) for epoch in range(run.epochs)]
    shrunk = np.prod([(1 - rate * run.optimiser.weight_decay) ** start.steps_per_epoch for rate in rates])
    for entry, matrix in state_of(company, "my-kp").items():
        name = f"{entry.removeprefix('B.')}.weight"
        before = start.params[name][0] - start.state_of(0)[entry]
        torch.testing.assert_close(params_of(company, "my-kp")[name] - matrix, shrunk * before, rtol=1e-9, atol=1e-12)


def test_a_fixed_feedback_control_is_feedback_alignment(company):
    same(params_of(company, "my-kp@fixed-feedback"), params_of(company, "fa"), rtol=1e-9, atol=1e-12)
    same(state_of(company, "my-kp@fixed-feedback"), state_of(company, "fa"), rtol=0, atol=0)


def test_a_frozen_twin_trains_the_feedback_of_what_trains_and_moves_no_block(company):
    start = fleets.fleet([named("my-kp@frozen")], rules=RULES)
    for name, p in params_of(company, "my-kp@frozen").items():
        assert torch.equal(p, start.params[name][0]) == name.startswith("blocks"), name
    for entry, matrix in state_of(company, "my-kp@frozen").items():
        assert torch.equal(matrix, start.state_of(0)[entry]) == entry.startswith("B.blocks"), entry


def test_a_mirror_phase_comes_when_it_should(company):
    start = fleets.fleet([named("my-wm")], rules=RULES)
    before = {entry: t.clone() for entry, t in start.state_of(0).items()}
    start.begin_epoch(1)
    moved = []
    for _ in range(5):
        start.step()
        now = start.state_of(0)
        moved.append(any(not torch.equal(now[entry], before[entry]) for entry in now))
        before = {entry: t.clone() for entry, t in now.items()}
    assert moved == [True, False, False, True, False]
    for entry, matrix in state_of(company, "my-wm").items():
        weight = params_of(company, "my-wm")[f"{entry.removeprefix('B.')}.weight"]
        aligned = torch.nn.functional.cosine_similarity(matrix.flatten(), weight.flatten(), dim=0)
        first = fleets.fleet([named("my-wm")], rules=RULES)
        at_first = torch.nn.functional.cosine_similarity(
            first.state_of(0)[entry].flatten(), first.params[f"{entry.removeprefix('B.')}.weight"][0].flatten(), dim=0
        )
        assert aligned > at_first, entry


@pytest.mark.parametrize("method", METHODS)
def test_alone_as_in_company(company, method):
    alone, _ = fleets.trained([named(method)], rules=RULES)
    same({name: p[0] for name, p in alone.params.items()}, params_of(company, method), rtol=1e-9, atol=1e-12)
    same(alone.state_of(0), state_of(company, method), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", [{}, IMAGES], ids=["resmlp", "vit-mini"])
def test_stopped_and_resumed_is_bitwise_undisturbed(model, tmp_path):
    data = fleets.images() if model else fleets.features()
    runs = [named(method, data=data, **model) for method in METHODS]
    whole, _ = fleets.trained(runs, epochs=2, data=data, rules=RULES)
    half, _ = fleets.trained(runs, epochs=1, data=data, rules=RULES)
    FleetState(half, 1).save(tmp_path)
    resumed = fleets.fleet(runs, data, rules=RULES)
    assert restore(resumed, tmp_path).epoch == 1
    resumed.train_epoch(2)
    for run in range(len(runs)):
        same(
            {n: p[run] for n, p in resumed.params.items()}, {n: p[run] for n, p in whole.params.items()}, rtol=0, atol=0
        )
        same(resumed.state_of(run), whole.state_of(run), rtol=0, atol=0)


def test_a_uniform_feedback_gets_a_uniform_null(company):
    shot = company.snapshot(run_of(company, "udfa"), 4)
    draws = torch.cat([chunk["B.1"].flatten() for _, chunk in redraw(shot, "null", 400, 1)])
    bound = np.sqrt(3) / np.sqrt(3)  # ±√3·sd, sd = 1/√classes
    assert float(draws.abs().max()) <= bound
    assert float(draws.abs().max()) > 0.99 * bound
    kurtosis = float((draws**4).mean() / (draws**2).mean() ** 2)
    assert kurtosis == pytest.approx(1.8, abs=0.05)  # a Gaussian has 3
    row = measure_expensive(shot, 19, 4, keep_draws=False)
    assert row.null.p is not None
    assert "null" not in row.not_measured


def test_what_has_no_null_says_why(company):
    for method, field, said in (
        ("my-kp", "gradient_null", "this feedback learns"),
        ("my-pepita", "null", "delivers no credit|no credit at the states"),
    ):
        row = measure_expensive(company.snapshot(run_of(company, method), 4), 19, 4, keep_draws=False)
        assert getattr(row, field) is None
        assert re.search(said, row.not_measured[field]), row.not_measured[field]
        assert row.gradient_cosine is not None
        assert row.fidelity is not None


def test_credit_that_learned_is_compared_with_itself_rotated(company):
    row = measure_expensive(company.snapshot(run_of(company, "my-kp"), 4), 19, 4, keep_draws=False)
    assert row.null.kind == "rotated credit"
    assert all(p is not None for p in row.null.p)


def test_a_gradient_for_an_unknown_name_raises():
    @dataclass(frozen=True)
    class Lost(KolenPollack):
        """Kolen-Pollack as a first try writes it: the feedback's gradient is given, and declared nowhere."""

        name = "lost"

        def trained(self, state, params):
            return frozenset()

        def step(self, task, params, state, batch, noise, phase):
            step = super().step(task, params, state, batch, noise, phase)
            return step._replace(grads={**step.grads, "B.head": step.grads["head.weight"]})

    made = fleets.fleet([spec("lost")], rules=[Lost])
    with pytest.raises(
        BadInput, match=r"^rule lost gives a gradient for 'B.head', neither a parameter that trains nor"
    ):
        made.train_epoch(1)


def changing(handed, attributes):
    """A rule of one name whose step does something that it should not."""

    def step(self, task, params, state, batch, noise, phase):
        return Step(task.loss(task.forward(params, batch.x).logits, batch.y), dict(params), **handed)

    made = {"name": "wrong", "family": "update", "formula": "-", "paper": "-", "injection": "-", "step": step}
    made["init"] = lambda self, task, params, generator: {"B": torch.ones(3, dtype=torch.float64)}
    return dataclass(frozen=True)(type("Wrong", (CreditRule,), made | attributes))


ONES = torch.ones(3, dtype=torch.float64)
WRONG = {
    "an entry too many": ({"state": {"C": ONES}}, {"learns": True}, "a state entry 'C' that the run has not"),
    "another shape": (
        {"state": {"B": ONES[:2]}},
        {"learns": True},
        "of shape .2,., it was torch.float64 of shape .3,.",
    ),
    "learning unsaid": ({"state": {"B": ONES}}, {}, "does not say that it learns; set learns = True"),
    "a buffer too many": ({"buffers": {"mean": ONES}}, {}, "a buffer entry 'mean' that the run has not"),
    "trained too many": ({}, {"trained": lambda *_: {"C"}, "learns": True}, "declares 'C' trained"),
    "training unsaid": ({}, {"trained": lambda *_: {"B"}}, "does not say that it learns"),
    "no gradient": ({}, {"trained": lambda *_: {"B"}, "learns": True}, "gives no gradient for 'B'"),
}


@pytest.mark.parametrize(("handed", "attributes", "said"), WRONG.values(), ids=list(WRONG))
def test_nothing_that_a_rule_hands_back_is_ignored(handed, attributes, said):
    with pytest.raises(BadInput, match=said):
        fleets.fleet([spec("wrong")], rules=[changing(handed, attributes)]).train_epoch(1)


def test_a_penalty_is_refused_where_it_cannot_apply():
    with pytest.raises(BadInput, match=r"a penalty on the branches does not apply to my-pepita; drop \+pen"):
        named("my-pepita+pen0.01")


def test_both_kinds_of_drawing_have_the_spread_they_say():
    data = synthetic(n_train=60, n_test=40, dim=5, classes=3)
    made = fleets.fleet([named("udfa", width=400)], data, rules=[UniformDirect])
    entries = torch.cat([t.flatten() for t in made.state_of(0).values()])
    assert float(entries.std()) == pytest.approx(1 / np.sqrt(3), rel=0.03)
    assert float(entries.abs().max()) <= 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_as_on_a_cpu(company, tmp_path):
    """State, phases and trained entries live in the recorded step; only what a rule draws at random differs."""
    runs = [named(method) for method in METHODS]

    def made():
        return Fleet(runs, fleets.features(), default_model, torch.device("cuda"), rules=GIVEN)

    whole = made()
    for epoch in range(1, fleets.EPOCHS + 1):
        whole.train_epoch(epoch)
    for method in METHODS:
        if not method.startswith("my-wm"):
            for stacks in (params_of, state_of):
                ours = {name: t.cpu() for name, t in stacks(whole, method).items()}
                same(ours, stacks(company, method), rtol=1e-6, atol=1e-9)
    start = made()
    assert any(not torch.equal(t, state_of(start, "my-wm")[name]) for name, t in state_of(whole, "my-wm").items())
    half = made()
    half.train_epoch(1)
    half.train_epoch(2)
    FleetState(half, 2).save(tmp_path)
    resumed = made()
    assert restore(resumed, tmp_path).epoch == 2
    resumed.train_epoch(3)
    resumed.train_epoch(4)
    for run in range(len(runs)):
        ours, theirs = ({n: p[run] for n, p in fleet.params.items()} for fleet in (resumed, whole))
        same(ours, theirs, rtol=0, atol=0)
        same(resumed.state_of(run), whole.state_of(run), rtol=0, atol=0)
