import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from creditscope.data.order import epoch_crops, epoch_order, random_targets, seeded_generator
from creditscope.errors import BadInput


def test_stream_seed_is_the_documented_one():
    for seed, name, index in ((42, "order", 0), (0, "init", 3), (-1, "probe", 7)):
        digest = hashlib.sha256(f"{seed}/{name}/{index}".encode()).hexdigest()
        assert seeded_generator(seed, name, index).initial_seed() == int(digest[:16], 16) % 2**63


def test_streams_differ_by_seed_name_and_index_and_repeat():
    def draw(*key):
        return tuple(torch.rand(4, generator=seeded_generator(*key)).tolist())

    keys = [(s, n, i) for s in (1, 11) for n in ("init", "order", "feedback") for i in (0, 1, 11)]
    assert len({draw(*key) for key in keys}) == len(keys)
    assert draw(1, "init", 0) == draw(1, "init", 0)
    assert seeded_generator(1, "init", 0).device.type == "cpu"


def test_streams_leave_the_global_generator_alone():
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    epoch_order(1, 2, 100, 10)
    epoch_crops(1, 2, 3, 4)
    random_targets(1, 10, 3)
    assert torch.equal(torch.rand(2), want)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 200), batch=st.integers(1, 64), epoch=st.integers(0, 5))
def test_epoch_order_is_a_permutation_without_its_tail(n, batch, epoch):
    if batch > n:
        with pytest.raises(BadInput, match=f"a batch of {batch} cannot be taken from {n} training samples"):
            epoch_order(42, epoch, n, batch)
        return
    order = epoch_order(42, epoch, n, batch)
    assert order.dtype == torch.int64
    assert order.shape == (n // batch, batch)
    used = order.flatten().tolist()
    assert len(set(used)) == len(used)
    assert set(used) <= set(range(n))
    assert torch.equal(order, epoch_order(42, epoch, n, batch))


def test_epoch_order_changes_with_epoch_and_seed_but_not_with_the_batch_size():
    base = epoch_order(42, 0, 128, 16)
    assert not torch.equal(base, epoch_order(42, 1, 128, 16))
    assert not torch.equal(base, epoch_order(123, 0, 128, 16))
    assert torch.equal(base.flatten(), epoch_order(42, 0, 128, 32).flatten())


@pytest.mark.parametrize("batch", [0, -3])
def test_epoch_order_refuses_an_empty_batch(batch):
    with pytest.raises(BadInput, match="choose a batch from 1 to 10"):
        epoch_order(1, 0, 10, batch)


def test_epoch_crops_are_uniform_and_independent():
    shift_y, shift_x, flip = epoch_crops(42, 3, 200, 100, pad=4)
    for shift in (shift_y, shift_x):
        assert shift.dtype == torch.int64
        assert shift.shape == (200, 100)
        counts = torch.bincount(shift.flatten(), minlength=9)
        assert len(counts) == 9
        assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    assert flip.dtype == torch.bool
    assert abs(flip.double().mean().item() - 0.5) < 4 * 0.5 / 20_000**0.5
    table = torch.zeros(9, 9)
    table.index_put_((shift_y.flatten(), shift_x.flatten()), torch.ones(20_000), accumulate=True)
    assert stats.chi2_contingency(table.numpy()).pvalue > 1e-3


def test_epoch_crops_repeat_and_follow_pad():
    first, again = epoch_crops(7, 1, 3, 5), epoch_crops(7, 1, 3, 5)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], epoch_crops(7, 2, 3, 5)[0])
    narrow = epoch_crops(7, 1, 30, 50, pad=1)
    assert set(narrow[0].flatten().tolist()) == {0, 1, 2}
    still = epoch_crops(7, 1, 3, 5, pad=0)
    assert not still[0].any()
    assert not still[1].any()


def test_random_targets_are_fixed_and_uniform():
    labels = random_targets(42, 10_000, 10)
    assert labels.dtype == torch.int64
    assert torch.equal(labels, random_targets(42, 10_000, 10))
    assert not torch.equal(labels, random_targets(43, 10_000, 10))
    counts = torch.bincount(labels, minlength=10)
    assert len(counts) == 10
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
