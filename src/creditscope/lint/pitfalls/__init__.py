"""Every pitfall the linter knows, in one registry."""

from creditscope.errors import BadInput, did_you_mean
from creditscope.lint.pitfall import Pitfall
from creditscope.lint.pitfalls import (
    absolute_floor,
    absolute_step,
    clamped_cosine,
    half_precision,
    invented_cosine,
    norm_order,
    self_cosine,
    unsaved_feedback,
    unseeded_feedback,
)

PITFALLS: dict[str, Pitfall] = {
    module.PITFALL.code: module.PITFALL
    for module in (
        norm_order,
        clamped_cosine,
        invented_cosine,
        half_precision,
        unsaved_feedback,
        self_cosine,
        absolute_floor,
        absolute_step,
        unseeded_feedback,
    )
}


def pitfall(code: str) -> Pitfall:
    """Look up a pitfall.

    Args:
        code: Its code, in any case.
    """
    known = PITFALLS.get(code.strip().upper())
    if known is None:
        raise BadInput(f"wanted the code of a pitfall, got {code!r}; {did_you_mean(code.upper(), PITFALLS)}")
    return known
