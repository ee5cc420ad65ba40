"""Write cases.md: what version 1 of ``standard`` said of the cases that it had wrong, and what version 2 says.

python docs/make_cases.py --train   # trains every study anew, half a minute on one core, and keeps it in docs/cases
python docs/make_cases.py
"""

import json
import sys
from functools import cache
from statistics import fmean
from typing import Any

import half_cosines
import make_reproduction
import yaml
from case_logs import train_all
from numbered_cases import VERSIONS, Case, cases
from page_data import DOCS, number

from creditscope.protocol.presets import protocol_named
from creditscope.records.table import Table

SCRIPT = "make_cases.py"
MADE = (
    f"<!-- Written by `python docs/{SCRIPT}` from docs/cases and results/cifar10-h200. "
    "Change the script, not this page. -->"
)
HALF = DOCS / "half_cosines.json"
# The numbers of the two cases that do not end in a verdict.
PRECISION, REPRODUCTION = 9, 12


def build() -> str:
    """The whole page."""
    found = cases()
    old, new = (protocol_named(name) for name in VERSIONS)
    rows = tuple((str(case.number), case.title, *(_short(case, name) for name in VERSIONS)) for case in found)
    columns = ("", "case", f"version {old.version}", f"version {new.version}")
    parts = [
        MADE,
        "# Cases",
        "Version 1 of `standard` computed its numbers rightly and drew wrong conclusions from some of them. Here are "
        "the cases, each trained or built, each judged anew under both versions when this page was written: verdicts "
        "and reasons are quoted from the protocol. The logs of the small trainings lie in `docs/cases`, so that "
        "`creditscope audit docs/cases/xor --protocol standard@1` says what stands here. The tests that hold a case "
        "are named with it.",
        Table(columns, rows, ("right", "left", "left", "left")).to_markdown(),
    ]
    sections = {PRECISION: _precision(), REPRODUCTION: _reproduction()}
    for case in found:
        said = (_said(case, name) for name in VERSIONS)
        sections.setdefault(case.number, [])
        sections[case.number] += [f"## {case.number}. {case.title}", case.made, *said, _held(case.held)]
    parts += [part for at in sorted(sections) for part in sections[at]]
    return "\n\n".join(parts) + "\n"


def _short(case: Case, protocol: str) -> str:
    return str(case.judged(protocol).verdict.kind)


def _said(case: Case, protocol: str) -> str:
    """Verdict, the checks that the case is about, and what would settle what is open."""
    judged, version = case.judged(protocol), protocol_named(protocol).version
    lines = [f"**Version {version}: {judged.verdict.kind}.**"]
    for outcome in judged.outcomes:
        if outcome.name in case.checks:
            lines.append(f"- {outcome.name} *{outcome.ruling}*: {_quoted(outcome.reason)}")
            lines += [f"  - to settle it: {_quoted(outcome.settles)}"] if outcome.settles else []
    absent = [name for name in case.checks if name not in protocol_named(protocol).thresholds]
    lines += [f"- {name}: not asked" for name in absent]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A sentence of the protocol in Markdown: what stands in brackets before a bracket is no link."""
    return text.replace("[", "\\[").replace("*", "\\*")


def _held(tests: tuple[str, ...]) -> str:
    return "Held by " + ", ".join(f"`{test}`" for test in tests) + "."


@cache
def half() -> dict[str, Any]:
    """What the net in half precision gave."""
    found: dict[str, Any] = json.loads(HALF.read_text(encoding="utf-8"))
    return found


def _precision() -> list[str]:
    """The case of the per-epoch cosines, which is not one of a verdict."""
    held, states = half(), range(len(half()["own"]))
    rows = [
        ("in bfloat16, as version 1 logged it", *(f"{value:+.3f}" for value in held["own"])),
        ("in float64, as it is logged", *(f"{value:+.3f}" for value in held["logged"])),
        ("status", *held["status"]),
    ]
    ruling, reason = held["fidelity"]
    return [
        f"## {PRECISION}. Cosines of every epoch in the dtype of the run",
        half_cosines.MADE,
        Table(
            ("mean cosine of credit and gradient", *(f"state {state}" for state in states)), tuple(rows)
        ).to_markdown(),
        f"The cosines of every epoch are computed in float64, on {half_cosines.SAMPLES} samples, and say where the "
        f"gradient of the run's own dtype is not the true one. fidelity *{ruling}*: {_quoted(reason)}.",
        _held(
            (
                "tests/docs/test_cases.py::test_cosines_in_half_precision",
                "tests/probes/test_per_epoch.py::test_cosines_are_those_of_the_float64_copy_and_the_dtype_is_held_against_"
                "the_reference",
            )
        ),
    ]


def _reproduction() -> list[str]:
    """The case of the words on another page."""
    rows = yaml.safe_load((DOCS / "published.yaml").read_text(encoding="utf-8"))["judged"]
    words = [(row, make_reproduction.values(row)) for row in rows]
    said = [(row, values, make_reproduction.outcome(row, values)) for row, values in words]
    near, wide = ([each for each in said if each[2] == word] for word in ("reproduces", "in range"))
    far = [(row, values, make_reproduction.distance(row, values)) for row, values, _ in wide]
    distant = [(row, values, away) for row, values, away in far if away is not None]
    lines = [
        f"- {row['condition']}, {make_reproduction.QUANTITIES[row['quantity']][1]}: published {row['published']}, here "
        f"{number(fmean(values))}: {abs(away):.1f} combined standard errors away, so *in range*"
        for row, values, away in distant
    ]
    return [
        f"## {REPRODUCTION}. A number that lies in a wide range was called reproduced",
        f"Of {len(near) + len(wide)} numbers with a range all were said to reproduce. Now *reproduces* is said of "
        f"{len(near)}, which lie within {make_reproduction.NEAR:g} combined standard errors of a published mean; "
        f"{len(wide)} are *in range*, of which {len(distant)} lie farther off and the others were published without a "
        "spread over seeds:",
        "\n".join(lines),
        _held(("tests/docs/test_pages.py::test_the_distance_from_a_published_mean_is_welchs_statistic",)),
    ]


if __name__ == "__main__":
    if "--train" in sys.argv[1:]:
        train_all()
        HALF.write_text(json.dumps(half_cosines.measure(), indent=1) + "\n", encoding="utf-8")
    (DOCS / "cases.md").write_text(build(), encoding="utf-8")
