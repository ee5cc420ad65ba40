"""Forward-forward: against numpy, its labels, and how its runs and their twins are judged."""

import numpy as np
import pytest
import torch
from cases import fleets, updates_by_hand
from cases.fleets import spec
from cases.models import mlp, params_of, resmlp, seeded_generator, task_of, vit
from cases.rule_cases import case, same

from creditscope.errors import BadInput
from creditscope.records import parse_method
from creditscope.rules.build import full_method, rule_named
from creditscope.rules.forward_forward import wrong_labels

NETS = {"resmlp": (resmlp, updates_by_hand.ResMLP), "mlp": (mlp, updates_by_hand.MLP)}
OPTIONS = {"": {}, "(amplitude=2.5,position=1,theta=0.3)": {"amplitude": 2.5, "position": 1, "theta": 0.3}}


@pytest.mark.parametrize("terminal_ln", [True, False])
@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("options", OPTIONS)
def test_equals_the_backward_written_by_hand(options, kind, terminal_ln):
    build, by_hand = NETS[kind]
    made = case(f"ff{options}", build(terminal_ln=terminal_ln))
    p, x, y = made.arrays
    drawn = made.noise["wrong"].numpy()
    wanted = updates_by_hand.forward_forward(by_hand, p, drawn, x, y, **OPTIONS[options], terminal_ln=terminal_ln)
    same(made.step().grads, wanted)


def test_wrong_labels_are_even_and_never_right():
    y = torch.arange(4).repeat(5000)
    wrong = wrong_labels(torch.randn(len(y), 4, generator=seeded_generator(), dtype=torch.float64), y)
    counts = torch.zeros(4, 4).index_put_((y, wrong), torch.ones(len(y)), accumulate=True)
    assert not counts.diagonal().any()
    # 5,000 draws of one in three: a standard deviation of 33.
    assert (counts[~torch.eye(4, dtype=bool)] - 5000 / 3).abs().max() < 5 * 33.4


def test_an_answer_by_goodness_is_the_label_with_the_largest_sum():
    made = case("ff(answer=goodness,theta=0.4)", resmlp())
    p, x, _ = made.arrays
    wanted = np.stack(
        [
            sum(
                (f**2 - 0.4).sum(1)
                for f in updates_by_hand.ResMLP(p, updates_by_hand.written(x, np.full(len(x), label), 4)).branches
            )
            for label in range(4)
        ],
        axis=1,
    )
    same({0: made.rule.answered(made.task, made.params, {}, made.batch.x)}, {0: wanted})


def test_a_frozen_twin_is_judged_by_its_readout():
    """Also where it shares its group; the run itself is judged by goodness."""
    methods = ("ff(answer=goodness)", "ff(answer=goodness)@frozen", "ff@frozen", "bp")
    made, _ = fleets.trained([spec(method) for method in methods], epochs=1)
    scores = dict(zip((run.method for run in made.specs), made.evaluate().correct, strict=True))
    alone = {}
    for at, run in enumerate(made.specs):
        params = {name: p[at] for name, p in made.params.items()}
        x, y = made.inputs(made.data.x_test), made.data.y_test
        logits = made.task.forward(params, x).logits
        if run.method == methods[0]:
            logits = made.group_of(at).rule.answered(made.task, params, {}, x)
        alone[run.method] = logits.argmax(1) == y
    for method, correct in scores.items():
        assert torch.equal(correct, alone[method]), method
    assert torch.equal(scores[methods[1]], scores[methods[2]])
    assert not torch.equal(alone[methods[0]], alone[methods[1]])


def test_a_model_of_tokens_is_refused_in_one_line():
    model, x = vit(), torch.randn(2, 2, 8, 8, dtype=torch.float64)
    with pytest.raises(
        BadInput, match=r"ff writes the label into the input .* got states of shape .* resmlp or mlp"
    ) as caught:
        rule_named("ff").init(task_of(model, x), params_of(model), seeded_generator())
    assert "\n" not in str(caught.value)


def test_a_label_that_does_not_fit_is_refused():
    with pytest.raises(BadInput, match="ff writes 4 entries from position 2 on, and the input has 5"):
        case("ff(position=2)")


@pytest.mark.parametrize(
    ("method", "message"),
    {
        "ff(answer=goodnes)": "option answer of rule ff: got 'goodnes'; did you mean 'goodness'?",
        "ff(position=-1)": "option position of rule ff: wanted 0 or more, got -1",
        "ff-rms": "-rms divides the signal that each block receives, and ff sends none; drop -rms",
        "local-rms": "-rms divides the signal that each block receives, and local sends none; drop -rms",
        "fg-rms": "-rms divides the signal that each block receives, and fg sends none; drop -rms",
        "ff+pen0.1": "method 'ff+pen0.1': a penalty on the branches does not apply to ff; drop +pen",
        "ff@fixed-feedback": "@fixed-feedback: nothing of ff learns but the weights; drop it",
        "pepita@fixed-feedback": "@fixed-feedback: nothing of pepita learns but the weights; drop it",
        "bp+anchor1": "bp is backprop at every batch already; drop +anchor",
    }.items(),
)
def test_wrappers_that_make_no_sense_are_refused_by_name(method, message):
    with pytest.raises(BadInput) as caught:
        full_method(parse_method(method), {})
    assert str(caught.value) == message
