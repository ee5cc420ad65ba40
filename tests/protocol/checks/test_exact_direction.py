"""Credit that is said to be exact: believed where what was measured agrees."""

from dataclasses import replace

import pytest
from protocol import cases

from creditscope.protocol import audit

# Exact at the last state alone, as the rule that goes back block by block.
SHAPE = replace(cases.ALIGNED, exact=(False, False, False, False, True), cosine=(0.4, 0.4, 0.2, 0.18, 1.0))


def direction(method, cosine, gradient):
    logs = []
    for seed in cases.SEEDS:
        shape = replace(SHAPE, cosine=(*SHAPE.cosine[:-1], cosine))
        log = cases.run(method, seed, shape)
        probes = tuple(p.model_copy(update={"gradient_cosine": [0.3, 0.3, 0.3, gradient]}) for p in log.probes)
        logs.append(replace(log, probes=probes))
    (cell,) = audit(logs).to_dict()["cells"]
    return next(check for check in cell["checks"] if check["name"] == "direction")


@pytest.mark.parametrize(
    ("method", "cosine", "gradient", "outcome"),
    [
        ("fa-block", 1.0, 1.0, "passes"),
        ("fa-block", 1.0, 0.6, "not measured"),
        ("fa-block", 0.6, 1.0, "not measured"),
        # Divided by its size sample by sample: the direction of each stays, that of the mean over samples does not.
        ("fa-block-rms", 1.0, 0.6, "passes"),
        ("fa-block-rms", 0.6, 0.6, "not measured"),
    ],
)
def test_what_is_said_to_be_exact_is_verified(method, cosine, gradient, outcome):
    found = direction(method, cosine, gradient)
    assert found["outcome"] == outcome, found
    if outcome == "not measured":
        assert "said to be exact by construction, and its measured cosine is 0.6" in found["reason"]
