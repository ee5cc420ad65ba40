"""From stored samples to what a network sees: pure functions on the tensors' own device.

Both are safe inside ``torch.func.vmap`` and inside a CUDA graph: no shape and no branch depends on a value.
"""

import torch
from torch.nn.functional import pad as pad_edges


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


def augment(
    x_uint8: torch.Tensor, shift_y: torch.Tensor, shift_x: torch.Tensor, flip: torch.Tensor, pad: int = 4
) -> torch.Tensor:
    """Random crop of zero-padded raw pixels, then horizontal flip, by one gather.

    Args:
        x_uint8: Images (..., C, H, W); the leading axes are samples, or runs and samples.
        shift_y: Top edge of each crop in the padded image, int64 in 0..2·pad, shaped like the leading axes.
        shift_x: Left edge, likewise.
        flip: Whether the cropped image is mirrored, bool, likewise.
        pad: Zero pixels added on each side.

    Returns:
        Images of the shape and dtype of ``x_uint8``.
    """
    channels, height, width = x_uint8.shape[-3:]
    device = x_uint8.device
    padded = pad_edges(x_uint8, (pad, pad, pad, pad)).flatten(-2)
    row = torch.arange(height, device=device) + shift_y[..., None]
    column = torch.arange(width, device=device)
    column = torch.where(flip[..., None], width - 1 - column, column) + shift_x[..., None]
    # One flat index a pixel, shared by the channels: indexing axis by axis would store one int64 a value and axis.
    pixel = (row[..., :, None] * (width + 2 * pad) + column[..., None, :]).flatten(-2)[..., None, :]
    shared = pixel.expand(*pixel.shape[:-2], channels, height * width)
    return torch.gather(padded, -1, shared).reshape(x_uint8.shape)
