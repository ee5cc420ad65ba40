"""The rules that run blocks one by one, against their equations written out in numpy."""

import numpy as np
import pytest
import torch
from cases import by_hand
from cases.models import CONV_BLOCKS, batch_of, conv_net, params_of, resmlp, scrambled, task_of, tuple_net, vit
from cases.rule_cases import as_arrays, case, same
from cases.signals_by_hand import CREDIT, Pieces
from cases.unfit import Bypassed

from creditscope.blocks import observe
from creditscope.errors import BadInput
from creditscope.models.mlp import MLP
from creditscope.records.method import parse_method
from creditscope.rules.build import rule_named
from creditscope.rules.forward_activity import KEY, keyed_normals

METHODS = (
    *("fg-act", "fg-act(joint=true)", "dtp", "dtp(beta=0.3,sigma=0.5,skip=true)", "pc", "pc(rate=0.05,steps=3)"),
    *("pc(zil=true)", "state-bridge", "state-bridge(skip=true)", "credit-bridge"),
)


def mlp():
    return scrambled(MLP((5,), 4, width=6, depth=3, terminal_ln=True, activation="tanh"))


def wanted(made, method):
    """Credit and gradients of the nets, by hand."""
    named = parse_method(method)
    p, x, y = made.arrays
    noise = as_arrays(made.noise)
    options = {name: getattr(made.rule, name) for name in made.rule.options}
    return CREDIT[named.rule](Pieces(p), as_arrays(made.state), noise, x, y, **options)


@pytest.mark.parametrize("make", [resmlp, mlp])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_equals_the_backward_written_by_hand(method, make):
    made = case(method, make())
    credit, learned = wanted(made, method)
    p, x, y = made.arrays
    grads, _, logits = Pieces(p).backward("dfa", x, y, 0.0, credit)
    step = made.step()
    same(step.grads, grads | learned)
    np.testing.assert_allclose(step.loss, -np.log(softmax(logits))[np.arange(len(y)), y], rtol=1e-10)
    if not made.noise or "dtp" in method:
        same(dict(enumerate(made.deliver())), dict(enumerate(credit)))


@pytest.mark.parametrize("method", METHODS)
def test_normalised_and_with_a_penalty_in_its_block_likewise(method):
    name, bracket, options = method.partition("(")
    made = case(f"{name}{bracket}{options}-rms")
    plain = case(method)
    credit, learned = wanted(plain, method)
    p, x, y = plain.arrays
    grads, *_ = Pieces(p).backward("dfa-rms", x, y, 0.3, credit)
    same(made.step(penalty=0.3).grads, grads | learned)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_exact_by_construction_is_the_gradient(method):
    made = case(method)
    g = observe(made.task, made.params, None, {}, made.batch).references
    for c, true, exact in zip(made.deliver(), g, made.rule.exact(3), strict=True):
        if exact:
            torch.testing.assert_close(c / c.norm(dim=1, keepdim=True), true / true.norm(dim=1, keepdim=True))
    wanted = {"dtp": (0, 0, 0, 1), "state-bridge": (0, 0, 0, 1), "pc(zil=true)": (1, 1, 1, 1)}
    assert made.rule.exact(3) == wanted.get(method, wanted.get(parse_method(method).rule, (0, 0, 0, 0)))


@pytest.mark.parametrize("name", ["dtp", "state-bridge", "credit-bridge"])
@pytest.mark.parametrize(("make", "shape", "where"), [(vit, (2, 8, 8), None), (conv_net, (1, 4, 4), CONV_BLOCKS)])
def test_nets_that_read_vectors_refuse_other_states(name, make, shape, where):
    model, batch, rule = make(), batch_of(shape, 3), rule_named(name)
    with pytest.raises(BadInput, match=f"^{name} wants a vector of one width at every state, got [^\n]*$"):
        rule.init(task_of(model, batch.x, where), params_of(model), torch.Generator())


@pytest.mark.parametrize("name", ["dtp", "pc", "state-bridge", "credit-bridge"])
@pytest.mark.parametrize("make", [lambda: Bypassed().double(), tuple_net])
def test_a_model_that_is_no_chain_is_refused(name, make):
    model, batch, rule = make(), batch_of((5,), 3), rule_named(name)
    with pytest.raises(BadInput, match=f"^{name} wants a chain, [^\n]*choose other blocks, or use fa or dfa$"):
        rule.init(task_of(model, batch.x), params_of(model), torch.Generator())


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("pc(steps=0)", "option steps of rule pc: wanted at least 1, got 0"),
        ("pc(rate=0.0)", "option rate of rule pc: wanted a number above 0, got 0"),
        ("pc(zil=true,rate=0.5)", "option zil of rule pc fixes steps and rate; drop those two"),
        ("dtp(beta=-1.0)", "option beta of rule dtp: wanted a number above 0, got -1"),
        ("dtp(sigma=0.0)", "option sigma of rule dtp: wanted a number above 0, got 0"),
        ("pc(gamma=0.1)", "rule pc has no option 'gamma'; "),
    ],
)
def test_options_that_make_no_sense_are_refused_in_a_line(method, said):
    with pytest.raises(BadInput) as error:
        rule_named(method)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_probes_see_vectors_that_follow_from_the_state_alone():
    made = case("fg-act", n=40)
    p, x, y = made.arrays
    drawn = keyed_normals(made.state[KEY], made.rule.noise(made.task, made.params, 40))
    credit, _ = CREDIT["fg-act"](Pieces(p), {}, as_arrays(drawn), x, y)
    same(dict(enumerate(made.deliver())), dict(enumerate(credit)))
    assert torch.equal(made.deliver()[0], made.deliver()[0])
    other = made.deliver(state={KEY: made.state[KEY] + 1})
    assert not torch.equal(other[0], made.deliver()[0])


def test_keyed_normals_are_standard_normal_and_of_no_dtype():
    key = torch.tensor(12345.0, dtype=torch.float64)
    drawn = keyed_normals(key, {"a": (400, 100), "b": (400, 100)})
    values = torch.stack([drawn["a"], drawn["b"], keyed_normals(key + 1, {"a": (400, 100)})["a"]]).flatten(1)
    assert values.mean(1).abs().max() < 0.02
    assert (values.square().mean(1) - 1).abs().max() < 0.03
    assert (values.pow(4).mean(1) - 3).abs().max() < 0.15
    off = torch.corrcoef(values) - torch.eye(3)
    assert off.abs().max() < 0.02
    neighbours = torch.corrcoef(torch.stack([values[0, :-1], values[0, 1:]]))[0, 1]
    assert neighbours.abs() < 0.02
    assert torch.equal(keyed_normals(key.float(), {"a": (400, 100)})["a"], drawn["a"])


def softmax(logits):
    z = np.exp(logits - logits.max(1, keepdims=True))
    return z / z.sum(1, keepdims=True)


def test_the_oracle_itself_is_backprop():
    for make in (resmlp, mlp):
        made = case("bp", make())
        p, x, y = made.arrays
        pieces = Pieces(p)
        g = pieces.true(pieces.states(x), y)
        grads, *_ = pieces.backward("dfa", x, y, 0.0, g)
        same(made.step().grads, grads)
    assert by_hand.gelu_slope(np.array(0.0)) == 0.5
