"""From stored samples to what a network sees: pure functions on the tensors' own device.

``normalise`` and ``augment`` are safe inside ``torch.func.vmap`` and inside a CUDA graph: no shape and no branch
depends on a value.
"""

import torch

PAD = 4


def normalise(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """Samples as the network's input: (x − mean)/std, with uint8 images first brought to [0, 1] in float32.

    Characters, which are int64, are looked up and not computed with: they stay as they are.

    Args:
        x: uint8 images (..., C, H, W), float features, or characters.
        mean: ``Dataset.mean``: per channel for images, zeros for features, which so stay as they are.
        std: ``Dataset.std``: likewise, ones for features.
    """
    if x.dtype == torch.uint8:
        # x/(255·std) − mean/std, in one pass over the images.
        return torch.addcmul(-mean / std, x, 1 / (255 * std))
    return (x - mean) / std if x.is_floating_point() else x


def in_dtype(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Inputs in a run's dtype; characters stay whole numbers.

    Args:
        x: From ``normalise``.
        dtype: Of the run.
    """
    return x.to(dtype) if x.is_floating_point() else x


def pad_images(x_uint8: torch.Tensor, mean: torch.Tensor, pad: int = PAD) -> torch.Tensor:
    """Images with a border in the data's mean colour, from which ``augment`` crops.

    A normalised network sees that border as zeros, to within half a grey level: the crop adds no contrast of its
    own, as when images are padded after normalisation.

    Args:
        x_uint8: Images (..., C, H, W).
        mean: ``Dataset.mean``.
        pad: Pixels added on each side.
    """
    *lead, height, width = x_uint8.shape
    colour = (255 * mean).round().to(torch.uint8)
    padded = colour.expand(*lead, height + 2 * pad, width + 2 * pad).clone()
    padded[..., pad : pad + height, pad : pad + width] = x_uint8
    return padded


def crop_windows(padded: torch.Tensor, pad: int = PAD) -> torch.Tensor:
    """Every crop of every padded image to its own size, as a view: nothing is copied.

    Args:
        padded: From ``pad_images``, (n, C, H + 2·pad, W + 2·pad).
        pad: Pixels that were added on each side.

    Returns:
        Shape (n, 2·pad + 1, 2·pad + 1, C, H, W): image, top edge, left edge, then the crop.
    """
    *_, tall, wide = padded.shape
    windows = padded.unfold(-2, tall - 2 * pad, 1).unfold(-2, wide - 2 * pad, 1)
    return windows.permute(0, 2, 3, 1, 4, 5)


def augment(
    windows: torch.Tensor, image: torch.Tensor, shift_y: torch.Tensor, shift_x: torch.Tensor, flip: torch.Tensor
) -> torch.Tensor:
    """Random crop, then horizontal flip.

    Args:
        windows: From ``crop_windows``.
        image: Which images, int64; its axes are samples, or runs and samples.
        shift_y: Top edge of each crop, int64, shaped alike.
        shift_x: Left edge, likewise.
        flip: Whether the cropped image is mirrored, bool, likewise.

    Returns:
        Images (..., C, H, W).
    """
    crop = windows[image, shift_y, shift_x]
    return torch.where(flip[..., None, None, None], crop.flip(-1), crop)
