"""The reporting form and the per-layer table of a judged cell, ready for an appendix, as Markdown or LaTeX."""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from creditscope.protocol.audit import Audit, JudgedCell
from creditscope.protocol.check import Outcome
from creditscope.protocol.checks.block_credit import last_probe
from creditscope.protocol.present import Section, caption, decisions_table, heading, render, verdict_table, words
from creditscope.protocol.text import counted, listed, number
from creditscope.quantities.expensive import NUDGE_CHANGE, NULL_P, PHI, PROBE_ACCURACY, RHO
from creditscope.quantities.per_epoch import (
    COSINE,
    GAIN,
    GAMMA_ACTING,
    GAMMA_CLAMPED,
    GAMMA_DEEP,
    GAMMA_PUBLISHED,
    GAMMA_WORST,
    HIDDEN,
    PUBLISHED,
    REFERENCE,
)
from creditscope.quantities.quantity import EpochQuantity
from creditscope.records.measured import Numbers
from creditscope.records.method import option_text
from creditscope.records.table import Table, latex, markdown
from creditscope.report.labels import Names, name_cells
from creditscope.report.recipe import NOT_STATED, entry
from creditscope.report.sections import check_sections


def reporting_form(cell: JudgedCell, audit: Audit) -> Table:
    """What a paper should state about a method, filled from its logs; what they do not say is named as such.

    Args:
        cell: The method.
        audit: Under which protocol it was judged.
    """
    spec, runs = cell.cell.spec, cell.cell.runs
    card, exact = runs[0].header.card, all(cell.cell.members[0][1].exact)
    normalisation = {"rms": "each sample's credit divided by its RMS", "none": "none: the credit as it is"}
    feedback = ", ".join(
        f"{name} {value}"
        for name, value in (spec.feedback.model_dump(exclude={"seed", "hash"}) if spec.feedback else {}).items()
        if value is not None
    )
    hashes = [
        (run.spec.seed, run.spec.feedback.hash[:8]) for run in runs if run.spec.feedback and run.spec.feedback.hash
    ]
    options = ", ".join(f"{name} = {option_text(value)}" for name, value in card.options.items())
    if card.learns:
        feedback += "; learned" if spec.fixed_feedback is None else "; kept at its start"
    saved = ", ".join(f"seed {seed}: {mark}" for seed, mark in hashes)
    probe = entry(spec, "probe")
    rows = [
        ("Method", spec.method),
        ("Credit formula", card.formula or NOT_STATED),
        ("Paper", card.paper or NOT_STATED),
        ("Family", _family(cell)),
        *([("Options", options)] if options else []),
        ("Injection point", spec.injection or NOT_STATED),
        ("Normalisation", normalisation.get(spec.credit_norm or "", NOT_STATED)),
        ("Penalty λ", NOT_STATED if spec.penalty is None else f"{spec.penalty:g}"),
        ("Feedback", "none: exact gradient" if exact else feedback or NOT_STATED),
        *([] if exact else [("Feedback fingerprints", saved or "not saved")]),
        ("Aggregation of the cosine", _aggregation(cell)),
        *((field.replace("_", " ").capitalize(), entry(spec, field)) for field in ("model", "width", "depth")),
        ("Terminal LayerNorm", entry(spec, "terminal_ln")),
        *((field.capitalize(), entry(spec, field)) for field in ("data", "epochs", "batch", "optimiser", "schedule")),
        ("Augmentation", entry(spec, "augment")),
        ("Dtype", entry(spec, "dtype")),
        ("Seeds", ", ".join("?" if seed is None else str(seed) for seed in cell.cell.seeds)),
        ("Test accuracy", _accuracy(cell)),
        ("Probe set", probe),
        *((f"Check: {outcome.name}", _check(outcome)) for outcome in cell.outcomes),
        ("Protocol", audit.protocol.title),
        ("Verdict", str(cell.verdict.kind) if cell.verdict else "none: a baseline"),
        *((f"Pitfall: {name}", said) for name, said in _pitfalls(cell)),
    ]
    return Table(("item", "entry"), tuple(rows), title=f"Reporting form: {cell.cell.label}")


def per_layer_table(cell: JudgedCell) -> Table:
    """Per state, at the last logged epoch and the last expensive probe: means over seeds; p is the largest over seeds.

    Args:
        cell: The method.
    """
    members = cell.cell.members
    lists: dict[str, list[Numbers | None]] = {}
    for each_epoch in (HIDDEN, REFERENCE, GAIN, COSINE, PUBLISHED):
        lists[each_epoch.name] = [each_epoch.read(run.last, run.units) if run.last else None for run, _ in members]
    for probed in (NULL_P, RHO, NUDGE_CHANGE, PHI, PROBE_ACCURACY):
        lists[probed.name] = [probed.read(row, run.units) if (row := last_probe(run)) else None for run, _ in members]
    states = max((len(values) for found in lists.values() for values in found if values), default=0)
    rows = []
    for state in range(states):
        exact = all(len(facts.exact) > state and facts.exact[state] for _, facts in members)
        mean = {name: _over_seeds(lists[name], state, max if name == NULL_P.name else fmean) for name in lists}
        rows.append(
            (
                f"h_{state}" + (" (exact)" if exact else ""),
                *(_value(mean[name], "{:.3g}") for name in ("hidden", "reference", "gain")),
                *(_value(mean[name], "{:+.3f}") for name in ("cosine", "published")),
                _value(mean["null_p"], "{:.3g}"),
                _value(mean["rho"], "{:+.3f}"),
                _value(mean["nudge_change"], "{:+.2e}"),
                _value(mean["phi"], "{:.6f}"),
                _value(mean["probe_accuracy"], "{:.4f}"),
            )
        )
    columns = ("state", "‖h‖", "‖g‖", "gain", "cosine acting", "cosine published", "null p", "ρ", "nudge", "fidelity φ")
    epochs = sorted({run.last.epoch for run, _ in members if run.last})
    when = f"epoch {listed(epochs)}" if epochs else "no epoch logged"
    title = f"Per layer: {cell.cell.label}, {when}, mean over {counted(len(members), 'seed')}; p: largest"
    return Table((*columns, "probe accuracy"), tuple(rows), ("left", *("right",) * 10), title)


def tables_markdown(audit: Audit) -> str:
    """The audit, the form and the per-layer table of every claim, in Markdown."""
    names = name_cells(audit)
    result = names.audit
    parts = [f"# {markdown(heading(result))}"]
    if len(names.groups) > 1:
        parts.append("\n".join(f"- {markdown(group)}" for group in names.groups))
    parts.append(render([Section("Verdicts", verdict_table(result)), *words(result), *_extras(names)], "md"))
    parts.append(decisions_table(result).to_markdown())
    for cell in result.claims:
        parts.append(f"## {markdown(cell.cell.label)}")
        parts.append(reporting_form(cell, result).to_markdown())
        parts.append(per_layer_table(cell).to_markdown())
    if audit.skipped:
        parts += [
            "## Skipped files",
            "\n".join(f"- {markdown(Path(s.file).name)}: {markdown(s.why)}" for s in audit.skipped),
        ]
    return "\n\n".join(parts) + "\n"


def tables_latex(audit: Audit) -> str:
    """The same in LaTeX, with booktabs, to be read by ``input`` in an appendix."""
    names = name_cells(audit)
    result = names.audit
    parts = ["% Needs \\usepackage{booktabs,textcomp}", "\\begingroup\\footnotesize"]
    title = "; ".join([caption(result), *(names.groups if len(names.groups) > 1 else ())])
    parts.append(render([Section(title, verdict_table(result)), *_extras(names)], "latex"))
    for cell in result.claims:
        form = reporting_form(cell, result).to_latex()
        # The entries are sentences: let the second column break lines.
        parts.append(form.replace(r"\begin{tabular}{ll}", r"\begin{tabular}{lp{0.68\linewidth}}", 1))
        parts.append(per_layer_table(cell).to_latex())
    parts += [f"% skipped {latex(Path(skipped.file).name)}: {latex(skipped.why)}" for skipped in audit.skipped]
    return "\n\n".join([*parts, "\\endgroup"]) + "\n"


def _extras(names: Names) -> list[Section]:
    """The checks' own tables: opponents, deep blocks, and what a check from outside adds."""
    tables = [section.extra for section in check_sections(names) if section.extra is not None and section.extra.rows]
    return [Section(table.title, table) for table in tables]


def _family(cell: JudgedCell) -> str:
    """As the rule says; of one with a loss in each block also whether its locality was shown."""
    runs = cell.cell.runs
    said = runs[0].header.card.family
    if said != "objective":
        return said or NOT_STATED
    if all(run.header.locality for run in runs):
        return f"{said}; locality shown"
    return f"{said}; locality not shown, so it is judged by its updates"


def _aggregation(cell: JudgedCell) -> str:
    kinds = (
        (GAMMA_ACTING, "mean over states where the credit acts"),
        (GAMMA_DEEP, "over deep states that are not exact by construction"),
        (GAMMA_WORST, "the worst state"),
        (GAMMA_PUBLISHED, "mean over l = 0..L−1 of the published index"),
        (GAMMA_CLAMPED, "the same with torch's clamp"),
    )
    found = [(text, _mean(cell, kind)) for kind, text in kinds]
    return "; ".join(f"{text}: {value:+.3f}" for text, value in found if value is not None) or "not logged"


def _mean(cell: JudgedCell, quantity: EpochQuantity) -> float | None:
    known = [value for run in cell.cell.runs if (value := quantity.last(run)) is not None]
    return fmean(known) if known else None


def _accuracy(cell: JudgedCell) -> str:
    mean, sd = cell.accuracy["mean"], cell.accuracy["sd"]
    if mean is None:
        return "not logged"
    error = "" if sd is None else f" ± {sd:.4f} (standard deviation over {counted(len(cell.cell.runs), 'seed')})"
    return f"{mean:.4f}{error}, last logged epoch"


def _check(outcome: Outcome) -> str:
    limit = f"threshold {outcome.check.show(outcome.threshold)}"
    return f"{outcome.ruling} ({outcome.evidence.grade}; {limit}): {outcome.reason}"


def _pitfalls(cell: JudgedCell) -> list[tuple[str, str]]:
    """The known ways to be fooled, and how these logs stand to each."""
    spec = cell.cell.spec
    plain, clamped = _mean(cell, GAMMA_PUBLISHED), _mean(cell, GAMMA_CLAMPED)
    whole, deep = _mean(cell, GAMMA_ACTING), _mean(cell, GAMMA_DEEP)
    reduction = spec.probe.reduction if spec.probe else None
    exact = cell.cell.members[0][1].exact
    fixed = [f"h_{state}" for state, is_exact in enumerate(exact) if is_exact]
    base = next((outcome.baseline for outcome in cell.outcomes if outcome.baseline is not None), None)
    matched = base is not None and base["matched"]
    stood = "not compared" if base is None else base["method"] or "a bare number"
    return [
        ("clamped cosine", _pair("unclamped", plain, "clamped", clamped)),
        ("first state dominates", _pair("all states", whole, "deep only", deep)),
        ("exact by construction", f"{listed(fixed)}, not counted" if fixed else "no state"),
        ("gradient reduction", f"{reduction or NOT_STATED}; norms are given per sample, sum-reduced"),
        ("frozen baseline", f"{stood}, {'matched' if matched else 'not matched'}"),
        ("best epoch", "never used: every check is judged at the last logged epoch"),
        ("weight decay as movement", "not counted: movement is taken up to a common factor"),
    ]


def _pair(a: str, first: float | None, b: str, second: float | None) -> str:
    return f"Γ {a} {_value(first, '{:+.3f}')}, {b} {_value(second, '{:+.3f}')}"


def _over_seeds(lists: list[Numbers | None], state: int, pool: Callable[[list[float]], float]) -> float | None:
    known = [v for values in lists if values is not None and state < len(values) and (v := values[state]) is not None]
    return pool(known) if known else None


def _value(value: float | None, form: str) -> str:
    return "–" if value is None else number(value) if value != value else form.format(value)
