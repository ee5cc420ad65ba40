"""From rulings and grades to one of three verdicts."""

from dataclasses import replace
from itertools import product

import pytest
from protocol import cases

from creditscope.protocol import audit
from creditscope.protocol.evidence import Grade, Ruling
from creditscope.protocol.verdict import VerdictKind, rule

PARTS = [
    (ruling, grade)
    for ruling, grade in product(Ruling, Grade)
    if (ruling in (Ruling.NOT_MEASURED, Ruling.NOT_APPLICABLE)) == (grade is Grade.MISSING)
]
GOOD = [("passes", "exact"), ("passes", "bounded")]


@pytest.mark.parametrize("parts", list(product(PARTS, PARTS)))
def test_the_three_rules(parts):
    verdict = rule(parts)
    if any(ruling == "fires" for ruling, _ in parts):
        assert verdict is VerdictKind.WALKED_BACK
    elif all(part == ("not applicable", "missing") for part in parts):
        assert verdict is VerdictKind.INCOMPLETE  # nothing was shown
    elif all(part in GOOD or part[0] == "not applicable" for part in parts):
        assert verdict is VerdictKind.TRUSTWORTHY
    else:
        assert verdict is VerdictKind.INCOMPLETE


def test_reasons_name_what_made_the_verdict():
    healthy = audit(cases.healthy("dfa")).claims[0].verdict
    assert healthy.reasons == (
        "every required check passes: learning, scale, reference, fidelity, direction, depth, movement "
        "(ladder not applicable)",
    )
    assert healthy.settles == ()
    alone = audit(cases.cell("dfa", cases.ALIGNED)).claims[0].verdict
    assert alone.kind == "incomplete"
    assert [reason.split(":")[0] for reason in alone.reasons] == ["depth not measured, missing"]
    assert alone.settles[0].startswith("depth: train dfa@frozen")
    lost = audit([*cases.cell("dfa", cases.COLLAPSED), *cases.opponents("dfa"), *cases.control()]).claims[0].verdict
    assert lost.kind == "walked back"
    assert [reason.split()[0] for reason in lost.reasons] == ["scale", "reference", "direction", "depth"]


def test_an_advisory_check_that_disagrees_with_trust_is_named():
    useless = replace(cases.ALIGNED, probe_accuracy=(0.40, 0.4, 0.4, 0.4, 0.39))
    found = audit([*cases.cell("dfa", useless), *cases.opponents("dfa")]).claims[0].verdict
    assert found.kind == "trustworthy"
    (line,) = found.disagrees
    assert line.startswith("representation fires")
