"""The zoo: every rule on every model that it can train, with its twins, each at its own best learning rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from creditscope.errors import BadInput, did_you_mean
from creditscope.plans.presets import SEEDS, Preset, build_specs
from creditscope.records import DataSpec, ProbeSpec, RunSpec, Tuning, parse_method
from creditscope.rules import RULES
from creditscope.rules.build import full_method, rule_named

RATES = (3e-4, 1e-3, 3e-3)
# Backprop with a decoder on every state is what a rule with an objective in each block is shown beside.
DEEP_SUPERVISION = "bp-deep"
# Rules that are controls of others: they come with what they control.
_CONTROLS = (DEEP_SUPERVISION, "anchor")
# The rules of the field that the costly models are trained with.
QUOTED = ("bp", "fa", "dfa", "dfa-rms", "usf", "kp", "drtp", "local")
_GPU: dict[str, Any] = {"matmul": "tf32"}
# The expensive set once, at the end; fewer redraws than by default keep hundreds of logs small.
_PROBE = ProbeSpec(n=256, epochs=(), redraws=299)


@dataclass(frozen=True)
class Part:
    """One model on one data set.

    Args:
        name: What the command line calls it.
        data: The data set.
        fields: Fields of ``RunSpec`` that differ from the reference recipe, ``epochs`` among them.
        rules: Rules, or rules with a normalisation; None: every rule that there is.
        extra: Further methods, each with the frozen twin of its rule.
        readouts: Whether every rule has a readout twin of its own; where the head's gradient is exact it is backprop's.
        tuning_epochs: Epochs at each learning rate.
        held_out: Training samples that the rates are judged on.
    """

    name: str
    data: str
    fields: Mapping[str, Any]
    rules: tuple[str, ...] | None
    extra: tuple[str, ...] = ()
    readouts: bool = False
    tuning_epochs: int = 1
    held_out: int = 5000

    def named(self) -> list[str]:
        """Rules and further methods, in order."""
        rules = self.rules or (*(name for name in RULES.names() if name not in _CONTROLS), "dfa-rms")
        return [*rules, *self.extra]

    def methods(self, name: str) -> list[str]:
        """A rule, perhaps wrapped, with the twins that a claim of it needs; refused as the method itself would be.

        Args:
            name: For example ``kp`` or ``dfa-rms``.
        """
        method = full_method(parse_method(name), {})
        rule = rule_named(name)
        if rule.name in _CONTROLS:
            return [str(method)]
        # Frozen blocks have no branch to keep small: the twin of a penalised local rule is that of the plain one.
        plain = replace(method, penalty=0.0) if rule.penalty == "local" else method
        found = [method, replace(plain, train_last=0)]
        if rule.learns:
            found.insert(1, replace(method, fixed_feedback=True))
        if self.readouts or rule.name == "bp":
            found.append(replace(plain, train_last=0, train_embedding=False))
        beside = [DEEP_SUPERVISION] if rule.family == "objective" and DEEP_SUPERVISION in RULES.names() else []
        return [*map(str, found), *beside]

    def runs(
        self, data: DataSpec, classes: int, method: str, tuned: Tuning | None, lr: float, **changes: Any
    ) -> list[RunSpec]:
        """The runs of one method.

        Args:
            data: The data set.
            classes: Its number of classes.
            method: The method name.
            tuned: How its learning rate was chosen; None: this run is one of those that choose.
            lr: The learning rate.
            changes: Fields that differ from the part's own.
        """
        fields = {**self.fields, **changes}
        seeds = SEEDS if tuned is not None else SEEDS[:1]
        specs = build_specs(Preset(self.name, self.data, (), fields), data, classes, [method], seeds, {"lr": lr})
        return [spec.model_copy(update={"tuned": tuned}) for spec in specs]


ZOO = {
    part.name: part
    for part in (
        Part(
            "mlp",
            "fashion-mnist",
            {**_GPU, "model": "mlp", "augment": "none", "epochs": 30, "probe": _PROBE},
            None,
            readouts=True,
            tuning_epochs=10,
        ),
        Part(
            "resmlp",
            "cifar10",
            {**_GPU, "epochs": 30, "probe": _PROBE},
            None,
            ("state-bridge+pen0.01", "credit-bridge+pen0.01"),
            readouts=True,
            tuning_epochs=10,
        ),
        Part(
            "resnet",
            "cifar10",
            {**_GPU, "model": "resnet", "epochs": 15, "probe": _PROBE},
            QUOTED,
            ("dfa+anchor1", "anchor1"),
            tuning_epochs=5,
        ),
        Part(
            "vit-mini",
            "cifar10",
            {**_GPU, "model": "vit-mini", "width": 128, "view": "cls", "epochs": 30, "probe": _PROBE},
            QUOTED,
            tuning_epochs=10,
        ),
        Part(
            "gpt-mini",
            "king-james",
            {**_GPU, "model": "gpt-mini", "epochs": 10, "probe": _PROBE},
            QUOTED,
            tuning_epochs=3,
        ),
    )
}
_SMALL: dict[str, Any] = {
    "width": 32,
    "epochs": 4,
    "augment": "none",
    "probe": ProbeSpec(n=128, epochs=(), redraws=199, directions=8),
}
SMALL = {
    part.name: part
    for part in (
        Part("mlp", "fashion-mini", {**_SMALL, "model": "mlp"}, None, tuning_epochs=2, held_out=2000),
        Part("resmlp", "fashion-mini", _SMALL, None, tuning_epochs=2, held_out=2000),
    )
}


def parts_of(zoo: Mapping[str, Part], names: Sequence[str] | None) -> list[Part]:
    """Parts by name.

    Args:
        zoo: ``ZOO`` or ``SMALL``.
        names: Which; None: all.
    """
    for name in names or ():
        if name not in zoo:
            raise BadInput(f"the zoo has no part {name!r}; {did_you_mean(name, zoo)}")
    return [zoo[name] for name in (names or zoo)]
