"""From stored samples to what a network sees: pure functions on the tensors' own device.

``normalise`` and ``augment`` are safe inside ``torch.func.vmap`` and inside a CUDA graph: no shape and no branch
depends on a value.
"""

import torch

PAD = 4


def normalise(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """Samples as the network's input: (x − mean)/std, with uint8 images first brought to [0, 1] in float32.

    Args:
        x: uint8 images (..., C, H, W), or float features.
        mean: ``Dataset.mean``: per channel for images, zeros for features, which so stay as they are.
        std: ``Dataset.std``: likewise, ones for features.
    """
    if x.dtype == torch.uint8:
        # x/(255·std) − mean/std: two passes over the images instead of four.
        return torch.addcmul(-mean / std, x.to(torch.float32), 1 / (255 * std))
    return (x - mean) / std


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


def augment(
    padded: torch.Tensor, shift_y: torch.Tensor, shift_x: torch.Tensor, flip: torch.Tensor, pad: int = PAD
) -> torch.Tensor:
    """Random crop of padded images to their own size, then horizontal flip, by one gather.

    Args:
        padded: From ``pad_images``, (..., C, H + 2·pad, W + 2·pad); leading axes are samples, or runs and samples.
        shift_y: Top edge of each crop, int64 in 0..2·pad, shaped like the leading axes.
        shift_x: Left edge, likewise.
        flip: Whether the cropped image is mirrored, bool, likewise.
        pad: Pixels that were added on each side.

    Returns:
        Images (..., C, H, W).
    """
    *lead, channels, tall, wide = padded.shape
    height, width = tall - 2 * pad, wide - 2 * pad
    row = torch.arange(height, device=padded.device) + shift_y[..., None]
    column = torch.arange(width, device=padded.device)
    column = torch.where(flip[..., None], width - 1 - column, column) + shift_x[..., None]
    # One flat index a pixel, shared by the channels: indexing axis by axis would store one int64 a value and axis.
    pixel = (row[..., :, None] * wide + column[..., None, :]).flatten(-2)[..., None, :]
    shared = pixel.expand(*pixel.shape[:-2], channels, height * width)
    return torch.gather(padded.flatten(-2), -1, shared).reshape(*lead, channels, height, width)
