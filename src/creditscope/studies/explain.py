"""Explain: each ingredient of a recipe changed alone, then in pairs, on the same seeds and the same order of data."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from creditscope.data import load_data
from creditscope.data.dataset import Dataset
from creditscope.engine.estimate import estimate
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.errors import BadInput, CreditscopeError, argument
from creditscope.execution.context import RunProgress, pick_device
from creditscope.execution.local import train
from creditscope.execution.plan import pack
from creditscope.plans.presets import build_specs
from creditscope.plans.presets import preset as find_preset
from creditscope.plans.switches import SWITCHES, Flipped, Recipe, recipe_of, switch_named
from creditscope.protocol.effects import Trial
from creditscope.protocol.explanation import Change, Explanation, effects_of, interactions_of
from creditscope.records import RunLog, RunSpec
from creditscope.rules.build import Given, given_rules, rule_named

# The explanation reads what is logged after every epoch: nulls and loss changes are not asked for.
_PROBES = {"probe.redraws": 0, "probe.directions": 0, "probe.epochs": ()}
SCREEN = 5  # a screen has a fifth of the epochs
LEAST_SCREEN = 2


@dataclass(frozen=True)
class ExplainPlan:
    """What an explanation trains first.

    Args:
        base: The recipe.
        flipped: By the name of the switch, the recipe with it flipped.
        refused: Switches that this recipe does not have, and why.
        specs: Every run, by the name of the switch; the recipe's own under an empty name.
        data: The data set.
    """

    base: Recipe
    flipped: dict[str, Flipped]
    refused: tuple[tuple[str, str], ...]
    specs: dict[str, list[RunSpec]]
    data: Dataset

    @property
    def runs(self) -> list[RunSpec]:
        """Each run once."""
        return list(dict.fromkeys(spec for specs in self.specs.values() for spec in specs))

    def seconds(self, device: str, rules: Given) -> float:
        """How long the runs take here, from a short calibration of each fleet.

        Args:
            device: ``auto``, ``cpu`` or ``cuda``.
            rules: Rules from outside, by name.
        """
        where = pick_device(device)
        return math.fsum(
            estimate(Fleet(members, self.data, default_model, where, rules=rules)).total for members in pack(self.runs)
        )


class _Planner:
    """Makes the runs of recipes that share a preset, data and seeds."""

    def __init__(self, preset: str, data: Dataset, seeds: Sequence[int] | None, rules: Given) -> None:
        self.preset, self.data, self.seeds, self.rules = find_preset(preset), data, seeds, rules

    def specs(self, recipe: Recipe, epochs: int | None = None) -> list[RunSpec]:
        """The runs of a recipe and of its frozen twin."""
        changes = {**recipe.changes, **_PROBES, **({} if epochs is None else {"epochs": epochs})}
        local = rule_named(str(replace(recipe.method, penalty=0.0)), self.rules).penalty == "local"
        twin = replace(recipe.method, train_last=0, penalty=0.0 if local else recipe.method.penalty)
        names = [str(recipe.method), str(twin)]
        return build_specs(self.preset, self.data.spec, self.data.classes, names, self.seeds, changes, self.rules)

    def plan(self, base: Recipe, switches: Iterable[str] | None) -> ExplainPlan:
        """Every switch that the recipe has, flipped alone."""
        own = self.specs(base)
        found, refused, flipped = {"": own}, [], {}
        for switch in map(switch_named, SWITCHES if switches is None else switches):
            try:
                other = switch.flip(base, own[0], self.rules)
                specs = self.specs(other.recipe)
                default_model(specs[0], self.data)  # a model may refuse its options
            except CreditscopeError as error:
                if switches is not None:
                    raise BadInput(f"switch {switch.name}: {error}") from None
                refused.append((switch.name, str(error)))
                continue
            flipped[switch.name], found[switch.name] = other, specs
        if not flipped:
            raise BadInput("no switch is left that this recipe has")
        return ExplainPlan(base, flipped, tuple(refused), found, self.data)


def plan_explain(
    method: str,
    *,
    preset: str = "demo",
    data: str | Dataset | None = None,
    switches: Iterable[str] | None = None,
    seeds: Sequence[int] | None = None,
    changes: Mapping[str, Any] | None = None,
    rules: Sequence[object] = (),
) -> ExplainPlan:
    """What an explanation would train.

    Args:
        method: The method to explain.
        preset: Where the other settings come from.
        data: A data set or its name; None: the preset's.
        switches: Which ingredients; None: every one that the recipe has.
        seeds: Seeds; None: the preset's.
        changes: Settings that differ from the preset's.
        rules: Rules from outside: ``package.module:Name``, or Python objects.
    """
    planner, base = _begin(method, preset, data, seeds, changes, rules)
    return planner.plan(base, switches)


def explain(
    method: str,
    *,
    out: Path | str,
    preset: str = "demo",
    data: str | Dataset | None = None,
    switches: Iterable[str] | None = None,
    seeds: Sequence[int] | None = None,
    changes: Mapping[str, Any] | None = None,
    rules: Sequence[object] = (),
    pairs: int = 3,
    budget: float | None = None,
    device: str = "auto",
    progress: RunProgress | None = None,
) -> Explanation:
    """Which ingredient of a recipe causes what: train it with each switch flipped alone, then with pairs of them.

    Everything is trained on the same seeds and the same order of data as the recipe itself. What the folder already
    holds is not trained again, so that a killed explanation goes on where it was.

    Args:
        method: The method to explain, e.g. ``dfa-rms``.
        out: Folder of the runs; made if need be.
        preset: Where the other settings come from.
        data: A data set or its name; None: the preset's.
        switches: Which ingredients; None: every one that the recipe has.
        seeds: Seeds; None: the preset's.
        changes: Settings that differ from the preset's.
        rules: Rules from outside: ``package.module:Name``, or Python objects.
        pairs: How many of the ingredients that matter are also flipped in pairs; 0 or 1: none.
        budget: Minutes. Where everything takes longer, all switches are screened at a fifth of the epochs, and those
            that moved most are trained in full as far as the minutes reach.
        device: ``auto``, ``cpu`` or ``cuda``.
        progress: Hears what is going on.
    """
    if pairs < 0:
        raise BadInput(argument("pairs"), f" wants a number of switches from 0 on, got {pairs}")
    if budget is not None and budget <= 0:
        raise BadInput(argument("budget"), f" wants minutes above 0, got {budget:g}")
    planner, base = _begin(method, preset, data, seeds, changes, rules)
    plan = planner.plan(base, switches)

    def trained(wanted: Mapping[str, list[RunSpec]]) -> dict[str, Trial]:
        runs = list(dict.fromkeys(spec for specs in wanted.values() for spec in specs))
        logs = train(runs, out, data=plan.data, device=device, resume=True, progress=progress, rules=rules)
        by_id = {log.spec.run_id: log for log in logs}
        return {name: _trial([by_id[spec.run_id] for spec in specs]) for name, specs in wanted.items()}

    screened: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    wanted = plan.specs
    room = None
    if budget is not None and (whole := plan.seconds(device, planner.rules)) > 60 * budget:
        full = plan.specs[""][0].epochs or 1
        epochs = min(full, max(LEAST_SCREEN, full // SCREEN))
        recipes = {"": plan.base} | {name: each.recipe for name, each in plan.flipped.items()}
        short = trained({name: planner.specs(recipe, epochs) for name, recipe in recipes.items()})
        screened = effects_of(_worded(plan.flipped, short), short[""])
        room = max(0, int((60 * budget / whole - epochs / full) * len(wanted)) - 1)
        chosen = [c.name for c in sorted(screened, key=_promise, reverse=True)[:room]]
        wanted = {name: specs for name, specs in plan.specs.items() if not name or name in chosen}
        screened = tuple(change for change in screened if change.name not in chosen)
        notes = (
            f"all of it takes about {whole / 60:.1f} minutes: every switch was screened at {epochs} of {full} epochs, "
            f"{len(chosen)} of {len(plan.flipped)} were trained in full; what moves late was not seen in the others",
        )
    trials = trained(wanted)
    changes_found = effects_of(_worded(plan.flipped, trials), trials[""])
    both: tuple[Change, ...] = ()
    if room is None or room > len(changes_found):
        both = _pairs(planner, plan, changes_found, pairs, trials, trained)
    return Explanation(method, trials[""], changes_found, both, screened, plan.refused, notes)


def _pairs(
    planner: _Planner,
    plan: ExplainPlan,
    changes: Sequence[Change],
    most: int,
    trials: Mapping[str, Trial],
    trained: Any,
) -> tuple[Change, ...]:
    """The switches that matter most, two at a time; one that makes runs diverge says nothing beside another."""
    whole = [change for change in changes if change.size > 0 and not change.trial.diverged]
    telling = sorted(whole, key=lambda change: -change.size)[:most]
    wanted: dict[str, list[RunSpec]] = {}
    words: dict[tuple[str, str], str] = {}
    for first, second in combinations([change.name for change in telling], 2):
        try:
            half = plan.flipped[first].recipe
            other = switch_named(second).flip(half, planner.specs(half)[0], planner.rules)
            wanted[f"{first} + {second}"] = planner.specs(other.recipe)
        except CreditscopeError:
            continue  # the two exclude each other, as a normalised credit and the scale of its feedback do
        words[first, second] = f"{plan.flipped[first].words} and {other.words}"
    if not wanted:
        return ()
    found = trained(wanted)
    return interactions_of(
        {names: (text, found[" + ".join(names)]) for names, text in words.items()}, dict(trials), trials[""]
    )


def _begin(
    method: str,
    preset: str,
    data: str | Dataset | None,
    seeds: Sequence[int] | None,
    changes: Mapping[str, Any] | None,
    rules: Sequence[object],
) -> tuple[_Planner, Recipe]:
    given = given_rules(rules)
    base = recipe_of(method, changes, given)
    if base.method.train_last != "all":
        raise BadInput(f"method {method!r}: some of its blocks do not train; name the method that does")
    loaded = data if isinstance(data, Dataset) else load_data(data or find_preset(preset).data)
    return _Planner(preset, loaded, seeds, given), base


def _worded(flipped: Mapping[str, Flipped], trials: Mapping[str, Trial]) -> dict[str, tuple[str, Trial]]:
    return {name: (each.words, trials[name]) for name, each in flipped.items() if name in trials}


def _promise(change: Change) -> float:
    """How much a screened change moved, in units of what is relevant; one that diverges moved most."""
    if change.trial.diverged:
        return float("inf")
    return max((abs(e.margin.mean) / e.measure.relevant for e in change.effects), default=0.0)


def _trial(logs: Sequence[RunLog]) -> Trial:
    return Trial(
        tuple(log for log in logs if not log.spec.is_baseline), tuple(log for log in logs if log.spec.is_baseline)
    )
