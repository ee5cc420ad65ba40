"""The switches of a recipe: what can be changed alone, to see what it causes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from creditscope.errors import BadInput, did_you_mean
from creditscope.models import MODELS, options_of
from creditscope.records import Method, RunSpec, parse_method
from creditscope.records.method import option_text
from creditscope.rules.build import Given, full_method, rule_class, rule_named

PENALTY = 0.01
LR_FACTOR = 3.0
SCALE_FACTOR = 3.0
SECOND_MAP_FACTOR = 10.0
SGD_LR_FACTOR = 30.0  # AdamW's steps have the size of its rate, those of SGD the size of the gradient
# A rule, and the one that differs from it in nothing but that its feedback learns.
LEARNED = {"fa": "kp", "dfa": "dkp"}


class Recipe(NamedTuple):
    """A method with settings.

    Args:
        method: The method.
        changes: Settings that differ from the preset's.
    """

    method: Method
    changes: Mapping[str, Any]


class Flipped(NamedTuple):
    """A recipe with one thing changed.

    Args:
        recipe: The recipe.
        words: What was changed, such as ``removing the terminal LayerNorm``.
    """

    recipe: Recipe
    words: str


@dataclass(frozen=True)
class Switch:
    """One ingredient.

    Args:
        name: Its name.
        about: What it is.
        flip: Gives the recipe with it flipped; raises ``BadInput`` where the recipe does not have it.
    """

    name: str
    about: str
    flip: Callable[[Recipe, RunSpec, Given], Flipped]


def _set(recipe: Recipe, words: str, **changes: Any) -> Flipped:
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return Flipped(recipe._replace(changes={**recipe.changes, **named}), words)


def _method(recipe: Recipe, words: str, given: Given, **changes: Any) -> Flipped:
    return Flipped(recipe._replace(method=full_method(replace(recipe.method, **changes), given)), words)


def _option(recipe: Recipe, given: Given, option: str, value: Any, words: str) -> Flipped:
    options = rule_class(recipe.method.rule, given)().options
    if option not in options:
        raise BadInput(f"rule {recipe.method.rule} has no option {option!r}")
    if options[option] == value:
        raise BadInput(f"rule {recipe.method.rule} has {option}={option_text(value)} already")
    return _method(recipe, words, given, options={**recipe.method.options, option: value})


def _normalisation(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    on = recipe.method.credit_norm == "rms"
    words = f"{'removing' if on else 'adding'} the credit normalisation"
    return _method(recipe, words, given, credit_norm="none" if on else "rms")


def _terminal_ln(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    if spec.terminal_ln is None:
        raise BadInput(f"model {spec.model} does not say whether it has a terminal LayerNorm")
    words = f"{'removing' if spec.terminal_ln else 'adding'} the terminal LayerNorm"
    return _set(recipe, words, terminal_ln=not spec.terminal_ln)


def _penalty(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    weight = recipe.method.penalty
    words = f"removing the penalty {option_text(weight)}" if weight else f"adding a penalty of {PENALTY:g}"
    return _method(recipe, words, given, penalty=0.0 if weight else PENALTY)


def _embedding(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    return _option(recipe, given, "own_embedding", True, "giving the embedding feedback of its own")


def _scale(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    if recipe.method.credit_norm == "rms":
        raise BadInput("a normalised credit does not depend on the scale of the feedback")
    return _option(recipe, given, "scale", SCALE_FACTOR, f"feedback {SCALE_FACTOR:g} times as large")


def _distribution(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    return _option(recipe, given, "dist", "uniform", "uniform feedback of the same standard deviation")


def _second_map(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    sd = options_of(spec.model or "").get("second_sd") if spec.model in MODELS.names() else None
    if not isinstance(sd, float):
        raise BadInput(f"model {spec.model} has no second map that starts small")
    words = f"starting the second map of each block {SECOND_MAP_FACTOR:g} times as large"
    return _set(recipe, words, model__second_sd=SECOND_MAP_FACTOR * sd)


def _weight_decay(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    assert spec.optimiser is not None
    on = spec.optimiser.weight_decay > 0
    words = "removing the weight decay" if on else "adding a weight decay of 0.01"
    return _set(recipe, words, weight_decay=0.0 if on else 0.01)


def _optimiser(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    assert spec.optimiser is not None
    lr = spec.optimiser.lr
    if spec.optimiser.name == "sgd":
        return _set(recipe, "AdamW instead of SGD", optimiser__name="adamw", lr=lr / SGD_LR_FACTOR)
    words = f"SGD with momentum 0.9 and learning rate {SGD_LR_FACTOR * lr:g} instead of AdamW"
    return _set(recipe, words, optimiser__name="sgd", lr=SGD_LR_FACTOR * lr)


def _lr(factor: float) -> Callable[[Recipe, RunSpec, Given], Flipped]:
    def flip(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
        assert spec.optimiser is not None
        lr = spec.optimiser.lr * factor
        return _set(recipe, f"a learning rate of {lr:.3g} for {spec.optimiser.lr:.3g}", lr=lr)

    return flip


def _schedule(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    other = "constant" if spec.schedule == "cosine" else "cosine"
    return _set(recipe, f"a {other} learning rate", schedule=other)


def _augmentation(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    on = spec.augment != "none"
    if not on and (spec.data is None or len(spec.data.shape or ()) != 3):
        raise BadInput("the data are no pictures: nothing to augment")
    words = f"{'removing' if on else 'adding'} the augmentation"
    return _set(recipe, words, augment="none" if on else "crop4+flip")


def _double(field: str, words: str) -> Callable[[Recipe, RunSpec, Given], Flipped]:
    def flip(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
        value = getattr(spec, field)
        if value is None:
            raise BadInput(f"the {field} of this model is not ours to set")
        return _set(recipe, f"{words} ({2 * value} for {value})", **{field: 2 * value})

    return flip


def _learned(recipe: Recipe, spec: RunSpec, given: Given) -> Flipped:
    rule, fixed = recipe.method.rule, recipe.method.fixed_feedback
    if rule in LEARNED:
        return _method(recipe, f"feedback that learns ({LEARNED[rule]})", given, rule=LEARNED[rule])
    if not rule_named(str(replace(recipe.method, fixed_feedback=False)), given).learns:
        raise BadInput(f"the feedback of {rule} cannot learn")
    words = "feedback that learns" if fixed else "feedback left at its start"
    return _method(recipe, words, given, fixed_feedback=not fixed)


SWITCHES = {
    switch.name: switch
    for switch in (
        Switch("normalisation", "credit divided by its RMS, per sample", _normalisation),
        Switch("terminal-ln", "LayerNorm before the head", _terminal_ln),
        Switch("penalty", "penalty on the branches", _penalty),
        Switch("embedding-feedback", "embedding shares block 0's feedback, or has its own", _embedding),
        Switch("feedback-scale", "size of the feedback", _scale),
        Switch("feedback-distribution", "normal or uniform feedback", _distribution),
        Switch("second-map", "initial size of each branch's second map", _second_map),
        Switch("weight-decay", "decoupled weight decay", _weight_decay),
        Switch("optimiser", "AdamW or SGD with momentum", _optimiser),
        Switch("lr-up", "learning rate times three", _lr(LR_FACTOR)),
        Switch("lr-down", "learning rate over three", _lr(1 / LR_FACTOR)),
        Switch("schedule", "cosine or constant learning rate", _schedule),
        Switch("augmentation", "crops and flips", _augmentation),
        Switch("batch", "batch size", _double("batch", "twice the batch")),
        Switch("depth", "number of blocks", _double("depth", "twice the depth")),
        Switch("width", "width of the stream", _double("width", "twice the width")),
        Switch("learned-feedback", "feedback that learns, or stays", _learned),
    )
}


def switch_named(name: str) -> Switch:
    """A switch by name.

    Args:
        name: One of ``SWITCHES``.
    """
    if name not in SWITCHES:
        raise BadInput(f"no switch is called {name!r}; {did_you_mean(name, SWITCHES)}")
    return SWITCHES[name]


def recipe_of(method: str, changes: Mapping[str, Any] | None, given: Given) -> Recipe:
    """A recipe as a user names it.

    Args:
        method: A method name.
        changes: Settings that differ from the preset's.
        given: Rules from outside, by name.
    """
    return Recipe(full_method(parse_method(method), given), dict(changes or {}))
