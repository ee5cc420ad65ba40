import pytest

from creditscope.probes.schedule import DEAR_EPOCHS, is_dear


def test_the_protocols_epochs_and_the_last() -> None:
    assert [epoch for epoch in range(101) if is_dear(epoch, 100, None)] == [*DEAR_EPOCHS, 100]
    assert DEAR_EPOCHS == (0, 1, 2, 3, 5, 10, 20, 30, 50)


@pytest.mark.parametrize(("dear", "expected"), [((), [7]), ((2, 4), [2, 4, 7]), ((0, 7, 9), [0, 7])])
def test_listed_epochs_and_always_the_last(dear: tuple[int, ...], expected: list[int]) -> None:
    assert [epoch for epoch in range(8) if is_dear(epoch, 7, dear)] == expected
