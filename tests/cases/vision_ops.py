"""Make torchvision importable beside a CPU torch.

The public wheel is built for CUDA: beside a CPU build of torch its operators do not load, and importing it raises,
which takes Lightning, Transformers and timm with it. Nothing here uses those operators; once they are declared by
name, everything imports.
"""

from importlib.util import find_spec
from pathlib import Path

import torch

_KEPT: list[torch.library.Library] = []  # a declaration lives as long as its library


def declare() -> None:
    """Declare the two operators whose absence makes the import fail, unless the real ones load."""
    found = find_spec("torchvision")
    if _KEPT or found is None or found.origin is None:
        return
    try:
        torch.ops.load_library(Path(found.origin).parent / "_C.so")
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)
