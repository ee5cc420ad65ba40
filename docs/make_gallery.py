"""Write gallery.md: every figure, and for each panel what was published and whether the shape is the same here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev
from typing import Any

import yaml
from make_figures import chosen
from make_reproduction import NEAR, published
from page_data import DOCS, accuracy, each, growth, known, last, number, page, references, runs, span, stream

from creditscope.protocol.audit import audit
from creditscope.protocol.evidence import Ruling
from creditscope.protocol.present import verdict_table
from creditscope.records import RunLog
from creditscope.records.table import Table
from creditscope.studies.partial import partial_audit

SCRIPT = "make_gallery.py"
PENALTIES = ("0.0001", "0.001", "0.01", "0.1")
SWEPT = ("dfa-rms", *(f"dfa-rms+pen{value}" for value in PENALTIES))


@dataclass(frozen=True)
class Panel:
    """One panel and its published counterpart.

    Args:
        name: Its letter.
        published: What the published panel shows.
        here: What ours shows.
        same: Whether the shape is the same; None when nothing was published to compare with.
        why: Where it is not, why.
    """

    name: str
    published: str
    here: str
    same: bool | None
    why: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of the table."""
        return self.name, self.published, self.here, {True: "yes", None: "–", False: f"no: {self.why}"}[self.same]


def _cost(
    plain: tuple[str, str], penalised: tuple[str, str], bp: Sequence[RunLog], bp_pen: Sequence[RunLog]
) -> tuple[float, float]:
    """The published cost of a penalty, and how far ours lies from it, in combined standard errors."""
    theirs = [known_row for name in (plain, penalised) if (known_row := published({"published": quote(*name)}))]
    (before, before_error), (after, after_error) = theirs
    errors = [stdev(map(accuracy, logs)) / math.sqrt(len(logs)) for logs in (bp, bp_pen)]
    ours = fmean(map(accuracy, bp)) - fmean(map(accuracy, bp_pen))
    return before - after, abs(ours - (before - after)) / math.hypot(before_error, after_error, *errors)


@cache
def _rows() -> list[dict[str, Any]]:
    asked = yaml.safe_load((DOCS / "published.yaml").read_text(encoding="utf-8"))
    return [*asked["judged"], *asked["not_matched"]]


def quote(condition: str, quantity: str, **args: int) -> str:
    """The published value of a row, from the one file that holds them."""
    (row,) = [
        row
        for row in _rows()
        if (row["condition"], row["quantity"], row.get("args", {})) == (condition, quantity, args)
    ]
    return str(row["published"])


def hero() -> list[Panel]:
    """The standard pair against what lies beneath."""
    bp, fa, rms = (runs(method, 100) for method in ("bp", "fa-block", "dfa-rms"))
    dfa_l, fa_l = _cosines(rms), _cosines(fa)
    g_bp, g_rms = _references(bp), _references(rms)
    fa_cosines = ", ".join(quote("fa-block, 100 ep", "cosine", state=state) for state in range(4))
    return [
        Panel(
            "(A)",
            f"accuracy above chance and Γ > 0 for all: bp {quote('bp, 100 ep', 'accuracy')}, FA "
            f"{quote('fa-block, 100 ep', 'accuracy')}, DFA {quote('dfa-rms, 100 ep', 'accuracy')}",
            f"bp {_mean(bp)}, fa-block {_mean(fa)}, dfa-rms {_mean(rms)}; Γ "
            f"{each(_gamma(logs) for logs in (bp, fa, rms))}",
            all(_gamma(logs) > 0 and fmean(map(accuracy, logs)) > 0.1 for logs in (bp, fa, rms)),
        ),
        Panel(
            "(B) DFA",
            f"{quote('dfa-rms, 100 ep', 'cosine', state=0)} at l=0, "
            f"{quote('dfa-rms, 100 ep', 'largest_deep_cosine')} deeper",
            f"{each(dfa_l)}",
            dfa_l[0] > 0.3 and max(map(abs, dfa_l[1:])) < 0.08,
        ),
        Panel(
            "(B) FA",
            fa_cosines,
            f"{each(fa_l)}",
            fa_l[-1] > 0.9 and max(map(abs, fa_l[:-1])) < 0.1,
            "the last block stands out, but the others are aligned too; how the published FA was made is not known",
        ),
        Panel(
            "(C)",
            f"DFA collapses to ‖g_L‖ {quote('dfa-rms, 100 ep', 'gradient')} (mean, N=128); BP does not",
            f"per sample: dfa-rms {number(g_rms[-1])}, bp {number(g_bp[-1])}; a factor {number(g_bp[-1] / g_rms[-1])}",
            g_bp[-1] / g_rms[-1] > 1e4,
        ),
    ]


def penalty_rescue() -> list[Panel]:
    """Does keeping the stream small rescue learning?"""
    bp, bp_pen, rms, pen = (runs(method, 30) for method in ("bp", "bp+pen0.01", "dfa-rms", "dfa-rms+pen0.01"))
    frozen = runs("dfa-rms@frozen", 30)
    cost, gap = _points(bp, bp_pen), _points(bp_pen, pen)
    plain, penalised = ("bp, 30 ep", "accuracy"), ("bp+pen0.01 (global loss), 30 ep", "accuracy")
    published_cost, apart = _cost(plain, penalised, bp, bp_pen)
    deep = [fmean(known(last(log).cosine.mean)[2:]) for log in pen]
    rho = [fmean(known(log.probes[-1].rho.credit)[2:]) for log in pen]
    return [
        Panel(
            "(a)",
            "vanilla explodes, the penalty keeps the stream small (no number given)",
            f"‖h_L‖ {number(fmean(stream(last(log)) for log in rms))} against "
            f"{number(fmean(stream(last(log)) for log in pen))}",
            min(stream(last(log)) for log in rms) > 100 * max(stream(last(log)) for log in pen),
        ),
        Panel(
            "(b)",
            f"deep cosine {quote('dfa-rms+pen0.01, 30 ep', 'deep_cosine')} (published index), deep ρ "
            f"{quote('dfa-rms+pen0.01, 30 ep', 'deep_rho')}, null {quote('dfa-rms+pen0.01, 30 ep', 'null_mean')} ± "
            f"{quote('dfa-rms+pen0.01, 30 ep', 'null_sd')}",
            f"where the credit acts: cosine {number(fmean(deep))}, ρ {number(fmean(rho))}",
            min(deep) > 0.06 and min(rho) > 0.03,
        ),
        Panel(
            "(c)",
            f"bp {quote(*plain)}, with penalty {quote(*penalised)}: a cost of {100 * published_cost:.1f} pp; DFA "
            f"{quote('dfa-rms, 30 ep', 'accuracy')}, with penalty {quote('dfa-rms+pen0.01, 30 ep', 'accuracy')}",
            f"bp {_mean(bp)} and {_mean(bp_pen)} (cost {cost:.1f} pp), dfa-rms {_mean(rms)} and {_mean(pen)} (gap "
            f"{gap:.1f} pp), frozen {_mean(frozen)}",
            cost > 0 and gap > 10 and apart <= NEAR,
            f"the order is the same, but the penalty costs bp {cost:.1f} pp here and {100 * published_cost:.1f} pp "
            f"there, {apart:.1f} combined standard errors apart",
        ),
    ]


def penalty_sweep() -> list[Panel]:
    """Trajectories under λ."""
    swept = {value: runs(f"dfa-rms+pen{value}", 30) for value in PENALTIES}
    frozen = fmean(accuracy(log) for log in runs("dfa-rms@frozen", 30))
    shallow = fmean(accuracy(log) for log in runs("bp@frozen", 30))
    above = [value for value, logs in swept.items() if fmean(map(accuracy, logs)) >= frozen + 0.02]
    grown = max(growth(last(log)) for logs in swept.values() for log in logs)
    peak = max(growth(row) for logs in swept.values() for log in logs for row in log.epochs)
    held = [stream(last(log)) for logs in swept.values() for log in logs]
    return [
        Panel(
            "(a), (b)",
            "every λ keeps the stream small (no number given)",
            f"‖h_L‖ at the last epoch {span(held)}; growth there at most {number(grown)}, over the whole trajectory at "
            f"most {number(peak)}",
            max(held) < 1e6,
        ),
        Panel(
            "(c)",
            f"λ=0.01 {quote('dfa-rms+pen0.01, 30 ep', 'accuracy')}, λ=0.1 "
            f"{quote('dfa-rms+pen0.1, 30 ep', 'accuracy')}: neither clears the frozen baseline, "
            f"{quote('dfa-rms@frozen, 100 ep', 'accuracy')}, by 2 pp",
            f"{', '.join(f'λ={value} {_mean(logs)}' for value, logs in swept.items())}; baseline + 2 pp is "
            f"{number(frozen + 0.02)}, from our own frozen runs",
            not {"0.01", "0.1"} & set(above),
        ),
        Panel(
            "(c), weaker λ",
            "not published",
            f"above the line: {', '.join(f'λ={value}' for value in above) or 'none'}; above bp@frozen "
            f"({number(shallow)}): "
            f"{', '.join(f'λ={v}' for v, logs in swept.items() if fmean(map(accuracy, logs)) > shallow) or 'none'}",
            None,
        ),
    ]


def snapshot_resmlp() -> list[Panel]:
    """The stream over training, with and without a terminal LayerNorm."""
    rms, bare = runs("dfa-rms", 100), runs("dfa-rms", 100, terminal_ln=False)
    fired = [any(growth(row) > 50 for row in log.epochs) for log in bare]
    (row,) = [r for r in _rows() if r["condition"].startswith("no terminal") and r["quantity"] == "stream"]
    factor, rebuilt = float(row["published"]) / fmean(stream(last(log)) for log in bare), row["rebuilt"]
    condition = "no terminal LN, dfa-rms, 100 ep"
    return [
        Panel(
            "(a), (b)",
            f"‖h_L‖ rises to {quote('dfa-rms, 100 ep', 'stream')}, ‖g_L‖ falls",
            f"‖h_L‖ {each(stream(last(log)) for log in rms)}",
            min(stream(last(log)) for log in rms) > 1e8,
        ),
        Panel(
            "(c), (d)",
            f"‖h_L‖ {quote(condition, 'stream')}, (a) fires at epoch {quote(condition, 'first_scale')}",
            f"‖h_L‖ {each(stream(last(log)) for log in bare)}; (a) fires on {sum(fired)} of {len(bare)} seeds",
            all(fired),
            f"it grows, but {factor:.0f} times less; the rebuild by other code found {rebuilt}, as we do",
        ),
    ]


def snapshot_vit() -> list[Panel]:
    """The class token of ViT-Mini."""
    rms, bp, twin, shallow = (
        runs(method, 30, model="vit-mini") for method in ("dfa-rms", "bp", "dfa-rms@frozen", "bp@frozen")
    )
    return [
        Panel(
            "(a), (b)",
            "DFA explodes and its reference collapses (no number given); accuracy "
            f"{quote('ViT-Mini, dfa-rms', 'accuracy')}",
            f"‖h_L‖ {each(stream(last(log)) for log in rms)} against {each(stream(last(log)) for log in bp)} for bp; "
            f"accuracy {each(map(accuracy, rms))} after epoch {span(last(log).epoch for log in rms)}",
            min(stream(last(log)) for log in rms) > 1e4 * max(stream(last(log)) for log in bp),
        ),
        Panel(
            "frozen twins, not drawn",
            "not published",
            f"dfa-rms {_mean(rms)} against {_mean(twin)} with frozen blocks ({_points(rms, twin):+.1f} pp), bp "
            f"{_mean(bp)} against {_mean(shallow)} ({_points(bp, shallow):+.1f} pp)",
            None,
        ),
    ]


def partial() -> list[str]:
    """The fifth artefact: the same penalty runs, with only what the published penalty logs hold."""
    logs = [log for method in (*SWEPT, "dfa-rms@frozen") for log in runs(method, 30)]
    reduced, whole = partial_audit(logs), audit(logs, "published")
    full = {(cell.cell.method, outcome.name): outcome for cell in whole.claims for outcome in cell.outcomes}
    both = [(o, full[cell.cell.method, o.name]) for cell in reduced.claims for o in cell.outcomes]
    required = [(mine, theirs) for mine, theirs in both if mine.name in ("scale", "reference", "depth")]
    decided = [(mine, theirs) for mine, theirs in required if mine.ruling in (Ruling.PASSES, Ruling.FIRES)]
    agree = sum(mine.ruling is theirs.ruling for mine, theirs in decided)
    pen = runs("dfa-rms+pen0.01", 30)
    naive = [(stream(last(log)) / stream(log.epochs[0])) ** (1 / (log.spec.depth or 1)) for log in pen]
    return [
        "## Partial audit: a verdict from an incomplete log",
        "The penalty runs once more, reduced to what the published penalty logs hold: ‖h_L‖, ‖g_2‖ and accuracy, and "
        "one bare number for the frozen baseline. `creditscope reproduce` writes it as text, Markdown and JSON.",
        verdict_table(reduced).to_markdown(),
        f"Of {len(required)} outcomes {len(decided)} are decided, and {agree} of these agree with the whole logs. "
        "Scale stays open where h_0 is not logged. An earlier script took the initial ‖h_L‖ for today's ‖h_0‖; on "
        f"dfa-rms+pen0.01 that reads as {each(naive)}-fold growth a block, where the whole logs show "
        f"{each(growth(last(log)) for log in pen)}: what grew is the embedding.",
    ]


SECTIONS = {
    "hero": ("Hero: the standard pair against what lies beneath", hero),
    "penalty-rescue": ("Penalty rescue: does keeping the stream small rescue learning?", penalty_rescue),
    "penalty-sweep": ("Penalty sweep: trajectories under λ", penalty_sweep),
    "snapshot-resmlp": ("Snapshot: ResMLP", snapshot_resmlp),
    "snapshot-vit": ("Snapshot: ViT-Mini", snapshot_vit),
}


def build() -> str:
    """The whole page."""
    parts = [
        "# Gallery",
        "Drawn by `python docs/make_figures.py` from `results/cifar10-h200` alone; each picture has a PDF, an "
        "SVG and a CSV with every point and the logs behind it. Next to each is what the published panel shows, as "
        "far as its authors' numbers tell (`docs/published.yaml`), and whether ours has the same shape: computed, too. "
        "The published images are not copied here.",
    ]
    for stem, (title, panels) in SECTIONS.items():
        artefact, logs = chosen()[stem]
        table = Table(("panel", "published", "here", "same shape"), tuple(panel.cells for panel in panels()))
        parts += [
            f"## {title}",
            f"```{{image}} figures/{stem}.png\n:alt: {artefact} drawn from {len(logs)} logs\n```",
            f"{{download}}`PDF <figures/{stem}.pdf>` · {{download}}`SVG <figures/{stem}.svg>` · "
            f"{{download}}`data <figures/{stem}.csv>`",
            table.to_markdown(),
        ]
        if stem == "hero":
            parts += [
                "The same with every cosine where the credit acts (`--index acts`). At state 1, where block 0's credit "
                f"acts, dfa-rms has {each(known(last(log).cosine.mean)[1] for log in runs('dfa-rms', 100))}.",
                "```{image} figures/hero-acts.png\n:alt: hero with cosines where the credit acts\n```",
            ]
    return page(SCRIPT, "\n\n".join([*parts, *partial()]))


def _cosines(logs: Sequence[RunLog]) -> list[float]:
    """Mean over seeds at l = 0..L−1 of the published index."""
    return [
        fmean(column) for column in zip(*(known(last(log).cosine_published.mean)[:-1] for log in logs), strict=True)
    ]


def _references(logs: Sequence[RunLog]) -> list[float]:
    return [fmean(column) for column in zip(*(references(last(log)) for log in logs), strict=True)]


def _gamma(logs: Sequence[RunLog]) -> float:
    return fmean(known([last(log).gamma.published for log in logs]))


def _mean(logs: Sequence[RunLog]) -> str:
    return number(fmean(map(accuracy, logs)))


def _points(a: Sequence[RunLog], b: Sequence[RunLog]) -> float:
    return 100 * (fmean(map(accuracy, a)) - fmean(map(accuracy, b)))


if __name__ == "__main__":
    (DOCS / "gallery.md").write_text(build(), encoding="utf-8")
