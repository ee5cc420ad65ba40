"""The parts of a run's spec: its data, optimiser, feedback, tuning and probes."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

# No model, data set or training that anybody describes goes beyond these: a forged log costs no more than a real one.
MAX_NAME, MAX_DEPTH, MAX_WIDTH, MAX_EPOCHS, MAX_COUNT = 200, 1000, 2**20, 10**6, 2**53
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]

# Classes are called unequal when their counts differ by more than this factor.
UNEQUAL = 1.1


class Frozen(BaseModel):
    """Base of every record: immutable, unknown keys refused, NaN refused in specs."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DataSpec(Frozen):
    """Which images or vectors, with the content hash of each split.

    Args:
        name: ``fashion-mini``, ``cifar10``, ``synthetic``, or the stem of a user's file.
        hash_train: SHA-256 of the training split's content (inputs, shapes and labels).
        hash_test: The same for the test split.
        shape: Shape of one sample.
        n_train: Training samples.
        n_test: Test samples.
        class_counts: Test samples per class (of text: test tokens per character); chance is the largest share.
        tokens: Targets of one sample, where it is a sequence whose every token has one; None: one target a sample.
        unigram: Of text, nats per test token for who predicts every character by its share of the training split.
    """

    name: str = Field(max_length=MAX_NAME)
    hash_train: str | None = None
    hash_test: str | None = None
    shape: tuple[Count, ...] | None = Field(default=None, max_length=64)
    n_train: int | None = Field(default=None, gt=0, le=MAX_COUNT)
    n_test: int | None = Field(default=None, gt=0, le=MAX_COUNT)
    class_counts: tuple[Count, ...] | None = Field(default=None, max_length=2**16)
    tokens: int | None = Field(default=None, gt=0, le=MAX_COUNT)
    unigram: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _without_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_later(handler(self), _LATER_OF_DATA)

    @property
    def unequal(self) -> bool:
        """Whether the classes of the test split differ by more than 10 % in size: then balanced accuracy is judged.

        Characters always do, and of text it is token accuracy that is judged, against the most frequent character.
        """
        if self.tokens is not None:
            return False
        counts = [count for count in self.class_counts or () if count]
        return bool(counts) and max(counts) / min(counts) > UNEQUAL


# Fields of a data set that came later: one without them keeps its log, its names and its keys.
_LATER_OF_DATA = ("tokens", "unigram")


def without_later(dump: dict[str, Any], later: Sequence[str]) -> dict[str, Any]:
    """A dumped record without the fields that came later and are not set.

    Args:
        dump: Its fields.
        later: Names of those that came later.
    """
    return {key: value for key, value in dump.items() if key not in later or value is not None}


class OptimiserSpec(Frozen):
    """The optimiser and its constants.

    Args:
        name: Which optimiser.
        lr: Learning rate before the schedule.
        weight_decay: Decoupled decay, on all trained parameters.
        betas: AdamW: decay rates of the two moments.
        eps: AdamW: added to the root of the second moment.
        momentum: SGD: share of the last step that goes on; 0.9 where nothing is said.
    """

    name: Literal["adamw", "sgd"] = "adamw"
    lr: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0, allow_inf_nan=False)
    momentum: float | None = Field(default=None, ge=0, lt=1)

    @model_validator(mode="before")
    @classmethod
    def _default_momentum(cls, data: Any) -> Any:
        return {"momentum": 0.9, **data} if isinstance(data, dict) and data.get("name") == "sgd" else data

    @model_validator(mode="after")
    def _only_its_own_constants(self) -> Self:
        fields = type(self).model_fields
        for name in _NOT_OF[self.name]:
            if getattr(self, name) != fields[name].default:
                raise ValueError(f"{self.name} has no {name}; leave it out, or choose another optimiser")
        if self.name == "sgd" and self.momentum is None:
            raise ValueError("sgd wants a momentum, 0 for none")
        return self

    @model_serializer(mode="wrap")
    def _its_own_constants(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dump: dict[str, Any] = handler(self)
        return {key: value for key, value in dump.items() if key not in _NOT_OF[self.name]}


# Constants that an optimiser does not have.
_NOT_OF = {"adamw": ("momentum",), "sgd": ("betas", "eps")}


class FeedbackSpec(Frozen):
    """How the random feedback was drawn, and the hash of what was drawn.

    Args:
        dist: ``normal``, ``like-init``, or None for rules without feedback.
        scale: The standard deviation in words, e.g. ``1/sqrt(classes)``.
        seed: Seed of the feedback.
        hash: SHA-256 over the drawn matrices; filled in when training starts.
    """

    dist: str | None = None
    scale: str | None = None
    seed: int | None = None
    hash: str | None = None


class Tuning(Frozen):
    """How a run's learning rate was chosen: one run at each rate, without the last training samples, judged on them.

    Args:
        rates: The learning rates that were tried.
        held_out: How many of the last training samples were held out.
        seed: Seed of these runs.
        epochs: Epochs that they trained.
        accuracy: Accuracy on the held-out samples at the last epoch, by rate; None where the run diverged.
    """

    rates: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = Field(min_length=1, max_length=64)
    held_out: int = Field(gt=0, le=MAX_COUNT)
    seed: int
    epochs: int = Field(gt=0, le=MAX_EPOCHS)
    accuracy: tuple[Annotated[float, Field(ge=0, le=1)] | None, ...] = Field(max_length=64)

    @model_validator(mode="after")
    def _one_accuracy_a_rate(self) -> Self:
        if len(self.accuracy) != len(self.rates):
            raise ValueError(f"{len(self.rates)} rates and {len(self.accuracy)} accuracies; wanted one for each")
        return self

    @property
    def best(self) -> float:
        """The rate of the highest accuracy, the smallest of several; the smallest of all where every run diverged."""
        pairs = zip(self.rates, self.accuracy, strict=True)
        return min(pairs, key=lambda pair: (math.inf if pair[1] is None else -pair[1], pair[0]))[0]


class ProbeSpec(Frozen):
    """On what data and in which units the probes measure.

    Args:
        n: Probe samples: the first ``n`` of the test split, unaugmented.
        batch: Probe batch size.
        reduction: ``sum``: gradients are per sample; ``mean``: divided by the probe batch.
        mode: The module mode while measuring.
        epochs: Epochs at which the expensive set is measured besides the last; None: the protocol's list.
        redraws: K, redraws of the fresh-feedback null.
        directions: M, random directions of ρ.
    """

    n: int | None = Field(default=1024, gt=0, le=MAX_COUNT)
    batch: int | None = Field(default=128, gt=0, le=MAX_COUNT)
    reduction: Literal["sum", "mean"] | None = "sum"
    mode: Literal["eval", "train"] | None = "eval"
    epochs: tuple[int, ...] | None = Field(
        default=None, max_length=MAX_EPOCHS, validation_alias=AliasChoices("epochs", "dear")
    )  # version 1
    redraws: int = Field(default=999, ge=0, le=10**6)
    directions: int = Field(default=32, ge=0, le=10**6)
