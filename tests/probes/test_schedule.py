import pytest
from cases.specs import spec

from creditscope.probes.schedule import EXPENSIVE_EPOCHS, expensive_epochs, is_expensive
from creditscope.records import ProbeSpec


def test_the_protocols_epochs_and_the_last() -> None:
    assert [epoch for epoch in range(101) if is_expensive(epoch, 100, None)] == [*EXPENSIVE_EPOCHS, 100]
    assert EXPENSIVE_EPOCHS == (0, 1, 2, 3, 5, 10, 20, 30, 50)


@pytest.mark.parametrize(("listed", "expected"), [((), [7]), ((2, 4), [2, 4, 7]), ((0, 7, 9), [0, 7])])
def test_listed_epochs_and_always_the_last(listed: tuple[int, ...], expected: list[int]) -> None:
    assert [epoch for epoch in range(8) if is_expensive(epoch, 7, listed)] == expected


def test_a_baseline_is_probed_expensively_at_its_last_epoch_alone():
    listed = spec("dfa", probe=ProbeSpec(epochs=(0, 4)))
    frozen = spec("dfa@frozen", probe=ProbeSpec(epochs=(0, 4)))
    for run, wanted in ((listed, [0, 4, 6]), (frozen, [6])):
        assert [epoch for epoch in range(7) if is_expensive(epoch, 6, expensive_epochs(run))] == wanted
    assert expensive_epochs(spec("dfa", probe=ProbeSpec())) is None, "the protocol's own list"
