"""The per-epoch set, measured every epoch: norms, gain, branch ratio, growth, cosines and Γ.

``epoch_numbers`` reduces one run's observation to a few numbers per sample and is mapped over runs by the
engine; ``summarise`` takes sums and quantiles over the samples, of many runs at once; ``epoch_fields`` turns one run's
summary into the fields of an ``EpochRow``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from creditscope.blocks import (
    Batch,
    CreditRule,
    Observation,
    Params,
    RuleState,
    Snapshot,
    Task,
    observe,
    view_signal,
    view_state,
)
from creditscope.probes.epoch_cosines import (
    CreditNumbers,
    CreditSummary,
    credit_fields,
    join_credit,
    observed_credit,
    samples_of,
    summarise_credit,
)
from creditscope.probes.functional.norms import NormStats, median_defined, norm_stats, vector_norms
from creditscope.probes.probe import by_state
from creditscope.records.measured import Norms


class SampleNumbers(NamedTuple):
    """Per-sample numbers of one run, float64; the last axis is samples, the one before it states or blocks.

    Args:
        hidden: ‖h_l‖.
        reference: ‖g_l‖, sum-reduced.
        branch: ‖f_l‖.
        error: ‖e‖.
    """

    hidden: Tensor
    reference: Tensor
    branch: Tensor
    error: Tensor


class EpochNumbers(NamedTuple):
    """What one batch gives: norms of every sample, and the credit of the first of them.

    Args:
        norms: In the run's dtype.
        credit: In float64; of no sample where none is asked for, or the rule delivers no credit at the states.
    """

    norms: SampleNumbers
    credit: CreditNumbers

    def cpu(self) -> "EpochNumbers":
        """The same on the CPU."""
        return EpochNumbers(*(type(part)(*(each.cpu() for each in part)) for part in self))  # type: ignore[arg-type]


def epoch_numbers(
    task: Task, params: Params, rule: CreditRule | None, state: RuleState, batch: Batch, view: str, few: int
) -> EpochNumbers:
    """Observe one run on one batch, in its own dtype and, for the credit of the first samples, in float64.

    Args:
        task: What is trained.
        params: Parameters now.
        rule: The rule, or None for a model whose credit is not known.
        state: The rule's state.
        batch: The probe batch.
        view: How a state becomes one vector per sample.
        few: Of how many samples the credit is asked.
    """
    seen = observe(task, params, None, {}, batch)
    return EpochNumbers(
        sample_numbers(seen, view),
        observed_credit([g[:few] for g in seen.references], task, params, rule, state, batch, view),
    )


def snapshot_numbers(snapshot: Snapshot) -> EpochNumbers:
    """The same of a snapshot's probe samples, of which the norms are taken from what was observed already.

    Args:
        snapshot: The run.
    """
    seen, start = snapshot.observation, 0
    credit = []
    for batch, few in zip(snapshot.batches, samples_of(snapshot.batches), strict=True):
        own = [g[start : start + few] for g in seen.references]
        credit.append(
            observed_credit(own, snapshot.task, snapshot.params, snapshot.rule, snapshot.state, batch, snapshot.view)
        )
        start += len(batch.y)
    return EpochNumbers(sample_numbers(seen, snapshot.view), join_credit(credit, -1))


def sample_numbers(seen: Observation, view: str) -> SampleNumbers:
    """Reduce an observation to per-sample numbers.

    Args:
        seen: One batch of one run.
        view: How a state becomes one vector per sample.
    """
    return SampleNumbers(
        _norms([view_state(h, view) for h in seen.states]),
        _norms([view_signal(g, view) for g in seen.references]),
        _norms([view_state(f, view) for f in seen.branches]),
        vector_norms(seen.error.reshape(len(seen.error), -1)),
    )


class Summary(NamedTuple):
    """Per-sample numbers brought down to one number a state or block; runs may stand on leading axes.

    Args:
        hidden: Of ‖h_l‖.
        reference: Of ‖g_l‖, sum-reduced.
        error: Median ‖e‖.
        gain: Median ‖g_l‖/‖e‖.
        branch: Median ‖f_l‖/‖h_l‖.
        samples: Number of samples.
        credit: Cosines; None without credit.
    """

    hidden: NormStats
    reference: NormStats
    error: Tensor
    gain: Tensor
    branch: Tensor
    samples: int
    credit: CreditSummary | None = None


def joined(parts: Sequence[EpochNumbers], axis: int) -> EpochNumbers:
    """Numbers of several batches, or of several stacks of runs, as one.

    Args:
        parts: The numbers; runs without credit beside runs that have it have NaN there.
        axis: On which axis they follow each other.
    """
    norms = SampleNumbers(*(torch.cat(column, axis) for column in zip(*(part.norms for part in parts), strict=True)))
    return EpochNumbers(norms, join_credit([part.credit for part in parts], axis))


def summarise(found: EpochNumbers, clamp_at: int = 128) -> Summary:
    """Sums, means and quantiles over the samples, on the numbers' own device and without waiting for it.

    Args:
        found: Per-sample numbers on all probe samples.
        clamp_at: Probe size N at which Γ's clamped double is computed.
    """
    numbers = found.norms
    # One call for all three: on small nets it is the number of operations that costs.
    sizes = torch.cat([numbers.hidden, numbers.reference, numbers.error[..., None, :]], -2)
    states = numbers.hidden.shape[-2]
    parts = (stat.tensor_split((states, 2 * states), -1) for stat in norm_stats(sizes))
    hidden, reference, error = (NormStats(*part) for part in zip(*parts, strict=True))
    return Summary(
        hidden,
        reference,
        error.median[..., 0],
        _median_ratio(numbers.reference, numbers.error[..., None, :]),
        _median_ratio(numbers.branch, numbers.hidden[..., :-1, :]),
        numbers.error.shape[-1],
        summarise_credit(found.credit, clamp_at) if found.credit.gap.shape[-1] else None,
    )


def epoch_fields(summary: Summary, exact: Sequence[bool], delivers: bool = True) -> dict[str, Any]:
    """The fields of one run's epoch row that the per-epoch set fills.

    Args:
        summary: Of one run.
        exact: Which states' credit is exact by construction.
        delivers: Whether the run's rule delivers credit at the states.
    """
    median = summary.hidden.median
    fields = {
        "hidden": _norms_field(summary.hidden, summary.samples),
        "reference": _norms_field(summary.reference, summary.samples),
        "error": float(summary.error),
        "gain": summary.gain.tolist(),
        "branch": summary.branch.tolist(),
        "growth": (median[1:] / median[:-1]).tolist(),
    }
    if not delivers or summary.credit is None:
        return fields
    return fields | credit_fields(summary.credit, exact)


def _norms(vectors: Sequence[Tensor]) -> Tensor:
    return by_state(vector_norms, vectors)


def _median_ratio(over: Tensor, under: Tensor) -> Tensor:
    """Median over the samples whose denominator is not zero; NaN where there is none, or a sample is NaN."""
    broken = (over.isnan() | under.isnan()).any(-1)
    return torch.where(broken, torch.nan, median_defined(torch.where(under > 0, over / under, torch.nan)))


def _norms_field(stats: NormStats, samples: int) -> Norms:
    return Norms(
        median=stats.median.tolist(),
        q05=stats.q05.tolist(),
        q95=stats.q95.tolist(),
        low=stats.low.tolist(),
        high=stats.high.tolist(),
        n=samples,
    )
