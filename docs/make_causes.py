"""Write causes.md and its picture: which ingredient of dfa-rms causes its collapse, from the logs of an explanation.

    python docs/make_causes.py

``plan.json`` beside the logs says which runs belong to which change; every number is computed from the logs.
"""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from creditscope.figures.effects_plot import write_effects
from creditscope.protocol.effects import MEASURES, Effect, Trial, effect
from creditscope.protocol.explanation import Change, Explanation, effects_of, interactions_of
from creditscope.quantities.per_epoch import PUBLISHED
from creditscope.records import RunLog
from creditscope.records.load import load_logs

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "explain-h200"
SCRIPT = "make_causes.py"
GROWTH = next(measure for measure in MEASURES if measure.name == "growth")

INTRO = """\
<!-- Written by `python docs/{script}` from results/explain-h200. Change the script, not this page. -->

# What makes dfa-rms collapse?

`creditscope explain` took the recipe of the published audit apart: dfa-rms on ResMLP and CIFAR-10, {epochs} epochs,
{seeds} seeds, each ingredient changed alone and the three that matter most in pairs, {runs} runs on one {device},
{minutes:.1f} minutes of training. How to read it: [Which ingredient causes it?](explain.md).

```console
$ {command}
```

![Effects of each change with their intervals](figures/causes.png)
"""


@cache
def plan() -> dict[str, Any]:
    """Which runs belong to which change."""
    loaded: dict[str, Any] = json.loads((RESULTS / "plan.json").read_text(encoding="utf-8"))
    return loaded


@cache
def logs() -> tuple[RunLog, ...]:
    """Every run."""
    return load_logs(RESULTS).logs


def trial(names: list[str]) -> Trial:
    """Runs by their ids, with the frozen runs that match them."""
    by_id = {log.spec.run_id: log for log in logs()}
    runs = tuple(by_id[name] for name in names)
    frozen = [log for log in logs() if log.spec.is_baseline and log.spec.match_key == runs[0].spec.match_key]
    order = [run.spec.seed for run in runs]
    return Trial(runs, tuple(sorted(frozen, key=lambda log: order.index(log.spec.seed))))


@cache
def explanation() -> Explanation:
    """The explanation, computed again from the logs."""
    changes, pairs = plan()["changes"], plan()["pairs"]
    taken = {name for group in (changes, pairs) for each in group.values() for name in each["runs"]}
    base = trial([log.spec.run_id for log in logs() if not log.spec.is_baseline and log.spec.run_id not in taken])
    alone = {name: trial(each["runs"]) for name, each in changes.items()}
    both = {tuple(name.split(" + ")): (each["change"], trial(each["runs"])) for name, each in pairs.items()}
    return Explanation(
        plan()["method"],
        base,
        effects_of({name: (changes[name]["change"], found) for name, found in alone.items()}, base),
        interactions_of(both, alone, base),  # type: ignore[arg-type]
        refused=tuple(plan()["refused"].items()),
    )


def layer_zero() -> tuple[list[float], list[float]]:
    """The published cosine at l = 0, seed by seed: with block 0's feedback for the embedding, and with its own."""
    change = change_of("embedding-feedback")
    shared, own = ([PUBLISHED.last(run, 0) or 0.0 for run in side.runs] for side in (explanation().base, change.trial))
    return shared, own


def change_of(name: str) -> Change:
    """One change by the name of its switch."""
    return next(each for each in explanation().changes if each.name == name)


def removals() -> list[tuple[float, str]]:
    """By which factor each ingredient that the recipe has changes growth when it is taken away or halved."""
    taken = ("normalisation", "terminal-ln", "weight-decay", "augmentation", "lr-down")
    found = [(each.margin.mean, name) for name in taken if (each := change_of(name).on(GROWTH)) is not None]
    return sorted((math.exp(mean), name) for mean, name in found)


def apart() -> Effect:
    """Growth without the normalisation against growth without the terminal LayerNorm."""
    found = effect(GROWTH, change_of("normalisation").trial, change_of("terminal-ln").trial)
    assert found is not None
    return found


def embedding() -> str:
    """What feedback of its own does to the embedding's cosine."""
    texts = [", ".join(f"{value:+.3f}" for value in side) for side in layer_zero()]
    return (
        f"The published cosine at l = 0, seed by seed: {texts[0]} where block 0's matrix serves the embedding too, "
        f"{texts[1]} where the embedding has a matrix of its own."
    )


def build() -> str:
    """The page."""
    found = explanation()
    spec = found.base.runs[0].spec
    seconds = max(log.end.time_total or 0.0 for log in logs() if log.end is not None)
    head = INTRO.format(
        script=SCRIPT,
        epochs=spec.epochs,
        seeds=len(found.base.runs),
        runs=len(logs()),
        device=logs()[0].header.provenance["device_name"],
        minutes=seconds / 60,
        command=plan()["command"],
    )
    return "\n\n".join([head.strip(), found.to_markdown(), "## The embedding's cosine", embedding()]) + "\n"


if __name__ == "__main__":
    (HERE / "causes.md").write_text(build(), encoding="utf-8")
    for suffix in (".png", ".svg", ".pdf"):
        write_effects(explanation(), HERE / f"figures/causes{suffix}")
