"""CS005: a random feedback matrix that is not saved with the model."""

from collections.abc import Iterator

from creditscope.lint.draws import Kept, is_module, is_saved_by_class, kept_draws, saved_by_hand
from creditscope.lint.pitfall import Hit, Pitfall
from creditscope.lint.source import Source
from creditscope.lint.text import parts

# Random tensors that a module may well hold without saving them.
_THROW_AWAY = {"noise", "dummy", "example", "sample", "input", "inputs", "latent", "z", "x", "mask", "eps"}


def find(source: Source) -> Iterator[Hit]:
    """Find random tensors that an ``nn.Module`` keeps outside its state dict.

    Args:
        source: The file.
    """
    saved = saved_by_hand(source)
    for kept in kept_draws(source):
        if kept.how in ("buffer", "parameter") or not is_module(source, kept.owner):
            continue
        if not (kept.is_feedback or _is_drawn_once(kept)) or kept.attribute in saved:
            continue
        if is_saved_by_class(source, kept):
            continue
        what = "a buffer that is not persistent" if kept.how == "hidden buffer" else "a plain attribute"
        yield Hit(
            kept.node,
            f"`{kept.attribute}` is random and {what}: it is not in the state dict, so the run's own matrix is lost",
            f'`self.register_buffer("{kept.attribute}", ...)` (for a list: one buffer each), and save the state dict',
        )


def _is_drawn_once(kept: Kept) -> bool:
    return kept.method in ("", "__init__") and not _THROW_AWAY.intersection(parts(kept.attribute))


PITFALL = Pitfall(
    code="CS005",
    title="a random feedback matrix that is not saved",
    why=(
        "A tensor assigned to `self` is neither in `state_dict()` nor moved by `.to()`. Without the run's own feedback "
        "the delivered credit can never be computed again: a redrawn matrix gives a cosine that belongs to no run."
    ),
    fix='register it: `self.register_buffer("B", torch.randn(..., generator=generator))`',
    wrong=(
        "import torch\nfrom torch import nn\n\nclass Layer(nn.Module):\n    def __init__(self, generator):\n"
        "        super().__init__()\n        self.B = torch.randn(10, 64, generator=generator)"
    ),
    right=(
        "import torch\nfrom torch import nn\n\nclass Layer(nn.Module):\n    def __init__(self, generator):\n"
        '        super().__init__()\n        self.register_buffer("B", torch.randn(10, 64, generator=generator))'
    ),
    find=find,
)
