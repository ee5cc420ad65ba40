"""The proof of locality: what has a loss of its own in each block passes, and every way to leak is found."""

from dataclasses import dataclass

import pytest
import torch
from cases import fleets
from cases.fleets import spec

from creditscope.records import RunLog
from creditscope.rules.local_loss import LocalLoss

LATER = "blocks.2.branch.3.weight"


@dataclass(frozen=True)
class Leaking(LocalLoss):
    """As ``local``, and the first block hears of a weight of the last one, by as much as the option says."""

    leak: float = 0.0

    name = "leaking"

    def step(self, task, params, state, batch, noise, phase):
        step = super().step(task, params, state, batch, noise, phase)
        return self.told(step, {**task.fixed, **params}, state, phase)

    def told(self, step, weights, state, phase):
        return add(step, self.leak * weights[LATER].mean())


@dataclass(frozen=True)
class Remembering(Leaking):
    """It hears of the weight one step later, through its state."""

    name = "remembering"

    def init(self, task, params, generator):
        return super().init(task, params, generator) | {"memory": torch.zeros((), dtype=params[LATER].dtype)}

    def trained(self, state, params):
        return frozenset(state) - {"memory"}

    def assign(self, task, params, state, seen):
        return super().assign(task, params, {n: t for n, t in state.items() if n != "memory"}, seen)

    def told(self, step, weights, state, phase):
        return add(step, self.leak * state["memory"])._replace(state={"memory": weights[LATER].mean()})


@dataclass(frozen=True)
class Seldom(Leaking):
    """It hears of the weight at one step of an epoch alone."""

    name = "seldom"

    def phase(self, moment):
        return "leak" if moment.step % moment.steps_per_epoch == 3 else ""

    def told(self, step, weights, state, phase):
        return super().told(step, weights, state, phase) if phase else step


@dataclass(frozen=True)
class Silent(LocalLoss):
    """Nothing reaches the middle block: nothing is shown by its staying as it is."""

    name = "silent"

    def step(self, task, params, state, batch, noise, phase):
        step = super().step(task, params, state, batch, noise, phase)
        gone = {name: g * 0 for name, g in step.grads.items() if name.startswith("blocks.1")}
        return step._replace(grads={**step.grads, **gone})


def add(step, told):
    name = "blocks.0.branch.1.bias"
    return step._replace(grads={**step.grads, name: step.grads[name] + told})


def shown(methods, rules=()):
    made = fleets.fleet([spec(method) for method in methods], rules=rules)
    return {run.method: local for run, local in zip(made.specs, made.locality, strict=True)}


def test_rules_with_a_loss_in_each_block_are_local():
    methods = ("local", "local(sim=true)", "local+pen0.1", "ff", "local@fixed-feedback", "local@frozen")
    assert shown(methods) == dict.fromkeys(methods, True)


@pytest.mark.parametrize("kind", [Leaking, Remembering, Seldom])
def test_a_leak_is_found(kind):
    """Of runs in one group each is asked with its own option."""
    assert shown([kind.name, f"{kind.name}(leak=0.001)"], [kind]) == {
        kind.name: True,
        f"{kind.name}(leak=0.001)": False,
    }


def test_a_block_that_gets_nothing_shows_nothing():
    assert shown(["silent"], [Silent]) == {"silent": False}


def test_anchors_make_a_local_rule_global():
    assert shown(["local+anchor1", "ff+anchor2"]) == {"local+anchor1": False, "ff+anchor2": False}


def test_what_claims_no_loss_of_its_own_is_not_asked():
    methods = ("bp", "dfa", "pepita", "fg", "bp-deep")
    assert shown(methods) == dict.fromkeys(methods)


def test_the_log_says_what_was_shown(tmp_path):
    runs = [spec(method, epochs=1) for method in ("local", "leaking(leak=0.5)", "bp")]
    where = fleets.context(tmp_path, rules=[Leaking])
    fleets.train_fleets(where, [runs])
    said = {run.method: RunLog.read(tmp_path / f"{run.run_id}.jsonl").header.locality for run in runs}
    assert said == {"local": True, "leaking(leak=0.5)": False, "bp": None}
