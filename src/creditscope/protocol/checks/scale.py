"""The scale check: does any block blow up the residual stream?"""

import math
from itertools import pairwise
from typing import final

from creditscope.protocol.check import CheckPlot
from creditscope.protocol.checks.point import EpochCheck
from creditscope.protocol.evidence import Evidence, Grade, History, Ruling, SeedOutcome
from creditscope.protocol.facts import RunFacts, diverged_at, finite
from creditscope.protocol.partial import blocks_at_least, growth_bounds, stream_bounds
from creditscope.protocol.text import number
from creditscope.quantities.per_epoch import GROWTH, HIDDEN
from creditscope.records.log import RunLog
from creditscope.records.rows import EpochRow


@final
class Scale(EpochCheck):
    """Fires when growth = max_l med‖h_{l+1}‖/med‖h_l‖ exceeds the threshold, or the norms are no longer finite."""

    name = "scale"
    label = "growth"
    unit = "×"
    side = "above"
    threshold = 50.0
    allowed = (0.0, math.inf)
    title = "Scale"
    question = "Does any block blow up the residual stream?"
    healthy = (
        "Healthy blocks pass on a residual stream of about the size they got: growth stays near 1. A line that climbs "
        "past the threshold means that one block drowns all that came before it."
    )
    advice = (
        "Keep the stream small before you read any cosine: a penalty on the residual branch, a smaller step, or a"
        " normaliser after the add. Then judge the depth again: a small stream alone does not show learning."
    )
    settled_by = "log the median norm of every state h_0..h_L at the last epoch"
    plot = CheckPlot(("growth_max", "growth", "hidden", "branch"), lines=("growth_max", "growth"))

    def measure(self, facts: RunFacts, row: EpochRow) -> Evidence:
        """Growth over the blocks of one epoch: exact from all states, bounded from some."""
        if what := diverged_at(row):
            return Evidence(None, math.inf, math.inf, Grade.EXACT, (f"diverged: {what}",))
        if (growth := GROWTH.read(row, facts.units)) is not None:
            return _from_growth(growth + [None] * ((facts.header.spec.depth or 0) - len(growth)))
        if (hidden := HIDDEN.read(row, facts.units)) is None:
            return Evidence.missing("no norm of the residual stream is logged")
        states = [finite(value) for value in hidden]
        return self._from_states(facts, states + [None] * ((facts.header.spec.depth or 0) + 1 - len(states)))

    def read(self, run: RunLog, facts: RunFacts) -> SeedOutcome:
        """As every point check; a run whose norms were ever non-finite is diverged and fires."""
        outcome = super().read(run, facts)
        found = _divergence(run, outcome.history.first is not None)
        if found is None:
            return outcome
        epoch, what = found
        evidence = Evidence(None, math.inf, math.inf, Grade.EXACT, (f"diverged: {what}",))
        first = outcome.history.first
        history = History(first=epoch if first is None else min(first, epoch))
        return SeedOutcome(run.spec.seed, run.name, epoch, Ruling.FIRES, evidence, history)

    def _from_states(self, facts: RunFacts, states: list[float | None]) -> Evidence:
        if len(states) < 2:
            return Evidence.missing("fewer than two states are logged")
        if 0.0 in states:
            return Evidence.missing("a state has norm 0: its growth is not defined")
        if states[-1] is None:
            return Evidence.missing("the norm of the last state h_L is not logged")
        if None not in states:
            ratios = [b / a for a, b in pairwise(states) if a and b]
            block = max(range(len(ratios)), key=ratios.__getitem__)
            return Evidence.point(ratios[block], Grade.EXACT, f"at block {block}")
        if states[0] is None:
            return self._from_above(facts, states[-1])
        return self._from_both_ends(facts, states)

    def _from_both_ends(self, facts: RunFacts, states: list[float | None]) -> Evidence:
        r, first, last = facts.assume.ratio, states[0], states[-1]
        assert first is not None
        assert last is not None
        bounds = stream_bounds(states, r)
        if bounds.refuted:
            return Evidence.missing(bounds.refuted)
        count = blocks_at_least(last / first, len(states) - 1, r, self.threshold) if self.threshold > r else None
        most = (
            f"at most {count} of {len(states) - 1} blocks at ≥ {number(self.threshold)}×" if count is not None else ""
        )
        notes = tuple(note for note in (f"assuming no block shrinks the stream below {r:g}×", most) if note)
        return Evidence(None, bounds.low, bounds.high, Grade.BOUNDED, notes)

    def _from_above(self, facts: RunFacts, last: float) -> Evidence:
        """h_0 is not logged: the initial stream bounds from above only. It never fires: the embedding grows too."""
        r, blocks = facts.assume.ratio, facts.blocks
        initial, whose = (facts.assume.h0, "assumed") if facts.assume.h0 else (facts.initial, "h_L at epoch 0")
        if not initial:
            return Evidence.missing("h_0 is not logged, nor is the stream at epoch 0")
        bounds = growth_bounds(last / initial, blocks, r)
        if bounds.refuted:
            return Evidence.missing(bounds.refuted)
        notes = (
            f"bounded from above only: h_0 is not logged at this epoch, the initial stream {number(initial)} ({whose}) "
            "stands in for it",
            f"assuming no block shrinks the stream below {r:g}×",
            facts.blocks_note,
        )
        return Evidence(None, -math.inf, bounds.high, Grade.PROXY, tuple(note for note in notes if note))


def _from_growth(growth: list[float | None]) -> Evidence:
    known = [value for value in growth if value is not None and value - value == 0]  # finite
    if not known:
        return Evidence.missing("growth was not measured at any block")
    value = max(known)
    block = growth.index(value)
    if len(known) == len(growth):
        return Evidence.point(value, Grade.EXACT, f"at block {block}")
    open_blocks = [str(at) for at, value in enumerate(growth) if value is None or value - value != 0]
    note = f"at block {block}; not measured at blocks {', '.join(open_blocks)}"
    return Evidence(value, value, math.inf, Grade.BOUNDED, (note,))


def _divergence(run: RunLog, fired: bool) -> tuple[int, str] | None:
    """The epoch at which a run diverged, and how; None when it did not. A row that diverged has always fired."""
    for row in run.epochs if fired else ():
        if what := diverged_at(row):
            return row.epoch, what
    if run.end is not None and run.end.status == "diverged":
        return run.end.epoch, run.end.reason or f"the run ended as diverged at epoch {run.end.epoch}"
    return None
