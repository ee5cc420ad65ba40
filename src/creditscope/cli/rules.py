"""``creditscope rules``: the credit rules, and the identity card of one."""

from typing import Annotated

import typer

from creditscope.cli.options import OwnRules
from creditscope.cli.say import say


def rules(
    name: Annotated[str | None, typer.Argument(help="A rule, such as kp: its identity card.")] = None,
    own: OwnRules = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """List the credit rules, or show the card of one.

    With a name: its definition, needs, identities and reported numbers.

    Examples: `creditscope rules`; `creditscope rules kp`; `creditscope rules my-rule --rules mypackage.rules:MyRule`.
    """
    import json

    from creditscope.cli.display import fit
    from creditscope.errors import BadInput, did_you_mean
    from creditscope.rules.build import given_rules, rule_named
    from creditscope.rules.cards import card, card_text, cards, listing

    if format not in ("text", "json"):
        raise BadInput(f"wanted --format text or json, got {format!r}; {did_you_mean(format, ('text', 'json'))}")
    given = given_rules(own or [])
    found = cards(given) if name is None else card(rule_named(name, given))
    if format == "json":
        say(json.dumps(found, indent=2, ensure_ascii=False))
    elif isinstance(found, list):
        say(fit(listing(found)))
    else:
        say(card_text(found))
