"""Mistakes of a rule's author: each is one line that names the rule, and none is ignored."""

from dataclasses import dataclass

import pytest
import torch
from cases import fleets
from cases.fleets import spec
from extension.outside import UniformDirect

import creditscope as cs
from creditscope.engine.checkpoint import FleetState, restore
from creditscope.errors import BadInput
from creditscope.probes.expensive import measure_expensive
from creditscope.records import parse_method
from creditscope.rules.backprop import Backprop
from creditscope.rules.build import full_method, given_rules


def variant(base, **members):
    """A rule like another, with some members changed."""
    body = {"name": "variant", "__annotations__": members.pop("annotations", {}), **members}
    return dataclass(frozen=True)(type("Variant", (base,), body))


def trained(rule, methods=("variant",), epochs=1):
    given = given_rules([rule])
    runs = [spec(full_method(parse_method(method), given)) for method in methods]
    return fleets.trained(runs, epochs=epochs, rules=[rule])[0]


def stepping(change):
    def step(self, task, params, state, batch, noise, phase):
        return change(UniformDirect().step(task, params, state, batch, noise, phase), state)

    return step


def broken_gradient(shape):
    return stepping(lambda step, state: step._replace(grads={n: shape(g) for n, g in step.grads.items()}))


def in_place(step, state):
    for tensor in state.values():
        tensor.mul_(0.9)
    return step


MISTAKES = {
    "a gradient of another shape": (broken_gradient(lambda g: g.mean()), "is torch.float64 of shape"),
    "a gradient of another dtype": (broken_gradient(lambda g: g.float()), "is torch.float32 of shape"),
    "a loss too short": (
        stepping(lambda step, _: step._replace(loss=step.loss[:3])),
        "wanted a loss for each of 12 samples, got",
    ),
    "a loss of no sample": (
        stepping(lambda step, _: step._replace(loss=step.loss.mean())),
        "wanted a loss for each of 12 samples",
    ),
    "state changed in place": (stepping(in_place), "changes state or parameters in place; return new values instead"),
    "chance inside the step": (
        stepping(lambda step, _: step._replace(loss=step.loss + torch.randn(12))),
        "draws random numbers in its step; ask for them with noise",
    ),
}


@pytest.mark.parametrize(("step", "said"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_wrong_step_is_named(step, said):
    with pytest.raises(BadInput, match=rf"^rule variant.*{said}"):
        trained(variant(UniformDirect, step=step))


CLAIMS = {
    "exact where it is not": ({"exact": lambda self, depth: (True,) * (depth + 1)}, "variant", "is the gradient, and"),
    "exact of another length": ({"exact": lambda self, depth: (False,)}, "variant", "names 1 states, wanted 4"),
    "too few signals": ({"signals": lambda self, *_: ()}, "variant", "its signals have shapes"),
}


@pytest.mark.parametrize(("members", "method", "said"), CLAIMS.values(), ids=list(CLAIMS))
def test_a_wrong_word_on_itself_is_refused(members, method, said):
    with pytest.raises(BadInput, match=said):
        trained(variant(UniformDirect, **members), [method])


def test_a_wrapper_that_changes_nothing_is_refused():
    def step(self, task, params, state, batch, noise, phase):
        return Backprop().step(task._replace(penalty=None), params, state, batch, noise, phase)

    for method, said in (("variant-rms", "^-rms changes nothing"), ("variant+pen0.1", r"^\+pen changes nothing")):
        with pytest.raises(BadInput, match=said):
            trained(variant(UniformDirect, step=step), [method])


def test_what_is_chosen_for_a_group_depends_on_no_float():
    def phase(self, moment):
        return "late" if moment.step > self.share * 4 else ""

    rule = variant(UniformDirect, phase=phase, annotations={"share": float}, share=0.5)
    assert trained(rule).specs
    with pytest.raises(BadInput, match="rule variant: phase depends on a float option"):
        trained(rule, ["variant", "variant(share=0.9)"])


def test_a_value_decides_in_no_step():
    def step(self, task, params, state, batch, noise, phase):
        assert self.share > 0
        return UniformDirect().step(task, params, state, batch, noise, phase)

    with pytest.raises(BadInput, match="rule variant decides on the value of a tensor in its step"):
        trained(variant(UniformDirect, step=step, annotations={"share": float}, share=0.5))


def test_bad_options_are_refused_before_anything_starts():
    rule = variant(UniformDirect, annotations={"share": float}, share=0.5)
    for value in ("inf", "nan", "fast"):
        with pytest.raises(BadInput, match="option share of rule variant: wanted a number"):
            full_method(parse_method(f"variant(share={value})"), given_rules([rule]))
    with pytest.raises(BadInput, match="no option can be called 'noise'"):
        given_rules([variant(UniformDirect, annotations={"noise": float}, noise=0.1)])
    with pytest.raises(BadInput, match="what it says of itself does not fit: family"):
        given_rules([variant(UniformDirect, family="signals")])
    with pytest.raises(BadInput, match="rules=: wanted a list"):
        given_rules(UniformDirect)
    text = variant(UniformDirect, annotations={"mode": str}, mode="plain")
    assert full_method(parse_method("variant(mode=007)"), given_rules([text])).options == {"mode": "007"}


def test_whole_and_boolean_state_is_saved(tmp_path):
    def init(self, task, params, generator):
        counts = {"count": torch.tensor(3), "mask": torch.tensor([True, False]), "steps": torch.arange(3)}
        return {**UniformDirect().init(task, params, generator), **counts}

    def step(self, task, params, state, batch, noise, phase):
        done = UniformDirect().step(task, params, state, batch, noise, phase)
        return done._replace(state={"count": state["count"] + 1, "mask": ~state["mask"]})

    rule = variant(UniformDirect, init=init, step=step, learns=True)
    made = trained(rule)
    assert int(made.state_of(0)["count"]) == 3 + made.steps_per_epoch
    FleetState(made, 1).save(tmp_path)
    fresh = fleets.fleet(made.specs, rules=[rule])
    assert restore(fresh, tmp_path).epoch == 1
    assert all(torch.equal(t, made.state_of(0)[name]) for name, t in fresh.state_of(0).items())


def test_feedback_that_changes_nothing_has_no_null():
    """Fresh draws that give the same credit are no test: rounding would decide it."""

    def signals(self, task, params, state, error, top, batch):
        return tuple(error @ torch.ones(3, shape[-1], dtype=error.dtype) for shape in task.shapes)

    row = measure_expensive(trained(variant(UniformDirect, signals=signals)).snapshot(0, 1), 19, 4, keep_draws=False)
    assert row.null.p == [None] * 4


def test_a_log_does_not_go_on_with_another_rule_of_its_name(tmp_path):
    first = variant(UniformDirect, formula="the first")
    data = cs.load_data("synthetic")
    changes = {"width": 6, "depth": 2, "epochs": 1, "batch": 500, "probe.n": 16, "probe.redraws": 3}
    runs = cs.specs(["variant"], data=data, seeds=[1], changes=changes, rules=[first])
    cs.train(runs, tmp_path, data=data, device="cpu", rules=[first])
    (checkpoint,) = tmp_path.glob("*.safetensors")
    said = (
        r"begun with another rule 'variant' \(its formula differs\); pass that one, or give this one a name of its own"
    )
    with pytest.raises(BadInput, match=said):
        cs.probe_checkpoint(checkpoint, rules=[variant(UniformDirect, formula="the second")])
    assert cs.probe_checkpoint(checkpoint, rules=[first]).epoch == 1
