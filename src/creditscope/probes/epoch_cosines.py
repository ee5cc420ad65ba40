"""The cosines of every epoch: in float64, from the run's own parameters and state, on some of the probe samples.

A cosine in the run's dtype inherits what rounding did to the reference (.139 was seen for a true .121), so this half of
the per-epoch set sees the run in float64. How far the run's own reference is from that one is measured with it.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from creditscope.blocks import (
    Batch,
    CreditRule,
    Params,
    RuleState,
    Task,
    observe,
    published_index,
    view_signal,
)
from creditscope.probes.functional.fidelity import FAITHFUL, infidelity
from creditscope.probes.functional.norms import median_defined, vector_norms
from creditscope.probes.functional.tokens import live_tokens
from creditscope.probes.probe import by_state
from creditscope.probes.probe import numbers as listed
from creditscope.records.measured import Cosines, CosineStatus, Gamma

TORCH_CLAMP = 1e-8
# The first so many probe samples: float64 costs several times as much as the run's dtype.
SAMPLES = 256


def samples_of(batches: Sequence[Batch]) -> list[int]:
    """Of each probe batch, how many of its first samples are asked for their credit.

    Args:
        batches: The probe samples, in order.
    """
    starts = accumulate((len(batch.y) for batch in batches), initial=0)
    return [max(0, min(len(batch.y), SAMPLES - start)) for batch, start in zip(batches, starts, strict=False)]


class CreditNumbers(NamedTuple):
    """Per-sample numbers of one run's credit, float64; the last axis is samples, the one before it states.

    Args:
        reference: ‖g_l‖.
        credit: ‖c_l‖.
        inner: ⟨c_l, g_l⟩.
        credit_published: ‖c‖ in the published index; NaN where that credit and g_l differ in shape.
        inner_published: ⟨c, g_l⟩ in the published index, likewise.
        gap: 1 − φ, φ the cosine of g_l in the run's dtype with g_l in float64.
    """

    reference: Tensor
    credit: Tensor
    inner: Tensor
    credit_published: Tensor
    inner_published: Tensor
    gap: Tensor


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


class CreditSummary(NamedTuple):
    """The same brought down to one number a state; runs may stand on leading axes.

    Args:
        acting: Cosines where the credit acts.
        published: Cosines in the published index.
        clamped: Mean of torch's clamped cosine in the published index.
        gap: Median of 1 − φ.
        samples: Number of samples.
    """

    acting: CosineSummary
    published: CosineSummary
    clamped: Tensor
    gap: Tensor
    samples: int


def observed_credit(
    own: Sequence[Tensor],
    task: Task,
    params: Params,
    rule: CreditRule | None,
    state: RuleState,
    batch: Batch,
    view: str,
) -> CreditNumbers:
    """Numbers of the credit of the first samples of a batch, observed again in float64.

    Args:
        own: g_0..g_L of these samples in the run's dtype.
        task: What is trained.
        params: Parameters now.
        rule: The rule.
        state: The rule's state.
        batch: The batch.
        view: How a state becomes one vector per sample.
    """
    few = len(own[0])
    if rule is None or rule.family != "signal" or few < 1:
        nothing = own[0].new_zeros(len(own), 0, dtype=torch.float64)
        return CreditNumbers(*(nothing,) * len(CreditNumbers._fields))
    exact = rule.exact(task.blocks.depth)
    if all(exact):  # credit and reference are one, in any dtype
        return credit_numbers(own, own, own, view, exact)
    double = task._replace(buffers=in_float64(task.buffers), fixed=in_float64(task.fixed))
    x = batch.x[:few]
    some = Batch(x.double() if x.is_floating_point() else x, batch.y[:few])
    again = observe(double, in_float64(params), rule, in_float64(state), some)
    assert again.delivered is not None
    return credit_numbers(again.delivered, again.references, own, view, exact)


def in_float64(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same numbers in float64; what is no number stays as it is.

    Args:
        tensors: By name.
    """
    return {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}


def credit_numbers(
    acting: Sequence[Tensor],
    references: Sequence[Tensor],
    own: Sequence[Tensor],
    view: str,
    exact: Sequence[bool],
) -> CreditNumbers:
    """Reduce credit and references to per-sample numbers.

    Args:
        acting: c_0..c_L, where the credit acts.
        references: g_0..g_L in float64.
        own: g_0..g_L in the run's dtype.
        view: How a state becomes one vector per sample.
        exact: Which states' credit is exact by construction.
    """
    true = [view_signal(g, view) for g in references]
    return CreditNumbers(
        by_state(vector_norms, true),
        *_pairing(acting, references, view),
        *_pairing(published_index(acting, exact), references, view),
        by_state(lambda run, g: infidelity(run, g)[0], [view_signal(g, view) for g in own], true),
    )


def join_credit(parts: Sequence[CreditNumbers], axis: int) -> CreditNumbers:
    """Numbers of several batches, or of several stacks of runs, as one.

    Args:
        parts: The numbers; a stack without credit beside one that has it gets NaN.
        axis: On which axis they follow each other: 0 runs, −1 samples.
    """
    samples = max(part.gap.shape[-1] for part in parts)

    def filled(part: CreditNumbers) -> CreditNumbers:
        shape = (*part.gap.shape[:-1], samples)
        return part if part.gap.shape == shape else CreditNumbers(*(each.new_full(shape, torch.nan) for each in part))

    some = [filled(part) for part in parts] if axis == 0 else parts
    return CreditNumbers(*(torch.cat(column, axis) for column in zip(*some, strict=True)))


def summarise_credit(numbers: CreditNumbers, clamp_at: int = 128) -> CreditSummary:
    """Means over the samples, on the numbers' own device and without waiting for it.

    Args:
        numbers: Per-sample numbers on all samples.
        clamp_at: Probe size N at which Γ's clamped double is computed.
    """
    return CreditSummary(
        _cosines(numbers.inner, numbers.credit, numbers.reference),
        _cosines(numbers.inner_published, numbers.credit_published, numbers.reference),
        _clamped(numbers, clamp_at),
        median_defined(numbers.gap),
        numbers.gap.shape[-1],
    )


def credit_fields(summary: CreditSummary, exact: Sequence[bool]) -> dict[str, Cosines | Gamma]:
    """The cosines and Γ of one run's epoch row.

    Args:
        summary: Of one run.
        exact: Which states' credit is exact by construction.
    """
    acting = _cosines_field(summary.acting, summary, exact)
    paired = exact if all(exact) else [*(False,) * (len(exact) - 1), exact[-1]]
    published = _cosines_field(summary.published, summary, paired)
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
    return {"cosine": acting, "cosine_published": published, "gamma": gamma}


def _pairing(signals: Sequence[Tensor], references: Sequence[Tensor], view: str) -> tuple[Tensor, Tensor]:
    """‖c‖ and ⟨c, g⟩ per state and sample, NaN where the two differ in shape."""
    n = len(references[0])
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


def _cosines(inner: Tensor, credit: Tensor, reference: Tensor) -> CosineSummary:
    finite = (credit.isfinite() & reference.isfinite() & inner.isfinite()).all(-1)
    defined = finite[..., None] & (credit > 0) & (reference > 0)
    # One after the other: the product of two tiny norms could underflow.
    cosine = torch.where(defined, inner / credit / reference, torch.nan).clamp(-1, 1)
    mean = cosine.nanmean(-1)
    sd = ((cosine - mean[..., None]) ** 2).nanmean(-1).sqrt()
    return CosineSummary(mean, sd, defined.sum(-1), finite)


def _cosines_field(cosines: CosineSummary, summary: CreditSummary, exact: Sequence[bool]) -> Cosines:
    counts, finite = cosines.n.tolist(), cosines.finite.tolist()
    faithful = (summary.gap <= 1 - FAITHFUL).tolist()
    return Cosines(
        mean=listed(cosines.mean),
        sd=listed(cosines.sd),
        n=counts,
        n_undefined=[summary.samples - n for n in counts],
        status=[_status(*each) for each in zip(counts, finite, exact, faithful, strict=True)],
    )


def _status(defined: int, finite: bool, exact: bool, faithful: bool) -> CosineStatus:
    if not finite:
        return "not measured"
    if exact:
        return "exact-by-construction"
    if not defined:
        return "zero-vector"
    return "ok" if faithful else "below-fidelity"


def _clamped(numbers: CreditNumbers, n: int) -> Tensor:
    """What torch's cosine_similarity reports on mean-reduced gradients: each norm is clamped at 1e-8."""
    credit = (numbers.credit_published / n).clamp(min=TORCH_CLAMP)
    reference = (numbers.reference / n).clamp(min=TORCH_CLAMP)
    return (numbers.inner_published / n**2 / (credit * reference)).mean(-1)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
