"""From rulings and grades to one of three verdicts."""

from itertools import product

import pytest
from protocol import cases

from creditscope.protocol import audit
from creditscope.protocol.evidence import Grade, Ruling
from creditscope.protocol.verdict import VerdictKind, rule

PARTS = [
    (ruling, grade)
    for ruling, grade in product(Ruling, Grade)
    if (ruling is Ruling.NOT_MEASURED) == (grade is Grade.MISSING)
]


@pytest.mark.parametrize("parts", list(product(PARTS, PARTS)))
def test_the_three_rules(parts):
    verdict = rule(parts)
    if any(ruling == "fires" for ruling, _ in parts):
        assert verdict is VerdictKind.WALKED_BACK
    elif all(ruling == "passes" and grade in ("exact", "bounded") for ruling, grade in parts):
        assert verdict is VerdictKind.TRUSTWORTHY
    else:
        assert verdict is VerdictKind.INCOMPLETE


def test_reasons_name_what_made_the_verdict():
    healthy = audit(cases.healthy("dfa")).claims[0].verdict
    assert healthy.reasons == ("every required check passes: scale, reference, depth, fidelity, direction, movement",)
    assert healthy.settles == ()
    alone = audit(cases.cell("dfa", cases.ALIGNED)).claims[0].verdict
    assert alone.kind == "incomplete"
    assert [reason.split(":")[0] for reason in alone.reasons] == ["depth not measured, missing"]
    assert alone.settles[0].startswith("depth: train dfa@frozen")
    lost = audit([*cases.cell("dfa", cases.COLLAPSED), *cases.cell("dfa@frozen", cases.FROZEN)]).claims[0].verdict
    assert lost.kind == "walked back"
    assert [reason.split()[0] for reason in lost.reasons] == ["scale", "reference", "depth", "direction"]
