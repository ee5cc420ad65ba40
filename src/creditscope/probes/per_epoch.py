"""The per-epoch set, measured every epoch: norms, gain, branch ratio, growth, cosines and Γ.

``sample_numbers`` reduces one run's observation to a few numbers per sample and is mapped over runs by the
engine; ``summarise`` takes sums and quantiles over the samples, of many runs at once; ``epoch_fields`` turns one run's
summary into the fields of an ``EpochRow``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from creditscope.blocks import Observation, published_index, view_signal, view_state
from creditscope.probes.functional.norms import NormStats, norm_stats, vector_norms
from creditscope.probes.functional.tokens import live_tokens
from creditscope.probes.probe import by_state
from creditscope.probes.probe import numbers as listed
from creditscope.records.rows import Cosines, CosineStatus, Gamma, Norms

TORCH_CLAMP = 1e-8


class SampleNumbers(NamedTuple):
    """Per-sample numbers of one run, float64; the last axis is samples, the one before it states or blocks.

    Args:
        hidden: ‖h_l‖.
        reference: ‖g_l‖, sum-reduced.
        branch: ‖f_l‖.
        error: ‖e‖.
        credit: ‖c_l‖; empty without credit.
        inner: ⟨c_l, g_l⟩.
        credit_published: ‖c‖ in the published index; NaN where that credit and g_l differ in shape.
        inner_published: ⟨c, g_l⟩ in the published index, likewise.
    """

    hidden: Tensor
    reference: Tensor
    branch: Tensor
    error: Tensor
    credit: Tensor
    inner: Tensor
    credit_published: Tensor
    inner_published: Tensor


def sample_numbers(seen: Observation, view: str, exact: Sequence[bool]) -> SampleNumbers:
    """Reduce an observation to per-sample numbers.

    Args:
        seen: One batch of one run.
        view: How a state becomes one vector per sample.
        exact: Which states' credit is exact by construction.
    """
    acting = seen.delivered or ()
    return SampleNumbers(
        _norms([view_state(h, view) for h in seen.states]),
        _norms([view_signal(g, view) for g in seen.references]),
        _norms([view_state(f, view) for f in seen.branches]),
        vector_norms(seen.error),
        *_pairing(acting, seen.references, view),
        *_pairing(published_index(acting, exact) if acting else (), seen.references, view),
    )


class CosineSummary(NamedTuple):
    """Cosines of each state over the samples.

    Args:
        mean: Mean of those that are defined, NaN where none is.
        sd: Their standard deviation.
        n: How many are defined.
        finite: Whether every norm and product is finite.
    """

    mean: Tensor
    sd: Tensor
    n: Tensor
    finite: Tensor


class Summary(NamedTuple):
    """Per-sample numbers brought down to one number a state or block; runs may stand on leading axes.

    Args:
        hidden: Of ‖h_l‖.
        reference: Of ‖g_l‖, sum-reduced.
        error: Median ‖e‖.
        gain: Median ‖g_l‖/‖e‖.
        branch: Median ‖f_l‖/‖h_l‖.
        acting: Cosines where the credit acts; no state without credit.
        published: Cosines in the published index, likewise.
        clamped: Mean of torch's clamped cosine in the published index.
        samples: Number of samples.
    """

    hidden: NormStats
    reference: NormStats
    error: Tensor
    gain: Tensor
    branch: Tensor
    acting: CosineSummary
    published: CosineSummary
    clamped: Tensor
    samples: int


def joined(parts: Sequence[SampleNumbers], axis: int) -> SampleNumbers:
    """Numbers of several batches, or of several stacks of runs, as one.

    Args:
        parts: The numbers.
        axis: On which axis they follow each other.
    """
    return SampleNumbers(*(torch.cat(column, axis) for column in zip(*parts, strict=True)))


def without_credit(numbers: SampleNumbers) -> SampleNumbers:
    """The same with NaN in the place of credit: for runs without it that are summarised with runs that have it.

    Args:
        numbers: Without credit.
    """
    undefined = torch.full_like(numbers.reference, torch.nan)
    return numbers._replace(credit=undefined, inner=undefined, credit_published=undefined, inner_published=undefined)


def summarise(numbers: SampleNumbers, clamp_at: int = 128) -> Summary:
    """Sums, means and quantiles over the samples, on the numbers' own device and without waiting for it.

    Args:
        numbers: Per-sample numbers on all probe samples.
        clamp_at: Probe size N at which Γ's clamped double is computed.
    """
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
        _cosines(numbers.inner, numbers.credit, numbers.reference),
        _cosines(numbers.inner_published, numbers.credit_published, numbers.reference),
        _clamped(numbers, clamp_at),
        numbers.error.shape[-1],
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
    if not delivers or summary.acting.mean.numel() == 0:
        return fields
    acting = _cosines_field(summary.acting, summary.samples, exact)
    paired = exact if all(exact) else [*(False,) * (len(exact) - 1), exact[-1]]
    published = _cosines_field(summary.published, summary.samples, paired)
    deep = [m for level, m in enumerate(acting.mean) if level >= 2 and not exact[level]]
    # A mean over the pairs that happen to exist would be another quantity than the published one.
    whole = "not measured" not in published.status[:-1]
    gamma = Gamma(
        acting=_mean(acting.mean),
        deep=_mean(deep),
        worst=min((m for m in acting.mean if m is not None), default=None),
        published=_mean(published.mean[:-1]) if whole else None,
        clamped=_mean(summary.clamped[:-1].tolist()) if whole else None,
    )
    return fields | {"cosine": acting, "cosine_published": published, "gamma": gamma}


def _norms(vectors: Sequence[Tensor]) -> Tensor:
    return by_state(vector_norms, vectors)


def _pairing(signals: Sequence[Tensor], references: Sequence[Tensor], view: str) -> tuple[Tensor, Tensor]:
    """‖c‖ and ⟨c, g⟩ per state and sample: empty without credit, NaN where the two differ in shape."""
    n = len(references[0])
    if not signals:
        none = references[0].new_zeros(0, n, dtype=torch.float64)
        return none, none
    paired = [(c, g) for c, g in zip(signals, references, strict=True) if c.shape == g.shape]
    credit = [view_signal(_live(c, g, view), view) for c, g in paired]
    found = iter(by_state(_norm_and_inner, credit, [view_signal(g, view) for _, g in paired]) if paired else ())
    undefined = references[0].new_full((2, n), torch.nan, dtype=torch.float64)
    rows = [next(found) if c.shape == g.shape else undefined for c, g in zip(signals, references, strict=True)]
    norms, inner = torch.stack(rows, 1)
    return norms, inner


def _live(c: Tensor, g: Tensor, view: str) -> Tensor:
    """Tokens that cannot reach the loss have no gradient to be aligned with."""
    return torch.where(live_tokens(g).unsqueeze(-1), c, 0) if g.ndim == 3 and view != "cls" else c


def _norm_and_inner(c: Tensor, g: Tensor) -> Tensor:
    """‖c‖ and ⟨c, g⟩ of each sample, for states on a first axis."""
    credit = c.double()
    return torch.stack([vector_norms(credit), (credit * g).sum(-1)], 1)


def _median_ratio(over: Tensor, under: Tensor) -> Tensor:
    """Median over the samples whose denominator is not zero; NaN where there is none, or a sample is NaN."""
    broken = (over.isnan() | under.isnan()).any(-1)
    ordered = torch.where(under > 0, over / under, torch.nan).sort(dim=-1).values  # NaN sorts last
    last = (~ordered.isnan()).sum(-1, keepdim=True) - 1
    lower, upper = (ordered.gather(-1, rank.clamp(min=0)) for rank in (last // 2, (last + 1) // 2))
    value = torch.where(lower == upper, lower, (lower + upper) / 2).squeeze(-1)
    return torch.where(broken, torch.nan, value)


def _norms_field(stats: NormStats, samples: int) -> Norms:
    return Norms(
        median=stats.median.tolist(),
        q05=stats.q05.tolist(),
        q95=stats.q95.tolist(),
        low=stats.low.tolist(),
        high=stats.high.tolist(),
        n=samples,
    )


def _cosines(inner: Tensor, credit: Tensor, reference: Tensor) -> CosineSummary:
    if inner.shape[-2] == 0:  # without credit there is no state to pair
        none = inner[..., 0]
        return CosineSummary(none, none, none.long(), none.bool())
    finite = (credit.isfinite() & reference.isfinite() & inner.isfinite()).all(-1)
    defined = finite[..., None] & (credit > 0) & (reference > 0)
    # One after the other: the product of two tiny norms could underflow.
    cosine = torch.where(defined, inner / credit / reference, torch.nan).clamp(-1, 1)
    mean = cosine.nanmean(-1)
    sd = ((cosine - mean[..., None]) ** 2).nanmean(-1).sqrt()
    return CosineSummary(mean, sd, defined.sum(-1), finite)


def _cosines_field(cosines: CosineSummary, samples: int, exact: Sequence[bool]) -> Cosines:
    counts, finite = cosines.n.tolist(), cosines.finite.tolist()
    return Cosines(
        mean=listed(cosines.mean),
        sd=listed(cosines.sd),
        n=counts,
        n_undefined=[samples - n for n in counts],
        status=[_status(n, f, ex) for n, f, ex in zip(counts, finite, exact, strict=True)],
    )


def _status(defined: int, finite: bool, exact: bool) -> CosineStatus:
    if not finite:
        return "not measured"
    if exact:
        return "exact-by-construction"
    return "ok" if defined else "zero-vector"


def _clamped(numbers: SampleNumbers, n: int) -> Tensor:
    """What torch's cosine_similarity reports on mean-reduced gradients: each norm is clamped at 1e-8."""
    if numbers.inner_published.shape[-2] == 0:
        return numbers.inner_published[..., 0]
    credit = (numbers.credit_published / n).clamp(min=TORCH_CLAMP)
    reference = (numbers.reference / n).clamp(min=TORCH_CLAMP)
    return (numbers.inner_published / n**2 / (credit * reference)).mean(-1)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
