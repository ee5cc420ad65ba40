"""The depth check: are trained blocks better than untrained ones, on a task where trained blocks can be?"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

from creditscope.protocol.accuracies import is_unequal, judged_mean
from creditscope.protocol.cells import Cell, completed, effectively_linear
from creditscope.protocol.check import Check, CheckPlot, Outcome
from creditscope.protocol.checks.seeds import images_text, k_of_n, needed_text, point_seeds, without
from creditscope.protocol.evidence import Evidence, History, Ruling, worst
from creditscope.protocol.margins import LEVEL, Margin
from creditscope.protocol.opponents import (
    Opponent,
    anchors_alone,
    backprop_gain,
    deep_supervision,
    fixed_feedback,
    opponents,
)
from creditscope.protocol.readings import mean_curve
from creditscope.protocol.text import counted, listed, number, span
from creditscope.records.method import ANCHOR
from creditscope.records.table import Table

PP = 100.0
# Worse than an opponent by more than this is harm, and harm needs no proof that the task rewards depth.
HARM = -1.0


@final
class Depth(Check):
    """Passes when accuracy clears every matched opponent by the margin; fires when it lies below one of them by it.

    Opponents are the frozen twin and training nothing but the readout. The interval joins seeds and test images. Where
    backprop itself does not gain the margin over its own frozen twin, the task cannot tell, and nothing is decided.
    """

    name = "depth"
    unit = "pp"
    by_difference = True
    side = "below"
    threshold = 2.0
    pooled = True
    by_chance = 0.025
    keeps_rows = False
    title = "Depth"
    question = "Are trained blocks better than untrained ones?"
    healthy = (
        "Each line is a run's accuracy less that of the opponent which decides, the strongest one: its frozen twin, in "
        "which the blocks stay as drawn, or a net of which only the readout was trained."
    )
    advice = (
        "Report the frozen twin and the readout with the accuracy. If one of them is as good, the claim is about a "
        "shallow net: say so, or find the block that destroys what the embedding gives."
    )
    plot = CheckPlot(("margin", "accuracy"), lines=("margin",), baselines=True)

    def judge(self, cell: Cell) -> Outcome:
        """Compare with every opponent at hand, then ask whether the task rewards depth at all."""
        found = opponents(cell)
        if not found:
            return self.not_measured(f"not compared: {_why_not(cell)}", _train_the_twin(cell))
        control = backprop_gain(cell)
        alone, missing = self._intervals(found), self._conditions(cell, found)
        unhindered = alone.ruling(self.threshold, self.side)
        open_ = [*self._control(alone, control), *(missing if unhindered is Ruling.PASSES else [])]
        open_ += self._partial(found) if unhindered is Ruling.UNDECIDED else []
        decider = _decider(found, unhindered)
        evidence = self._limited(alone, control, bool(missing))
        if any(opponent.margin.joined == "unknown" for opponent in found):
            evidence = replace(evidence, fires_to=-math.inf)  # the interval lacks one of its two errors
        ruling = evidence.ruling(self.threshold, self.side)
        reason = "; ".join(
            [
                *open_,
                self._against(decider, ruling, len(found)),
                *(self._beside(other) for other in found if other is not decider),
                *self._remarks(cell, control, found),
            ]
        )
        return self.outcome(
            evidence,
            reason,
            point_seeds(decider.claims, decider.margin, PP),
            self._settles(cell, found, decider, control),
            _compared(cell, found, decider, control),
            self._details(decider, control),
            self._history(decider, ruling),
        )

    def extra(self, judged: Sequence[tuple[str, Cell, Outcome]]) -> Table:
        """What each claim was compared with, the one that decided first."""
        rows = []
        for label, cell, outcome in judged:
            for opponent in (outcome.baseline or {}).get("opponents", ()):
                low, high = opponent["interval"]
                rows.append(
                    (
                        label,
                        _fraction(judged_mean(cell.runs)),
                        opponent["method"],
                        _fraction(opponent["accuracy"]),
                        f"{opponent['margin']:+.2f}",
                        "–" if low is None else span(low, high, ""),
                        "yes" if opponent["matched"] else "no",
                        "yes" if opponent["decides"] else "",
                    )
                )
        columns = (
            "method",
            "accuracy",
            "opponent",
            "its accuracy",
            "margin (pp)",
            "95 % interval",
            "matched",
            "decides",
        )
        return Table(columns, tuple(rows), title="What each was compared with")

    def _intervals(self, found: Sequence[Opponent]) -> Evidence:
        """``low`` is what the claim clears against every opponent; ``high`` what it stays below against one."""
        value = min(opponent.margin.mean for opponent in found)
        low = min(opponent.margin.low() for opponent in found)
        high = min(opponent.high(LEVEL / len(found)) for opponent in found)
        grade = worst(opponent.grade for opponent in found)
        return Evidence(PP * value, PP * low, PP * high, grade)

    def _limited(self, evidence: Evidence, control: Margin | None, missing: bool) -> Evidence:
        """The same, which decides only at margins that backprop's own gain exceeds. Harm needs no such control."""
        # One seed of backprop has no interval, and excuses nobody.
        excuses = control is not None and control.kind != "one seed" and PP * control.low() < HARM
        harm = evidence.high < HARM and not excuses
        known = control is not None and control.joined != "unknown"
        gain = PP * control.low() if control is not None and known else -math.inf
        passes = math.inf if harm or not known else gain
        return replace(evidence, passes_to=-math.inf if missing else passes, fires_to=math.inf if harm else gain)

    def _control(self, evidence: Evidence, control: Margin | None) -> list[str]:
        """Why the task leaves the question open; nothing where it does not."""
        limited = self._limited(evidence, control, missing=False)
        if control is None or control.joined == "unknown":
            hindered = evidence.high < self.threshold >= limited.fires_to
            why = "among the logs" if control is None else "whose number of test images is logged"
            return [f"no positive control (bp and bp@frozen) {why}"] if hindered else []
        if self.threshold < limited.fires_to:
            return []
        if control.kind == "one seed":
            return ["one seed of bp and bp@frozen cannot show that this task rewards depth"]
        return [f"this task cannot tell: backprop itself gains {_interval(control)} over its frozen twin"]

    def _conditions(self, cell: Cell, found: Sequence[Opponent]) -> list[str]:
        """What else a pass asks for, and is not there."""
        roles = {opponent.role for opponent in found}
        missing = [f"not compared: {listed(left_out)}"] if (left_out := _left_out(cell, found)) else []
        # Whoever trains the opponent on the best seeds alone must not pass by them.
        missing += [f"{opponent.method} lacks {_seeds(lacks)}" for opponent in found if (lacks := opponent.lacks)]
        if "frozen" not in roles:
            missing.append(f"no frozen twin: {_why_not(cell)}")
        if "readout" not in roles and not self._more_than_shallow(cell, found):
            missing.append("no @readout among the logs, and not shown to be more than bp@frozen")
        if any(facts.learns for _, facts in cell.members):
            none = "its feedback learns, and no @fixed-feedback run shows that this helps"
            missing += _helps(fixed_feedback(cell), none, "moving the feedback is not shown to help")
        if cell.spec.anchors and cell.spec.rule != ANCHOR:
            none = f"its backprop batches may do it alone: no {ANCHOR}{cell.spec.anchors} among the logs"
            missing += _helps(anchors_alone(cell), none, "the rule is not shown to help")
        return missing

    def _partial(self, found: Sequence[Opponent]) -> list[str]:
        """Opponents that lack seeds, and below which the claim lies by the margin on the rest of them alone."""
        level = LEVEL / len(found)
        return [
            f"{opponent.method} lacks {_seeds(opponent.lacks)}, and over all seeds the margin is open"
            for opponent in found
            if opponent.over_all is not None and PP * opponent.margin.high(level) < self.threshold
        ]

    def _more_than_shallow(self, cell: Cell, found: Sequence[Opponent]) -> bool:
        shallow = cell.related.control_frozen
        if not shallow:
            return False
        if any(run is other for opponent in found for run in opponent.runs for other in shallow):
            return True  # it is one of the opponents, and was cleared
        compared = opponents(replace(cell, baseline=None, related=replace(cell.related, readouts=(shallow,))))
        return bool(compared) and all(opponent.margin.low() > 0 for opponent in compared)

    def _against(self, opponent: Opponent, ruling: Ruling, of: int) -> str:
        """The margin over the opponent that decides, in words that follow the numbers."""
        found, limit = opponent.margin, f"{number(self.threshold)} pp"
        # Where only the wider interval, that of one opponent among several, holds the limit, it is the one to show.
        only_wider = PP * found.high() < self.threshold <= PP * found.high(LEVEL / of)
        level = LEVEL / of if ruling is Ruling.FIRES or only_wider else LEVEL
        shown = f"margin over {opponent.method} {_interval(found, level)}"
        below = PP * found.high(level) < self.threshold
        if below:
            adds = PP * found.low(level) > 0
            says = f"below {limit}" + (f": adds something, less than {limit}" if adds else "")
        elif PP * found.low() >= self.threshold:
            says = f"at or above {limit}"
        else:
            says = f"which leaves {limit} open"
        if found.kind == "one seed":
            says += " (one seed is not enough)"
        unpaired = opponent.unpaired
        said = [f"left out of the pairs: {_seeds(unpaired)}"] if unpaired else []
        return "; ".join([f"{shown}, {says}{k_of_n(found, self.threshold / PP, below)}", *said, *images_text(found)])

    def _beside(self, opponent: Opponent) -> str:
        return f"over {opponent.method} {_interval(opponent.margin)}"

    def _remarks(self, cell: Cell, control: Margin | None, found: Sequence[Opponent]) -> list[str]:
        said: list[str] = []
        if is_unequal(cell.spec):
            said.append("accuracy is balanced over the classes, whose sizes differ")
        bare = [opponent for opponent in found if not opponent.runs]
        if bare:
            said.append(f"unmatched: the baseline is a bare number, {bare[0].accuracy:.4g}")
        elif cell.baseline is not None and cell.baseline.unknown:
            said.append(f"unmatched: the logs do not state {listed(cell.baseline.unknown)}")
        if cell.baseline is not None and cell.baseline.unused is not None:
            said.append(f"the bare number {cell.baseline.unused:.4g} is not used: a twin is among the logs")
        unfinished = [run.name for run in cell.runs if not completed(run)]
        if unfinished:
            how = "judged at the last logged epoch" if bare else "not compared"
            said.append(f"unfinished, {how}: {listed(unfinished)}")
        if cell.baseline is not None and effectively_linear(cell.baseline.runs):
            said.append(f"{cell.baseline.method} is effectively linear (‖f‖/‖h‖ < 1 %)")
        if control is not None and cell.spec.rule != "bp":
            said.append(f"backprop gains {_interval(control)} over its frozen twin")
        shallow = judged_mean(cell.related.bp_frozen)
        if cell.spec.rule != "bp" and shallow is not None:
            ours = judged_mean(cell.runs) or 0.0
            if PP * found[0].margin.low() >= self.threshold > PP * (ours - shallow):
                said.append("better than its own frozen twin, not better than a shallow net trained by backprop")
            said.append(f"bp@frozen reaches {shallow:.4g} ({counted(len(cell.related.bp_frozen), 'seed')})")
        deep = deep_supervision(cell) if cell.family == "objective" else None
        if deep is not None:
            said.append(f"over backprop with deep supervision ({deep.method}) {_interval(deep.margin)}")
        return said

    def _settles(self, cell: Cell, found: Sequence[Opponent], decider: Opponent, control: Margin | None) -> str:
        """Advice that fits what was done already."""
        margins = [*(opponent.margin for opponent in found), *([] if control is None else [control])]
        if any(each.joined == "unknown" for each in margins):
            return "log the number of test images (n_test) or, better, the result on each of them"
        if left_out := _left_out(cell, found):
            return f"train to their end, with test accuracy logged: {listed(left_out)}"
        roles = {opponent.role for opponent in found}
        if "frozen" not in roles or any(not opponent.matched for opponent in found):
            return _train_the_twin(cell)
        if lacking := [(o.method, lacks) for o in found if (lacks := o.lacks)]:
            return "; ".join(f"train {method} on {_seeds(lacks)} too" for method, lacks in lacking)
        if control is not None and PP * control.low() <= self.threshold:
            if control.kind == "one seed":
                return "train at least 3 seeds of bp and bp@frozen on this task"
            if PP * control.high() > self.threshold:
                return needed_text(control, self.threshold / PP, "of bp and bp@frozen")
            return "another task: on this one depth gains backprop less than the margin"
        if control is None and PP * decider.margin.high() < self.threshold:
            return "train bp and bp@frozen with the same data, model and schedule, 3 seeds or more"
        if "readout" not in roles:
            return "train bp@readout with the same recipe and seeds"
        if decider.margin.low() * PP >= self.threshold:
            anchored = cell.spec.anchors and cell.spec.rule != ANCHOR
            wanted = f"{ANCHOR}{cell.spec.anchors} alone" if anchored else "the @fixed-feedback control"
            return f"train {wanted} with the same recipe and seeds, or more seeds of it"
        return needed_text(decider.margin, self.threshold / PP, f"of the run and of {decider.method}")

    def _details(self, decider: Opponent, control: Margin | None) -> dict[str, Any]:
        found = decider.margin
        needed = found.needed(self.threshold / PP)
        share = control.mean if control is not None else None
        return {
            "estimator": found.kind,
            "seeds": found.seeds,
            "sd": None if found.sd is None else PP * found.sd,
            "image_se": PP * math.sqrt(found.image_variance),
            "n_test": found.images,
            "seeds_needed": None if needed is None else [needed.fewest, needed.most],
            "images_needed": None if needed is None else needed.images,
            # The share of backprop's own gain; that of a task which rewards no depth says nothing.
            "normalised_margin": found.mean / share if share is not None and share > 0 else None,
        }

    def _history(self, decider: Opponent, ruling: Ruling) -> History:
        """Start of the last stretch of epochs at which all seeds together lay below the margin."""
        if ruling is not Ruling.FIRES:
            return History()
        ours, theirs = mean_curve(decider.claims), mean_curve(decider.runs)
        last = max((run.last.epoch for run in decider.claims if run.last), default=None)
        since = None
        for epoch in sorted(set(ours) & set(theirs) - {0}, reverse=True):
            if PP * (ours[epoch] - theirs[epoch]) >= self.threshold:
                break
            since = epoch
        return History(first=last if since is None else since)


def _decider(found: Sequence[Opponent], ruling: Ruling) -> Opponent:
    """The opponent on whom the outcome hangs: the strongest, by the end of the interval that decides."""
    if ruling is Ruling.FIRES:
        return min(found, key=lambda opponent: opponent.high(LEVEL / len(found)))
    return min(found, key=lambda opponent: (opponent.margin.low(), opponent.margin.mean))


def _helps(without: Opponent | None, none: str, unshown: str) -> list[str]:
    """What stands in the way of saying that a part of the rule helps: no run without it, or no margin over that."""
    if without is None:
        return [none]
    if lacks := without.lacks:
        return [f"{unshown}: {without.method} lacks {_seeds(lacks)}"]
    if without.margin.joined == "unknown":
        return [f"{unshown}: the number of test images of {without.method} is not logged"]
    return [f"{unshown}: {_interval(without.margin)} over {without.method}"] if without.margin.low() <= 0 else []


def _left_out(cell: Cell, found: Sequence[Opponent]) -> list[str]:
    """The claim's own runs that some opponent was not compared with."""
    return list(dict.fromkeys(name for opponent in found for name in without(cell.runs, opponent.claims)))


def _seeds(seeds: Sequence[int | None]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {listed(seeds)}"


def _interval(found: Margin, level: float = LEVEL) -> str:
    shown = f"{PP * found.mean:+.2f} pp"
    if math.isinf(found.half(level)):
        return shown
    ends = span(PP * found.low(level), PP * found.high(level), "")
    percent = f"{100 * (1 - level):.3g} %"
    return f"{shown}, {percent} interval {ends} ({found.kind})"


def _why_not(cell: Cell) -> str:
    if cell.baseline is None:
        return cell.why_no_baseline or "no baseline"
    held = [run for run in cell.runs if completed(run)] if cell.baseline.runs else list(cell.runs)
    if not held:
        return f"unfinished: {listed(run.name for run in cell.runs)}"
    return "no accuracy is logged" if judged_mean(held) is None else "the baseline logs hold no accuracy"


def _compared(cell: Cell, found: Sequence[Opponent], decider: Opponent, control: Margin | None) -> dict[str, Any]:
    """What decided, in the shape of the first edition, and every opponent beside it."""
    first = cell.baseline
    return {
        "method": decider.method if decider.runs else None,
        "accuracy": decider.accuracy,
        "matched": decider.matched,
        "seeds": [run.spec.seed for run in decider.runs],
        "logs": [run.name for run in decider.runs],
        "not_stated": list(first.unknown) if first is not None else [],
        "effectively_linear": effectively_linear(decider.runs),
        "beside": [
            {"method": runs[0].spec.method, "accuracy": judged_mean(runs), "seeds": [run.spec.seed for run in runs]}
            for runs in (cell.related.bp_frozen, *cell.related.readouts)
            if runs
        ],
        "opponents": [_opponent_dict(opponent, opponent is decider) for opponent in found],
        "control": None if control is None else {**_margin_dict(control), "method": "bp over bp@frozen"},
    }


def _opponent_dict(opponent: Opponent, decides: bool) -> dict[str, Any]:
    return {
        "method": opponent.method,
        "role": opponent.role,
        "accuracy": opponent.accuracy,
        "matched": opponent.matched,
        "decides": decides,
        **_margin_dict(opponent.margin),
    }


def _margin_dict(found: Margin) -> dict[str, Any]:
    ends = (PP * found.low(), PP * found.high())
    return {
        "margin": PP * found.mean,
        "interval": [end if math.isfinite(end) else None for end in ends],
        "seeds": found.seeds,
        "estimator": found.kind,
    }


def _fraction(value: float | None) -> str:
    return "not logged" if value is None else f"{value:.4f}"


def _train_the_twin(cell: Cell) -> str:
    spec = cell.spec
    # Frozen blocks have no branch for a local rule to keep small, so the twin of a penalised run needs no penalty.
    penalty = (spec.penalty or 0.0) if cell.runs[0].header.card.penalty == "global" else 0.0
    twin = replace(spec.as_method, penalty=penalty, train_last=0, train_embedding=True)
    return f"train {twin} with the same recipe and seeds (3 or more), and pass its logs"
