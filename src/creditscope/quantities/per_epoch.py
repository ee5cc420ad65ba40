"""What is measured after every epoch."""

import math
from collections.abc import Sequence

from creditscope.quantities.quantity import EpochQuantity, held, one
from creditscope.records.measured import Numbers
from creditscope.records.rows import EpochRow
from creditscope.records.units import PER_SAMPLE


def largest(values: Sequence[float | None]) -> float | None:
    """The largest of what was measured; None as soon as one value is not finite.

    Args:
        values: Any numbers.
    """
    known = [value for value in values if value is not None]
    return max(known) if known and all(map(math.isfinite, known)) else None


def _largest_growth(row: EpochRow) -> Numbers | None:
    found = largest(row.growth or ())
    return None if found is None else [found]


def _movement(row: EpochRow) -> Numbers | None:
    """A block stands still only when all of its weight matrices do."""
    if row.movement is None:
        return None
    weights = row.movement.weights
    return [largest([weights.get(name) for name in names]) for names in row.movement.blocks]


def _stillest(row: EpochRow) -> Numbers | None:
    """The smallest movement over the blocks that train, where all of them were measured."""
    moved = _movement(row)
    if moved is None or row.movement is None:
        return None
    trained = [value for value, trains in zip(moved, row.movement.trainable, strict=False) if trains]
    known = [value for value in trained if value is not None]
    return [min(known)] if known and len(known) == len(trained) else None


def _gamma(part: str, symbol: str, label: str) -> EpochQuantity:
    return EpochQuantity(
        f"gamma_{part}", symbol, "", label, "one", one("gamma", part), field=f"gamma/{part}", angle=True
    )


TRAIN_LOSS = EpochQuantity(
    "train_loss",
    "training loss",
    "nats",
    "training loss (nats)",
    "one",
    one("train_loss"),
    field="train_loss",
    log=False,
)
TEST_LOSS = EpochQuantity(
    "test_loss", "test loss", "nats", "test loss (nats)", "one", one("test_loss"), field="test_loss", log=False
)
ACCURACY = EpochQuantity(
    "accuracy", "accuracy", "", "test accuracy", "one", one("test_accuracy"), field="test_accuracy", log=False
)
BALANCED_ACCURACY = EpochQuantity(
    "balanced_accuracy",
    "balanced accuracy",
    "",
    "mean of the per-class accuracies",
    "one",
    one("balanced_accuracy"),
    field="balanced_accuracy",
    log=False,
)
LR = EpochQuantity("lr", "lr", "", "learning rate", "one", one("lr"), field="lr", log=True)
ERROR = EpochQuantity("error", "‖e‖", "", "output error ‖e‖, median", "one", one("error"), field="error", log=True)
GAMMA_ACTING = _gamma("acting", "Γ where it acts", "Γ, where the credit acts")
GAMMA_DEEP = _gamma("deep", "deep cos", "Γ, deep states only")
GAMMA_WORST = _gamma("worst", "worst cosine", "smallest cosine over states")
GAMMA_PUBLISHED = _gamma("published", "Γ", "Γ, published index")
GAMMA_CLAMPED = _gamma("clamped", "clamped Γ", "Γ, published index, with torch's clamp")
HIDDEN = EpochQuantity(
    "hidden", "‖h_l‖", "", "stream ‖h_l‖, median", "state", held("hidden", "median"), field="hidden", log=True
)
REFERENCE = EpochQuantity(
    "reference",
    "‖g_l‖",
    PER_SAMPLE,
    "reference ‖g_l‖ per sample, median",
    "state",
    held("reference", "median"),
    field="reference",
    converted=True,
    log=True,
)
GAIN = EpochQuantity("gain", "γ_l", "‖g‖/‖e‖", "gain ‖g_l‖/‖e‖, median", "state", held("gain"), field="gain", log=True)
GROWTH = EpochQuantity(
    "growth", "‖h_{l+1}‖/‖h_l‖", "×", "growth ‖h_{l+1}‖/‖h_l‖", "block", held("growth"), field="growth", log=True
)
BRANCH = EpochQuantity(
    "branch", "‖f_l‖/‖h_l‖", "", "branch ‖f_l‖/‖h_l‖, median", "block", held("branch"), field="branch", log=True
)
COSINE = EpochQuantity(
    "cosine",
    "cos(c_l, g_l)",
    "",
    "cosine of credit and reference, where it acts",
    "state",
    held("cosine", "mean"),
    field="cosine",
    angle=True,
    null=lambda row: row.null,
    status=lambda row: () if row.cosine is None else row.cosine.status,
)
PUBLISHED = EpochQuantity(
    "published",
    "cosine, published index",
    "",
    "cosine in the published index (one block off)",
    "state",
    held("cosine_published", "mean"),
    field="cosine_published",
    angle=True,
    null=lambda row: row.null_published,
    status=lambda row: () if row.cosine_published is None else row.cosine_published.status,
)
GROWTH_MAX = EpochQuantity(
    "growth_max", "growth", "×", "largest growth over blocks", "one", _largest_growth, field="growth/max", log=True
)
MOVEMENT = EpochQuantity(
    "movement", "‖Δθ_l‖/‖θ_l(0)‖", "", "movement of the block's weights", "block", _movement, field="movement", log=True
)
STILLEST = EpochQuantity(
    "stillest", "min_l ‖Δθ_l‖/‖θ_l(0)‖", "", "movement of the stillest block", "one", _stillest, log=True
)
