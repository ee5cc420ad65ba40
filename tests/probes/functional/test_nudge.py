import math

import numpy as np
import pytest
import torch

from creditscope.probes.functional.nudge import efficiency, mean_change, nudge_step


def test_a_step_has_the_size_asked_for_and_the_opposite_direction() -> None:
    signal = torch.tensor([[3.0, 4.0], [-1e-200, 0.0], [0.0, 0.0]], dtype=torch.float64)
    step, defined = nudge_step(signal, torch.tensor(10.0, dtype=torch.float64))
    np.testing.assert_allclose(step, [[-6, -8], [10, 0], [0, 0]], rtol=1e-15, atol=0)
    assert defined.tolist() == [True, True, False]


def test_only_nudged_samples_count() -> None:
    before, after = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 9.0, 2.0])
    assert float(mean_change(before, after, torch.tensor([True, False, True]))) == -0.75
    assert math.isnan(mean_change(before, after, torch.zeros(3, dtype=torch.bool)))


def test_efficiency_of_a_step_that_cannot_help_is_undefined() -> None:
    assert float(efficiency(torch.tensor(-1.0), torch.tensor(-4.0))) == 0.25
    assert math.isnan(efficiency(torch.tensor(-1.0), torch.tensor(0.0)))
    assert float(efficiency(torch.tensor(1.0), torch.tensor(-4.0))) == pytest.approx(-0.25)
