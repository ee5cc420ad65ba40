"""Other people's packages in tests: torchvision on a build of torch without its operators."""

import sys

import torch

_HELD = []


def with_torchvision() -> None:
    """Make torchvision importable: on a CPU build of torch two operator names are missing; nothing here calls them."""
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        # The definitions last as long as this object.
        _HELD.append(library)
        import torchvision  # noqa: F401
