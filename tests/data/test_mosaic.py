import io

import numpy as np
import pytest
from PIL import Image

from creditscope.data import mosaic
from creditscope.data.mosaic import decode_mosaic
from creditscope.errors import BadFile


def encode(pixels: np.ndarray, kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **({"lossless": True, "exact": True} if kind == "WEBP" else {}))
    return buffer.getvalue()


@pytest.mark.parametrize(("kind", "channels"), [("PNG", 1), ("PNG", 3), ("WEBP", 3)])
def test_images_come_row_by_row(kind, channels):
    rng = np.random.default_rng(0)
    shape = (2 * 4, 3 * 4) if channels == 1 else (2 * 4, 3 * 4, 3)
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    got = decode_mosaic(encode(pixels, kind), "picture", side=4, channels=channels)
    assert got.shape == (6, channels, 4, 4)
    cube = pixels.reshape(8, 12, channels)
    for i in range(6):
        for c in range(channels):
            for y in range(4):
                for x in range(4):
                    assert got[i, c, y, x] == cube[i // 3 * 4 + y, i % 3 * 4 + x, c]


@pytest.mark.parametrize(
    ("shape", "channels", "message"),
    [
        ((8, 9), 1, "wanted a L mosaic of 4x4 images, found L 9x8"),
        ((7, 8), 1, "found L 8x7"),
        ((8, 8), 3, "wanted a RGB mosaic of 4x4 images, found L 8x8"),
        ((8, 8, 4), 3, "found RGBA 8x8"),
    ],
)
def test_other_pictures(shape, channels, message):
    data = encode(np.zeros(shape, dtype=np.uint8), "PNG")
    with pytest.raises(BadFile, match=message):
        decode_mosaic(data, "picture", side=4, channels=channels)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
@pytest.mark.parametrize("part", [0.0, 0.02, 0.3, 0.9])
def test_truncated_pictures(kind, part):
    pixels = np.random.default_rng(1).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    data = encode(pixels, kind)
    with pytest.raises(BadFile, match=r"not a readable PNG or WebP picture \(truncated\?\)"):
        decode_mosaic(data[: int(len(data) * part)], "picture", side=4, channels=3)


def test_other_formats_are_not_even_tried():
    buffer = io.BytesIO()
    Image.new("L", (8, 8)).save(buffer, "BMP")
    with pytest.raises(BadFile, match="not a readable PNG or WebP"):
        decode_mosaic(buffer.getvalue(), "picture", side=4, channels=1)


def test_a_picture_too_large_is_refused_before_it_is_decoded(monkeypatch):
    data = encode(np.zeros((400, 400), dtype=np.uint8), "PNG")
    monkeypatch.setattr(mosaic, "MAX_PIXELS", 399 * 400)
    monkeypatch.setattr(np, "array", None)
    with pytest.raises(BadFile, match="found L 400x400"):
        decode_mosaic(data, "picture", side=4, channels=1)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(BadFile, match="not a readable PNG or WebP"):
        decode_mosaic(data, "picture", side=4, channels=1)
