"""Method names: one grammar for the command line, the logs and the figures.

``RULE[-rms][+penλ][@frozen|@readout|@lastK]``: ``bp``, ``dfa-rms``, ``dfa-rms+pen0.01``,
``dfa-rms@frozen``, ``bp@last2``.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from creditscope.errors import BadInput, did_you_mean

RULES = ("bp", "fa", "fa-exact-head", "fa-block", "dfa")
LOCAL_RULES = tuple(rule for rule in RULES if rule != "bp")
CreditNorm = Literal["none", "rms"]
TrainLast = int | Literal["all"]

_PATTERN = re.compile(
    r"(?P<rule>[a-z][a-z-]*?)(?P<rms>-rms)?(?:\+pen(?P<penalty>[0-9.eE+-]+))?"
    r"(?:@(?P<train>frozen|readout|last(?P<last>\d+)))?"
)


@dataclass(frozen=True)
class Method:
    """What a method name says.

    Args:
        rule: One of ``RULES``.
        credit_norm: ``rms`` when each sample's credit is divided by its root mean square.
        penalty: λ of the residual-branch penalty λ·‖f_l(h_l)‖².
        train_last: How many of the last blocks train; ``all`` for every block.
        train_embedding: False only for ``@readout``.
    """

    rule: str
    credit_norm: CreditNorm = "none"
    penalty: float = 0.0
    train_last: TrainLast = "all"
    train_embedding: bool = True

    def __str__(self) -> str:
        name = self.rule + ("-rms" if self.credit_norm == "rms" else "")
        if self.penalty:
            short = f"{self.penalty:g}"
            name += f"+pen{short if float(short) == self.penalty else repr(self.penalty)}"
        if not self.train_embedding:
            return name + "@readout"
        if self.train_last == "all":
            return name
        return name + ("@frozen" if self.train_last == 0 else f"@last{self.train_last}")


def parse_method(name: str) -> Method:
    """Read a method name.

    Args:
        name: For example ``dfa-rms+pen0.01@frozen``.
    """
    match = _PATTERN.fullmatch(name.strip())
    if match is None:
        raise BadInput(
            f"method {name!r} is not of the form RULE[-rms][+penλ][@frozen|@readout|@lastK]; "
            f"{did_you_mean(name, _EXAMPLES)}"
        )
    rule = match["rule"]
    if rule not in RULES:
        raise BadInput(f"unknown rule {rule!r} in method {name!r}; {did_you_mean(rule, (*RULES, 'dfa-rms'))}")
    if match["rms"] and rule != "dfa":
        raise BadInput(f"method {name!r}: -rms is defined for dfa only; write 'dfa-rms' or drop -rms")
    return Method(
        rule=rule,
        credit_norm="rms" if match["rms"] else "none",
        penalty=_penalty(match["penalty"], name),
        train_last=_train_last(match["train"], match["last"]),
        train_embedding=match["train"] != "readout",
    )


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


def _train_last(train: str | None, last: str | None) -> TrainLast:
    if train is None:
        return "all"
    return int(last) if last is not None else 0


_EXAMPLES = (*RULES, "dfa-rms", "dfa-rms+pen0.01", "dfa-rms@frozen", "bp@readout", "bp@last2")
