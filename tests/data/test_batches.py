import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from creditscope.data.batches import augment, crop_windows, normalise, pad_images


def augment_by_loop(x: np.ndarray, shift_y: np.ndarray, shift_x: np.ndarray, flip: np.ndarray, pad: int) -> np.ndarray:
    """The obvious way: slice and reverse, one padded image at a time."""
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
    got = augment(crop_windows(x, pad), torch.arange(n), shift_y, shift_x, flip)
    assert got.dtype == torch.uint8
    want = augment_by_loop(x.numpy(), shift_y.numpy(), shift_x.numpy(), flip.numpy(), pad)
    np.testing.assert_array_equal(got.numpy(), want)


def test_augment_centre_crop_without_flip_is_the_image():
    x = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    centre = torch.full((3,), 4)
    padded = pad_images(x, torch.rand(3, 1, 1))
    got = augment(crop_windows(padded), torch.arange(3), centre, centre, torch.zeros(3, dtype=torch.bool))
    assert torch.equal(got, x)


def test_the_border_has_the_mean_colour_and_is_zero_to_a_normalised_network():
    x = torch.full((2, 2, 6, 5), 200, dtype=torch.uint8)
    mean, std = torch.tensor([0.286, 0.5]).reshape(2, 1, 1), torch.tensor([0.35, 0.25]).reshape(2, 1, 1)
    padded = pad_images(x, mean)
    want = np.stack([np.pad(np.full((6, 5), 200), 4, constant_values=c) for c in (73, 128)])
    np.testing.assert_array_equal(padded.numpy(), np.stack([want, want]))
    zero = torch.zeros(2, dtype=torch.int64)
    crop = augment(crop_windows(padded), torch.arange(2), zero, zero, torch.zeros(2, dtype=torch.bool))
    corner = normalise(crop, mean, std)
    assert corner[:, :, :4].abs().max() <= 0.5 / 255 / 0.25 + 1e-6
    assert (corner[:, :, 4:, 4:] > 0.8).all()


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28)])
def test_augment_with_a_run_axis_equals_run_by_run(shape):
    x, *_ = draws((7,), shape, 4, 1)
    _, shift_y, shift_x, flip = draws((4, 5), shape, 4, 2)
    image = torch.from_numpy(np.random.default_rng(3).integers(0, 7, (4, 5)))
    got = augment(crop_windows(x), image, shift_y, shift_x, flip)
    for r in range(4):
        want = augment_by_loop(x[image[r]].numpy(), shift_y[r].numpy(), shift_x[r].numpy(), flip[r].numpy(), 4)
        np.testing.assert_array_equal(got[r].numpy(), want)


def test_windows_are_no_copy():
    x, *_ = draws((3,), (3, 8, 8), 4, 5)
    windows = crop_windows(x)
    assert windows.shape == (3, 9, 9, 3, 8, 8)
    assert windows.data_ptr() == x.data_ptr()


def test_augment_and_normalise_trace_without_values():
    """Fake tensors carry no values: an item(), a nonzero() or a branch on a tensor would raise here."""
    x, *_ = draws((3,), (3, 8, 8), 4, 4)
    image = torch.arange(3).expand(2, 3)
    mean, std = torch.rand(3, 1, 1), torch.rand(3, 1, 1) + 0.1

    def batch(x, shift_y, shift_x, flip):
        return normalise(augment(crop_windows(x), image, shift_y, shift_x, flip), mean, std)

    one, other = (draws((2, 3), (3, 8, 8), 4, seed)[1:] for seed in (4, 5))
    traced = make_fx(batch, tracing_mode="fake", _allow_non_fake_inputs=True)(x, *one)
    assert torch.equal(traced(x, *one), batch(x, *one))
    assert torch.equal(traced(x, *other), batch(x, *other))


def test_augment_does_not_touch_its_input():
    x, shift_y, shift_x, flip = draws((3,), (3, 8, 8), 4, 6)
    before = x.clone()
    augment(crop_windows(x), torch.arange(3), shift_y, shift_x, flip)
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
