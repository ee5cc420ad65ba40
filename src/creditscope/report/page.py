"""One HTML file that opens offline: no request leaves it, and every text in it is escaped."""

import base64
import hashlib
import shlex
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from creditscope.errors import BadInput, CannotWrite, argument
from creditscope.protocol.audit import Audit, Logs, audit
from creditscope.protocol.disclosure import disclosures
from creditscope.protocol.present import (
    decisions_table,
    heading,
    runs_table,
    stays_table,
    timeline_table,
    under,
)
from creditscope.protocol.presets import NAMES, Protocol, place_of, protocol_named
from creditscope.records.files import write_atomic
from creditscope.records.provenance import version
from creditscope.records.table import Table, visible
from creditscope.report.form import per_layer_table, reporting_form, tables_latex, tables_markdown
from creditscope.report.labels import name_cells
from creditscope.report.many import left_out, most_telling
from creditscope.report.recipe import provenance_table, recipe_table
from creditscope.report.sections import (
    cards,
    check_sections,
    headline,
    matrix,
    not_asked,
    usual_pair,
)
from creditscope.report.series import DIGITS, embed, page_data
from creditscope.report.text import ADVISORY_TONES, SYMBOLS, TONES, VERDICT_SYMBOLS, VERDICT_TEXT

SCRIPTS = ("base.js", "filter.js", "plot.js", "heat.js", "page.js")
SUFFIXES = (".html", ".md", ".tex")


def render_report(
    judged: Audit | Logs, protocol: str | Protocol = "standard", command: str | None = None, title: str | None = None
) -> str:
    """The report page as one string of HTML.

    Args:
        judged: An audit that keeps its rows, as ``audit`` makes it; or logs, which are judged under ``protocol``.
        protocol: ``standard``, ``published``, or a ``Protocol``; for logs alone.
        command: What makes this page again; made up from the names of the logs when it is not given.
        title: Of the page; how many claims stand when it is not given.
    """
    return _page(_judged(judged, protocol), command, title)


def write_report(
    judged: Audit | Logs,
    out: Path,
    protocol: str | Protocol = "standard",
    command: str | None = None,
    title: str | None = None,
) -> Path:
    """Write the report: a page (``.html``), or the tables and the reporting form (``.md``, ``.tex``).

    Args:
        judged: An audit that keeps its rows, as ``audit`` makes it; or logs, which are judged under ``protocol``.
        out: The file; its suffix decides the form.
        protocol: ``standard``, ``published``, or a ``Protocol``; for logs alone.
        command: What makes this page again.
        title: Of the page; how many claims stand when it is not given.

    Returns:
        The file.
    """
    check_out(out)
    result = _judged(judged, protocol)
    made = {".html": lambda: _page(result, command, title), ".md": lambda: tables_markdown(result)}
    text = made.get(out.suffix, lambda: tables_latex(result))()
    write_atomic(out, text.encode())
    return out


def _judged(judged: Audit | Logs, protocol: str | Protocol) -> Audit:
    return judged if isinstance(judged, Audit) else audit(judged, protocol)


def check_out(out: Path) -> None:
    """Refuse a file that could not be written, before anything is read.

    Args:
        out: The file.
    """
    if out.suffix not in SUFFIXES:
        raise BadInput(argument("out"), f" wants a file that ends in {', '.join(SUFFIXES)}, got {out.name!r}")
    if out.is_dir() or not out.parent.is_dir():
        what = "is a folder" if out.is_dir() else f"lies in {out.parent}, which is no folder"
        raise CannotWrite(f"{out.name} {what}; give a file in a folder that exists")


def _page(result: Audit, command: str | None, title: str | None) -> str:
    whole, result = result, most_telling(result)
    names = name_cells(result)
    result = names.audit
    style = _asset("uPlot.min.css") + _asset("report.css")
    # The licence travels with the code it covers.
    script = f"/*\n{_asset('uPlot-LICENSE.txt')}*/\n" + _asset("uPlot.iife.min.js") + _own_script()
    runs = [run for cell in result.cells for run in cell.cell.runs]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            policy=_policy(script, style),
            style=Markup(style),
            script=Markup(script),
            data=Markup(embed(page_data(names))),
            title=title or headline(names, under(whole)),
            headline=headline(names, under(whole)),
            heading=heading(whole),
            usual_pair=usual_pair(names),
            groups=names.groups,
            group_of={i: named.group for i, named in enumerate(names.cells)},
            numbers=names.numbers,
            columns=[(check.name, check.text.title, check in result.protocol.required) for check in names.checks],
            advisory_tones=ADVISORY_TONES,
            matrix=matrix(names),
            digits=DIGITS,
            cards=cards(names),
            verdict_text=VERDICT_TEXT,
            tones=TONES,
            marks=SYMBOLS | VERDICT_SYMBOLS,
            decisions=_pair_alone(decisions_table(result)),
            checks=check_sections(names),
            not_asked=not_asked(names),
            disclosures=(*left_out(whole, result), *disclosures(whole)),
            timeline=timeline_table(result),
            sensitivity=stays_table(result),
            layers=[(cell.cell.label, per_layer_table(cell)) for cell in result.claims],
            forms=[(cell.cell.label, reporting_form(cell, result)) for cell in result.claims],
            recipe=recipe_table(names),
            runs=runs_table(result),
            provenance=provenance_table(names),
            problems=[f"{run.name}: {problem}" for run in runs for problem in run.problems],
            skipped=[(Path(skipped.file).name, skipped.why) for skipped in result.skipped],
            command=command or _command(result),
            version=version("creditscope"),
        )
    )


def _pair_alone(decisions: Table) -> Table:
    """What the usual pair and the whole verdict say; every check stands in the matrix."""
    return Table(decisions.columns[:4], tuple(row[:4] for row in decisions.rows))


def _command(result: Audit) -> str:
    """The command line that makes the page again where the logs lie."""
    protocol = result.protocol
    name = next((name for name in NAMES if _version(protocol_named(name)) == _version(protocol)), None)
    if name is None or protocol.dropped:
        return f"# judged from Python: write_report(..., protocol=...), a protocol of its own: {protocol.title}"
    logs = [run.name for cell in result.cells for run in cell.cell.runs]
    baselines = [cell.cell.baseline for cell in result.claims if cell.cell.baseline is not None]
    numbers = {baseline.accuracy for baseline in baselines if baseline.accuracy is not None}
    options = [f"--baseline={number!r}" for number in sorted(numbers)]
    options += [
        f"--{'check' if check in protocol.required else 'advisory-check'}={place_of(check)}" for check in protocol.added
    ]
    options += [f"--set={name}={value!r}" for name, value in protocol.overrides]
    assumed = {"blocks": result.assume.blocks, "h0": result.assume.h0, "ratio": result.assume.ratio}
    options += [f"--assume={name}={value!r}" for name, value in assumed.items() if value is not None]
    command = ["creditscope", "report", *logs, f"--protocol={name}", *options, "--out=report.html"]
    return shlex.join(command)


def _version(protocol: Protocol) -> tuple[str, str]:
    return protocol.name, protocol.version


def _policy(script: str, style: str) -> str:
    """Nothing may be loaded from anywhere; only this very script and style run."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _own_script() -> str:
    """The page's own script, whose parts see each other and nobody else."""
    return '"use strict";(() => {\n' + "".join(map(_asset, SCRIPTS)) + "})();\n"


@cache
def _asset(name: str) -> str:
    return resources.files("creditscope.report").joinpath("assets", name).read_text(encoding="utf-8").strip() + "\n"


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("creditscope.report"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
