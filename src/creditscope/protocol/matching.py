"""Matching: which runs a claim is compared with: its frozen twin, readouts, controls, each seed once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from creditscope.errors import BadInput, argument
from creditscope.protocol.cells import (
    Baseline,
    Cell,
    RelatedRuns,
    by_seed,
    cells_of,
    comparable,
    mean_accuracy,
    unstated,
)
from creditscope.protocol.facts import Assumptions
from creditscope.records.log import RunLog
from creditscope.records.method import ANCHOR
from creditscope.records.spec import RunSpec, digest

# What backprop is, whatever rule it is compared with.
_BACKPROP = {"rule": "bp", "options": None, "fixed_feedback": None, "anchors": None}
# The rule that is backprop with a loss at every state.
DEEP = "bp-deep"
# What makes the task: a control on it may have been trained at another learning rate.
_TASK = (
    *("model", "architecture", "width", "depth", "terminal_ln", "view", "data", "classes", "targets"),
    *("epochs", "batch", "schedule", "augment", "dtype"),
)


def build_cells(
    logs: Sequence[RunLog], baseline: float | Sequence[RunLog] | None, assume: Assumptions
) -> tuple[Cell, ...]:
    """Group logs into cells and give each claim its baseline; claims come first.

    Args:
        logs: The runs to judge and, among them, baselines.
        baseline: A bare accuracy, or further runs that are baselines by the user's word.
        assume: What a user assumed.
    """
    given = tuple(baseline) if isinstance(baseline, Sequence) else ()
    for run in given:
        if run.spec.train_last not in (0, None):
            said = f" wants runs whose blocks are frozen; {run.name} ({run.spec.method}) trains them"
            raise BadInput(argument("baseline"), said)
    # A run that is in both counts once, as the user's baseline.
    taken = {_identity(run) for run in given if run.spec.seed is not None}
    logs = [run for run in logs if _identity(run) not in taken] if taken else logs
    pool = _Pool([*(run for run in logs if run.spec.is_baseline), *given], logs)
    number = baseline if isinstance(baseline, (int, float)) else None
    cells = []
    for cell in cells_of(logs, given, assume):
        if cell.role == "claim":
            found, why = _baseline(cell.runs[0], pool, number)
            cell = replace(cell, baseline=found, related=_related(cell.runs[0], pool), why_no_baseline=why)
        cells.append(cell)
    return tuple(sorted(cells, key=lambda cell: cell.role != "claim"))


def _identity(run: RunLog) -> tuple[str, int | None]:
    return run.spec.cell_key, run.spec.seed


class _Pool:
    """Runs to compare with, by match key; a key costs a hash, so each is taken once."""

    def __init__(self, baselines: Sequence[RunLog], logs: Sequence[RunLog]) -> None:
        self.frozen = [run for run in baselines if run.spec.train_embedding is not False]
        readouts = [run for run in baselines if run.spec.train_embedding is False and comparable(run)]
        whole = [run for run in logs if comparable(run) and run.spec.train_last in ("all", None, run.spec.depth)]
        bp = [run for run in whole if run.spec.rule == "bp"]
        self.by_key = _by_match(self.frozen)
        self.readout = _by_match(readouts)
        self.bp = _by_match(bp)
        self.fixed = _by_match((run for run in whole if run.spec.fixed_feedback), _penalised_key)
        frozen = [run for run in self.frozen if run.spec.rule == "bp" and comparable(run)]
        self.by_task = [_by_key(runs, _task_key) for runs in (bp, frozen, readouts)]
        self.anchors = _by_match((run for run in whole if run.spec.rule == ANCHOR), _penalised_key)
        plain = (run for run in whole if not (run.spec.penalty or run.spec.anchors or run.spec.fixed_feedback))
        self.deep = _by_key((run for run in plain if run.spec.rule == DEEP), _task_key)


def _by_key(runs: Iterable[RunLog], key: Callable[[RunLog], str]) -> dict[str, list[RunLog]]:
    found: dict[str, list[RunLog]] = {}
    for run in sorted(runs, key=by_seed):
        found.setdefault(key(run), []).append(run)
    return found


def _by_match(runs: Iterable[RunLog], key: Callable[[RunLog], str] | None = None) -> dict[str, list[RunLog]]:
    """By match key, each seed once: the run that ended counts, of two that were tuned the one best at validation."""
    return {match: sorted(_one_a_seed(same), key=by_seed) for match, same in _by_key(runs, key or match_key).items()}


def _one_a_seed(runs: Sequence[RunLog]) -> list[RunLog]:
    unseeded = [run for run in runs if run.spec.seed is None]
    first: dict[int | None, RunLog] = {}
    for run in sorted(runs, key=lambda run: (not comparable(run), -_validated(run))):
        first.setdefault(run.spec.seed, run)
    return [*(run for seed, run in first.items() if seed is not None), *unseeded]


def _validated(run: RunLog) -> float:
    """Accuracy on held-out samples at the rate that was chosen; 0 where none was."""
    return (
        max((value for value in run.spec.tuned.accuracy if value is not None), default=0.0) if run.spec.tuned else 0.0
    )


def _penalised_key(run: RunLog) -> str:
    return digest([run.spec.match_key, run.spec.penalty or 0.0])


def _task_key(run: RunLog) -> str:
    """What must agree with a control: all that makes the task, no penalty, and not the optimiser's settings."""
    return digest([_task(run.spec), (run.spec.penalty or 0.0) if run.spec.rule == "bp" else 0.0])


def _task(spec: RunSpec) -> dict[str, Any]:
    """What makes the task, also where it is known in its owner's words alone."""
    words = {name: said for name, said in (spec.recipe or {}).items() if name != "optimiser"}
    return spec.model_dump(mode="json", include=set(_TASK)) | {"recipe": words}


def match_key(run: RunLog) -> str:
    """What must agree with a matched baseline: the penalty too, where the rule's penalty joins the global loss."""
    if run.spec.rule != "bp" and run.header.card.penalty == "global":
        return digest([run.spec.match_key, run.spec.penalty or 0.0])
    return run.spec.match_key


def _baseline(claim: RunLog, pool: _Pool, number: float | None) -> tuple[Baseline | None, str]:
    """The runs that match by ``match_key``, else the bare number, else why there is none."""
    spec = claim.spec
    same = pool.by_key.get(match_key(claim), [])
    ended = tuple(run for run in same if comparable(run))
    if ended:
        return Baseline(runs=ended, unknown=unstated(spec), unused=number), ""
    if number is not None:
        return Baseline(accuracy=float(number)), ""
    if same:
        return (
            None,
            f"the matching frozen runs are unfinished, diverged or not frozen ({', '.join(run.name for run in same)})",
        )
    if not pool.frozen:
        return None, "no frozen-blocks run among the logs"
    each = (_differences(claim, runs[0].spec) for runs in pool.by_key.values())
    differing = min(each, key=lambda names: ("rule" in names, len(names)))
    return None, f"no frozen-blocks run matches; the nearest differs in {', '.join(differing)}"


def _differences(claim: RunLog, other: RunSpec) -> list[str]:
    skip = {"train_last", "train_embedding", "seed", "feedback", "probe", "injection", "matmul"}
    if claim.header.card.penalty != "global":
        skip.add("penalty")
    names = [name for name in RunSpec.model_fields if name not in skip]
    return [name for name in names if getattr(claim.spec, name) != getattr(other, name)] or ["nothing that is logged"]


def _related(claim: RunLog, pool: _Pool) -> RelatedRuns:
    """The backprop-trained relatives of a claim and the readout-only runs, finished ones only."""
    spec = claim.spec
    bp_key = spec.model_copy(
        update={**_BACKPROP, "credit_norm": _bp_norm(spec), "penalty": _no_penalty(spec)}
    ).match_key
    frozen = [run for run in pool.by_key.get(bp_key, []) if comparable(run)]
    readout = pool.readout.get(match_key(claim)) or pool.readout.get(bp_key) or []
    return RelatedRuns(
        bp_frozen=tuple(frozen),
        readout=tuple(readout),
        bp=tuple(pool.bp.get(bp_key, [])),
        readouts=_readouts(claim, pool, bp_key),
        **_controls(claim, pool, bp_key),
        fixed_feedback=_with_fixed_feedback(claim, pool),
        anchors_alone=_anchors_alone(claim, pool),
        deep_supervision=_best(claim, pool.deep),
    )


def _readouts(claim: RunLog, pool: _Pool, bp_key: str) -> tuple[tuple[RunLog, ...], ...]:
    """Of the claim's own rule and of backprop; where neither has its settings, the best on the same task."""
    found = [pool.readout[key] for key in dict.fromkeys((match_key(claim), bp_key)) if key in pool.readout]
    return tuple(map(tuple, found)) or tuple(filter(None, [_best(claim, pool.by_task[2])]))


def _controls(claim: RunLog, pool: _Pool, bp_key: str) -> dict[str, tuple[RunLog, ...]]:
    if bp_key in pool.bp and (twins := tuple(run for run in pool.by_key.get(bp_key, []) if comparable(run))):
        return {"control": tuple(pool.bp[bp_key]), "control_frozen": twins}
    return {"control": _best(claim, pool.by_task[0]), "control_frozen": _best(claim, pool.by_task[1])}


def _best(claim: RunLog, by_task: dict[str, list[RunLog]]) -> tuple[RunLog, ...]:
    """The most accurate cell on the claim's task; none where the log does not say what the task was."""
    if unstated(claim.spec):
        return ()
    key = digest([_task(claim.spec), 0.0])
    cells: dict[str, list[RunLog]] = {}
    for run in by_task.get(key, []):
        cells.setdefault(run.spec.cell_key, []).append(run)
    return tuple(max(cells.values(), key=lambda runs: mean_accuracy(runs) or 0.0, default=()))


def _with_fixed_feedback(claim: RunLog, pool: _Pool) -> tuple[RunLog, ...]:
    if claim.spec.fixed_feedback:
        return ()
    control = claim.spec.model_copy(update={"fixed_feedback": True})
    return tuple(pool.fixed.get(digest([control.match_key, control.penalty or 0.0]), ()))


def _anchors_alone(claim: RunLog, pool: _Pool) -> tuple[RunLog, ...]:
    if not claim.spec.anchors or claim.spec.rule == ANCHOR:
        return ()
    alone = {"rule": ANCHOR, "options": None, "fixed_feedback": None, "credit_norm": _bp_norm(claim.spec)}
    return tuple(pool.anchors.get(digest([claim.spec.model_copy(update=alone).match_key, 0.0]), ()))


def _bp_norm(spec: RunSpec) -> str | None:
    return None if spec.credit_norm is None else "none"


def _no_penalty(spec: RunSpec) -> float | None:
    return None if spec.penalty is None else 0.0
