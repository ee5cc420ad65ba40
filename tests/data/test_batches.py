import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from creditscope.data.batches import augment, normalise, pad_images


def augment_by_loop(x: np.ndarray, shift_y: np.ndarray, shift_x: np.ndarray, flip: np.ndarray, pad: int) -> np.ndarray:
    """The stupid twin: slice and reverse, one padded image at a time."""
    height, width = x.shape[-2] - 2 * pad, x.shape[-1] - 2 * pad
    out = np.empty((*x.shape[:-2], height, width), dtype=x.dtype)
    for i in range(len(x)):
        crop = x[i][:, shift_y[i] : shift_y[i] + height, shift_x[i] : shift_x[i] + width]
        out[i] = crop[:, :, ::-1] if flip[i] else crop
    return out


def draws(lead: tuple[int, ...], shape: tuple[int, int, int], pad: int, seed: int) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(seed)
    return (
        torch.from_numpy(
            rng.integers(0, 256, (*lead, shape[0], shape[1] + 2 * pad, shape[2] + 2 * pad), dtype=np.uint8)
        ),
        torch.from_numpy(rng.integers(0, 2 * pad + 1, lead)),
        torch.from_numpy(rng.integers(0, 2 * pad + 1, lead)),
        torch.from_numpy(rng.integers(0, 2, lead) == 1),
    )


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 5),
    channels=st.integers(1, 4),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    pad=st.integers(0, 5),
    seed=st.integers(0, 999),
)
def test_augment_is_pad_crop_flip(n, channels, height, width, pad, seed):
    x, shift_y, shift_x, flip = draws((n,), (channels, height, width), pad, seed)
    got = augment(x, shift_y, shift_x, flip, pad)
    assert got.dtype == torch.uint8
    want = augment_by_loop(x.numpy(), shift_y.numpy(), shift_x.numpy(), flip.numpy(), pad)
    np.testing.assert_array_equal(got.numpy(), want)


def test_augment_centre_crop_without_flip_is_the_image():
    x = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    centre = torch.full((3,), 4)
    padded = pad_images(x, torch.rand(3, 1, 1))
    assert torch.equal(augment(padded, centre, centre, torch.zeros(3, dtype=torch.bool)), x)


def test_the_border_has_the_mean_colour_and_is_zero_to_a_normalised_network():
    x = torch.full((2, 2, 6, 5), 200, dtype=torch.uint8)
    mean, std = torch.tensor([0.286, 0.5]).reshape(2, 1, 1), torch.tensor([0.35, 0.25]).reshape(2, 1, 1)
    padded = pad_images(x, mean)
    want = np.stack([np.pad(np.full((6, 5), 200), 4, constant_values=c) for c in (73, 128)])
    np.testing.assert_array_equal(padded.numpy(), np.stack([want, want]))
    zero = torch.zeros(2, dtype=torch.int64)
    corner = normalise(augment(padded, zero, zero, torch.zeros(2, dtype=torch.bool)), mean, std)
    assert corner[:, :, :4].abs().max() <= 0.5 / 255 / 0.25 + 1e-6
    assert (corner[:, :, 4:, 4:] > 0.8).all()


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28)])
def test_augment_with_a_run_axis_and_under_vmap_equals_run_by_run(shape):
    x, shift_y, shift_x, flip = draws((4, 5), shape, 4, 1)
    want = torch.stack([augment(x[r], shift_y[r], shift_x[r], flip[r]) for r in range(4)])
    assert torch.equal(augment(x, shift_y, shift_x, flip), want)
    assert torch.equal(torch.func.vmap(augment)(x, shift_y, shift_x, flip), want)


def test_augment_under_vmap_with_one_batch_shared_by_all_runs():
    x, *_ = draws((5,), (3, 8, 8), 4, 2)
    _, shift_y, shift_x, flip = draws((4, 5), (3, 8, 8), 4, 3)
    got = torch.func.vmap(augment, in_dims=(None, 0, 0, 0))(x, shift_y, shift_x, flip)
    for r in range(4):
        want = augment_by_loop(x.numpy(), shift_y[r].numpy(), shift_x[r].numpy(), flip[r].numpy(), 4)
        np.testing.assert_array_equal(got[r].numpy(), want)


def test_augment_and_normalise_trace_without_values():
    """Fake tensors carry no values: an item(), a nonzero() or a branch on a tensor would raise here."""
    x, shift_y, shift_x, flip = draws((2, 3), (3, 8, 8), 4, 4)
    mean, std = torch.rand(3, 1, 1), torch.rand(3, 1, 1) + 0.1

    def batch(x, shift_y, shift_x, flip):
        return normalise(augment(x, shift_y, shift_x, flip), mean, std)

    traced = make_fx(batch, tracing_mode="fake", _allow_non_fake_inputs=True)(x, shift_y, shift_x, flip)
    assert torch.equal(traced(x, shift_y, shift_x, flip), batch(x, shift_y, shift_x, flip))
    other = draws((2, 3), (3, 8, 8), 4, 5)
    assert torch.equal(traced(*other), batch(*other))


def test_augment_does_not_touch_its_input():
    x, shift_y, shift_x, flip = draws((3,), (3, 8, 8), 4, 6)
    before = x.clone()
    augment(x, shift_y, shift_x, flip)
    assert torch.equal(x, before)


def test_normalise_images_against_float64():
    x, *_ = draws((2, 3), (3, 5, 7), 4, 7)
    mean, std = torch.tensor([0.49, 0.0, 0.9]).reshape(3, 1, 1), torch.tensor([0.25, 1.0, 0.1]).reshape(3, 1, 1)
    got = normalise(x, mean, std)
    assert got.dtype == torch.float32
    want = (x.numpy() / 255.0 - mean.double().numpy()) / std.double().numpy()
    np.testing.assert_allclose(got.double().numpy(), want, rtol=0, atol=2e-6)
    vmapped = torch.func.vmap(normalise, in_dims=(0, None, None))(x, mean, std)
    assert torch.equal(vmapped, got)


def test_normalise_leaves_features_as_they_are():
    x = torch.randn(4, 6)
    assert torch.equal(normalise(x, torch.zeros(1), torch.ones(1)), x)
    got = normalise(x.double(), torch.full((1,), 2.0), torch.full((1,), 4.0))
    torch.testing.assert_close(got, (x.double() - 2) / 4, rtol=0, atol=0)
