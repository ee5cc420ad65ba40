import numpy as np
import pytest
import torch
from scipy import stats

from creditscope.data.order import seeded_generator
from creditscope.data.synthetic import synthetic
from creditscope.errors import BadInput


def test_labels_are_the_teachers_by_a_plain_loop():
    data = synthetic(n_train=20, n_test=7, dim=5, classes=3, seed=4)
    hidden = torch.randn(64, 5, generator=seeded_generator(4, "teacher", 0), dtype=torch.float64).numpy() / np.sqrt(5)
    readout = torch.randn(3, 64, generator=seeded_generator(4, "teacher", 1), dtype=torch.float64).numpy() / 8.0
    for x, y in zip(data.x_train.double().numpy(), data.y_train.tolist(), strict=True):
        logits = [sum(v * np.tanh(np.dot(w, x)) for v, w in zip(row, hidden, strict=True)) for row in readout]
        assert int(np.argmax(logits)) == y


def test_defaults_are_gaussian_vectors_with_every_class():
    data = synthetic()
    assert data.name == data.spec.name == "synthetic"
    assert data.x_train.dtype == torch.float32
    assert data.x_train.shape == (4096, 32)
    assert data.x_test.shape == (1024, 32)
    assert data.classes == 10
    assert stats.kstest(data.x_train.flatten().double().numpy(), "norm").pvalue > 1e-3
    counts = torch.bincount(data.y_train, minlength=10)
    assert counts.min() > 0.3 * 4096 / 10
    assert counts.max() < 3 * 4096 / 10
    assert sum(data.spec.class_counts) == 1024


def test_seeded():
    base, again, other = synthetic(), synthetic(), synthetic(seed=1)
    assert base.spec == again.spec
    assert base.spec.hash_train != other.spec.hash_train
    assert base.spec.hash_train != base.spec.hash_test


def test_a_linear_readout_of_the_inputs_beats_chance_on_the_test_split():
    """The task is learnable: least squares on one-hot labels, fitted with numpy."""
    data = synthetic()
    x, y = data.x_train.double().numpy(), np.eye(10)[data.y_train.numpy()]
    weights = np.linalg.lstsq(x, y, rcond=None)[0]
    accuracy = (np.argmax(data.x_test.double().numpy() @ weights, axis=1) == data.y_test.numpy()).mean()
    assert accuracy > 2 * max(data.spec.class_counts) / 1024


@pytest.mark.parametrize(("field", "value"), [("n_train", 0), ("n_test", -1), ("dim", 0), ("classes", 1)])
def test_sizes_are_checked(field, value):
    with pytest.raises(BadInput, match=f"synthetic: {field} is {value}; wanted at least"):
        synthetic(**{field: value})
