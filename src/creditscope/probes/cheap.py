"""The cheap set, measured every epoch: norms, gain, branch ratio, growth, cosines and Γ.

``sample_numbers`` reduces one run's observation to a few numbers per sample and is mapped over runs by the
engine; ``epoch_fields`` turns one run's numbers into the fields of an ``EpochRow``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from creditscope.blocks import Observation, published_index, view_signal, view_state
from creditscope.probes.functional.norms import norm_stats, vector_norms
from creditscope.probes.functional.tokens import live_tokens
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


def epoch_fields(numbers: SampleNumbers, exact: Sequence[bool], clamp_at: int = 128) -> dict[str, Any]:
    """The fields of one run's epoch row that the cheap set fills.

    Args:
        numbers: Per-sample numbers of one run on all probe samples.
        exact: Which states' credit is exact by construction.
        clamp_at: Probe size N at which Γ's clamped twin is computed.
    """
    numbers = SampleNumbers(*(t.cpu() for t in numbers))
    hidden, reference = _norms_field(numbers.hidden), _norms_field(numbers.reference)
    median = norm_stats(numbers.hidden).median
    fields = {
        "hidden": hidden,
        "reference": reference,
        "error": float(norm_stats(numbers.error).median),
        "gain": _median_ratio(numbers.reference, numbers.error),
        "branch": _median_ratio(numbers.branch, numbers.hidden[:-1]),
        "growth": (median[1:] / median[:-1]).tolist(),
    }
    if numbers.inner.numel() == 0:
        return fields
    acting = _cosines(numbers.inner, numbers.credit, numbers.reference, exact)
    published = _cosines(
        numbers.inner_published,
        numbers.credit_published,
        numbers.reference,
        exact if all(exact) else [*(False,) * (len(exact) - 1), exact[-1]],
    )
    deep = [m for level, m in enumerate(acting.mean) if level >= 2 and not exact[level]]
    # A mean over the pairs that happen to exist would be another quantity than the published one.
    whole = "not measured" not in published.status[:-1]
    gamma = Gamma(
        acting=_mean(acting.mean),
        deep=_mean(deep),
        worst=min((m for m in acting.mean if m is not None), default=None),
        published=_mean(published.mean[:-1]) if whole else None,
        clamped=_mean(_clamped(numbers, clamp_at)[:-1].tolist()) if whole else None,
    )
    return fields | {"cosine": acting, "cosine_published": published, "gamma": gamma}


def _norms(vectors: Sequence[Tensor]) -> Tensor:
    return torch.stack([vector_norms(v) for v in vectors])


def _pairing(signals: Sequence[Tensor], references: Sequence[Tensor], view: str) -> tuple[Tensor, Tensor]:
    """‖c‖ and ⟨c, g⟩ per state and sample: empty without credit, NaN where the two differ in shape."""
    n = len(references[0])
    norms, inner = [references[0].new_zeros(0, n)], [references[0].new_zeros(0, n)]
    for c, g in zip(signals, references, strict=bool(signals)):
        if c.shape != g.shape:
            norm = dot = g.new_full((n,), torch.nan)
        else:
            if g.ndim == 3 and view != "cls":
                # Tokens that cannot reach the loss have no gradient to be aligned with.
                c = torch.where(live_tokens(g).unsqueeze(-1), c, 0)
            credit = view_signal(c, view).double()
            norm, dot = vector_norms(credit), (credit * view_signal(g, view)).sum(-1)
        norms.append(norm.double()[None])
        inner.append(dot.double()[None])
    return torch.cat(norms), torch.cat(inner)


def _median_ratio(over: Tensor, under: Tensor) -> list[float]:
    """Median over the samples whose denominator is not zero; NaN where there is none, or a sample is NaN."""
    broken = (over.isnan() | under.isnan()).any(-1)
    value = torch.where(under > 0, over / under, torch.nan).nanquantile(0.5, dim=-1)
    return torch.where(broken, torch.nan, value).tolist()


def _norms_field(norms: Tensor) -> Norms:
    stats = norm_stats(norms)
    return Norms(
        median=stats.median.tolist(),
        q05=stats.q05.tolist(),
        q95=stats.q95.tolist(),
        low=stats.low.tolist(),
        high=stats.high.tolist(),
        n=norms.shape[-1],
    )


def _cosines(inner: Tensor, credit: Tensor, reference: Tensor, exact: Sequence[bool]) -> Cosines:
    finite = (credit.isfinite() & reference.isfinite() & inner.isfinite()).all(-1)
    defined = finite[:, None] & (credit > 0) & (reference > 0)
    # One after the other: the product of two tiny norms could underflow.
    cosine = torch.where(defined, inner / credit / reference, torch.nan).clamp(-1, 1)
    counts = defined.sum(-1)
    mean = cosine.nanmean(-1)
    spread = ((cosine - mean[:, None]) ** 2).nanmean(-1).sqrt()
    return Cosines(
        mean=listed(mean),
        sd=listed(spread),
        n=counts.tolist(),
        n_undefined=(inner.shape[-1] - counts).tolist(),
        status=[_status(int(n), bool(f), ex) for n, f, ex in zip(counts, finite, exact, strict=True)],
    )


def _status(defined: int, finite: bool, exact: bool) -> CosineStatus:
    if not finite:
        return "not measured"
    if exact:
        return "exact-by-construction"
    return "ok" if defined else "zero-vector"


def _clamped(numbers: SampleNumbers, n: int) -> Tensor:
    """What torch's cosine_similarity reports on mean-reduced gradients: each norm is clamped at 1e-8."""
    credit = (numbers.credit_published / n).clamp(min=TORCH_CLAMP)
    reference = (numbers.reference / n).clamp(min=TORCH_CLAMP)
    return (numbers.inner_published / n**2 / (credit * reference)).mean(-1)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
