"""Many small images in one lossless picture: a grid, row by row."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

from creditscope.data.dataset import Array
from creditscope.errors import BadFile

MAX_PIXELS = 2**25


def decode_mosaic(data: bytes, where: str, side: int, channels: int) -> Array:
    """Split a PNG or WebP mosaic into its images.

    Args:
        data: The content of the picture's file.
        where: The file's name, for messages.
        side: Height and width of one image.
        channels: 1 for grey, 3 for RGB.

    Returns:
        uint8 (n, channels, side, side).
    """
    mode = {1: "L", 3: "RGB"}[channels]
    try:
        # The size is known before a pixel is decoded, so a picture made to fill the memory is refused here.
        with Image.open(io.BytesIO(data), formats=("PNG", "WEBP")) as image:
            width, height = image.size
            if image.mode != mode or width % side or height % side or width * height > MAX_PIXELS:
                raise BadFile(
                    f"{where}: wanted a {mode} mosaic of {side}x{side} images, found {image.mode} {width}x{height}"
                )
            pixels = np.array(image, dtype=np.uint8)
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, Image.DecompressionBombError):
        raise BadFile(f"{where}: not a readable PNG or WebP picture (truncated?); fetch the file again") from None
    grid = pixels.reshape(height // side, side, width // side, side, channels)
    return np.ascontiguousarray(grid.transpose(0, 2, 4, 1, 3)).reshape(-1, channels, side, side)
