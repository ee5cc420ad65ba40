"""The rows of a run log. Every number has its unit in its field's description; None means not measured.

Per-state lists run over the states h_0..h_L where they act; per-block lists over blocks 0..L−1.
"""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from creditscope.records.rule_card import RuleCard
from creditscope.records.spec import RunSpec
from creditscope.records.spec_parts import MAX_COUNT, MAX_EPOCHS, Count, Frozen
from creditscope.records.units import Units
from creditscope.records.version1 import card_of

SCHEMA_VERSION = 2
# More than any machine has: to ask torch for a hundred thousand ends the process.
MAX_THREADS = 4096

Number = float | None
Numbers = list[float | None]
CosineStatus = Literal[
    "ok", "zero-vector", "below-fidelity", "no-credit-saved", "exact-by-construction", "not measured"
]


class Norms(Frozen):
    """L2 norms over the probe samples, one entry per state.

    Args:
        median: Median over samples.
        q05: 5 % quantile.
        q95: 95 % quantile.
        low: Lower end of the 95 % bootstrap interval of the median.
        high: Upper end of it.
        n: Probe samples.
    """

    median: Numbers
    q05: Numbers | None = None
    q95: Numbers | None = None
    low: Numbers | None = None
    high: Numbers | None = None
    n: Count | None = None

    @model_validator(mode="after")
    def _norms_are_not_negative(self) -> Self:
        lists = (self.median, self.q05 or (), self.q95 or (), self.low or (), self.high or ())
        # One flat pass: this runs twice for every epoch that is read.
        if True in [value < 0 for values in lists for value in values if value]:
            for name, values in zip(("median", "q05", "q95", "low", "high"), lists, strict=True):
                for state, value in enumerate(values):
                    if value is not None and value < 0:
                        raise ValueError(f"a norm cannot be negative, got {name}[{state}] = {value}")
        return self


class Cosines(Frozen):
    """Cosines over probe samples, one entry per state; the mean is over samples where it is defined.

    Computed in float64 from the run's own parameters and state, every epoch on at most 256 samples.

    Args:
        mean: Mean cosine.
        sd: Standard deviation over samples.
        n: Samples where it is defined.
        n_undefined: Samples with a zero vector on either side.
        status: Why a value is or is not what it seems; ``below-fidelity`` where the run's dtype spoils the reference.
    """

    mean: Numbers
    sd: Numbers | None = None
    n: list[int] | None = None
    n_undefined: list[int] | None = None
    status: list[CosineStatus]

    @model_validator(mode="after")
    def _cosines_are_cosines(self) -> Self:
        # NaN passes here: a diverged run has it, and the log carries it as null with its place named.
        if True in [abs(value) > 1 + 1e-9 for value in self.mean if value]:
            state, value = next((at, v) for at, v in enumerate(self.mean) if v is not None and abs(v) > 1 + 1e-9)
            raise ValueError(f"a cosine lies in [-1, 1], got mean[{state}] = {value}")
        return self


class Gamma(Frozen):
    """Aggregate cosines, side by side.

    Args:
        acting: Mean over states of the cosine where the credit acts.
        deep: Mean over deep states that are not exact by construction.
        worst: The smallest of the per-state means.
        published: Mean over l = 0..L−1 of ``cosine_published``.
        clamped: The same by torch's clamped cosine on mean-reduced gradients.
    """

    acting: Number = None
    deep: Number = None
    worst: Number = None
    published: Number = None
    clamped: Number = None


class Movement(Frozen):
    """How far each weight matrix moved: min_c ‖θ(t) − c·θ(0)‖/‖θ(0)‖, dimensionless.

    Args:
        weights: Value by parameter name.
        blocks: Parameter names of the weight matrices of each block.
        trainable: Whether each block trains.
        feedback: Value of each matrix that a learning rule keeps in its state; None where nothing of it learns.
    """

    weights: dict[str, Number]
    blocks: list[list[str]]
    trainable: list[bool]
    feedback: dict[str, Number] | None = None


class Fidelity(Frozen):
    """φ = cos(g in the run's dtype, g in float64), per state.

    Args:
        median: Median over samples.
        confident: Median over the most confident tenth of the samples.
        error: √(1 − φ²), the cosine error that φ allows.
        n_zero: Samples whose g is zero in the run's dtype but not in float64 (counted as φ = 0).
        dtype: The run's dtype.
    """

    median: Numbers
    confident: Numbers | None = None
    error: Numbers | None = None
    n_zero: list[int] | None = None
    dtype: str


class ClampOnset(Frozen):
    """The mean-reduced probe size above which the median sample meets torch's 1e-8 clamp, per state.

    Args:
        onset: N* = med‖g_l‖/1e-8, in samples.
        shrink: Factor max(1, N/N*) by probe size N, as text.
    """

    onset: Numbers
    shrink: dict[str, Numbers]


class NullTest(Frozen):
    """One observed statistic per state against redraws of the feedback.

    Args:
        observed: The statistic.
        p: (1 + #{null ≥ observed})/(K + 1).
        mean: Mean of the null.
        sd: Standard deviation of the null.
        redraws: K.
        kind: What was drawn again: ``fresh feedback``, ``rotated credit`` (one random orthogonal matrix for all
            samples) or ``shuffled labels``; None, as in older logs: fresh feedback.
        draws: The null values themselves, state by state, for cell statistics over seeds; the k-th of every state
            belongs to one redraw.
        random_vector_mean: Mean of the random-vector null, where skips carry exact gradient.
        random_vector_sd: Its standard deviation.
    """

    observed: Numbers
    p: Numbers
    mean: Numbers
    sd: Numbers
    redraws: Count
    kind: Literal["fresh feedback", "rotated credit", "shuffled labels"] | None = None
    draws: list[Numbers] | None = None
    random_vector_mean: Numbers | None = None
    random_vector_sd: Numbers | None = None


class Rho(Frozen):
    """Pearson correlation between predicted and true loss changes, per state.

    Args:
        credit: For the rule's credit.
        control: For the true gradient.
        random: For a random vector.
        directions: M.
        epsilon: Step per state, in units of the state.
    """

    credit: Numbers
    control: Numbers
    random: Numbers
    directions: Count
    epsilon: Numbers


class Nudge(Frozen):
    """Mean loss change, in nats, after a step of relative size η against a vector, per state.

    Args:
        credit: Against the rule's credit.
        reference: Against the true gradient.
        random: Against a random unit vector.
        efficiency: credit/reference.
        eta: η.
    """

    credit: Numbers
    reference: Numbers
    random: Numbers
    efficiency: Numbers
    eta: float


class Drift(Frozen):
    """s = ‖μ‖²/tr Σ of g at the middle state, with its jackknife standard error.

    Args:
        s: The ratio, free of the batch size.
        se: Jackknife standard error of s.
        at_128: s/(s + 1/128).
        state: Which state.
    """

    s: Number
    se: Number = None
    at_128: Number
    state: Count


class Idle(Frozen):
    """What accuracy loses when one block is taken out: its branch set to zero, everything else as it is.

    Args:
        change: Accuracy without the block less accuracy with it, a fraction, per block.
        se: Standard error of that difference over the images.
        n: Images.
    """

    change: Numbers
    se: Numbers
    n: int = Field(gt=0, le=MAX_COUNT)


class Ladder(Frozen):
    """Per-image correctness of the ridge readouts of two states: do the last blocks still add to what came before?

    Args:
        state: The lower one, L − ⌈L/3⌉; the other is L.
        lower: Its per-image correctness, packed as in the end row.
        top: That of h_L, on the same images.
        n: Images.
    """

    state: Count
    lower: str
    top: str
    n: int = Field(gt=0, le=MAX_COUNT)


class EpochRow(Frozen):
    """What is measured after every epoch (epoch 0 is before training).

    Args:
        epoch: Epochs done.
        step: Optimiser steps done.
        lr: Learning rate used in this epoch; None at epoch 0.
        train_loss: Mean task loss over the epoch's batches, in nats, never with a penalty in it.
        test_loss: Mean test loss, in nats.
        test_accuracy: Fraction of the test split.
        balanced_accuracy: Mean over classes of the per-class accuracy.
        hidden: ‖h_l‖ per state.
        reference: ‖g_l‖ per state, sum-reduced per sample unless the spec says otherwise.
        error: Median ‖e‖ over samples.
        gain: med(‖g_l‖/‖e‖) per state.
        branch: Median ‖f_l‖/‖h_l‖ per block.
        growth: med‖h_{l+1}‖/med‖h_l‖ per block; on the sum before a normaliser that ends the block.
        cosine: cos(c_l, g_l) where the credit acts.
        cosine_published: The published index, one block off.
        gamma: Aggregates of the two.
        movement: How far each weight matrix moved.
        nonfinite: Where a value was NaN or infinite: path to ``nan``, ``inf`` or ``-inf``.
        time_epoch: Seconds of wall-clock since the fleet's epoch before was measured, turns of other fleets included.
    """

    kind: Literal["epoch"] = "epoch"
    epoch: int = Field(ge=0, le=MAX_EPOCHS)
    step: int | None = Field(default=None, ge=0, le=MAX_COUNT)
    lr: Number = None
    train_loss: Number = None
    test_loss: Number = None
    test_accuracy: Number = Field(default=None, ge=0, le=1)
    balanced_accuracy: Number = Field(default=None, ge=0, le=1)
    hidden: Norms | None = None
    reference: Norms | None = None
    error: Number = None
    gain: Numbers | None = None
    branch: Numbers | None = None
    growth: Numbers | None = None
    cosine: Cosines | None = None
    cosine_published: Cosines | None = None
    gamma: Gamma | None = None
    movement: Movement | None = None
    nonfinite: dict[str, str] = Field(default_factory=dict)
    time_epoch: Number = None


class ProbeRow(Frozen):
    """The expensive set, measured on the schedule; ``not_measured`` names each field that could not be measured.

    Args:
        epoch: Epochs done.
        step: Optimiser steps done.
        fidelity: Is the reference usable in the run's dtype?
        clamp: Where torch's clamped cosine goes wrong.
        null: Fresh-feedback null of the acting cosine, per state.
        null_published: The same for the published index.
        rho: Does the credit predict loss changes?
        nudge: Does a step along the credit lower the loss?
        drift: Is the gradient common to all samples?
        gradient_cosine: Per block, the rule's parameter gradient against BP's.
        gradient_null: Its fresh-feedback null.
        step_descent: Per block, ⟨∇_BP, Δθ⟩/(‖∇_BP‖‖Δθ‖) of the last step net of decay.
        probe_accuracy: Ridge readout accuracy per state, a fraction of the test split.
        participation: Participation ratio of each state's covariance.
        idle: What each block's removal costs.
        ladder: Readouts of h_{L−⌈L/3⌉} and h_L, image by image.
        not_measured: Why a field is absent, by field name.
        nonfinite: Where a value was NaN or infinite.
        time_probe: Seconds spent.
    """

    kind: Literal["probe"] = "probe"
    epoch: int = Field(ge=0, le=MAX_EPOCHS)
    step: int | None = Field(default=None, ge=0, le=MAX_COUNT)
    fidelity: Fidelity | None = None
    clamp: ClampOnset | None = None
    null: NullTest | None = None
    null_published: NullTest | None = None
    rho: Rho | None = None
    nudge: Nudge | None = None
    drift: Drift | None = None
    gradient_cosine: Numbers | None = None
    gradient_null: NullTest | None = None
    step_descent: Numbers | None = None
    probe_accuracy: Numbers | None = None
    participation: Numbers | None = None
    idle: Idle | None = None
    ladder: Ladder | None = None
    not_measured: dict[str, str] = Field(default_factory=dict)
    nonfinite: dict[str, str] = Field(default_factory=dict)
    time_probe: Number = None


class HeaderRow(Frozen):
    """The first line of a log: what the run is and where it came from.

    Args:
        schema_version: Version of these rows.
        spec: The run.
        rule: What the credit rule says of itself.
        exact: Whether the credit at each state is exact by construction.
        blocks: Names of the blocks, in order.
        partition: Who chose them: ``given`` by the user, ``found`` by creditscope, or the ``model``'s own.
        locality: Whether a block's update was shown not to change when later weights do; None: not tried.
        parameters: Number of trainable and frozen parameters together.
        fleet: Run ids stacked with this one, in order; what a bitwise resume needs.
        path: How the fleet was run: ``stacked`` or ``graph``.
        threads: Torch threads.
        provenance: Versions and device; never a host name, user name or absolute path.
        source: For an imported log: file name and layout, and which fields were read from the file name.
        time_created: When the log was begun, UTC, ISO 8601.
    """

    kind: Literal["header"] = "header"
    schema_version: int = SCHEMA_VERSION
    spec: RunSpec
    rule: RuleCard | None = None
    exact: list[bool] | None = None
    blocks: list[str] | None = None
    partition: Literal["given", "found", "model"] | None = None
    locality: bool | None = None
    parameters: Count | None = None
    fleet: list[str] | None = None
    path: str | None = None
    threads: int | None = Field(default=None, ge=1, le=MAX_THREADS)
    provenance: dict[str, str] = Field(default_factory=dict)
    source: dict[str, str] | None = None
    time_created: str | None = None

    @property
    def card(self) -> RuleCard:
        """The rule in its own words; logs of version 1 carry none, and theirs are known."""
        return self.rule or card_of(self.spec)

    @property
    def units(self) -> Units:
        """The units of the gradient norms in this log."""
        return Units.of(self.spec.probe, imported="reference_units" in (self.source or {}))


class EndRow(Frozen):
    """The last line of a log.

    Args:
        status: How the run ended.
        epoch: Epochs done.
        reason: In words, when it did not simply finish.
        test_accuracy: At the last epoch, a fraction.
        correct: Per-image correctness on the test split, in order, one bit each, big-endian in each byte, as hex.
        right: Of text, how many tokens of each test sequence are right, two bytes each (big-endian) as hex.
        n_test: Test samples: the bits that count in ``correct``, or the sequences of ``right``.
        labels: Class of each test image, two bytes each (big-endian) as hex, where classes differ by more than 10 %.
        time_total: Seconds of wall-clock.
    """

    kind: Literal["end"] = "end"
    status: Literal["finished", "failed", "diverged", "stopped"]
    epoch: int = Field(ge=0, le=MAX_EPOCHS)
    reason: str | None = None
    test_accuracy: Number = Field(default=None, ge=0, le=1)
    correct: str | None = None
    right: str | None = None
    n_test: Count | None = None
    labels: str | None = None
    time_total: Number = None


Row = Annotated[HeaderRow | EpochRow | ProbeRow | EndRow, Field(discriminator="kind")]


def strip_nonfinite(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The row with None for NaN and infinities, and a map from their dotted paths to ``nan``, ``inf`` or ``-inf``.

    Args:
        row: A dumped row.
    """
    found: dict[str, str] = {}

    def clean(value: Any, path: str) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            found[path] = str(value)
            return None
        if isinstance(value, dict):
            return {k: clean(v, f"{path}.{k}" if path else str(k)) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [clean(v, f"{path}[{i}]") for i, v in enumerate(value)]
        return value

    return clean(row, ""), found
