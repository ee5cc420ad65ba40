"""Write survival.md and survival.csv: which rule survives an audit, on which model, from the logs of the zoo.

    python docs/make_survival.py [benchmarks/results/zoo-cost-h200.json]

The file is what ``benchmarks/zoo_cost.py`` wrote; without it costs read "not measured".
"""

import csv
import io
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from creditscope.figures import write_figure
from creditscope.plans.zoo import ZOO
from creditscope.protocol.audit import audit
from creditscope.protocol.checks.depth import Depth
from creditscope.protocol.opponents import fixed_feedback
from creditscope.protocol.survival import Contest, Survivor, survival
from creditscope.records import RunLog
from creditscope.records.load import load_logs
from creditscope.records.method import parse_method
from creditscope.records.table import Table

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "zoo-h200"
SCRIPT = "make_survival.py"
MISSING = "not measured"
EXACT = "exact"
# By model and data ("resmlp on cifar10") and method: seconds a run-step and bytes a run.
Costs = Mapping[str, Mapping[str, Mapping[str, float]]]

INTRO = """\
<!-- Written by `python docs/{script}` from the logs of the zoo. Change the script, not this page. -->

# Which rule survives an audit?

Every rule on every model that it can train, `creditscope reproduce zoo`. Each method, twins included, has the best of
three learning rates, chosen alike: one seed, on the last training samples, which no other run saw as a test; every log
states what was tried. The margin is accuracy less that of the strongest opponent (the own frozen twin, or the readout
alone), over seeds and test samples, 95 % interval. Share is that margin as a part of backprop's own.

Rows stand in **tiers**: a tier ends where the paired interval of the difference to its best method lies wholly above 0.
Inside a tier nothing is told apart, and the order means nothing. Where backprop's own gain over its frozen twin does
not clear {limit:g} pp, the task cannot tell, and no row has a tier or a share.

Cost is the time of a step against backprop's, memory the bytes of a run against backprop's, each rule alone on the
device (`benchmarks/zoo_cost.py`). The cosine is that of the credit in the deep states, or of the updates in the deep
blocks for rules that deliver no credit; *exact* is the true gradient by construction.

![What every claim gains over its strongest opponent](figures/survival.png)
"""


def entries(contests: Sequence[Contest], costs: Costs) -> list[dict[str, Any]]:
    """One row a claim: numbers as they are, None where there is none."""
    found = []
    for contest in contests:
        for row in contest.survivors:
            margin = None if row.opponent is None else row.opponent.margin
            known = margin is not None and not math.isinf(margin.half())
            found.append(
                {
                    "task": contest.name,
                    "task tells": contest.tells,
                    "tier": row.tier,
                    "method": row.cell.method,
                    "seeds": len(row.cell.runs),
                    "verdict": row.verdict,
                    "fires": ", ".join(row.fired),
                    "margin pp": None if margin is None else 100 * margin.mean,
                    "low": 100 * margin.low() if margin is not None and known else None,
                    "high": 100 * margin.high() if margin is not None and known else None,
                    "over": None if row.opponent is None else row.opponent.method,
                    "share": row.share,
                    "cosine": row.cosine,
                    "cosine of": EXACT if row.exact else "updates" if row.of_updates else "credit",
                    "cost": _relative(costs, row, "seconds"),
                    "memory": _relative(costs, row, "bytes"),
                    "locality leak": row.leaks,
                }
            )
    return found


def _relative(costs: Costs, row: Survivor, what: str) -> float | None:
    """What a step takes against backprop's on the same model."""
    spec = row.cell.spec
    known = costs.get(f"{spec.model} on {spec.data.name if spec.data is not None else ''}", {})
    own, bp = (known.get(method, {}).get(what) for method in (row.cell.method, "bp"))
    return own / bp if own is not None and bp else None


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Every number in full, an empty cell where there is none."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return out.getvalue()


def build(contests: Sequence[Contest], costs: Costs) -> str:
    """The page."""
    parts = [INTRO.format(script=SCRIPT, limit=Depth.threshold).strip()]
    rows = entries(contests, costs)
    for contest in contests:
        mine = [row for row in rows if row["task"] == contest.name]
        parts += [f"## {contest.name}", _control(contest), _table(mine).to_markdown().strip(), *_leaks(mine)]
    return "\n\n".join([*parts, *_learned(contests), *_bridges(rows), *_missing(contests)]) + "\n"


def _learned(contests: Sequence[Contest]) -> list[str]:
    """Of rules whose state learns: what that gains over the same rule with its state at its start."""
    rows = []
    for contest in contests:
        for row in contest.survivors:
            control = fixed_feedback(row.cell) if row.cell.spec.fixed_feedback is None else None
            if control is None:
                continue
            found = control.margin
            low, high = 100 * found.low(), 100 * found.high()
            word = "helps" if low > 0 else "hurts" if high < 0 else "open"
            rows.append((contest.name, row.cell.method, f"{100 * found.mean:+.2f} [{low:.2f}, {high:.2f}]", word))
    if not rows:
        return []
    columns = ("task", "method", "margin over @fixed-feedback (pp)", "learning it")
    about = "A rule that learns its feedback, its decoders or its inverses must show that this helps."
    return ["## Does what learns help?", about, Table(columns, tuple(rows)).to_markdown().strip()]


def _bridges(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """State Bridge against Credit Bridge under the penalty, beside what was reported of them."""
    names = ("state-bridge+pen0.01", "credit-bridge+pen0.01")
    pairs = [[row for row in rows if row["method"] == name and row["cosine"] is not None] for name in names]
    if not all(pairs):
        return []
    (state, *_), (credit, *_) = pairs
    agrees = (state["cosine"] < credit["cosine"]) and (state["margin pp"] > credit["margin pp"])
    said = [f"{row['method']} {row['cosine']:+.2f} and {row['margin pp']:+.2f} pp" for row in (state, credit)]
    word = "is repeated" if agrees else "is not repeated"
    return [
        "## State Bridge against Credit Bridge",
        f"Reported was a higher cosine with less use for Credit Bridge (+.68 at .360 against +.32 at .453). Here that "
        f"{word}: deep cosine and margin over the strongest opponent are {said[0]}, {said[1]}. Details of both rules "
        "are unpublished; ours are on their [cards](rules.md).",
    ]


def _missing(contests: Sequence[Contest]) -> list[str]:
    """What of the zoo has not been trained yet."""
    lines = []
    for part in ZOO.values():
        model = part.fields.get("model", "resmlp")
        there = {row.cell.spec.rule for each in contests for row in each.survivors if row.cell.spec.model == model}
        rest = [name for name in part.named() if parse_method(name).rule not in there]
        if not there:
            lines.append(f"- {part.name} on {part.data}: nothing yet")
        elif rest:
            lines.append(f"- {part.name} on {part.data}: {', '.join(rest)}")
    return ["## Not trained yet", "\n".join(lines)] if lines else []


def _control(contest: Contest) -> str:
    found = contest.control
    if found is None:
        return "**This task cannot tell**: backprop or its frozen twin is not among the logs."
    ends = "" if math.isinf(found.half()) else f" [{100 * found.low():.2f}, {100 * found.high():.2f}]"
    gain = f"backprop gains {100 * found.mean:+.2f}{ends} pp over its frozen twin"
    return f"This task tells: {gain}." if contest.tells else f"**This task cannot tell**: {gain}."


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("tier", "method", "verdict", "margin (pp)", "over", "share", "deep cosine", "cost", "memory")
    return Table(columns, tuple(_line(row) for row in rows))


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    margin = "not compared" if row["margin pp"] is None else f"{row['margin pp']:+.2f}"
    if row["low"] is not None:
        margin += f" [{row['low']:.2f}, {row['high']:.2f}]"
    verdict = row["verdict"] + (f": {row['fires']}" if row["fires"] else "")
    cosine = MISSING if row["cosine"] is None else f"{row['cosine']:+.3f}"
    cosine = EXACT if row["cosine of"] == EXACT else cosine
    return (
        str(row["tier"] or "–"),
        f"{row['method']}{' †' if row['locality leak'] else ''}",
        verdict,
        margin,
        row["over"] or "–",
        "–" if row["share"] is None else f"{100 * row['share']:.0f} %",
        cosine + (" (updates)" if row["cosine of"] == "updates" and row["cosine"] is not None else ""),
        *(MISSING if row[what] is None else f"{row[what]:.2f}×" for what in ("cost", "memory")),
    )


def _leaks(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    named = [row["method"] for row in rows if row["locality leak"]]
    return [f"† A locality leak: blocks of {', '.join(named)} move when later weights do."] if named else []


def write(logs: Sequence[RunLog], costs: Costs, out: Path) -> None:
    """The page, its CSV and its figure."""
    contests = survival(audit(logs))
    (out / "figures").mkdir(exist_ok=True)
    (out / "survival.md").write_text(build(contests, costs), encoding="utf-8")
    (out / "survival.csv").write_text(to_csv(entries(contests, costs)), encoding="utf-8")
    for suffix in (".png", ".svg", ".pdf"):
        write_figure("survival", logs, out / f"figures/survival{suffix}")


if __name__ == "__main__":
    cost = [Path(name) for name in sys.argv[1:]]
    known = json.loads(cost[0].read_text(encoding="utf-8"))["costs"] if cost else {}
    write(load_logs(RESULTS).logs, known, HERE)
