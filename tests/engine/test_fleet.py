"""The fleet against a plain loop over one run at a time, whose gradients are written out by hand."""

import gc
import math
import weakref

import pytest
import torch
from cases import fleets
from cases.fleets import METHODS, features, images, spec

from creditscope.data.order import epoch_order, seeded_generator
from creditscope.engine.fleet import Fleet
from creditscope.engine.traced import Traced
from creditscope.records import OptimiserSpec, parse_method

# Twenty steps of AdamW in float64: only the order of sums differs.
EXACT = 1e-9
# Twenty steps in float32, stacked or alone: the stated tolerance (3e-7 was measured).
FLOAT32 = 1e-4


def mixed(**changes):
    """Every rule with every mask, two seeds, three learning rates, in no order."""
    runs = [spec(m, seed=1 + at % 2, lr=(0.01, 0.003, 0.03)[at % 3], **changes) for at, m in enumerate(METHODS)]
    return runs[::2] + runs[1::2]


def distance(a, b):
    """Largest difference over the size of the larger."""
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-3))


@pytest.fixture(scope="module")
def company():
    return fleets.trained(mixed())


@pytest.mark.parametrize("method", METHODS)
def test_twenty_steps_as_a_plain_loop_takes_them(company, method):
    made, losses = company
    run = next(at for at, one in enumerate(made.specs) if one.method == str(parse_method(method)))
    params, plain = fleets.alone(made.specs[run], features(), made.state_of(run))
    for name, wanted in params.items():
        assert distance(made.params[name][run], wanted) < EXACT, name
    torch.testing.assert_close(torch.stack(losses)[:, run], torch.tensor(plain), rtol=EXACT, atol=EXACT)


def test_the_oracle_can_tell(company):
    """Another seed, a plain dfa for dfa-rms, no decay on what trains: each is far outside the tolerance."""
    made, _ = company
    run = next(at for at, one in enumerate(made.specs) if one.method == "dfa-rms")
    right = made.specs[run]
    for change in ({"seed": 3}, {"credit_norm": "none"}, {"schedule": "constant"}, {"targets": "random"}):
        params, _ = fleets.alone(right.model_copy(update=change), features(), made.state_of(run))
        assert distance(made.params["embed.weight"][run], params["embed.weight"]) > 1e-4, change


@pytest.mark.parametrize("changes", [{"terminal_ln": False}, {"targets": "random"}, {"schedule": "constant"}])
@pytest.mark.parametrize("method", ["bp", "fa", "dfa-rms"])
def test_variants_as_a_plain_loop_takes_them(method, changes):
    run = spec(method, **changes)
    made, _ = fleets.trained([run])
    params, _ = fleets.alone(run, features(), made.state_of(0))
    assert max(distance(made.params[name][0], p) for name, p in params.items()) < EXACT


def test_sgd_with_momentum_as_a_plain_loop_takes_it():
    """Movement and the last step are net of decay, and a fleet of SGD keeps one moment."""
    told = OptimiserSpec(name="sgd", lr=0.05, momentum=0.8, weight_decay=0.1)
    runs = [spec(method, optimiser=told) for method in ("bp", "fa", "dfa-rms@last2")]
    made, _ = fleets.trained(runs)
    for run, one in enumerate(made.specs):
        params, _ = fleets.alone(one, features(), made.state_of(run))
        assert max(distance(made.params[name][run], p) for name, p in params.items()) < EXACT
    assert made.state.second == {}
    before = {name: p.clone() for name, p in made.params.items()}
    made.begin_epoch(4)
    made.step()
    lr = 0.05 * 0.5 * (1 + math.cos(math.pi * 3 / 4))
    update = made.snapshot(0, 4).update
    for name in update:
        decayed = before[name][0] * (1 - lr * 0.1)
        torch.testing.assert_close(update[name], made.params[name][0] - decayed, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("augment", ["none", "crop4+flip"])
def test_pictures_are_cropped_and_normalised_as_a_plain_loop_does(augment):
    runs = [spec("bp", images(), seed, augment=augment) for seed in (1, 2)]
    made, _ = fleets.trained(runs, data=images())
    assert made.steps_per_epoch == 5
    for run in range(2):
        params, _ = fleets.alone(made.specs[run], images(), {})
        # The fleet normalises pictures in float32.
        assert max(distance(made.params[name][run], p) for name, p in params.items()) < 1e-5


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", EXACT), ("float32", FLOAT32)])
def test_a_run_alone_and_in_company_agree(dtype, tolerance):
    made, _ = fleets.trained(mixed(dtype=dtype))
    for run in range(0, len(made.specs), 5):
        lonely, _ = fleets.trained([made.specs[run]])
        for name, p in lonely.params.items():
            assert distance(made.params[name][run], p[0]) < tolerance, (made.specs[run].method, name)


def test_what_does_not_train_never_changes(company):
    made, _ = company
    for run, one in enumerate(made.specs):
        for name, p in made.params.items():
            same = torch.equal(p[run], fleets.initial(one, features())[name])
            assert same != fleets.trains(name, one), (one.method, name)


def test_before_training_each_run_is_its_own_seed():
    made = fleets.fleet(mixed())
    for run, one in enumerate(made.specs):
        for name, wanted in fleets.initial(one, features()).items():
            assert torch.equal(made.params[name][run], wanted)
            assert torch.equal(made.init[name][run], wanted)


def test_feedback_follows_from_the_seed():
    made = fleets.fleet(mixed())
    for run, one in enumerate(made.specs):
        if one.rule == "dfa":
            generator = seeded_generator(one.seed, "feedback")
            for level in range(3):
                drawn = torch.randn(3, 6, generator=generator, dtype=torch.float64) / 3**0.5
                torch.testing.assert_close(made.state_of(run)[f"B.{level}"], drawn)


def test_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    fleets.trained([spec("dfa")], epochs=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_precision_of_products_is_left_as_it_was():
    torch.set_float32_matmul_precision("high")
    try:
        fleets.trained([spec("bp")], epochs=1)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_fewer_steps_on_request():
    made = fleets.fleet([spec("bp")])
    made.train_epoch(1, steps=2)
    assert float(made.optimiser.steps) == 2


def test_scores_are_those_of_the_plain_model(company):
    made, _ = company
    scores = made.evaluate()
    data = features()
    for run in range(len(made.specs)):
        model = made.task.blocks.model
        logits = torch.func.functional_call(model, {n: p[run] for n, p in made.params.items()}, data.x_test.double())
        assert torch.equal(scores.correct[run], logits.argmax(1) == data.y_test)
        wanted = torch.nn.functional.cross_entropy(logits, data.y_test)
        torch.testing.assert_close(scores.loss[run], wanted, check_dtype=False)


def test_a_snapshot_is_one_run_of_the_stack(company):
    made, _ = company
    run = next(at for at, one in enumerate(made.specs) if one.method == "dfa-rms@last2")
    snapshot = made.snapshot(run, fleets.EPOCHS)
    assert torch.equal(snapshot.params["head.weight"], made.params["head.weight"][run])
    assert snapshot.trained == {n for n in made.params if fleets.trains(n, made.specs[run])}
    assert snapshot.step == 20
    assert torch.equal(snapshot.probe.x, features().x_test[:16].double())
    order = epoch_order(made.specs[run].seed, 1, 60, 12)[0]
    assert torch.equal(snapshot.train.y, features().y_train[order])


def test_a_snapshot_of_a_random_target_run_trains_on_its_own_targets():
    run = spec("bp", targets="random", seed=4)
    made = fleets.fleet([spec("bp"), run])
    at = made.specs.index(run)
    from creditscope.data.order import random_targets

    order = epoch_order(4, 1, 60, 12)[0]
    assert torch.equal(made.snapshot(at, 0).train.y, random_targets(4, 60, 3)[order])


def test_the_last_update_is_the_last_step_net_of_decay(company):
    """One more step of a copy: what the parameters changed by, less the decay."""
    run = spec("bp", schedule="constant", epochs=2)
    made, _ = fleets.trained([run], epochs=1)
    before = {name: p[0].clone() for name, p in made.params.items()}
    made.train_epoch(2, steps=1)
    update = made.snapshot(0, 2).update
    for name, p in made.params.items():
        decayed = before[name] * (1 - 0.01 * 0.1)
        torch.testing.assert_close(update[name], p[0] - decayed, rtol=1e-6, atol=1e-12)


def test_before_training_there_is_no_update():
    assert fleets.fleet([spec("bp")]).snapshot(0, 0).update is None


def test_stack_then_slice_is_the_identity():
    made = fleets.fleet(mixed())
    alone = [fleets.fleet([one]) for one in made.specs]
    for run, lonely in enumerate(alone):
        assert all(torch.equal(made.params[name][run], p[0]) for name, p in lonely.params.items())
        ours, theirs = made.state_of(run), lonely.state_of(0)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_order_of_the_specs_does_not_matter():
    runs = mixed()
    assert fleets.fleet(runs).specs == fleets.fleet(runs[::-1]).specs


def test_the_dtype_is_the_runs_own():
    made = Fleet([spec("bp", dtype="float32")], features(), fleets.default_model, fleets.CPU)
    assert {p.dtype for p in made.params.values()} == {torch.float32}


@pytest.mark.parametrize("epochs", [4, 400])
def test_a_fleet_goes_when_its_last_user_does(epochs):
    """Its memory must be there for the next fleet at once, not when the collector comes by: traced or not."""
    made, _ = fleets.trained([spec("bp", epochs=epochs)], epochs=1)
    assert all(isinstance(credit, Traced) == (epochs == 400) for credit in made._credit.values())
    made.evaluate(), made.observe()
    gone = weakref.ref(made)
    gc.disable()
    try:
        del made
        assert gone() is None
    finally:
        gc.enable()


def test_a_rewound_fleet_trains_as_a_new_one():
    runs = [spec("bp"), spec("dfa-rms")]
    made, losses = fleets.trained(runs)
    made.rewind()
    again = [made.train_epoch(epoch) for epoch in range(1, fleets.EPOCHS + 1)]
    assert torch.equal(torch.stack(again), torch.stack(losses))
