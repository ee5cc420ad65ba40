"""The cheap set, measured every epoch: norms, gain, branch ratio, growth, cosines and Γ.

``sample_numbers`` reduces one run's observation to a few numbers per sample and is mapped over runs by the
engine; ``epoch_fields`` turns one run's numbers into the fields of an ``EpochRow``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from creditscope.blocks import Observation, published_index, view_signal, view_state
from creditscope.probes.functional.norms import norm_stats
from creditscope.records.rows import Cosines, CosineStatus, Gamma, Norms

TORCH_CLAMP = 1e-8


class SampleNumbers(NamedTuple):
    """Per-sample numbers of one run, float64; the last axis is samples, the one before it states or blocks.

    Args:
        hidden: ‖h_l‖.
        reference: ‖g_l‖, sum-reduced.
        branch: ‖f_l‖/‖h_l‖.
        error: ‖e‖.
        credit: ‖c_l‖; empty without credit.
        inner: ⟨c_l, g_l⟩.
        credit_published: ‖c‖ in the published index.
        inner_published: ⟨c, g_l⟩ in the published index.
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
    states = [view_state(h, view).double() for h in seen.states]
    branches = [view_state(f, view).double() for f in seen.branches]
    references = [view_signal(g, view).double() for g in seen.references]
    acting = _views(seen.delivered, view)
    published = _views(published_index(seen.delivered, exact), view) if seen.delivered is not None else []
    hidden = _norms(states)
    return SampleNumbers(
        hidden,
        _norms(references),
        _norms(branches) / hidden[: len(branches)],
        seen.error.double().norm(dim=-1),
        *_pairing(acting, references),
        *_pairing(published, references),
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
        "error": float(numbers.error.median()),
        "gain": (numbers.reference / numbers.error).median(-1).values.tolist(),
        "branch": numbers.branch.median(-1).values.tolist(),
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
    clamped = _clamped(numbers, clamp_at)
    deep = [m for level, m in enumerate(acting.mean) if level >= 2 and not exact[level]]
    gamma = Gamma(
        acting=_mean(acting.mean),
        deep=_mean(deep),
        worst=min((m for m in acting.mean if m is not None), default=None),
        published=_mean(published.mean[:-1]),
        clamped=_mean(clamped[:-1].tolist()),
    )
    return fields | {"cosine": acting, "cosine_published": published, "gamma": gamma}


def _views(signals: Sequence[Tensor] | None, view: str) -> list[Tensor]:
    return [view_signal(c, view).double() for c in signals or ()]


def _norms(vectors: Sequence[Tensor]) -> Tensor:
    return torch.stack([v.norm(dim=-1) for v in vectors])


def _pairing(signals: Sequence[Tensor], references: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    if not signals:
        empty = references[0].new_zeros(0, len(references[0]))
        return empty, empty
    inner = torch.stack([(c * g).sum(-1) for c, g in zip(signals, references, strict=True)])
    return _norms(signals), inner


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
    finite = credit.isfinite() & reference.isfinite() & inner.isfinite()
    defined = finite & (credit > 0) & (reference > 0)
    cosine = torch.where(defined, inner / (credit * reference), torch.nan).clamp(-1, 1)
    counts = defined.sum(-1)
    mean = cosine.nanmean(-1)
    spread = ((cosine - mean[:, None]) ** 2).nanmean(-1).sqrt()
    return Cosines(
        mean=[_none_if(float(m), int(n)) for m, n in zip(mean, counts, strict=True)],
        sd=[_none_if(float(s), int(n)) for s, n in zip(spread, counts, strict=True)],
        n=counts.tolist(),
        n_undefined=(inner.shape[-1] - counts).tolist(),
        status=[_status(int(n), bool(f), ex) for n, f, ex in zip(counts, finite.all(-1), exact, strict=True)],
    )


def _status(defined: int, finite: bool, exact: bool) -> CosineStatus:
    if not finite:
        return "not measured"
    if exact:
        return "exact-by-construction"
    return "ok" if defined else "zero-vector"


def _none_if(value: float, defined: int) -> float | None:
    return value if defined else None


def _clamped(numbers: SampleNumbers, n: int) -> Tensor:
    """What torch's cosine_similarity reports on mean-reduced gradients: each norm is clamped at 1e-8."""
    credit = (numbers.credit_published / n).clamp(min=TORCH_CLAMP)
    reference = (numbers.reference / n).clamp(min=TORCH_CLAMP)
    return (numbers.inner_published / n**2 / (credit * reference)).mean(-1)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
