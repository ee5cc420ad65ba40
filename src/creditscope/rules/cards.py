"""What a rule is, as a card to read: for the command line and for the page of rules."""

from collections.abc import Mapping
from typing import Any

from creditscope.blocks import CreditRule
from creditscope.records.method import option_text
from creditscope.records.table import Table
from creditscope.rules import RULES
from creditscope.rules.build import rule_named

_PENALTY = {
    "local": "+penλ (in its block)",
    "global": "+penλ (in the loss)",
    "none": None,
}


def wrappers_of(rule: CreditRule) -> list[str]:
    """The suffixes that a method name of the rule can take.

    Args:
        rule: The rule.
    """
    asked = ["-rms" if rule.normalisable else None, _PENALTY[rule.penalty]]
    asked.append(None if rule.name in ("bp", "anchor") else "+anchorN")
    asked.append("@fixed-feedback" if rule.learns else None)
    return [*(name for name in asked if name), "@frozen", "@readout", "@lastK"]


def card(rule: CreditRule) -> dict[str, Any]:
    """Everything that a rule says of itself.

    Args:
        rule: The rule.
    """
    identity, spec = rule.identity, rule.feedback_spec
    return {
        "name": rule.name,
        "family": rule.family,
        "formula": rule.formula,
        "paper": rule.paper,
        "credit enters": rule.injection,
        "feedback": None if spec.dist is None else f"{spec.dist}; {spec.scale}",
        "feedback learns": rule.learns,
        "options": {name: option_text(value) for name, value in rule.options.items()},
        "wrappers": wrappers_of(rule),
        "needs": list(identity.needs),
        "does without": list(identity.spares),
        "identities": [proof._asdict() for proof in identity.proofs],
        "reported": [number._asdict() for number in identity.reported],
        "public code": list(identity.differs),
    }


def cards(given: Mapping[str, type[CreditRule]] | None = None) -> list[dict[str, Any]]:
    """The cards of all rules.

    Args:
        given: Rules of the user's own, by name.
    """
    return [card(rule_named(name, given)) for name in [*RULES.names(), *(given or {})]]


def listing(found: list[dict[str, Any]]) -> Table:
    """One line a rule: what it is, and what it needs.

    Args:
        found: Their cards.
    """
    rows = tuple((each["name"], each["family"], "; ".join(each["needs"]) or "not stated") for each in found)
    return Table(("rule", "family", "needs"), rows)


def card_lines(found: dict[str, Any]) -> dict[str, list[str]]:
    """A card in words: under each heading its lines; what a rule does not state is said.

    Args:
        found: The card.
    """
    proofs = [f"{each['statement']} ({each['test']})" for each in found["identities"]]
    numbers = [f"{each['setting']}: {each['result']} ({each['source']})" for each in found["reported"]]
    options = [f"{name} = {value}" for name, value in found["options"].items()]
    feedback = "none" if found["feedback"] is None else found["feedback"]
    return {
        "family": [found["family"]],
        "formula": [found["formula"]],
        "paper": [found["paper"]],
        "credit enters": [found["credit enters"]],
        "feedback": [f"{feedback}; it learns" if found["feedback learns"] else feedback],
        "options": options or ["none"],
        "wrappers": [", ".join(found["wrappers"])],
        "needs": found["needs"] or ["not stated"],
        "does without": found["does without"] or ["not stated"],
        "identities, each held by a test": proofs or ["none"],
        "reported elsewhere": numbers or ["nothing to compare with"],
        "public code": found["public code"] or ["no difference known"],
    }


def card_text(found: dict[str, Any]) -> str:
    """A card as text.

    Args:
        found: The card.
    """
    parts = [f"{heading}\n" + "\n".join(f"  {line}" for line in lines) for heading, lines in card_lines(found).items()]
    return "\n".join([found["name"], *parts])
