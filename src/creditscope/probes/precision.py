"""Full precision: while probes measure, nothing rounds float32 products to fewer bits behind their back."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

EXACT = "ieee"


@contextmanager
def full_precision() -> Iterator[None]:
    """Inside, TF32, bfloat16 products and autocast are off; the user's settings are back on the way out.

    A convolution in TF32 gives a healthy net a reference whose cosine with the true one is .998.
    """
    old = _old_settings()
    parts = _parts()
    before = [part.fp32_precision for part in parts]
    try:
        if old is not None:
            _set_old("highest", False)
        for part in parts:
            part.fp32_precision = EXACT
        with ExitStack() as stack:
            for device in _devices():
                stack.enter_context(torch.autocast(device, enabled=False))
            yield
    finally:
        if old is not None:
            _set_old(*old)
        for part, value in zip(parts, before, strict=True):
            # A part that follows what is set for all of torch must go on following it.
            part.fp32_precision = "none"
            if part.fp32_precision != value:
                part.fp32_precision = value


def switched_off(device: str) -> str:
    """What of the user's settings ``full_precision`` switches off on a device, in words; ``nothing`` where none is on.

    Args:
        device: ``cpu`` or ``cuda``.
    """
    names = ("matmul", "convolutions", "recurrent layers")
    parts = zip(names, _parts()[:3] if device == "cuda" else _parts()[3:], strict=True)
    found = [f"{part.fp32_precision} {name}" for name, part in parts if part.fp32_precision not in (EXACT, "none")]
    if torch.is_autocast_enabled(device):
        found.append(f"autocast {str(torch.get_autocast_dtype(device)).removeprefix('torch.')}")
    return ", ".join(found) or "nothing"


def _parts() -> tuple[Any, ...]:
    """Everything with a precision of its own: on CUDA, then on the CPU."""
    cuda, cudnn, cpu = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    return cuda.matmul, cudnn.conv, cudnn.rnn, cpu.matmul, cpu.conv, cpu.rnn  # type: ignore[attr-defined]


def _old_settings() -> tuple[str, bool] | None:
    """The older switches for the same; None where the newer ones were used, which the older cannot express."""
    try:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return None


def _set_old(matmul: str, cudnn: bool) -> None:
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = cudnn


def _devices() -> tuple[str, ...]:
    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
