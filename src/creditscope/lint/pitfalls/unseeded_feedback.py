"""CS009: a feedback matrix drawn without a seed."""

from collections.abc import Iterator

from creditscope.lint.draws import is_seeded, kept_draws, seeds_globally
from creditscope.lint.pitfall import Hit, Pitfall
from creditscope.lint.source import Source


def find(source: Source) -> Iterator[Hit]:
    """Find feedback that a class draws without a generator, in a file that sets no seed.

    Args:
        source: The file.
    """
    if seeds_globally(source):
        return
    for kept in kept_draws(source):
        if kept.is_feedback and not is_seeded(kept.draw):
            yield Hit(
                kept.draw, f"the feedback `{kept.attribute}` is drawn without a generator, and no seed is set here"
            )


PITFALL = Pitfall(
    code="CS009",
    title="feedback drawn without a seed",
    why=(
        "Feedback from the global generator depends on everything drawn before it: with another layer, worker count or "
        "import the run has other feedback. Such a run cannot be repeated, and its null cannot be drawn separately."
    ),
    fix="pass `generator=torch.Generator().manual_seed(seed)` to the draw: one generator for the feedback alone",
    wrong=(
        "import torch\n\nclass Feedback:\n    def __init__(self, classes, width):\n"
        "        self.B = torch.randn(classes, width)"
    ),
    right=(
        "import torch\n\nclass Feedback:\n    def __init__(self, classes, width, seed):\n"
        "        generator = torch.Generator().manual_seed(seed)\n"
        "        self.B = torch.randn(classes, width, generator=generator)"
    ),
    find=find,
)
