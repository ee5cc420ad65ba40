"""Write findings.md: each unpublished finding put to the committed runs; words are chosen by what the numbers say."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import make_causes
from finding import Claim, Finding
from page_data import (
    DOCS,
    PUBLISHED_N,
    accuracy,
    each,
    growth,
    known,
    last,
    number,
    page,
    reference,
    results,
    runs,
    span,
    stream,
)

from creditscope.protocol.audit import JudgedCell, audit
from creditscope.protocol.check import Outcome
from creditscope.protocol.evidence import Ruling
from creditscope.records import EpochRow, ProbeRow, RunLog
from creditscope.records.table import markdown

SCRIPT = "make_findings.py"
LAST = -1
LARGEST_FLOAT16 = 65_504


def classic_dfa() -> Finding:
    """Classic DFA against its frozen twin, and normalisation as the accelerator."""
    dfa, rms = runs("dfa", 100), runs("dfa-rms", 100)
    cell, normalised = _cell("published", "dfa", 100), _cell("published", "dfa-rms", 100)
    standard = _cell("standard", "dfa", 100)
    depth = _outcome(standard, "depth")
    rulings = {name: _outcome(cell, name).ruling for name in ("scale", "reference")}
    fired = {name: _outcome(normalised, name).ruling for name in ("scale", "reference")}
    twin, readout = (_opponent(depth, method) for method in ("dfa@frozen", "bp@readout"))
    at_1024 = sum(reference(last(log)) / 1024 < 1e-7 for log in dfa)
    no_ln = runs("dfa-rms", 100, terminal_ln=False)
    pairs = list(zip(dfa, rms, strict=True))
    same = all(a.spec.model_copy(update={"credit_norm": "rms"}).run_id == b.spec.run_id for a, b in pairs)
    more = [stream(last(b)) / stream(last(a)) for a, b in pairs]
    less = [reference(last(a)) / reference(last(b)) for a, b in pairs]
    return Finding(
        "Classic dfa does not collapse this way",
        (
            Claim(
                "At N=128 neither (a) nor (b) fires on dfa, while both fire on dfa-rms.",
                set(rulings.values()) == {Ruling.PASSES} and set(fired.values()) == {Ruling.FIRES},
                f"Growth {each(growth(last(log)) for log in dfa)} against "
                f"{each(growth(last(log)) for log in rms)}; mean-reduced ‖g_L‖ {_mean_reduced(dfa)} against "
                f"{_mean_reduced(rms)}.",
            ),
            Claim(
                "It is slower, not absent: the residual stream of dfa still grows by more than a thousand.",
                all(_fold(log) > 1e3 for log in dfa),
                f"‖h_L‖ at the end over its initial value: {each(_fold(log) for log in dfa)}; for dfa-rms "
                f"{each(_fold(log) for log in rms)}. At N=1024 (b) would fire on {at_1024} of {len(dfa)} seeds.",
            ),
            Claim(
                "dfa learns more than its own frozen twin.",
                twin["interval"][0] > 0,
                f"Accuracy {_accuracies(dfa)} against {_accuracies(runs('dfa@frozen', 100))}: margin {_margin(twin)}.",
            ),
            Claim(
                "It learns more than training the readout alone.",
                readout["interval"][0] > 0,
                f"bp@readout reaches {_accuracies(runs('bp@readout', 100))}: margin {_margin(readout)}. "
                f"Depth at {depth.threshold:g} pp is **{depth.ruling}**; the standard verdict on dfa is "
                f"**{_verdict(standard)}**, the published one, which knows the twin alone, **{_verdict(cell)}**.",
            ),
            Claim(
                "Per-sample normalisation alone speeds the collapse: in runs that differ in nothing else, the final "
                "stream is more than ten times as large and the reference less than a tenth, on every seed.",
                same and min(more) > 10 and min(less) > 10,
                f"Stream × {each(more)}; reference ÷ {each(less)}. First epoch at which ‖h_L‖ passes a thousand times "
                f"its initial value: dfa {_passes(dfa)}; dfa-rms {_passes(rms)}.",
            ),
            Claim(
                "Normalisation is the *main* accelerator: of what the recipe has, taking it away lowers growth most.",
                make_causes.removals()[0][1] == "normalisation",
                "Growth after 30 epochs, times: "
                + ", ".join(f"{factor:.3g} ({name})" for factor, name in make_causes.removals())
                + "; see [what makes dfa-rms collapse](causes.md). At 100 epochs without the terminal LayerNorm "
                f"dfa-rms ends with growth {each(growth(last(log)) for log in no_ln)}.",
            ),
            Claim(
                "Three seeds tell it from the terminal LayerNorm, the next in rank.",
                make_causes.apart().margin.high() < 0,
                f"Growth without the normalisation over growth without the LayerNorm: {make_causes.apart().interval}.",
            ),
        ),
        "The earlier estimate left the margin over the frozen twin undecided (one seed of the twin). "
        + (
            "With three paired seeds it is decided."
            if twin["interval"][0] >= depth.threshold
            else "It is still undecided here."
        ),
    )


def _opponent(depth: Outcome, method: str) -> dict[str, Any]:
    """What the depth check says of one opponent."""
    assert depth.baseline is not None
    (found,) = [opponent for opponent in depth.baseline["opponents"] if opponent["method"] == method]
    return dict(found)


def _margin(opponent: dict[str, Any]) -> str:
    low, high = opponent["interval"]
    return f"{opponent['margin']:+.2f} pp, 95 % interval [{low:.2f}, {high:.2f}]"


def fidelity() -> Finding:
    """Is a gradient of norm 1e-9 numerical noise?"""
    rms = runs("dfa-rms", 100)
    probes = [_probe(log, LAST) for log in rms]
    lost = [1 - phi for probe in probes for phi in known(probe.fidelity.median)]
    shrink = {n: [known(probe.clamp.shrink[n])[-1] for probe in probes] for n in probes[0].clamp.shrink}
    clamped = [(last(log).gamma.clamped, last(log).gamma.published) for log in rms]
    per_element = [stream(last(log)) / math.sqrt(log.spec.width) for log in rms]
    return Finding(
        "A reference gradient of norm 1e-9 is not numerical noise",
        (
            Claim(
                "In float32 it points where the float64 gradient points, at every state and seed.",
                max(lost) < 1e-10,
                f"1 − cos(g in float32, g in float64) is at most {max(lost):.1e}, at mean-reduced ‖g_L‖ "
                f"{_mean_reduced(rms)}.",
            ),
            Claim(
                "What breaks is a cosine clamped at 1e-8.",
                min(shrink["128"]) > 1,
                "Factor by which the clamp shrinks the cosine of the median sample at state L: "
                + "; ".join(f"N={n}: {each(values)}" for n, values in shrink.items())
                + f". The clamped Γ of these runs is {each(a for a, _ in clamped)}, the unclamped one in the same "
                f"index {each(b for _, b in clamped)}.",
            ),
            Claim(
                "float16 would overflow in the forward pass.",
                min(per_element) > LARGEST_FLOAT16,
                f"By arithmetic, not by a run: ‖h_L‖/√d is {each(per_element)}; float16 ends at {LARGEST_FLOAT16}.",
            ),
            Claim("bfloat16 keeps the cosine.", None, "No committed run was measured in bfloat16."),
        ),
    )


def baseline() -> Finding:
    """Does the choice of frozen baseline decide (d)?"""
    claims = []
    for epochs in (100, 30):
        shallow = runs("bp@frozen", epochs)
        dfa = [log for log in results().logs if _is_dfa(log, epochs)]
        best = max(dfa, key=accuracy)
        claims.append(
            Claim(
                f"At {epochs} epochs bp@frozen is above every DFA run.",
                min(accuracy(log) for log in shallow) > accuracy(best),
                f"bp@frozen {_accuracies(shallow)}; the best of {len(dfa)} DFA runs is {best.spec.method}, seed "
                f"{best.spec.seed}, with {number(accuracy(best))}.",
            )
        )
    twins = runs("dfa-rms@frozen", 100)
    branches = [value for log in twins for value in known(last(log).branch)]
    claims.append(
        Claim(
            "dfa-rms@frozen is effectively linear: its blocks add less than 1 % to the stream.",
            max(branches) < 0.01,
            f"‖f‖/‖h‖ over blocks and seeds: {span(branches)}.",
        )
    )
    against = [(log.spec.method, log.spec.epochs) for log in results().logs if _is_dfa(log, 100) or _is_dfa(log, 30)]
    lines = []
    for method, epochs in dict.fromkeys(against):
        ours = fmean(accuracy(log) for log in runs(method, epochs))
        own = _cell("published", method, epochs)
        shallow_mean = fmean(accuracy(log) for log in runs("bp@frozen", epochs))
        lines.append(
            f"| {markdown(method)} | {epochs} | {number(ours)} | {_outcome(own, 'depth').evidence.value:+.2f} pp, "
            f"{_outcome(own, 'depth').ruling} | {100 * (ours - shallow_mean):+.2f} pp, "
            f"{'would fire' if 100 * (ours - shallow_mean) < _outcome(own, 'depth').threshold else 'would pass'} |"
        )
    head = (
        "| method | epochs | accuracy | against its own twin | against bp@frozen |\n| --- | --- | --- | --- | --- |\n"
    )
    return Finding("The baseline decides (d)", tuple(claims), head + "\n".join(lines))


def index_decides(epoch: int = 10) -> Finding:
    """The cosine where the credit acts against the published index."""
    rms = runs("dfa-rms", 100)
    rows, probes = [_row(log, epoch) for log in rms], [_probe(log, epoch) for log in rms]
    acting = [known(row.cosine.mean) for row in rows]
    published = [known(row.cosine_published.mean) for row in rows]
    deep_p = [min(known(probe.null.p)[2:]) for probe in probes]
    sds = [value for probe in probes for value in known(probe.null.sd)[2:]]
    first_p = [known(probe.null.p)[1] for probe in probes]
    redraws = probes[0].null.redraws
    return Finding(
        "The index decides the deep cosine",
        (
            Claim(
                f"At epoch {epoch} of dfa-rms, block 0's credit is aligned where it acts, and beyond its fresh-B null.",
                min(values[1] for values in acting) > 0.3 and max(first_p) < 0.01,
                f"Cosine at state 1: {each(values[1] for values in acting)}; p {each(first_p)} over {redraws} "
                f"redraws. The published index shows {each(values[1] for values in published)} at l=1, because there "
                "it pairs the next block's credit with this gradient.",
            ),
            Claim(
                f"At epoch {epoch} blocks 1–3 do not rise above their fresh-B null.",
                min(deep_p) >= 0.01,
                "Cosines at states 2, 3, 4: "
                + "; ".join(
                    f"seed {log.spec.seed}: {each(values[2:])}" for log, values in zip(rms, acting, strict=True)
                )
                + f". Smallest p per seed {each(deep_p)}; null sd {span(sds)}. "
                + _below_null(rms, acting, probes),
            ),
            Claim(
                "The published layer-0 value is the embedding's: l=0 of the published index is the cosine at state 0.",
                all(abs(a[0] - p[0]) < 1e-12 for a, p in zip(acting, published, strict=True)),
                f"{each(values[0] for values in published)} in both indices.",
            ),
            Claim(
                "With a separate B for the embedding the layer-0 value falls to 0.",
                max(map(abs, make_causes.layer_zero()[1])) < min(make_causes.layer_zero()[0]) / 4,
                f"After 30 epochs, block 0's matrix for both: {each(make_causes.layer_zero()[0])}; one of its own: "
                f"{each(make_causes.layer_zero()[1])}.",
            ),
        ),
    )


def embedding_grows() -> Finding:
    """Where the stream of a penalised run comes from."""
    claims = []
    for method in ("dfa-rms+pen0.01", "dfa-rms+pen0.1"):
        logs = runs(method, 30)
        shares = [stream(last(log), 0) / stream(last(log)) for log in logs]
        rises = [stream(last(log), 0) / stream(log.epochs[0], 0) for log in logs]
        growths = [growth(last(log)) for log in logs]
        claims.append(
            Claim(
                f"Under {method} the whole of the final stream is h_0.",
                min(shares) > 0.95 and max(growths) < 1.05 and min(rises) > 100,
                f"‖h_L‖ {each(stream(last(log)) for log in logs)}, of which ‖h_0‖ "
                f"{each(stream(last(log), 0) for log in logs)}; growth {each(growths)}; ‖h_0‖ rose "
                f"{each(rises)}-fold from its initial value.",
            )
        )
    return Finding(
        "The embedding grows too",
        tuple(claims),
        "Taking the initial h_0 for the present one would read this as growth across blocks: see the partial audits of "
        "the [concepts](concepts.md).",
    )


def block_feedback() -> Finding:
    """What carries the Γ of fa-block, and what its blocks add."""
    logs = runs("fa-block", 100)
    published = [known(last(log).cosine_published.mean)[:LAST] for log in logs]
    shares = [values[LAST] / sum(values) for values in published]
    others = [value for log in logs for value in known(last(log).cosine.mean)[:LAST]]
    smallest_p = [p for log in logs for p in _probe(log, LAST).null.p if p is not None]
    gains = [[100 * (b - a) for a, b in pairwise(known(_probe(log, LAST).probe_accuracy))] for log in logs]
    means = [fmean(column) for column in zip(*gains, strict=True)]
    return Finding(
        "fa-block's Γ is mostly its last block",
        (
            Claim(
                "In the published index the last block carries more than half of Γ.",
                min(shares) > 0.5,
                f"Share per seed: {', '.join(f'{share:.0%}' for share in shares)}; where it acts it is exact by "
                "construction.",
            ),
            Claim(
                "The other blocks and the embedding have real alignment.",
                max(smallest_p) < 0.01 and min(others) > 0,
                f"Cosines where the credit acts, states 0 to L−1: {span(others)}; every p ≤ {number(max(smallest_p))}.",
            ),
            Claim(
                "Linear probes gain only across the last block.",
                means[LAST] > 0 and max(means[:LAST]) <= 0,
                "Gain in probe accuracy across blocks 0 to L−1, mean over seeds: "
                + ", ".join(f"{gain:+.2f}" for gain in means)
                + " pp; per seed "
                + "; ".join(", ".join(f"{gain:+.2f}" for gain in seed) for seed in gains)
                + ".",
            ),
        ),
    )


FINDINGS: tuple[Callable[[], Finding], ...] = (
    *(classic_dfa, fidelity, baseline),
    *(index_decides, embedding_grows, block_feedback),
)


def build() -> str:
    """The whole page."""
    found = [make() for make in FINDINGS]
    summary = "\n".join(f"| {i} | {finding.title} | {finding.word} |" for i, finding in enumerate(found, 1))
    parts = [
        "# Findings",
        "Six unpublished findings from rebuilding the published experiment, each put to "
        "the runs in `results/cifar10-h200`. Every number and every word *shown*, *refuted*, *partly* or *not "
        "measured* is computed by `docs/make_findings.py`; a finding is *partly* shown when its parts do not all agree "
        f"or one was not measured. Three seeds each ({', '.join(str(log.spec.seed) for log in runs('dfa', 100))}, in "
        "this order), one data set, one architecture: read them as such.",
        f"| | finding | in these runs |\n| --- | --- | --- |\n{summary}",
        *(finding.text(i) for i, finding in enumerate(found, 1)),
    ]
    return page(SCRIPT, "\n\n".join(parts))


def _cell(protocol: str, method: str, epochs: int) -> JudgedCell:
    wanted = {log.name for log in runs(method, epochs)}
    return next(cell for cell in audit(results(), protocol).claims if {run.name for run in cell.cell.runs} == wanted)


def _outcome(cell: JudgedCell, name: str) -> Outcome:
    return next(outcome for outcome in cell.outcomes if outcome.name == name)


def _verdict(cell: JudgedCell) -> str:
    assert cell.verdict is not None
    return str(cell.verdict.kind)


def _is_dfa(log: RunLog, epochs: int) -> bool:
    spec = log.spec
    plain = spec.model == "resmlp" and spec.terminal_ln is True and spec.targets == "labels"
    return plain and spec.rule == "dfa" and not spec.is_baseline and spec.epochs == epochs


def _below_null(logs: Sequence[RunLog], acting: Sequence[Sequence[float]], probes: Sequence[ProbeRow]) -> str:
    """Cosines well below their null: not aligned, but not noise either."""
    found = [
        f"seed {log.spec.seed}, state {state} ({values[state] / probe.null.sd[state]:+.1f} sd)"
        for log, values, probe in zip(logs, acting, probes, strict=True)
        for state in range(2, len(values))
        if values[state] < -3 * probe.null.sd[state]
    ]
    return f"More than 3 sd below it: {'; '.join(found)}." if found else "None lies more than 3 sd below it."


def _passes(logs: Sequence[RunLog], factor: float = 1e3) -> str:
    """First epoch of each run at which the stream passes a multiple of its initial norm."""
    found = []
    for log in logs:
        start = stream(log.epochs[0])
        found.append(next((str(row.epoch) for row in log.epochs if stream(row) > factor * start), "never"))
    return ", ".join(found)


def _mean_reduced(logs: Sequence[RunLog]) -> str:
    return each(reference(last(log)) / PUBLISHED_N for log in logs)


def _accuracies(logs: Sequence[RunLog]) -> str:
    return each(accuracy(log) for log in logs)


def _row(log: RunLog, epoch: int) -> EpochRow:
    return next(row for row in log.epochs if row.epoch == epoch)


def _probe(log: RunLog, epoch: int) -> ProbeRow:
    return log.probes[LAST] if epoch == LAST else next(row for row in log.probes if row.epoch == epoch)


def _fold(log: RunLog) -> float:
    return stream(last(log)) / stream(log.epochs[0])


if __name__ == "__main__":
    (DOCS / "findings.md").write_text(build(), encoding="utf-8")
