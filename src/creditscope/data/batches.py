"""From stored samples to what a network sees: pure functions on the tensors' own device.

Both are safe inside ``torch.func.vmap`` and inside a CUDA graph: no shape and no branch depends on a value.
"""

import torch
import torch.nn.functional as F


def normalise(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """Samples as the network's input: (x − mean)/std, with uint8 images first brought to [0, 1] in float32.

    Args:
        x: uint8 images (..., C, H, W), or float features.
        mean: ``Dataset.mean``: per channel for images, zeros for features, which so stay as they are.
        std: ``Dataset.std``: likewise, ones for features.
    """
    if x.dtype == torch.uint8:
        x = x.to(torch.float32) / 255
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
    """
    *lead, channels, height, width = x_uint8.shape
    device = x_uint8.device
    padded = F.pad(x_uint8.reshape(-1, channels, height, width), (pad, pad, pad, pad))
    # Indices of the four axes, broadcast against each other inside the gather: nothing of image size is stored.
    row = torch.arange(height, device=device) + shift_y.reshape(-1, 1)
    column = torch.arange(width, device=device).expand(row.shape[0], width)
    column = torch.where(flip.reshape(-1, 1), width - 1 - column, column) + shift_x.reshape(-1, 1)
    sample = torch.arange(row.shape[0], device=device).reshape(-1, 1, 1, 1)
    channel = torch.arange(channels, device=device).reshape(1, -1, 1, 1)
    return padded[sample, channel, row[:, None, :, None], column[:, None, None, :]].reshape(x_uint8.shape)
