"""Probe data from loaders and pairs, and one line for each that cannot be used."""

import pytest
import torch
from scope.nets import samples
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from creditscope.errors import BadInput
from creditscope.scope.probe_data import gather

CPU = torch.device("cpu")


def test_a_pair_a_list_and_a_loader_give_the_same():
    x, y = samples(50)
    pair = gather((x, y), CPU, torch.float32)
    batches = gather([(x[:30], y[:30]), (x[30:], y[30:])], CPU, torch.float32)
    loader = gather(DataLoader(TensorDataset(x, y), batch_size=7), CPU, torch.float32)
    for other in (batches, loader):
        assert torch.equal(other.probe.x, pair.probe.x)
        assert torch.equal(other.test.y, pair.test.y)
        assert other.spec == pair.spec
    assert pair.spec.class_counts == tuple(torch.bincount(y).tolist())


def test_other_data_has_another_hash():
    x, y = samples(50)
    one, two = (gather((x + shift, y), CPU, torch.float32).spec.hash_test for shift in (0, 1))
    assert one != two


def test_inputs_take_the_models_dtype_and_indices_stay():
    x, y = samples(8)
    assert gather((x, y), CPU, torch.float64).probe.x.dtype == torch.float64
    assert gather((torch.zeros(8, 3, dtype=torch.int64), y), CPU, torch.float64).probe.x.dtype == torch.int64


def test_targets_that_are_numbers_are_no_labels():
    x, _ = samples(8)
    data = gather((x, torch.randn(8, 2)), CPU, torch.float32)
    assert not data.labelled
    assert data.spec.class_counts is None


def test_a_stream_without_length_is_read_for_the_probe_alone():
    class Endless(IterableDataset):
        def __iter__(self):
            while True:
                yield torch.zeros(3), torch.tensor(1)

    assert len(gather(DataLoader(Endless(), batch_size=100), CPU, torch.float32).test.x) == 1024


def test_fewer_large_samples_are_kept(monkeypatch):
    x, y = samples(3000)
    assert len(gather((x, y), CPU, torch.float32).test.x) == 3000
    monkeypatch.setattr("creditscope.scope.probe_data.KEPT_BYTES", 2000 * 6 * 4)
    assert len(gather((x, y), CPU, torch.float32).test.x) == 2000
    monkeypatch.setattr("creditscope.scope.probe_data.KEPT_BYTES", 1)
    assert len(gather((x, y), CPU, torch.float32).test.x) == 1024


X, Y = samples(8)


@pytest.mark.parametrize(
    ("loader", "says"),
    [
        ([], "wanted at least 2 probe samples, got an empty loader; pass a loader that yields (x, y) batches"),
        (iter(()), "wanted at least 2 probe samples, got an empty loader"),
        ((X[:1], Y[:1]), "wanted at least 2 probe samples, got 1;"),
        (X, "wanted a loader of (x, y) batches or a pair of tensors, got a Tensor; pass loader=(x, y)"),
        (None, "wanted a loader of (x, y) batches or a pair of tensors, got a NoneType; pass loader=(x, y)"),
        ([X], "wanted batches (x, y) of two tensors from the loader, got a Tensor; yield (inputs, targets)"),
        ([(X, Y, Y)], "got a tuple of 3 (Tensor, Tensor, Tensor); yield (inputs, targets)"),
        (
            [{"image": X, "label": Y}],
            "wanted a dict batch with 'labels' and at least one input, got a dict with 'image', 'label'; name the",
        ),
        ([{"labels": Y}], "wanted a dict batch with 'labels' and at least one input, got a dict with 'labels'"),
        ([{"x": X, "text": ["a"], "labels": Y}], "wanted tensors in a dict batch, got 'text' as a list of 1 (str); le"),
        ([{"x": X, "labels": Y}, {"labels": Y, "z": X}], "wanted the same entries in every batch, x, z is not in all"),
        (
            [{"x": X, "labels": Y}, {"x": X[:, :2], "labels": Y}],
            "wanted samples of one shape, got x (6,) and then (2,)",
        ),
        ([(X, [1, 2])], "got a tuple of 2 (Tensor, list); yield (inputs, targets)"),
        ((X, Y[:5]), "wanted as many targets as inputs in a batch, got shapes (8, 6) and (5,); the first axis"),
        ([(X, Y), (X[:, :4], Y)], "wanted samples of one shape, got inputs (6,) and then (4,)"),
        ((X.to("meta"), Y), "wanted inputs on cpu like the model, got them on meta; move one: model.to('meta')"),
        ((X, Y.to("meta")), "wanted targets on cpu like the model, got them on meta"),
    ],
)
def test_what_is_no_probe_data_is_refused_in_one_line(loader, says):
    with pytest.raises(BadInput) as error:
        gather(loader, CPU, torch.float32)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
