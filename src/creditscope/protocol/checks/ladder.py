"""The ladder check of rules with a loss in each block: do the last blocks still add, or do they ride free?"""

import math
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Check, CheckPlot, Outcome
from creditscope.protocol.checks.seeds import grade_of, k_of_n, needed_text, point_seeds
from creditscope.protocol.evidence import Evidence, Ruling
from creditscope.protocol.facts import RunFacts
from creditscope.protocol.inference import read_bits
from creditscope.protocol.margins import Margin, Side, margin
from creditscope.protocol.readings import reading_of
from creditscope.protocol.text import number, span
from creditscope.records.log import RunLog, latest
from creditscope.records.measured import Ladder

PP = 100.0


@dataclass(frozen=True)
class Rung:
    """The last pair of readouts of one run.

    Args:
        ladder: As it was logged; None where it was not.
        why: Why it is absent.
    """

    ladder: Ladder | None
    why: str = ""


@final
class LadderCheck(Check):
    """A readout of h_L against one of h_{L−⌈L/3⌉}, image by image: passes above the threshold.

    Fires below it where backprop's own last blocks add more than that: then the later blocks ride free.
    """

    name = "ladder"
    unit = "pp"
    by_difference = True
    side = "below"
    threshold = 0.5
    pooled = True
    keeps_rows = False
    title = "Ladder"
    question = "Do the last blocks add to what the ones before them already hold?"
    healthy = "Probe accuracy should still rise over the last third of the blocks, as it does under backprop."
    advice = "The later blocks ride free: the claim is about a shallower net than the one that was trained."
    settled_by = "fit ridge readouts on h_{L−⌈L/3⌉} and h_L at the last epoch, for backprop too"
    plot = CheckPlot(("probe_accuracy",), "layers")

    def judge(self, cell: Cell) -> Outcome:
        """The gain over the last third, over seeds and images."""
        found = _gain(cell.runs, [reading_of(run, facts, self) for run, facts in cell.members])
        if isinstance(found, str):
            return self.not_measured(found)
        evidence = Evidence(PP * found.mean, PP * found.low(), PP * found.high(), grade_of(found))
        backprop, notes = self._backprop(cell), []
        said, gain = (backprop, -math.inf) if isinstance(backprop, str) else (_interval(backprop), PP * backprop.low())
        evidence = replace(evidence, fires_to=gain)
        ruling = evidence.ruling(self.threshold, self.side)
        if ruling is Ruling.FIRES:
            notes = [f"later blocks ride free: backprop's add {said}"]
        elif evidence.high < self.threshold:
            notes = [f"backprop's own last blocks are not shown to add more ({said})"]
        text = f"the last third of the blocks adds {_interval(found)} to a linear readout"
        return self.outcome(
            evidence,
            "; ".join([text + k_of_n(found, self.threshold / PP, evidence.high < self.threshold), *notes]),
            point_seeds(cell.runs, found, PP),
            self._settles(found, gain),
        )

    def read(self, run: RunLog, facts: RunFacts) -> Rung:
        """The last probe's pair of readouts: those of the last epoch, of the states that are asked for."""
        probe = latest(run.probes)
        if probe is None or (probe.ladder is None and "ladder" not in probe.not_measured):
            return Rung(None, "the log holds no readouts image by image at its last probe")
        if probe.ladder is None:
            return Rung(None, f"ladder: {probe.not_measured['ladder']}")
        if run.last is not None and probe.epoch != run.last.epoch:
            return Rung(None, f"probed at epoch {probe.epoch}, not at the last epoch {run.last.epoch}")
        lower = facts.blocks - math.ceil(facts.blocks / 3)
        if probe.ladder.state != lower:
            return Rung(None, f"the lower readout is that of state {probe.ladder.state}, not of {lower}")
        return Rung(probe.ladder)

    def _settles(self, found: Margin, gain: float) -> str:
        if PP * found.high() < self.threshold and gain <= self.threshold:
            return "train bp with the same data, model and schedule, 3 seeds or more, and fit the same readouts"
        return needed_text(found, self.threshold / PP, "of the run")

    def _backprop(self, cell: Cell) -> Margin | str:
        runs = cell.related.control
        if not runs:
            return "no backprop run among the logs"
        members = replace(cell, runs=runs).members
        return _gain(runs, [reading_of(run, facts, self) for run, facts in members])


def _gain(runs: tuple[RunLog, ...], rungs: list[Rung]) -> Margin | str:
    """The margin of the upper readout over the lower one; why there is none, where there is none."""
    ladders = [rung.ladder for rung in rungs]
    if None in ladders:
        return next(rung.why for rung in rungs if rung.ladder is None)
    known = [ladder for ladder in ladders if ladder is not None]
    if len({ladder.n for ladder in known}) > 1:
        return "the seeds were read out on different numbers of images"
    top, lower = (
        np.array([read_bits(getattr(ladder, name), ladder.n) for ladder in known]) for name in ("top", "lower")
    )
    seeds = tuple(run.spec.seed for run in runs)
    gains = top - lower
    return margin(Side(tuple(gains.mean(axis=1).tolist()), seeds, gains, known[0].n), 0.0)


def _interval(found: Margin) -> str:
    if found.kind == "one seed":
        return f"{number(PP * found.mean)} pp (one seed)"
    return f"{PP * found.mean:+.2f} pp, 95 % interval {span(PP * found.low(), PP * found.high(), '')}"
