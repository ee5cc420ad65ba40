"""What holds for every rule: its backward equals one written by hand, and the laws that no rule may break."""

import numpy as np
import pytest
import torch
from cases.by_autograd import blockwise, signals_of, transport
from cases.by_hand import backward
from cases.models import (
    CONV_BLOCKS,
    PLAIN_BLOCKS,
    TokenNet,
    assign,
    batch_of,
    conv_net,
    params_of,
    plain_mlp,
    resmlp,
    scrambled,
    seeded_generator,
    task_of,
    tuple_net,
    vit,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call, vmap
from torch.nn import functional

from creditscope.blocks import Batch, observe
from creditscope.errors import BadInput
from creditscope.rules.build import rule_named

METHODS = ("bp", "fa", "fa-exact-head", "fa-block", "dfa", "dfa-rms")
PENALTIES = pytest.mark.parametrize("penalty", [None, 0.0, 0.3], ids=["none", "zero", "pen"])


def rule_of(method):
    return rule_named(method)


def numpy_of(tensors):
    return {name: t.numpy() for name, t in tensors.items()}


def scalar(penalty):
    return None if penalty is None else torch.tensor(penalty, dtype=torch.float64)


def same(got, wanted, **tolerance):
    tolerance = {"rtol": 1e-9, "atol": 1e-12} | tolerance
    assert set(got) == set(wanted)
    for name in wanted:
        np.testing.assert_allclose(np.asarray(got[name]), np.asarray(wanted[name]), err_msg=str(name), **tolerance)


# Oracles


@pytest.mark.parametrize("terminal_ln", [True, False], ids=["ln", "no-ln"])
@PENALTIES
@pytest.mark.parametrize("method", METHODS)
def test_on_a_resmlp_equals_the_backward_written_by_hand(method, penalty, terminal_ln):
    model, batch, rule = resmlp(terminal_ln=terminal_ln), batch_of((5,), 4), rule_of(method)
    task, params = task_of(model, batch.x), params_of(model)
    feedback = rule.init(task, params, seeded_generator())

    got = assign(rule, task, params, feedback, batch, scalar(penalty))
    delivered = rule.deliver(task, params, feedback, batch)
    grads, credit, logits = backward(
        method, numpy_of(params), numpy_of(feedback), batch.x.numpy(), batch.y.numpy(), penalty or 0.0, terminal_ln
    )
    same(got.grads, grads)
    same(dict(enumerate(delivered)), dict(enumerate(credit)))
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(got.loss.numpy(), -log_p[np.arange(3), batch.y.numpy()], rtol=1e-10)


@PENALTIES
@pytest.mark.parametrize("method", METHODS)
def test_on_a_vit_equals_plain_autograd_of_the_surrogate_loss(method, penalty):
    model, batch, rule = vit(), batch_of((2, 8, 8), 3), rule_of(method)
    task, params = task_of(model, batch.x), params_of(model)
    feedback = rule.init(task, params, seeded_generator())
    lam = penalty or 0.0
    if method in ("bp", "fa", "fa-exact-head"):
        grads, credit = transport(model, feedback, batch.x, batch.y, lam, local=method != "bp")
    else:
        credit = signals_of(method, model, feedback, batch.x, batch.y)
        grads = blockwise(model, credit, batch.x, batch.y, lam)

    same(assign(rule, task, params, feedback, batch, scalar(penalty)).grads, grads)
    same(dict(enumerate(rule.deliver(task, params, feedback, batch))), dict(enumerate(credit)))


# Laws


@st.composite
def cases(draw):
    """A small ResMLP with its task, parameters and a batch."""
    model = resmlp(
        width=draw(st.integers(2, 7)),
        depth=draw(st.integers(1, 3)),
        terminal_ln=draw(st.booleans()),
        seed=draw(st.integers(0, 2**31)),
    )
    batch = batch_of((5,), 4, n=draw(st.integers(1, 4)), seed=draw(st.integers(0, 2**31)))
    return task_of(model, batch.x), params_of(model), batch


LAWS = settings(max_examples=20, deadline=None)


@LAWS
@given(cases())
def test_backprops_credit_is_the_reference(case):
    task, params, batch = case
    rule = rule_of("bp")
    seen = observe(task, params, rule, {}, batch)
    same(dict(enumerate(rule.deliver(task, params, {}, batch))), dict(enumerate(seen.references)), rtol=0, atol=0)
    same(dict(enumerate(seen.delivered)), dict(enumerate(seen.references)), rtol=0, atol=0)


@LAWS
@given(cases(), st.sampled_from(["fa", "fa-exact-head"]), st.sampled_from([None, 0.0]))
def test_feedback_alignment_with_the_weights_as_feedback_is_backprop(case, method, penalty):
    task, params, batch = case
    rule = rule_of(method)
    feedback = {
        name: params[f"{name.removeprefix('B.')}.weight"] for name in rule.init(task, params, seeded_generator())
    }
    exact = assign(rule_of("bp"), task, params, {}, batch, None)
    same(assign(rule, task, params, feedback, batch, scalar(penalty)).grads, exact.grads)
    references = observe(task, params, None, {}, batch).references
    same(dict(enumerate(rule.deliver(task, params, feedback, batch))), dict(enumerate(references)))


@LAWS
@given(cases(), st.sampled_from(METHODS), st.sampled_from([None, 0.3]))
def test_no_rule_changes_the_forward_value(case, method, penalty):
    task, params, batch = case
    rule = rule_of(method)
    feedback = rule.init(task, params, seeded_generator())
    loss = assign(rule, task, params, feedback, batch, scalar(penalty)).loss
    logits = functional_call(task.blocks.model, params, (batch.x,))
    assert torch.equal(loss, task.loss(logits, batch.y))
    assert torch.equal(observe(task, params, rule, feedback, batch).logits, logits)


@LAWS
@given(cases(), st.sampled_from(METHODS), st.floats(0.1, 10))
def test_the_penalty_is_linear_in_lambda_and_leaves_the_readout_of_local_rules_alone(case, method, lam):
    task, params, batch = case
    rule = rule_of(method)
    feedback = rule.init(task, params, seeded_generator())
    none, one, many = (assign(rule, task, params, feedback, batch, scalar(value)).grads for value in (None, 1.0, lam))
    for name in none:
        np.testing.assert_allclose(many[name] - none[name], lam * (one[name] - none[name]), rtol=1e-6, atol=1e-9)
        if method != "bp" and not name.startswith("blocks."):
            assert torch.equal(one[name], none[name]), name


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [resmlp, vit], ids=["resmlp", "vit"])
def test_runs_stacked_by_vmap_then_sliced_are_the_single_runs(method, make):
    models = [make(seed=seed) for seed in (0, 1, 2)]
    shape, classes = ((5,), 4) if make is resmlp else ((2, 8, 8), 3)
    batches = [batch_of(shape, classes, seed=seed) for seed in (3, 4, 5)]
    penalties = torch.tensor([0.0, 0.2, 0.7], dtype=torch.float64)
    task, rule = task_of(models[0], batches[0].x), rule_of(method)
    params = [params_of(model) for model in models]
    feedback = [rule.init(task, p, seeded_generator(seed)) for seed, p in enumerate(params)]

    def stack(dicts):
        return {name: torch.stack([d[name] for d in dicts]) for name in dicts[0]}

    def credit(p, f, x, y, penalty):
        return assign(rule, task, p, f, Batch(x, y), penalty)

    def look(p, f, x, y):
        return observe(task, p, rule, f, Batch(x, y))

    xs, ys = (torch.stack(column) for column in zip(*batches, strict=True))
    together = vmap(credit)(stack(params), stack(feedback), xs, ys, penalties)
    seen = vmap(look)(stack(params), stack(feedback), xs, ys)
    for run in range(3):
        alone = credit(params[run], feedback[run], xs[run], ys[run], penalties[run])
        same({name: g[run] for name, g in together.grads.items()}, alone.grads)
        same({0: together.loss[run]}, {0: alone.loss})
        single = look(params[run], feedback[run], xs[run], ys[run])
        for field in ("states", "branches", "references", "delivered"):
            stacked = {level: t[run] for level, t in enumerate(getattr(seen, field))}
            same(stacked, dict(enumerate(getattr(single, field))))


# Feedback


@pytest.mark.parametrize("method", METHODS)
def test_feedback_follows_from_the_seed_alone(method):
    model, batch, rule = resmlp(), batch_of((5,), 4), rule_of(method)
    params, global_state = params_of(model), torch.get_rng_state()
    task = task_of(model, batch.x)
    first, again, other = (rule.init(task, params, seeded_generator(seed)) for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), global_state)
    assert set(first) == set(again) == set(other)
    assert (not first) == (method == "bp")
    for name in first:
        assert torch.equal(first[name], again[name])
        assert not torch.equal(first[name], other[name])


@pytest.mark.parametrize("method", METHODS)
def test_feedback_is_the_same_draw_in_every_dtype(method):
    rule = rule_of(method)
    double = resmlp()
    x = batch_of((5,), 4).x
    wide = rule.init(task_of(double, x), params_of(double), seeded_generator())
    single = double.float()
    narrow = rule.init(task_of(single, x.float()), params_of(single), seeded_generator())
    for name in wide:
        assert narrow[name].dtype == torch.float32
        np.testing.assert_allclose(narrow[name], wide[name], rtol=1e-6)


# Hygiene


def hooks_on(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())


@pytest.mark.parametrize("method", METHODS)
def test_hooks_are_gone_after_success_and_after_an_exception(method, monkeypatch):
    model, batch, rule = resmlp(), batch_of((5,), 4), rule_of(method)
    task, params = task_of(model, batch.x), params_of(model)
    feedback = rule.init(task, params, seeded_generator())
    assign(rule, task, params, feedback, batch, scalar(0.1))
    rule.deliver(task, params, feedback, batch)
    assert hooks_on(model) == 0

    def explode(*_):
        raise ZeroDivisionError("inside the forward pass")

    monkeypatch.setattr(model.blocks[1].branch[2], "forward", explode)
    for call in (
        lambda: assign(rule, task, params, feedback, batch, scalar(0.1)),
        lambda: rule.deliver(task, params, feedback, batch),
        lambda: observe(task, params, rule, feedback, batch),
    ):
        with pytest.raises(ZeroDivisionError):
            call()
        assert hooks_on(model) == 0


@pytest.mark.parametrize("method", METHODS)
def test_the_model_is_left_as_found(method):
    model, batch, rule = resmlp(), batch_of((5,), 4), rule_of(method)
    before = params_of(model)
    other = params_of(resmlp(seed=5))
    task = task_of(model, batch.x)
    feedback = rule.init(task, other, seeded_generator())
    kept = {name: f.clone() for name, f in feedback.items()}
    assign(rule, task, other, feedback, batch, scalar(0.1))
    same(params_of(model), before, rtol=0, atol=0)
    same(feedback, kept, rtol=0, atol=0)
    assert all(p.grad is None for p in model.parameters())


# Models of a user's own


@pytest.mark.parametrize("method", ["bp", "fa", "fa-exact-head", "dfa", "dfa-rms"])
def test_feature_maps_and_vectors_in_one_model(method):
    model, batch, rule = conv_net(), batch_of((1, 4, 4), 3), rule_of(method)
    task, params = task_of(model, batch.x, CONV_BLOCKS), params_of(model)
    assert task.shapes == ((3, 4, 4), (3, 4, 4), (2, 2, 2), (5,))
    feedback = rule.init(task, params, seeded_generator())
    credit = assign(rule, task, params, feedback, batch, scalar(0.2))
    delivered = rule.deliver(task, params, feedback, batch)
    assert [tuple(c.shape) for c in delivered] == [(3, *shape) for shape in task.shapes]
    assert all(credit.grads[name].shape == p.shape and credit.grads[name].any() for name, p in params.items())


def test_fa_with_the_weights_is_backprop_through_convolutions_too():
    model, batch, rule = conv_net(), batch_of((1, 4, 4), 3), rule_of("fa")
    task, params = task_of(model, batch.x, CONV_BLOCKS), params_of(model)
    drawn = rule.init(task, params, seeded_generator())
    assert set(drawn) == {"B.same.conv", "B.down.0", "B.flat.1", "B.head"}
    feedback = {name: params[f"{name.removeprefix('B.')}.weight"] for name in drawn}
    same(
        assign(rule, task, params, feedback, batch, None).grads,
        assign(rule_of("bp"), task, params, {}, batch, None).grads,
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_plain_mlp_without_skips(method):
    """Hand-written for tanh layers: without a skip the branch is the whole state, and so the penalty's target."""
    model, batch, rule = plain_mlp(), batch_of((5,), 3), rule_of(method)
    task, params = task_of(model, batch.x, PLAIN_BLOCKS), params_of(model)
    assert task.blocks.skips == (False, False, False)
    feedback = rule.init(task, params, seeded_generator())
    got = assign(rule, task, params, feedback, batch, scalar(0.3)).grads
    delivered = rule.deliver(task, params, feedback, batch)

    p, fb, x, n = numpy_of(params), numpy_of(feedback), batch.x.numpy(), 3
    h = [x @ p["0.weight"].T + p["0.bias"]]
    for level in (1, 2, 3):
        h.append(np.tanh(h[-1] @ p[f"{level}.0.weight"].T + p[f"{level}.0.bias"]))
    logits = h[-1] @ p["4.weight"].T + p["4.bias"]
    e = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    e[np.arange(n), batch.y.numpy()] -= 1

    def back(level):
        return fb[f"B.{level}.0"] if f"B.{level}.0" in fb else p[f"{level}.0.weight"]

    def slope(level):
        return 1 - h[level] ** 2

    c = [None, None, None, e @ (fb["B.4"] if method == "fa" else p["4.weight"])]
    for level in (3, 2, 1):
        if method in ("dfa", "dfa-rms"):
            c[level] = e @ fb[f"B.{level - 1}"]
        c[level - 1] = (c[level] * slope(level)) @ back(level)
        if method == "fa-block":
            c[level - 1] = c[level] @ fb[f"M.{level - 1}"]
    if method in ("dfa", "dfa-rms"):
        c[0] = e @ fb["B.0"]
    if method == "dfa-rms":
        c = [s / (np.sqrt((s**2).mean(1, keepdims=True)) + 1e-6) for s in c]
    pull = [np.zeros_like(h[0]), *(0.6 * state for state in h[1:])]
    if method == "bp":
        for level in (3, 2, 1):
            pull[level - 1] = pull[level - 1] + (pull[level] * slope(level)) @ p[f"{level}.0.weight"]
    wanted = {"4.weight": e.T @ h[3] / n, "4.bias": e.sum(0) / n}
    for level in (1, 2, 3):
        delta = (c[level] + pull[level]) * slope(level)
        wanted |= {f"{level}.0.weight": delta.T @ h[level - 1] / n, f"{level}.0.bias": delta.sum(0) / n}
    delta = c[0] + pull[0]
    wanted |= {"0.weight": delta.T @ x / n, "0.bias": delta.sum(0) / n}
    same(got, wanted)
    same(dict(enumerate(delivered)), dict(enumerate(c)))


@pytest.mark.parametrize("method", ["fa-block", "dfa", "dfa-rms"])
def test_blocks_that_return_tuples_stay_local(method):
    """What a block hands on beside its state carries no gradient into the block that made it."""
    model, batch, rule = tuple_net(), batch_of((5,), 3), rule_of(method)
    task, params = task_of(model, batch.x), params_of(model)
    feedback = rule.init(task, params, seeded_generator())
    got = assign(rule, task, params, feedback, batch, None).grads
    c = rule.deliver(task, params, feedback, batch)
    h = functional.linear(batch.x, params["embed.weight"], params["embed.bias"])
    beside = torch.zeros_like(h)
    for level in range(2):
        z = h @ params[f"blocks.{level}.linear.weight"].T + params[f"blocks.{level}.linear.bias"]
        delta = c[level + 1] * (1 - torch.tanh(z) ** 2)
        np.testing.assert_allclose(got[f"blocks.{level}.linear.weight"], delta.T @ h / 3, rtol=1e-9, atol=1e-12)
        h, beside = h + torch.tanh(z) + beside, torch.tanh(z)


@pytest.mark.parametrize("method", ["bp", "fa", "fa-exact-head"])
def test_blocks_that_return_tuples_transport(method):
    model, batch, rule = tuple_net(), batch_of((5,), 3), rule_of(method)
    task, params = task_of(model, batch.x), params_of(model)
    feedback = {n: params[f"{n.removeprefix('B.')}.weight"] for n in rule.init(task, params, seeded_generator())}
    functional.cross_entropy(model(batch.x), batch.y).backward()
    wanted = {name: p.grad for name, p in model.named_parameters()}
    same(assign(rule, task, params, feedback, batch, None).grads, wanted)


@pytest.mark.parametrize("method", METHODS)
def test_models_on_indices(method):
    model, rule = scrambled(TokenNet()), rule_of(method)
    x, y = torch.tensor([[0, 3, 6], [1, 1, 2]]), torch.tensor([0, 2])
    task, params = task_of(model, x), params_of(model)
    credit = assign(rule, task, params, rule.init(task, params, seeded_generator()), Batch(x, y), None)
    assert credit.grads["lookup.weight"][[0, 1, 2, 3, 6]].any()
    assert not credit.grads["lookup.weight"][[4, 5]].any()


# Building


def test_an_unknown_rule_is_refused():
    with pytest.raises(BadInput, match=r"^unknown rule 'dfaa'; did you mean 'dfa'"):
        rule_named("dfaa")


def test_rms_wants_a_signal_for_each_block():
    said = r"^-rms divides the signal that each block receives, and fa sends none; drop -rms$"
    with pytest.raises(BadInput, match=said):
        rule_named("fa-rms")


@pytest.mark.parametrize("method", METHODS)
def test_every_rule_says_where_its_credit_enters_and_how_feedback_is_drawn(method):
    rule = rule_of(method)
    assert len(rule.injection) > 20
    assert (rule.feedback_spec.dist is None) == (method == "bp")
    assert rule.feedback_spec.seed is None
    assert len(rule.exact(3)) == 4


def test_which_states_are_exact_by_construction():
    exact = {method: rule_of(method).exact(3) for method in METHODS}
    nowhere, at_top = (False,) * 4, (False, False, False, True)
    assert exact == {
        "bp": (True,) * 4,
        "fa": nowhere,
        "fa-exact-head": at_top,
        "fa-block": at_top,
        "dfa": nowhere,
        "dfa-rms": nowhere,
    }


@LAWS
@given(cases(), st.sampled_from(METHODS))
def test_a_state_called_exact_has_the_reference_as_its_credit(case, method):
    task, params, batch = case
    rule = rule_of(method)
    seen = observe(task, params, rule, rule.init(task, params, seeded_generator()), batch)
    for level, exact in enumerate(rule.exact(task.blocks.depth)):
        if exact:
            np.testing.assert_allclose(seen.delivered[level], seen.references[level], rtol=1e-9, atol=1e-13)
