"""What holds for every rule that ships: the forward value, company, resuming, the frozen twin."""

import pytest
import torch
from cases import fleets
from cases.fleets import spec
from cases.rule_cases import case, same

from creditscope.engine.checkpoint import FleetState, restore
from creditscope.records.method import parse_method
from creditscope.rules import RULES

NAMES = RULES.names()
LEARNING = [name for name in NAMES if case(name).rule.learns]
METHODS = (*NAMES, *(f"{name}@frozen" for name in NAMES), *(f"{name}@fixed-feedback" for name in LEARNING))


@pytest.fixture(scope="module")
def company():
    """Every method in one fleet, after 20 steps."""
    return fleets.trained([spec(method) for method in METHODS])[0]


def run_of(fleet, method):
    wanted = str(parse_method(method))
    return next(at for at, one in enumerate(fleet.specs) if one.method == wanted)


def params_of(fleet, method):
    return {name: p[run_of(fleet, method)] for name, p in fleet.params.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_that_of_the_plain_forward_pass(name):
    made = case(name)
    logits = torch.func.functional_call(made.task.blocks.model, made.params, (made.batch.x,))
    assert torch.equal(made.step().loss, made.task.loss(logits, made.batch.y))


@pytest.mark.parametrize("method", METHODS)
def test_alone_as_in_company(company, method):
    alone, _ = fleets.trained([spec(method)])
    same({name: p[0] for name, p in alone.params.items()}, params_of(company, method))
    same(alone.state_of(0), company.state_of(run_of(company, method)))


@pytest.mark.parametrize("name", NAMES)
def test_a_frozen_twin_moves_no_block(company, name):
    start = fleets.fleet([spec(f"{name}@frozen")])
    for parameter, p in params_of(company, f"{name}@frozen").items():
        if parameter.startswith("blocks"):
            assert torch.equal(p, start.params[parameter][0]), parameter


def test_stopped_and_resumed_is_bitwise_undisturbed(company, tmp_path):
    runs = [spec(method) for method in METHODS]
    half, _ = fleets.trained(runs, epochs=2)
    FleetState(half, 2).save(tmp_path)
    resumed = fleets.fleet(runs)
    assert restore(resumed, tmp_path).epoch == 2
    for epoch in range(3, fleets.EPOCHS + 1):
        resumed.train_epoch(epoch)
    for run in range(len(runs)):
        same(*({n: p[run] for n, p in fleet.params.items()} for fleet in (resumed, company)), rtol=0, atol=0)
        same(resumed.state_of(run), company.state_of(run), rtol=0, atol=0)
