"""The rows of a run log. Every number has its unit in its field's description; None means not measured.

Per-state lists run over the states h_0..h_L where they act; per-block lists over blocks 0..L−1.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import Field

from creditscope.records.measured import (
    ClampOnset,
    Cosines,
    Drift,
    Fidelity,
    Gamma,
    Idle,
    Ladder,
    Movement,
    Norms,
    Nudge,
    NullTest,
    Number,
    Numbers,
    Rho,
)
from creditscope.records.rule_card import RuleCard
from creditscope.records.spec import RunSpec
from creditscope.records.spec_parts import MAX_COUNT, MAX_EPOCHS, Count, Frozen
from creditscope.records.units import Units
from creditscope.records.version1 import card_of

SCHEMA_VERSION = 2
# More than any machine has: to ask torch for a hundred thousand ends the process.
MAX_THREADS = 4096


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
