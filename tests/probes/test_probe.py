"""What the probes share: states worked on together give what each gives alone, and numbers come in one list."""

import math

import numpy as np
import pytest
import torch
from cases.snapshots import conv_snapshot, mlp_snapshot
from torch import Tensor

from creditscope.probes import probe
from creditscope.probes.probe import by_state, lists, numbers, planned_for, stacks


def states_of(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("together", [1, 30, 2**20])
def test_states_of_any_shapes_keep_their_places(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_TOGETHER_CPU", together)
    first = states_of((4, 3), (4, 5), (4, 3), (4, 3), (4, 5))
    second = [2 * t for t in first]
    found = by_state(lambda a, b: (a * b).sum(dim=(1, 2)), first, second)
    np.testing.assert_allclose(found, [2 * float((t**2).sum()) for t in first], rtol=1e-12)


def test_no_stack_holds_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_TOGETHER_CPU", 30)
    sizes = [(which, stack.numel()) for which, (stack,) in stacks(states_of((4, 3), (4, 9), (4, 3), (4, 3)))]
    assert sizes == [([0, 2], 24), ([3], 12), ([1], 36)]  # one state alone may be larger


def test_undefined_numbers_are_none() -> None:
    values = torch.tensor([1.0, math.nan, math.inf])
    assert numbers(values) == numbers(list(values)) == [1.0, None, math.inf]
    assert lists(values, torch.tensor([3, 4])) == [[1.0, None, math.inf], [3.0, 4.0]]
    assert numbers([]) == []


@pytest.mark.parametrize("make", [mlp_snapshot, conv_snapshot])
def test_a_state_that_is_not_finite_is_found_wherever_it_is(make) -> None:
    snapshot = make("bp")
    assert snapshot.first_broken is None
    for value in (math.nan, math.inf, -math.inf):
        for level in range(snapshot.depth + 1):
            fresh = make("bp")
            fresh.observation.states[level].flatten()[3] = value
            fresh.observation.states[-1].flatten()[0] = value
            assert fresh.first_broken == level


def test_shapes_alone_are_stacked_as_on_the_device_that_is_planned_for(monkeypatch):
    monkeypatch.setattr(probe, "_TOGETHER_CPU", 20)
    monkeypatch.setattr(probe, "_TOGETHER_GPU", 40)
    shapes = [torch.empty(2, 5, device="meta") for _ in range(4)]
    sizes = {}
    for device in ("cpu", "cuda"):
        with planned_for(device):
            sizes[device] = [len(which) for which, _ in stacks(shapes)]
            assert [len(which) for which, _ in stacks(states_of(*([(2, 5)] * 4)))] == [2, 2], (
                "real ones say it themselves"
            )
    assert sizes == {"cpu": [2, 2], "cuda": [4]}
    assert [len(which) for which, _ in stacks(shapes)] == [2, 2]
