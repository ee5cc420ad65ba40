"""From names to rules: what is refused, and what options and wrappers make of a rule."""

from dataclasses import dataclass

import pytest
from cases.specs import spec

from creditscope.blocks import CreditRule, Step
from creditscope.errors import BadInput
from creditscope.records import parse_method
from creditscope.records.version1 import card_of
from creditscope.rules.build import full_method, given_rules, rule_named, rule_of


@dataclass(frozen=True)
class Outside(CreditRule):
    """A rule of a user's own, with one option of each kind."""

    decay: float = 0.1
    steps: int = 3
    mirror: bool = False
    mode: str = "plain"

    name = "outside"
    family = "update"
    formula = "nothing moves"
    paper = "unpublished"
    injection = "nowhere"

    def step(self, task, params, state, batch, noise, phase):
        return Step(task.loss(task.forward(params, batch.x).logits, batch.y), {})


GIVEN = {"outside": Outside}
REFUSED = {
    "dfs": "unknown rule 'dfs'; did you mean 'dfa'",
    "fa-blok": "unknown rule 'fa-blok'; did you mean 'fa-block'",
    "xyz": "unknown rule 'xyz'; known: ",
    "kp(decai=1)": "rule kp has no option 'decai'; did you mean 'decay'?",
    "wm(every=0)": "option every of rule wm: wanted at least 1 step, got 0",
    "wm(norm=now)": "option norm of rule wm: wanted current, initial, none, got 'now'",
    "usf-rms": "-rms divides the signal that each block receives, and usf sends none; drop -rms",
    "usf@fixed-feedback": "@fixed-feedback: nothing of usf learns but the weights; drop it",
    "bp-rms": "-rms divides the signal that each block receives, and bp sends none; drop -rms",
    "outside-rms": "-rms divides the signal that each block receives, and outside sends none; drop -rms",
    "outside+pen0.1": "method 'outside+pen0.1': a penalty on the branches does not apply to outside; drop +pen",
    "dfa@fixed-feedback": "@fixed-feedback: nothing of dfa learns but the weights; drop it",
    "fa-block(a=1)": "rule fa-block has no option 'a'; it has none",
    "outside(decy=1)": "rule outside has no option 'decy'; did you mean 'decay'",
    "outside(decay=fast)": "option decay of rule outside: wanted a number, got 'fast'",
    "outside(steps=1.5)": "option steps of rule outside: wanted a whole number, got '1.5'",
    "outside(mirror=2)": "option mirror of rule outside: wanted true or false, got '2'",
}


@pytest.mark.parametrize(("name", "message"), REFUSED.items(), ids=list(REFUSED))
def test_what_cannot_apply_is_refused_by_name(name, message):
    with pytest.raises(BadInput) as caught:
        full_method(parse_method(name), GIVEN)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_options_take_the_type_of_their_default_and_defaults_are_left_out():
    method = full_method(parse_method("outside(decay=1,steps=3,mirror=true,mode=7)"), GIVEN)
    assert method.options == {"decay": 1.0, "mirror": True, "mode": "7"}
    assert type(method.options["decay"]) is float
    assert str(method) == "outside(decay=1,mirror=true,mode=7)"
    assert rule_named("outside(decay=1)", GIVEN) == Outside(decay=1.0)


def test_a_rule_given_by_hand_is_checked():
    assert given_rules([Outside, Outside()]) == GIVEN
    with pytest.raises(BadInput, match=r"write the method as 'outside\(decay=0.5\)'"):
        given_rules([Outside(decay=0.5)])
    with pytest.raises(BadInput, match=r"wanted a subclass of creditscope\.CreditRule, got int"):
        given_rules([3])
    for change, said in (
        ({"name": "Not-lower"}, "lower-case letters"),
        ({"name": "my-rms"}, "does not end in -rms"),
        ({"name": "dfa"}, "exists already"),
    ):
        with pytest.raises(BadInput, match=said):
            given_rules([dataclass(frozen=True)(type("Other", (Outside,), change))])
    with pytest.raises(BadInput, match="make Loose a frozen dataclass"):
        given_rules([dataclass(type("Loose", (CreditRule,), {"name": "loose"}))])
    with pytest.raises(BadInput, match=r"lacks family, formula, injection, paper, step"):
        given_rules([dataclass(frozen=True)(type("Bare", (CreditRule,), {"name": "bare"}))])


def test_two_rules_of_one_name_are_refused():
    other = dataclass(frozen=True)(type("Other", (Outside,), {}))
    with pytest.raises(BadInput, match="two rules are called 'outside'; give one of them another name"):
        given_rules([Outside, other])


@pytest.mark.parametrize("method", ["bp", "fa", "fa-exact-head", "fa-block", "dfa", "dfa-rms"])
def test_logs_of_version_1_get_the_words_of_the_rules_themselves(method):
    run = spec(method)
    assert card_of(run) == rule_of(run, {}).card
