"""One step of a rule on a small ResMLP in float64, ready to compare with a backward written by hand."""

from typing import NamedTuple

import numpy as np
import torch
from cases.models import batch_of, params_of, resmlp, seeded_generator, task_of

from creditscope.blocks import Batch, CreditRule, RuleState, Step, Task
from creditscope.rules.build import rule_named
from creditscope.rules.wrappers import Penalised


class Case(NamedTuple):
    """A rule with what its step is computed from."""

    rule: CreditRule
    task: Task
    params: dict
    state: RuleState
    batch: Batch
    noise: dict

    def step(self, phase="", penalty=None, state=None, params=None) -> Step:
        rule = self.rule if penalty is None else Penalised(self.rule, torch.tensor(penalty, dtype=torch.float64))
        return rule.step(self.task, params or self.params, state or self.state, self.batch, self.noise, phase)

    def deliver(self, state=None, params=None):
        return self.rule.deliver(self.task, params or self.params, state or self.state, self.batch)

    @property
    def arrays(self):
        """Parameters, inputs and labels in numpy."""
        return {n: p.numpy() for n, p in self.params.items()}, self.batch.x.numpy(), self.batch.y.numpy()


def case(method, model=None, n=3, seed=7, classes=4) -> Case:
    model = resmlp() if model is None else model
    batch, rule = batch_of((5,), classes, n), rule_named(method)
    task, params = task_of(model, batch.x), params_of(model)
    generator = seeded_generator(seed)
    state = rule.init(task, params, generator)
    asked = rule.noise(task, params, n)
    noise = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in asked.items()}
    return Case(rule, task, params, state, batch, noise)


def same(got, wanted, rtol=1e-9, atol=1e-12):
    assert set(got) == set(wanted)
    for name in wanted:
        np.testing.assert_allclose(np.asarray(got[name]), np.asarray(wanted[name]), rtol, atol, err_msg=str(name))


def as_arrays(tensors):
    return {name: np.asarray(t) for name, t in tensors.items()}
