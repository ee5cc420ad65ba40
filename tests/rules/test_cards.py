"""Identity cards: complete for every rule that ships, and every identity on one is held by a test that exists."""

import json
import re
from pathlib import Path

import pytest
from extension.outside import KolenPollack
from typer.testing import CliRunner

from creditscope.cli import app
from creditscope.errors import BadInput
from creditscope.rules import RULES
from creditscope.rules.build import given_rules, rule_named
from creditscope.rules.cards import card, card_text, cards, listing

ROOM = Path(__file__).parent
TESTS = {name for path in ROOM.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}


def call(*arguments):
    return CliRunner().invoke(app, ["rules", *arguments])


@pytest.mark.parametrize("name", RULES.names())
def test_a_card_says_what_a_rule_needs_and_what_proves_it(name):
    found = card(rule_named(name))
    assert found["needs"]
    assert found["identities"], name
    for proof in found["identities"]:
        assert proof["test"] in TESTS, proof
    for line in (*found["needs"], *found["does without"], *found["public code"]):
        assert line == line.strip()
        assert not line.endswith("."), line


def test_the_list_has_a_line_a_rule():
    result = call()
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines[2:]] == RULES.names()
    assert any(line.split()[:2] == ["kp", "signal"] and "a learned matrix per linear map" in line for line in lines)


def test_a_card_in_text_and_json():
    text = call("kp").output
    for said in (
        "Kolen & Pollack 1994",
        "decay = 0",
        "+penλ (in its block), +anchorN, @fixed-feedback, @frozen, @readout, @lastK",
        "98.45 %",
        "never passes its decay factor",
    ):
        assert said in text
    found = json.loads(call("kp", "--format", "json").output)
    assert found == card(rule_named("kp"))
    assert json.loads(call("--format", "json").output) == cards()


def test_options_and_wrappers_are_on_the_card_of_a_method():
    assert "norm = initial" in call("wm(norm=initial)").output
    assert "divided by its RMS" in call("dfa-rms").output
    assert "-rms" in card(rule_named("dfa"))["wrappers"]
    assert "@fixed-feedback" not in card(rule_named("kp@fixed-feedback"))["wrappers"]


def test_a_rule_of_ones_own_has_a_card_and_what_it_does_not_state_is_said():
    given = given_rules([KolenPollack])
    text = card_text(card(rule_named("my-kp", given)))
    assert "needs\n  not stated" in text
    assert "identities, each held by a test\n  none" in text
    assert listing(cards(given)).rows[-1] == ("my-kp", "signal", "not stated")
    assert "pull = 1" in call("my-kp", "--rules", "extension.outside:KolenPollack").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("kq",), "unknown rule 'kq'; did you mean 'kp'"), (("--format", "yaml"), "wanted --format text or json")],
)
def test_bad_input_is_one_line(arguments, said):
    error = call(*arguments).exception
    assert isinstance(error, BadInput)
    assert str(error).startswith(said)
    assert "\n" not in str(error)
