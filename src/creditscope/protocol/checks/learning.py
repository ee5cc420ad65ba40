"""The learning check: did the run learn anything at all?"""

import math
from statistics import fmean
from typing import final

from creditscope.protocol.accuracies import counts_of, is_unequal, judged_chance, side_of
from creditscope.protocol.cells import Cell
from creditscope.protocol.check import Check, CheckPlot, Outcome
from creditscope.protocol.checks.seeds import grade_of, images_text, k_of_n, needed_text, point_seeds, without
from creditscope.protocol.evidence import Evidence, Grade, Ruling
from creditscope.protocol.margins import Margin, margin
from creditscope.protocol.text import listed, number, span
from creditscope.quantities.per_epoch import TEST_LOSS

PP = 100.0


@final
class Learning(Check):
    """Passes if accuracy lies above chance by more than the threshold, seeds and test images joined; fires if below.

    Where classes differ by more than 10 % in size, balanced accuracy is judged. Where chance is less than 1 pp, as with
    a thousand classes, the threshold shrinks with it: at its default it then is chance itself.
    """

    name = "learning"
    unit = "pp"
    by_difference = True
    side = "below"
    threshold = 1.0
    allowed = (0.0, 100.0)
    pooled = True
    by_chance = 0.025
    keeps_rows = False
    title = "Learning"
    question = "Did the network learn anything?"
    healthy = (
        "Each line is a run's accuracy; judged is how far it lies above chance, the share of the largest class in the "
        "test labels, which a constant predictor reaches."
    )
    advice = "Nothing was learned: no other number of this run says anything about credit."
    settled_by = "log test accuracy and the size of every class of the test set, for 2 seeds or more"
    plot = CheckPlot(("accuracy",))

    def judge(self, cell: Cell) -> Outcome:
        """The interval of accuracy − chance over seeds and test images."""
        measured, chance = side_of(cell.runs), judged_chance(cell.spec)
        if measured is None or chance is None:
            what = "no accuracy is logged" if measured is None else "the number of classes is not logged"
            return self.not_measured(f"{what}: it cannot be compared with chance")
        runs, side = measured
        limit = self.at(self.threshold * min(1.0, PP * chance))
        found = margin(side, chance)
        silent, sized = without(cell.runs, runs), counts_of(cell.spec) is not None
        low = -math.inf if silent else PP * found.low()
        evidence = Evidence(PP * found.mean, low, PP * found.high(), grade_of(found) if sized else Grade.PROXY)
        notes = [f"no accuracy is logged for {listed(silent)}"] if silent else []
        notes += [] if sized else ["the size of the classes is not logged: chance is taken as one in their number"]
        seeds = point_seeds(runs, found, PP)
        ruling = evidence.ruling(limit.threshold, limit.side)
        return limit.outcome(
            evidence,
            "; ".join([self._sentence(cell, chance, found, ruling, limit.threshold), *notes]),
            seeds,
            needed_text(found, limit.threshold / PP, "of the run") if sized and not silent else None,
            details={
                "chance": chance,
                "balanced": is_unequal(cell.spec),
                "images": found.images,
                "image_se": PP * math.sqrt(found.image_variance),
            },
        )

    def _sentence(self, cell: Cell, chance: float, found: Margin, ruling: Ruling, limit: float) -> str:
        what = "balanced accuracy" if is_unequal(cell.spec) else "accuracy"
        shown = f"{what} {found.mean + chance:.4f} is {PP * found.mean:+.2f} pp from chance ({chance:.4f})"
        low, high = PP * found.low(), PP * found.high()
        if not math.isinf(low):
            shown += f", 95 % interval {span(low, high, '')}"
        says = {
            Ruling.PASSES: f"above {number(limit)} pp",
            Ruling.FIRES: f"below {number(limit)} pp: no better than a constant predictor",
        }.get(ruling, f"which leaves {number(limit)} pp open")
        if found.kind == "one seed":
            says += " (one seed is not enough)"
        agree = k_of_n(found, limit / PP, ruling is Ruling.FIRES)
        return "; ".join([f"{shown}, {says}{agree}", *_nats(cell), *images_text(found)])


def _nats(cell: Cell) -> list[str]:
    """Of text, the loss beside that of who knows how frequent each character is, and nothing else."""
    data = cell.spec.data
    losses = [value for run in cell.runs if (value := TEST_LOSS.last(run)) is not None]
    if data is None or data.unigram is None or not losses:
        return []
    return [f"{fmean(losses):.3f} nats per token, the unigram {data.unigram:.3f}"]
