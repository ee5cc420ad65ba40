import numpy as np
import pytest
import torch

from creditscope.probes.functional.gradient import joint_cosine


def test_several_tensors_are_one_vector() -> None:
    rng = np.random.default_rng(0)
    first, second = ([rng.normal(size=(3, 2)), rng.normal(size=4)] for _ in range(2))
    a, b = (np.concatenate([t.ravel() for t in tensors]) for tensors in (first, second))
    got = joint_cosine([torch.tensor(t) for t in first], [torch.tensor(t) for t in second])
    assert float(got) == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-12)


def test_a_block_without_gradient_has_no_cosine() -> None:
    assert bool(joint_cosine([torch.zeros(3)], [torch.ones(3)]).isnan())
