"""Method names: one grammar for the command line, the logs and the figures.

``RULE[(option=value,…)][-rms][+penλ][+anchorN][@fixed-feedback][@frozen|@readout|@lastK]``: ``bp``, ``dfa-rms``,
``dfa-rms+pen0.01``, ``fa(exact_head=true)``, ``dfa+anchor1``, ``dfa-rms@frozen``, ``bp@last2``. ``anchorN`` stands for
a rule too: N batches of backprop an epoch, and nothing else.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from creditscope.errors import BadInput, did_you_mean
from creditscope.registry import GRAMMAR

CreditNorm = Literal["none", "rms"]
TrainLast = int | Literal["all"]
Option = bool | int | float | str

RULE_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_PATTERN = re.compile(
    r"(?P<rule>[a-z][a-z0-9-]*?)(?:\((?P<options>[^()]*)\))?(?P<rms>-rms)?(?:\+pen(?P<penalty>[0-9.eE+-]+))?"
    r"(?:\+anchor(?P<anchors>\d{1,6}))?(?P<fixed>@fixed-feedback)?(?:@(?P<train>frozen|readout|last(?P<last>\d{1,6})))?"
)
# The rule that trains on its anchors alone; its name is written with their number.
ANCHOR = "anchor"
_ALONE = re.compile(rf"{ANCHOR}(?P<anchors>\d{{1,6}})?")
# A text option becomes a part of file names.
_VALUE = re.compile(r"[A-Za-z0-9_.+-]{1,40}")
# Rules that became an option of another: by the name that they had.
FORMER = {"fa-exact-head": ("fa", {"exact_head": True})}
MAX_METHOD = 400
_EXAMPLES = (
    *("bp", "fa", "fa-block", "dfa", "dfa-rms", "dfa-rms+pen0.01", "dfa+anchor1", "anchor1"),
    *("dfa-rms@frozen", "bp@readout", "bp@last2"),
)


@dataclass(frozen=True)
class Method:
    """What a method name says.

    Args:
        rule: Name of the credit rule.
        credit_norm: ``rms`` when each sample's credit is divided by its root mean square.
        penalty: λ of the residual-branch penalty λ·‖f_l(h_l)‖².
        train_last: How many of the last blocks train; ``all`` for every block.
        train_embedding: False only for ``@readout``.
        options: Options of the rule that differ from their defaults; texts, until a rule gives them their types.
        fixed_feedback: Whether the rule's state stays at its start.
        anchors: Batches of true backprop in every epoch.
    """

    rule: str
    credit_norm: CreditNorm = "none"
    penalty: float = 0.0
    train_last: TrainLast = "all"
    train_embedding: bool = True
    options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    fixed_feedback: bool = False
    anchors: int = 0

    def __str__(self) -> str:
        alone = self.rule == ANCHOR
        name = f"{ANCHOR}{self.anchors}" if alone else self.rule
        if self.options:
            name += f"({','.join(f'{key}={option_text(value)}' for key, value in sorted(self.options.items()))})"
        name += "-rms" if self.credit_norm == "rms" else ""
        if self.penalty:
            name += f"+pen{option_text(float(self.penalty))}"
        name += f"+anchor{self.anchors}" if self.anchors and not alone else ""
        name += "@fixed-feedback" if self.fixed_feedback else ""
        if not self.train_embedding:
            return name + "@readout"
        if self.train_last == "all":
            return name
        return name + ("@frozen" if self.train_last == 0 else f"@last{self.train_last}")


def option_text(value: Option) -> str:
    """An option's value as a method name writes it.

    Args:
        value: The value.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


def parse_method(name: str) -> Method:
    """Read a method name; whoever builds the rule checks that it exists.

    Args:
        name: For example ``dfa-rms+pen0.01@frozen``.
    """
    if len(name) > MAX_METHOD:
        raise BadInput(f"method {name[:40]!r}… has {len(name)} characters, wanted at most {MAX_METHOD}: {GRAMMAR}")
    match = _PATTERN.fullmatch(name.strip())
    if match is None:
        raise BadInput(f"method {name!r} is not of the form {GRAMMAR}; {did_you_mean(name, _EXAMPLES)}")
    rule, former = FORMER.get(match["rule"], (match["rule"], {}))
    anchors = _anchors(match["anchors"], name)
    if alone := _ALONE.fullmatch(rule):
        rule = ANCHOR
        if anchors:
            raise BadInput(f"method {name!r}: anchors are given twice; write {match['rule']} or RULE+anchor{anchors}")
        anchors = _anchors(alone["anchors"] or "1", name)
    return Method(
        rule=rule,
        credit_norm="rms" if match["rms"] else "none",
        penalty=_penalty(match["penalty"], name),
        train_last=_train_last(match["train"], match["last"]),
        train_embedding=match["train"] != "readout",
        options={**{key: option_text(value) for key, value in former.items()}, **_options(match["options"], name)},
        fixed_feedback=match["fixed"] is not None,
        anchors=anchors,
    )


def split_methods(text: str) -> list[str]:
    """Methods separated by commas; a comma between parentheses belongs to its method.

    Args:
        text: For example ``bp,kp(decay=0.1,mode=x)@frozen``.
    """
    return [part.strip() for part in re.split(r",(?![^()]*\))", text)]


def _options(text: str | None, name: str) -> dict[str, Option]:
    found: dict[str, Option] = {}
    for part in text.split(",") if text is not None else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key.isidentifier() or not _VALUE.fullmatch(value):
            raise BadInput(f"method {name!r}: wanted option=value between the parentheses, got {part.strip()!r}")
        if key in found:
            raise BadInput(f"method {name!r}: option {key} is given twice; give it once")
        found[key] = value
    return found


def literal(text: str) -> Option:
    """A boolean, a whole number or a number where the text is one; a rule then takes it as the type it wants."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            value = kind(text)
            return value if math.isfinite(value) else text
    return text


def like_default(default: Option, value: Option, what: str) -> Option:
    """A value in the type of an option's default.

    Args:
        default: The default.
        value: What was given.
        what: Which option of what, for the message.
    """
    wanted = type(default)
    finite = not isinstance(value, float) or math.isfinite(value)
    if finite and isinstance(value, wanted) and isinstance(value, bool) == isinstance(default, bool):
        return value
    try:
        if wanted is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if not isinstance(value, bool):
            number = wanted(value)
            if wanted is str or (math.isfinite(float(number)) and float(number) == float(value)):
                return number
    except (KeyError, ValueError, OverflowError):
        pass
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    raise BadInput(f"{what}: wanted {names[wanted]}, got {value!r}")


def _penalty(text: str | None, name: str) -> float:
    if text is None:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"method {name!r}: the penalty must be a positive number, got {text!r}; write e.g. +pen0.01")
    return value


def _anchors(text: str | None, name: str) -> int:
    if text is not None and int(text) < 1:
        raise BadInput(f"method {name!r}: wanted at least one anchor an epoch, got {text}; write e.g. +anchor1")
    return int(text or 0)


def _train_last(train: str | None, last: str | None) -> TrainLast:
    if train is None:
        return "all"
    return int(last) if last is not None else 0
