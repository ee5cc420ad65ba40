"""A slimmed log gives the same audit."""

import pytest
from protocol import cases

from creditscope.protocol import audit
from creditscope.protocol.slim import slim

SETS = {
    "healthy": lambda: cases.healthy("dfa"),
    "bp": lambda: cases.healthy("bp"),
    **{
        name: (lambda s=sabotage: [*map(s, cases.cell("dfa", cases.ALIGNED)), *cases.cell("dfa@frozen", cases.FROZEN)])
        for name, (sabotage, _) in cases.SABOTAGE.items()
    },
}


@pytest.mark.parametrize("protocol", ["standard", "published"])
@pytest.mark.parametrize("name", SETS)
def test_the_audit_is_the_same(name, protocol):
    whole, thin = SETS[name](), [slim(log) for log in SETS[name]()]
    assert audit(thin, protocol).to_dict() == audit(whole, protocol).to_dict()
    assert audit(thin, protocol).to_text() == audit(whole, protocol).to_text()


def test_something_is_dropped_and_the_last_epoch_is_whole():
    log, thin = cases.run(epochs=8), slim(cases.run(epochs=8))
    assert thin.last == log.last
    assert thin.epochs[4].gamma is None
    assert thin.epochs[4].cosine is None
    assert thin.epochs[5].cosine is not None  # a probe stands beside it
    assert thin.epochs[3].movement.blocks is thin.epochs[4].movement.blocks
