import warnings

import numpy as np
import pytest

from creditscope.data import DATASETS, PUBLISHED, load_data
from creditscope.errors import BadInput


def test_the_bundled_and_synthetic_sets_need_nothing(monkeypatch):
    monkeypatch.delenv("CREDITSCOPE_DATA", raising=False)
    assert load_data("fashion-mini").spec.n_train == 10_000
    assert load_data("synthetic").name == "synthetic"


def test_layouts_of_cifar10_give_one_spec(tmp_path, fake_cifar, write_cifar):
    write_cifar(tmp_path / "one")
    fake_cifar.write_binary(tmp_path / "two")
    with pytest.warns(UserWarning, match="are not the published cifar10"):
        data = load_data("cifar10", tmp_path / "one")
    with pytest.warns(UserWarning, match="not the published"):
        assert data.spec == load_data("cifar10", tmp_path / "two").spec
    assert data.classes == 10
    assert data.spec.shape == (3, 32, 32)
    assert data.spec.class_counts == tuple(np.bincount(fake_cifar.y[5], minlength=10).tolist())


def test_layouts_of_fashion_mnist_give_one_spec(tmp_path, fake_fashion):
    fake_fashion.write(tmp_path / "plain")
    fake_fashion.write(tmp_path / "packed" / "FashionMNIST" / "raw", ".gz")
    with pytest.warns(UserWarning, match="are not the published fashion-mnist .*another data set"):
        data = load_data("fashion-mnist", tmp_path / "plain")
    with pytest.warns(UserWarning, match="not the published"):
        assert data.spec == load_data("fashion-mnist", tmp_path / "packed").spec


def test_published_content_raises_no_warning(tmp_path, fake_cifar, monkeypatch):
    fake_cifar.write_binary(tmp_path)
    with pytest.warns(UserWarning, match="not the published"):
        spec = load_data("cifar10", tmp_path).spec
    monkeypatch.setitem(PUBLISHED, "cifar10", (spec.hash_train, spec.hash_test))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_data("cifar10", tmp_path)


def test_a_users_file(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(6, 4)), np.arange(6) % 2
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert load_data(str(tmp_path / "own.npz")).name == "own"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar", "no data set 'cifar': did you mean 'cifar10'"),
        ("fashion_mini", "did you mean 'fashion-mini'"),
        ("zzz", "known: cifar10, cifar100, fashion-mini, fashion-mnist, king-james, synthetic"),
        ("", "known: cifar10"),
        ("own.npy", "must end in .npz or .txt"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(BadInput, match=message):
        load_data(name)


def test_the_list_of_names():
    assert DATASETS.names() == ["fashion-mini", "fashion-mnist", "cifar10", "cifar100", "king-james", "synthetic"]
    assert set(PUBLISHED) < set(DATASETS.names())
