"""A training step audited: its numbers against a computation by hand, its family, and everything as it was found."""

import copy
import random

import numpy as np
import pytest
import torch
from scope import steps
from scope.nets import same, state_of_model
from scope.steps import activities, adam, linears, mlp, problem
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.errors import BadInput

DATA = problem()
K = 19


def audited(model, update, **given):
    return cs.audit_updates(model, update, DATA, **{"redraws": K, "name": "mine"} | given).claims[0]


def probe_of(cell):
    return cell.cell.runs[0].probes[0]


def outcome(cell, name):
    return next(o for o in cell.outcomes if o.name == name)


def bp_by_hand(model, x, y):
    """Gradient of the mean loss per layer, weights and biases as one vector, in numpy: tanh layers, softmax on top."""
    weights = [(m.weight.detach().double().numpy(), m.bias.detach().double().numpy()) for m in linears(model)]
    entering = [x.double().numpy()]
    for weight, bias in weights[:-1]:
        entering.append(np.tanh(entering[-1] @ weight.T + bias))
    out = entering[-1] @ weights[-1][0].T + weights[-1][1]
    p = np.exp(out - out.max(1, keepdims=True))
    delta = (p / p.sum(1, keepdims=True) - np.eye(out.shape[1])[y.numpy()]) / len(x)
    found = []
    for at in reversed(range(len(weights))):
        found.insert(0, np.concatenate([(delta.T @ entering[at]).ravel(), delta.sum(0)]))
        delta = (delta @ weights[at][0]) * (1 - entering[at] ** 2)
    return found


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_cosine_and_descent_are_those_of_a_computation_by_hand():
    model, rule = mlp(), steps.Pepita()
    x, y = (part[:128] for part in DATA)
    true = bp_by_hand(model, x, y)
    after = copy.deepcopy(model)
    rule(after, (x, y))
    change = [
        np.concatenate([(b.weight - a.weight).detach().double().numpy().ravel(), (b.bias - a.bias).detach().numpy()])
        for a, b in zip(linears(model), linears(after), strict=True)
    ]
    probe = probe_of(audited(model, rule))
    wanted = [cosine(d, g) for d, g in zip(change, true, strict=True)][:-1]
    np.testing.assert_allclose(probe.step_descent, wanted, atol=1e-5)
    np.testing.assert_allclose(probe.gradient_cosine, [-value for value in wanted], atol=1e-5)
    assert probe.gradient_null.kind == "shuffled labels"
    assert probe.gradient_null.redraws == K
    sizes = [len(g) for g in true[:-1]]
    np.testing.assert_allclose(probe.gradient_null.random_vector_sd, 1 / np.sqrt(sizes))
    assert min(probe.fidelity.median) > 1 - 1e-9


def test_the_gradient_is_taken_before_momentum_decay_and_the_moments_of_adam():
    model = mlp()
    update, optimiser = adam(model)
    optimiser.param_groups[0]["weight_decay"] = 0.5
    for _ in range(10):
        update(model, (DATA[0][128:], DATA[1][128:]))
    cell = audited(model, update)
    assert min(probe_of(cell).gradient_cosine) > 1 - 1e-9
    assert cell.cell.family == "update"
    # What Adam makes of it is another direction.
    assert all(abs(value) < 0.99 for value in probe_of(cell).step_descent)


def test_a_gradient_that_no_optimiser_uses_does_not_count():
    def logged(model, batch):
        functional.cross_entropy(model(batch[0]), batch[1]).backward()  # for a plot
        with torch.no_grad():
            for p in model.parameters():
                p += 0.01 * torch.randn_like(p)

    assert all(abs(value) < 0.4 for value in probe_of(audited(mlp(), logged)).gradient_cosine)


def test_model_optimiser_and_randomness_are_left_as_found():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 8), nn.Linear(8, 4))
    update, optimiser = adam(model)
    noise = torch.Generator().manual_seed(3)
    scale = torch.ones(2)
    averages = np.zeros(2)

    def noisy(model, batch):
        scale.mul_(2)
        averages.__iadd__(1)
        np.random.rand(), random.random(), torch.rand(2, generator=noise)
        update(model, batch)

    for _ in range(3):
        noisy(model, DATA)
    model.zero_grad()
    functional.cross_entropy(model(DATA[0]), DATA[1]).backward()

    def moments():
        return {k: (id(v), v.clone()) for s in optimiser.state.values() for k, v in enumerate(s.values())}

    before, kept = state_of_model(model), moments()
    rng = np.random.get_state()[1].copy(), random.getstate(), noise.get_state().clone()
    probe = probe_of(audited(model, noisy))
    assert min(probe.gradient_cosine) > 1 - 1e-4  # dropout masks and batch statistics are those of the step
    assert same(before, state_of_model(model))
    assert all(kept[k][0] == i and torch.equal(kept[k][1], v) for k, (i, v) in moments().items())
    assert np.array_equal(rng[0], np.random.get_state()[1])
    assert rng[1] == random.getstate()
    assert torch.equal(rng[2], noise.get_state())
    assert (scale.tolist(), averages.tolist()) == ([8.0, 8.0], [3.0, 3.0])


def made(name):
    model = {"no_time": steps.Recurrent, "surrogate": steps.Spiking}.get(name, mlp)()
    rule = {
        "pepita": steps.Pepita(),
        "local": steps.LocalLosses(model),
        "perturbation": steps.weight_perturbation,
        "no_time": steps.no_time,
        "surrogate": adam(model)[0],
    }[name]
    return model, rule


@pytest.mark.parametrize("name", ["pepita", "local", "perturbation", "no_time", "surrogate"])
def test_any_step_is_asked_for_its_direction_without_a_stream_blocks_or_feedback(name):
    model, rule = made(name)
    for _ in range(20):
        rule(model, DATA)
    given = {"reference": "surrogate"} if name == "surrogate" else {}
    cell = audited(model, rule, **given)
    probe = probe_of(cell)
    assert cell.cell.family == "update"
    assert str(outcome(cell, "direction").ruling) == "undecided"  # one seed decides nothing
    assert str(outcome(cell, "reference").ruling) == "not applicable"
    assert str(outcome(cell, "scale").ruling) == "passes"
    cosines = np.array(probe.gradient_cosine)
    if name == "pepita":
        assert abs(cosines[1:]).max() < 0.9
    if name == "local":
        assert 0 < cosines.min() < cosines.max() < 1 - 1e-6
    if name == "no_time":
        assert 0.3 < cosines[0] < 0.999
    if name == "surrogate":
        assert cosines.min() > 1 - 1e-9
        assert any("surrogate derivatives" in note for note in cell.cell.runs[0].problems)
        # The true derivative of a spike is zero: without the surrogate there is nothing to compare with.
        assert (
            "no update or no gradient of first, second"
            in probe_of(audited(model, rule)).not_measured["gradient_cosine"]
        )


def test_a_step_that_looks_at_no_label_has_no_null():
    probe = probe_of(audited(mlp(), steps.hebbian))
    assert probe.gradient_null is None
    assert "does not use them" in probe.not_measured["gradient_null"]


def test_three_seeds_decide_backprop_passes_and_a_random_step_does_not():
    def judged(rule):
        logs = []
        for seed in range(3):
            model = mlp(seed)
            init = copy.deepcopy(model.state_dict())
            for _ in range(30):
                steps.backprop(model, DATA)
            logs += cs.audit_updates(model, rule, DATA, init=init, seed=seed, redraws=119, name="mine").logs
        return cs.audit(logs).claims[0]

    assert str(outcome(judged(steps.backprop), "direction").ruling) == "passes"

    def random_step(model, batch):
        with torch.no_grad():
            for p in model.parameters():
                p += 1e-3 * torch.randn_like(p) * batch[1].double().mean()

    assert str(outcome(judged(random_step), "direction").ruling) in ("fires", "undecided")

    def uphill(model, batch):
        functional.cross_entropy(model(batch[0]), batch[1]).backward()
        with torch.no_grad():
            for p in model.parameters():
                p += 0.1 * p.grad

    assert str(outcome(judged(uphill), "direction").ruling) == "fires"


def test_blocks_may_be_groups_of_parameters_and_the_whole_net():
    model, rule = mlp(), steps.Pepita()
    found = audited(model, rule).cell.runs[0].header
    assert (found.blocks, found.partition) == (["0", "2", "4"], "found")  # the output layer speaks for nobody
    whole = audited(model, rule, blocks={"net": [""]})
    true = np.concatenate(bp_by_hand(model, *(part[:128] for part in DATA)))
    after = copy.deepcopy(model)
    rule(after, tuple(part[:128] for part in DATA))
    change = torch.cat([(b - a).flatten() for a, b in zip(model.parameters(), after.parameters(), strict=True)])
    assert probe_of(whole).gradient_cosine == pytest.approx([-cosine(change.detach().double().numpy(), true)], abs=1e-5)
    pair = audited(model, rule, blocks={"low": ["0"], "high": ["2.weight", "4"]}).cell.runs[0].header
    assert (pair.blocks, pair.partition, pair.spec.depth) == (["low", "high"], "given", 2)


def test_a_twin_is_compared_and_a_loss_of_ones_own_is_taken():
    model, twin = mlp(), mlp()
    for _ in range(50):
        steps.backprop(model, DATA)
    cell = audited(model, steps.backprop, baseline=twin, loss_fn=nn.MSELoss(), forward=lambda m, x: m(x)[:, 0])
    assert str(outcome(cell, "depth").ruling) == "not measured"
    cell = audited(model, steps.backprop, baseline=twin)
    depth = outcome(cell, "depth")

    def accuracy(net):
        # Classes are unequal here: the mean over classes.
        right = (activities(net, DATA[0])[1].argmax(1) == DATA[1]).double()
        return float(torch.stack([right[DATA[1] == k].mean() for k in range(4)]).mean())

    assert depth.evidence.value == pytest.approx(100 * (accuracy(model) - accuracy(twin)))


CALLS = iter(range(1, 10**6))


def hidden(model, batch):
    with torch.no_grad():
        model[0].weight += next(CALLS) * 1e-3


def replaced(model, batch):
    model[0] = nn.Linear(6, 5)


def diverged(model, batch):
    with torch.no_grad():
        model[0].weight.fill_(float("nan"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"update": lambda model, batch: None}, "update changed no parameter"),
        ({"update": 3}, "wanted update as a function"),
        ({"update": hidden}, "it keeps state that could not be put back; pass state="),
        ({"update": replaced}, "update put other parameters into the model"),
        ({"update": diverged}, "NaN or infinite"),
        ({"state": [3]}, "wanted state as optimisers"),
        ({"reference": "bptt"}, "wanted reference as 'gradient' or 'surrogate'"),
        ({"blocks": ["7"]}, "no parameter of the model is in '7'"),
        ({"blocks": "net"}, "wanted blocks as names"),
        ({"name": "bp"}, "a method called bp is taken for backprop"),
        ({"loader": (DATA[0], DATA[0])}, "wanted class labels and outputs"),
        ({"forward": lambda model, x: 3}, "wanted outputs with samples on the first axis"),
        ({"init": {}}, "wanted 0.weight in init"),
    ],
)
def test_what_cannot_be_audited_is_refused_by_name(given, said):
    asked = {"model": mlp(), "update": steps.Pepita(), "loader": DATA, "redraws": 2} | given
    with pytest.raises(BadInput, match=said):
        cs.audit_updates(**asked)
