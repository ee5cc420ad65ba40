"""State bridge and credit bridge: with perfect nets both are backprop; what skips carry before anything is learned."""

from dataclasses import dataclass

import pytest
import torch
from cases import fleets
from cases.fleets import spec
from cases.models import batch_of, cross_entropy, params_of, resmlp, scrambled, task_of
from cases.rule_cases import case, same

from creditscope.blocks import Batch, Moment, observe
from creditscope.models.mlp import MLP
from creditscope.models.resmlp import ResMLP
from creditscope.rules.block_rule import Seen
from creditscope.rules.build import rule_named
from creditscope.rules.credit_bridge import CreditBridge
from creditscope.rules.state_bridge import StateBridge


def tails(model, h):
    """h_L from each state, by the model's own blocks."""
    for level in range(h.shape[1]):
        made = h[:, level]
        for block in model.blocks[level:]:
            made = block(made)
        yield made


def models():
    return [resmlp(), scrambled(MLP((5,), 4, width=6, depth=3, terminal_ln=True, activation="tanh"))]


@pytest.mark.parametrize("model", models(), ids=["resmlp", "mlp"])
def test_a_bridge_that_is_the_true_rest_is_backprop(model):
    @dataclass(frozen=True)
    class TrueRest(StateBridge):
        def guesses(self, state, h):
            return torch.stack(list(tails(model, h)), 1)

    compare(TrueRest(), model)


@pytest.mark.parametrize("model", models(), ids=["resmlp", "mlp"])
def test_a_value_that_is_the_loss_to_come_is_backprop(model):
    @dataclass(frozen=True)
    class TrueValue(CreditBridge):
        def values(self, state, h, y):
            return torch.stack([cross_entropy(model.head(model.out_ln(top)), y) for top in tails(model, h)], 1)

    made = compare(TrueValue(), model)
    assert float(made.detach()) < 1e-20, "and nothing is left to learn"


def compare(rule, model):
    batch = batch_of((5,), 4)
    task, params = task_of(model, batch.x), params_of(model)
    g = observe(task, params, None, {}, batch).references
    for c, true in zip(rule.deliver(task, params, {}, batch), g, strict=True):
        torch.testing.assert_close(c, true, rtol=1e-10, atol=1e-13)
    seen = task.forward(params, batch.x)
    return rule.lesson(task, params, {}, Seen(batch, seen.states, seen.logits, {}))


@pytest.mark.parametrize("name", ["dtp", "state-bridge"])
def test_with_skip_the_untrained_nets_carry_the_last_gradient_already(name):
    """On a ResMLP at its own start, as it is trained: a cosine that nobody learned."""
    torch.manual_seed(0)
    model, batch = ResMLP((20,), 10, width=64, depth=4).double(), batch_of((20,), 10, 30)
    task, params = task_of(model, batch.x), params_of(model)
    g = observe(task, params, None, {}, batch).references

    def cosine(method):
        rule = rule_named(method)
        credit = rule.deliver(task, params, rule.init(task, params, torch.Generator().manual_seed(1)), batch)
        pairs = zip(credit[:-1], g[:-1], strict=True)
        return [float(torch.nn.functional.cosine_similarity(c, true, dim=1).mean()) for c, true in pairs]

    assert min(cosine(f"{name}(skip=true)")) > 0.99
    assert max(cosine(name)) < 0.5


def test_the_first_fifth_is_direct_feedback_alignment():
    made, dfa = case("credit-bridge"), case("dfa")
    phases = [made.rule.phase(Moment(step, 7, 5)) for step in range(35)]
    assert phases == ["dfa"] * 7 + [""] * 28
    matrices = {name: b for name, b in made.state.items() if name.startswith("B.")}
    first = {name: grad for name, grad in made.step("dfa").grads.items() if name in made.params}
    same(first, dfa.step(state=matrices).grads)
    later = made.step().grads
    assert not torch.allclose(later["blocks.0.branch.1.weight"], first["blocks.0.branch.1.weight"])
    for name in made.state:
        assert (name in later) == name.startswith("V"), "dfa's matrices stay"
        assert name not in later or torch.equal(later[name], made.step("dfa").grads[name]), "V learns from the start"


def test_probes_see_the_credit_of_the_step_that_comes_next():
    run = spec("credit-bridge", epochs=5)
    fixed = spec("credit-bridge@fixed-feedback", epochs=5)
    made = fleets.fleet([run, fixed])
    for epoch in range(3):
        if epoch:
            made.train_epoch(epoch)
        rows = made.summaries(made.observe())
        for at, one in enumerate(made.specs):
            shot = made.snapshot(at, epoch)
            rule = rule_named("dfa" if epoch == 0 else "credit-bridge")
            wanted = rule.deliver(shot.task, shot.params, shot.state, shot.probe)
            same(dict(enumerate(shot.delivered)), dict(enumerate(wanted)))
            g = shot.observation.references
            cosines = [
                torch.nn.functional.cosine_similarity(*pair, dim=1).mean() for pair in zip(wanted, g, strict=True)
            ]
            torch.testing.assert_close(rows[at].credit.acting.mean, torch.stack(cosines), rtol=1e-9, atol=1e-12)
            assert shot.task.phase == ("dfa" if epoch == 0 else ""), one.method


@pytest.mark.parametrize("name", ["dtp", "state-bridge", "credit-bridge"])
def test_held_at_its_start_no_net_moves(name):
    made, _ = fleets.trained([spec(f"{name}@fixed-feedback"), spec(name)])
    start = fleets.fleet([spec(name)]).state_of(0)
    fixed, free = (next(r for r, one in enumerate(made.specs) if bool(one.fixed_feedback) is f) for f in (True, False))
    same(made.state_of(fixed), start, rtol=0, atol=0)
    for entry, tensor in made.state_of(free).items():
        assert torch.equal(tensor, start[entry]) == entry.startswith("B."), entry


@pytest.mark.parametrize("name", ["state-bridge", "credit-bridge"])
def test_what_it_learns_by_falls(name):
    made, _ = fleets.trained([spec(name, lr=0.02, epochs=20)], epochs=20)
    start = fleets.fleet([spec(name)])
    rule = made.groups[0].rule
    params = {n: p[0] for n, p in made.params.items()}
    x, y = made.inputs(made.data.x_train), made.data.y_train
    seen = made.task.forward(params, x)
    given = Seen(Batch(x, y), seen.states, seen.logits, {})
    before, after = (float(rule.lesson(made.task, params, fleet.state_of(0), given)) for fleet in (start, made))
    assert after < 0.5 * before
