"""Which rule a code really is: every rule of ours, published styles, lies, and nulls that must stay unknown."""

import json

import pytest
import torch
from scope import steps
from scope.nets import same, state_of_model
from scope.steps import RuleStep, activities, linears, mlp, problem
from scope.styles import DetachedNet, HookNet, TargetNet
from torch.nn import functional
from typer.testing import CliRunner

import creditscope as cs
from creditscope.cli import app
from creditscope.errors import BadInput
from creditscope.models.mlp import MLP
from creditscope.models.resmlp import ResMLP
from creditscope.scope.explain import Term, fitted, same_signs, scale_free, scaled

DATA = problem(160)
N = 72
TARGET = "direct target projection (DRTP), or the sign of the error (sDFA)"
RULES = {
    "bp": "backprop",
    "fa": "feedback alignment, fixed matrices",
    "dfa": "direct feedback alignment, fixed matrices",
    "dfa-rms": "direct feedback alignment, fixed matrices, normalised",
    "usf": "sign-symmetric feedback",
    "brsf": "sign-symmetric feedback, matrices that move",
    "frsf": "sign-symmetric feedback, ",  # where a weight changes its sign, so does its matrix
    "kp": "feedback alignment, matrices that move",
    "wm": "feedback alignment, matrices that move",
    "drtp": TARGET,
    "sdfa": TARGET,
    "dkp": "direct feedback alignment, matrices that move",
}


def identified(model, update, **given):
    return cs.identify(model, update, DATA, **{"samples": N, "steps": 4} | given)


def plain(seed=0):
    torch.manual_seed(seed)
    return MLP((6,), 4, width=8, depth=2, activation="tanh")


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_ours_is_named(rule):
    model = plain()
    step = RuleStep(rule.removesuffix("-rms"), model, DATA[0], lr=0.02)
    step.task = step.task._replace(normalise=rule.endswith("-rms"))
    card = identified(model, step)
    assert card.rule.startswith(RULES[rule])
    assert all(layer.r2 > 0.9999 for layer in card.layers)
    assert all(layer.bias for layer in card.layers)
    if rule not in ("bp", "usf", "brsf", "frsf"):
        assert all(layer.matrix.startswith("random") for layer in card.layers[:-1])


def test_block_feedback_is_named_and_the_inside_of_each_block_is_exact():
    torch.manual_seed(0)
    model = ResMLP((6,), 4, width=8, depth=2)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn_like(p)
    card = identified(model, RuleStep("fa-block", model, DATA[0], lr=0.02), samples=120)
    assert card.rule == "block feedback: a matrix for each block, without the derivative, fixed matrices"
    kinds = {layer.layer: layer.kind for layer in card.layers}
    assert kinds["blocks.0.branch.1"] == "weight"
    assert (kinds["blocks.1.branch.3"], kinds["head"]) == ("gradient", "gradient")


@pytest.mark.parametrize(
    ("model", "update", "said"),
    [
        (TargetNet, TargetNet.step, TARGET),
        (DetachedNet, DetachedNet.step, "direct feedback alignment, fixed matrices"),
        (HookNet, None, "direct feedback alignment"),
        (mlp, steps.backprop, "backprop"),
        (mlp, None, "backprop"),
    ],
)
def test_code_in_published_styles_is_named(model, update, said):
    torch.manual_seed(0)
    made = model()
    before = state_of_model(made)
    assert identified(made, update, samples=120).rule.startswith(said)
    assert same(before, state_of_model(made))


def test_an_optimiser_with_momentum_and_moments_hides_nothing():
    model = mlp()
    update, optimiser = steps.adam(model)
    update(model, DATA)
    kept = [value.clone() for state in optimiser.state.values() for value in state.values()]
    assert identified(model, update).rule == "backprop"
    assert all(
        torch.equal(a, b) for a, b in zip(kept, [v for s in optimiser.state.values() for v in s.values()], strict=True)
    )


def autograd_pepita(model, batch):
    """Says that it is PEPITA: two forward passes, and then ``loss.backward()``."""
    x, y = batch
    with torch.no_grad():
        model(x + (model(x).softmax(1) - functional.one_hot(y, 4)) @ torch.ones(4, 6))
    steps.backprop(model, batch)


def test_a_pepita_that_is_autograd_is_backprop_and_a_real_one_is_not():
    assert identified(mlp(), autograd_pepita).rule == "backprop"
    assert identified(mlp(), steps.Pepita()).rule.startswith("unknown")


def test_feedback_that_is_said_to_learn_and_never_moves_is_fixed():
    model = plain()
    step = RuleStep("kp", model, DATA[0], lr=0.02)
    drawn = {name: value.clone() for name, value in step.state.items()}

    def forgetful(model, batch):
        step(model, batch)
        for name, value in drawn.items():
            step.state[name].copy_(value)

    assert identified(model, forgetful).rule == "feedback alignment, fixed matrices"


@pytest.mark.parametrize("passed", [0.0, 0.02])
def test_a_decay_is_seen_where_it_is_passed_on_and_only_there(passed):
    model = mlp()

    def update(model, batch, decay=0.02):
        steps.backprop(model, batch)
        with torch.no_grad():
            for layer in linears(model):
                layer.weight *= 1 - passed

    # The step of a plain weight change shows the decay beside a signal times what enters.
    card = identified(model, update)
    found = [layer.decay for layer in card.layers]
    assert found == pytest.approx([passed] * len(found), rel=0.05, abs=1e-12)


def leaky(model, batch):
    """Direct feedback, with a part of the true gradient mixed in."""
    x, y = batch
    model.zero_grad()
    functional.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        entering, out = activities(model, x)
        error = out.softmax(1) - functional.one_hot(y, 4)
        drawn = torch.Generator().manual_seed(3)
        for at, layer in enumerate(linears(model)):
            grad = layer.weight.grad
            if at < 3:
                delta = error @ torch.randn(4, len(layer.weight), generator=drawn)
                grad = 3 * grad + delta.T @ entering[at] / len(x)
                layer.bias -= 0.05 * delta.mean(0)
            layer.weight -= 0.05 * grad


def test_a_leak_of_the_true_gradient_is_named_and_so_is_a_bias_that_is_told_otherwise():
    card = identified(mlp(), leaky)
    assert card.rule == "a direct rule with a leak of the true gradient"
    assert [layer.bias for layer in card.layers] == [False, False, False, False]


def test_layers_that_do_not_move_are_named():
    model = mlp()
    for p in list(model.parameters())[:-2]:
        p.requires_grad_(False)
    update = steps.adam(model)[0]
    assert identified(model, update).rule == "no hidden layer moves: only the readout is trained"
    model = mlp()
    model[2].requires_grad_(False)
    assert identified(model, steps.adam(model)[0]).rule == "backprop; never moves: 2"


CONVOLUTION = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 3), torch.nn.Flatten())


def noise(model, batch):
    """A signal of its own for each sample, which no linear map predicts."""
    entering, _ = activities(model, batch[0])
    with torch.no_grad():
        for layer, a in zip(linears(model), entering, strict=True):
            layer.weight -= 0.05 * torch.sin(40 * a[:, :1] + torch.arange(len(layer.weight))).T @ a / len(a)


@pytest.mark.parametrize("update", [noise, steps.weight_perturbation, steps.hebbian])
def test_what_is_none_of_these_stays_unknown(update):
    card = identified(mlp(), update)
    assert card.rule.startswith("unknown: ")
    assert all(layer.kind == "unknown" for layer in card.layers)


def test_nulls_of_the_fits_stay_far_from_what_holds():
    """Independent signals, and a curve that a line fits well, over many draws."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.arange(48), torch.arange(48, 96)
    best = []
    for _ in range(40):
        source, signal = (torch.randn(96, d, generator=generator, dtype=torch.float64) for d in (4, 8))
        best.append(fitted(signal, (Term(source, None, 8),), None, *rows).r2)
        best.append(scaled(signal, torch.randn(96, 8, generator=generator).double(), None, *rows).r2)
        best.append(scale_free(signal, Term(source[:, :2], None, 8), *rows).r2)
        curved = torch.tanh(0.5 * source @ torch.randn(4, 8, generator=generator, dtype=torch.float64))
        best.append(fitted(curved, (Term(source, None, 8),), None, *rows).r2)
    assert max(best) < 0.99


def test_a_fit_finds_the_matrix_that_made_the_signal():
    generator = torch.Generator().manual_seed(1)
    source, slope = (torch.randn(120, d, generator=generator, dtype=torch.float64) for d in (5, 7))
    full = torch.randn(120, 7, 6, generator=generator, dtype=torch.float64)
    matrix = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    rows = torch.arange(60), torch.arange(60, 120)
    for local, signal in (
        (None, source @ matrix),
        (slope, slope * (source @ matrix)),
        (full, torch.einsum("nk,nkj->nj", source @ matrix, full)),
    ):
        found = fitted(signal, (Term(source, local, 7),), None, *rows)
        assert found.r2 == pytest.approx(1, abs=1e-10)
        torch.testing.assert_close(found.matrices[0], matrix, rtol=1e-5, atol=1e-5)
    assert fitted(source @ matrix, (Term(source, None, 7),), None, rows[0][:9], rows[1]) is None
    sized = (source @ matrix) * torch.rand(120, 1, generator=generator, dtype=torch.float64)
    assert scale_free(sized, Term(source, None, 7), *rows).r2 == pytest.approx(1, abs=1e-9)
    eye = torch.eye(5, dtype=torch.float64), torch.eye(7, dtype=torch.float64)
    assert same_signs(matrix, matrix.sign() * torch.rand(5, 7, generator=generator), *eye) == 1
    assert same_signs(matrix, torch.randn(5, 7, generator=generator).double(), *eye) < 0.5


def test_the_card_reads_as_text_json_and_markdown():
    card = identified(mlp(), None, name="their-code")
    assert card.to_text().startswith("their-code: backprop\n\nlayer")
    assert json.loads(card.to_json()) == json.loads(json.dumps(card.to_dict()))
    assert json.loads(card.to_json())["layers"][0]["kind"] == "gradient"
    assert "### their-code: backprop" in card.to_markdown()
    assert "6 (output)" in card.to_markdown()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loader": (DATA[0][:8], DATA[1][:8])}, "wanted at least 32 samples"),
        ({"model": torch.nn.Sequential(torch.nn.Conv1d(1, 1, 1))}, "the model failed on these inputs: RuntimeError: "),
        ({"model": torch.nn.Sequential(torch.nn.Unflatten(1, (1, 6)), CONVOLUTION)}, "found no linear layer"),
        ({"update": 3}, "wanted update as a function"),
    ],
)
def test_what_cannot_be_identified_is_refused(given, said):
    asked = {"model": mlp(), "update": None, "loader": DATA} | given
    with pytest.raises(BadInput, match=said):
        cs.identify(**asked)


THEIRS = """
from scope.steps import Pepita, backprop, mlp, problem

def pieces():
    return mlp(), backprop, problem(80)

def two():
    return mlp(), backprop
"""


def test_the_command_prints_the_card(tmp_path, monkeypatch):
    (tmp_path / "their_code.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(tmp_path)
    run = CliRunner().invoke
    done = run(app, ["identify", "their_code:pieces", "--samples", "64", "--steps", "2", "--format", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rule"] == "backprop"
    done = run(app, ["identify", "their_code:pieces", "--samples", "64", "--steps", "0"])
    assert done.stdout.startswith("their_code:pieces: backprop\n")
    for place, said in (("two", "wanted (model, update, data)"), ("THEIRS", "has no THEIRS"), ("pieces", "")):
        words = ["identify", f"their_code:{place}", *(["--format", "xml"] if not said else [])]
        failed = run(app, words).exception
        assert isinstance(failed, BadInput)
        assert (said or "wanted --format text, json or md, got 'xml'") in str(failed)
