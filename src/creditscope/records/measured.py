"""What probes measure, as the rows of a log hold it: one record a quantity. None means not measured.

Per-state lists run over the states h_0..h_L where they act; per-block lists over blocks 0..L−1.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from creditscope.records.spec_parts import MAX_COUNT, Count, Frozen

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
