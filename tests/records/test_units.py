"""What a log states about the units of its gradient norms, and what follows."""

import pytest
from protocol import cases

from creditscope.records import ProbeSpec
from creditscope.records.units import Units


@pytest.mark.parametrize(
    ("probe", "source", "factor", "known"),
    [
        (ProbeSpec(reduction="sum"), None, 1, True),
        (ProbeSpec(reduction="mean", batch=64), None, 64, True),
        (ProbeSpec(reduction="mean", batch=None), None, 128, False),
        (ProbeSpec(reduction=None), None, 128, False),
        (None, None, 128, False),
        (ProbeSpec(reduction=None), {"reference_units": "multiplied already"}, 1, False),
    ],
)
def test_units(probe, source, factor, known):
    log = cases.run()
    header = log.header.model_copy(
        update={"spec": log.spec.model_copy(update={"probe": probe}), "exact": None, "source": source}
    )
    assert (header.units.factor, header.units.known) == (factor, known)


def test_the_size_of_the_probe_batch_is_128_unless_stated():
    assert [Units.stated("mean", size).probe_size for size in (None, 64)] == [128, 64]
    assert Units.stated("sum", 1024).probe_size == 1024


def test_norms_become_per_sample():
    assert Units(factor=128.0).per_sample([1.0, None, 0.5]) == [128.0, None, 64.0]
