"""From what a run says of its rule to the rule itself, in its wrappers; what does not fit is refused by name."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from creditscope.blocks import CreditRule
from creditscope.errors import BadInput, argument, did_you_mean
from creditscope.records import RunSpec
from creditscope.records.log import explain
from creditscope.records.method import RULE_NAME, Method, Option, like_default, parse_method, split_methods
from creditscope.registry import one_of_each
from creditscope.rules import RULES
from creditscope.rules.anchor import Anchored
from creditscope.rules.wrappers import FixedFeedback, Normalised

RuleClass = type[CreditRule]
_OUTSIDE = re.compile(r"(?P<place>[A-Za-z_][\w.]*:[A-Za-z_]\w*)(?P<rest>([(+@-].*)?)")
# Rules that the user passed, by name; those of packages are found without it.
Given = Mapping[str, RuleClass]


def given_rules(rules: Iterable[object]) -> dict[str, RuleClass]:
    """Rules from outside by their names, each checked.

    Args:
        rules: Classes or instances of ``CreditRule``, or ``package.module:Name``.
    """
    if isinstance(rules, (str, type)):
        raise BadInput(argument("rules"), f": wanted a list, got {rules!r} alone")
    classes = []
    for rule in rules:
        found = RULES.find(rule)
        kind = found if isinstance(found, type) else type(found)
        if not issubclass(kind, CreditRule):
            raise BadInput(f"rule {rule!r}: wanted a subclass of creditscope.CreditRule, got {kind.__name__}")
        if not isinstance(found, type) and found != kind():
            method = Method(found.name, options=_differing(kind, found.options))
            raise BadInput(
                f"rule {found.name!r} was given with options of its own; write the method as {str(method)!r}"
            )
        classes.append(_checked(kind))
    names = one_of_each(classes, "rule")
    for name, kind in names.items():
        if name in RULES.names() and RULES.find(name) is not kind:
            raise BadInput(f"a rule {name!r} exists already; give yours another name")
    return names


def unused_rules(given: Given, specs: Iterable[RunSpec]) -> list[str]:
    """A line for each rule that was passed and that no run is of.

    Args:
        given: Rules that the user passed.
        specs: The runs.
    """
    named = {spec.rule for spec in specs}
    return [f"rule {name!r} was passed, and no run is of it" for name in given if name not in named]


def read_methods(text: str) -> tuple[list[str], tuple[str, ...]]:
    """Methods separated by commas, and the rules of a user's own among them.

    Args:
        text: For example ``bp,mypackage.rules:MyRule,my-rule+pen0.01@frozen``. Where ``package.module:Name`` stands
            for the rule, it is imported; from then on its own name stands for it too.
    """
    methods, places = [], []
    for part in split_methods(text):
        match = _OUTSIDE.fullmatch(part)
        if match is None:
            methods.append(part)
            continue
        (name,) = given_rules([match["place"]])
        places.append(match["place"])
        methods.append(name + match["rest"])
    return methods, tuple(dict.fromkeys(places))


def rule_class(name: str, given: Given) -> RuleClass:
    """The class of a rule.

    Args:
        name: Its name.
        given: Rules that the user passed.
    """
    if name in given:
        return given[name]
    if name not in RULES.names():
        names = [*RULES.names(), *given]
        known = [*names, *(f"{each}-rms" for each in names if name.startswith(each))]
        raise BadInput(
            f"unknown rule {name!r}; {did_you_mean(name, known)} (your own: name it in ", argument("rules"), ")"
        )
    kind = _checked(RULES.find(name))
    if kind.name != name:  # type: ignore[comparison-overlap]
        raise BadInput(f"rule {name!r} of an installed package calls itself {kind.name!r}; its entry point must agree")
    return kind


def full_method(method: Method, given: Given) -> Method:
    """A method with typed options, those equal to their defaults left out; refused where something cannot apply.

    Args:
        method: As read from a name.
        given: Rules that the user passed.
    """
    kind = rule_class(method.rule, given)
    typed = _typed(kind, method.options)
    full = dataclasses.replace(method, options=_differing(kind, typed))
    rule = _wrapped(kind(**typed), full)
    if method.penalty and rule.penalty == "none":
        raise BadInput(f"method {str(full)!r}: a penalty on the branches does not apply to {rule.name}; drop +pen")
    return full


def rule_of(spec: RunSpec, given: Given) -> CreditRule:
    """The rule of a run, its penalty apart.

    Args:
        spec: The run.
        given: Rules that the user passed.
    """
    kind = rule_class(spec.rule, given)
    return _wrapped(kind(**_typed(kind, spec.options or {})), spec.as_method)


def rule_named(name: str, given: Given | None = None) -> CreditRule:
    """The rule of a method name, its penalty apart.

    Args:
        name: For example ``dfa-rms`` or ``fa(exact_head=true)``.
        given: Rules that the user passed.
    """
    method = full_method(parse_method(name), given or {})
    return _wrapped(rule_class(method.rule, given or {})(**method.options), method)


def _wrapped(rule: CreditRule, method: Method) -> CreditRule:
    if method.credit_norm == "rms":
        rule = Normalised(rule)
    if method.fixed_feedback:
        rule = FixedFeedback(rule)
    return Anchored(rule, method.anchors) if method.anchors else rule


def _typed(kind: RuleClass, options: Mapping[str, Option]) -> dict[str, Any]:
    defaults = _defaults(kind)
    found = {}
    for name, value in options.items():
        if name not in defaults:
            known = did_you_mean(name, defaults) if defaults else "it has none"
            raise BadInput(f"rule {getattr(kind, 'name', kind)} has no option {name!r}; {known}")
        found[name] = like_default(defaults[name], value, f"option {name} of rule {getattr(kind, 'name', kind)}")
    return found


def _differing(kind: RuleClass, options: Mapping[str, Option]) -> dict[str, Option]:
    defaults = _defaults(kind)
    return {name: value for name, value in options.items() if value != defaults[name]}


def _defaults(kind: RuleClass) -> dict[str, Option]:
    found: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return found


def _checked(kind: RuleClass) -> RuleClass:
    """A rule's class; its options and class attributes must have the right types."""
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not RULE_NAME.fullmatch(name) or name.endswith("-rms"):
        raise BadInput(
            f"rule {kind.__name__}: wanted a class attribute name of lower-case letters, digits and dashes that does "
            f"not end in -rms, got {name!r}"
        )
    if not dataclasses.is_dataclass(kind) or not kind.__dataclass_params__.frozen:
        raise BadInput(f"rule {name!r}: make {kind.__name__} a frozen dataclass, so that nothing hides on it")
    for field in dataclasses.fields(kind):
        if hasattr(CreditRule, field.name):
            raise BadInput(f"rule {name!r}: no option can be called {field.name!r}, a member of CreditRule")
        if type(field.default) not in (bool, int, float, str):
            raise BadInput(f"rule {name!r}: option {field.name} wants a default that is a number, boolean or text")
    missing = sorted(getattr(kind, "__abstractmethods__", ()))
    if missing:
        raise BadInput(f"rule {name!r}: {kind.__name__} lacks {', '.join(missing)}")
    try:
        _ = kind().card
    except ValidationError as error:
        raise BadInput(f"rule {name!r}: what it says of itself does not fit: {explain(error)}") from None
    return kind
