"""Nulls: what a statistic looks like when the feedback is drawn again, or the credit rotated, and all else stays.

The test is exact whatever the dependence between samples: under the null the run's own feedback is one more draw.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from creditscope.blocks import Batch, CreditRule, RuleState, Snapshot, published_index
from creditscope.errors import NotMeasured
from creditscope.probes.functional.cosine import cosines, mean_defined, sum_cosines, units
from creditscope.probes.functional.fidelity import allowed_error, infidelity
from creditscope.probes.probe import (
    Measured,
    Need,
    Probe,
    by_state,
    credit_in_view,
    credits_in_view,
    entries_at_once,
    float64_copy,
    lists,
    references_in_view,
    stacks,
)
from creditscope.probes.rotation import rotated_cosines
from creditscope.probes.seeds import gaussian, probe_generator
from creditscope.records.measured import NullTest

# Above this mean of the null the skips carry exact gradient, and "another feedback" is no longer "no information".
SKIP_CARRIES = 0.1
# Entries held at once for the signals of one chunk; the backward pass of a transport rule holds about ten times more.
_ENTRIES_CPU = 2**23
# On a GPU, the share of its memory that one chunk's signals may take.
_SHARE_GPU = 1 / 64
# Samples at once.
_SAMPLES = 1024
# Mean angle, in radians, by which float32 may turn the credit of fresh draws: it bounds the error of a mean cosine.
_DRAW_ERROR = 5e-6
# Redraws whose cosines differ by no more than this differ by rounding alone.
_STEADY = 2 * _DRAW_ERROR


@dataclass(frozen=True)
class FeedbackNull(Probe):
    """Is the credit aligned, or would any other feedback do as well?

    Measures: mean cosine per state, where it acts and in the published index, against K redraws of the whole feedback
        or, where the rule learns its feedback or has none, against K rotations of the credit itself.
    Healthy: p < .01 at every deep state that is not exact by construction.
    Fooled by: skips that carry exact gradient (the null's mean is then far above 0; a random-vector null is added).
    Null: itself; calibrated by redrawing the run's own feedback.

    Args:
        redraws: K.
        keep_draws: Whether the null values themselves go into the row.
    """

    redraws: int = 999
    keep_draws: bool = False

    name: ClassVar[str] = "fresh-feedback null"
    unit: ClassVar[str] = "cosine"
    needs: ClassVar[tuple[Need, ...]] = ("states", "references", "delivered", "feedback")
    fields: ClassVar[tuple[str, ...]] = ("null", "null_published")

    def measure(self, snapshot: Snapshot) -> Measured:
        """All redraws in chunks, the run's own weights, errors and references fixed."""
        rule = redrawable(snapshot, self.redraws, rotated=True)
        double = float64_copy(snapshot)
        exact, g = snapshot.exact, references_in_view(double)
        acting = credits_in_view(double)
        published = published_index(acting, exact)
        observed = [_mean_cosines(signals, g) for signals in (acting, published)]
        if rule.null_kind == "rotated credit":
            draws = tuple(self._rotated(snapshot, signals, g) for signals in (acting, published))
        else:
            draws = redrawn_cosines(_draw_in(snapshot, acting), rule, self.redraws, _units(g))
        said = (list(exact), [*exact[1:], exact[-1]])
        fixed = [[a or b for a, b in zip(*pair, strict=True)] for pair in zip(said, map(_steady, draws), strict=True)]
        tests = [
            null_test(seen, null, skip, self.keep_draws).model_copy(update={"kind": rule.null_kind})
            for seen, null, skip in zip(observed, draws, fixed, strict=True)
        ]
        return Measured(
            {
                name: self._with_random_vector(
                    test, g, probe_generator(snapshot.seed, snapshot.epoch, f"random-vector/{name}", g[0].device)
                )
                for name, test in zip(self.fields, tests, strict=True)
            }
        )

    def _rotated(self, snapshot: Snapshot, signals: Sequence[Tensor], g: Sequence[Tensor]) -> Tensor:
        # One seed for both indices: a state and its neighbour are turned by the same matrices.
        generator = probe_generator(snapshot.seed, snapshot.epoch, "rotations", g[0].device)
        return rotated_cosines(signals, g, self.redraws, generator)

    def _with_random_vector(self, test: NullTest, g: list[Tensor], generator: torch.Generator) -> NullTest:
        """One random vector a redraw, the same for all samples, so that their dependence is kept."""
        if not any(mean is not None and mean > SKIP_CARRIES for mean in test.mean):
            return test
        values = []
        for unit, defined in _units(g):
            vectors = units(gaussian((self.redraws, unit.shape[1]), generator))[0]
            values.append(vectors @ (unit.sum(dim=0) / defined.sum()))
        found = torch.stack(values)
        carried = [mean is not None and mean > SKIP_CARRIES for mean in test.mean]
        means, sds = (
            [value if there else None for value, there in zip(column, carried, strict=True)]
            for column in lists(found.mean(dim=1), found.std(dim=1))
        )
        return test.model_copy(update={"random_vector_mean": means, "random_vector_sd": sds})


def redrawable(snapshot: Snapshot, redraws: int, rotated: bool = False) -> CreditRule:
    """The rule whose feedback can be redrawn; raises NotMeasured with the reason where none can.

    Args:
        snapshot: The run.
        redraws: K.
        rotated: Whether a rule will do whose credit is rotated instead.
    """
    if snapshot.rule is None:
        raise NotMeasured("no-credit-saved: a fresh-feedback null needs the rule; pass credit=... or save the run")
    if all(snapshot.exact):
        raise NotMeasured("exact-by-construction at every state: there is no feedback to redraw")
    if redraws < 1:
        raise NotMeasured("fresh-feedback null wants at least one redraw, got redraws = 0; raise probe.redraws")
    if snapshot.rule.null_kind == "rotated credit":
        if rotated:
            return snapshot.rule
        raise NotMeasured("fresh-feedback null: this feedback learns or was never drawn, so a fresh one is no null")
    if snapshot.init is None:
        raise NotMeasured("fresh-feedback null: feedback is drawn from the parameters at initialisation, not kept here")
    if not snapshot.state:
        raise NotMeasured("fresh-feedback null: the rule has no feedback to redraw")
    return snapshot.rule


def redraw(snapshot: Snapshot, name: str, redraws: int, entries: int) -> Iterator[tuple[slice, RuleState]]:
    """Fresh feedback, drawn as the run's own was, but where it is used: as many sets at once as memory allows.

    A null needs many draws, not the same ones on every device: moving them there would cost more than the null.

    Args:
        snapshot: The run.
        name: What is drawn.
        redraws: K.
        entries: Numbers that one redraw will take besides its feedback.

    Returns:
        Which of the K redraws, and their feedback stacked on a first axis.
    """
    like = next(iter(snapshot.params.values()))
    generator = probe_generator(snapshot.seed, snapshot.epoch, name, like.device)
    rule, start = snapshot.rule, snapshot.init
    assert rule is not None
    assert start is not None
    draw = rule.redraw(snapshot.task, {name: p.to(snapshot.dtype) for name, p in start.items()}, snapshot.state)
    bound = entries_at_once(like, _ENTRIES_CPU, _SHARE_GPU)
    size = max(1, bound // (entries + sum(tensor.numel() for tensor in snapshot.state.values())))
    for first in range(0, redraws, size):
        count = min(size, redraws - first)
        yield slice(first, first + count), draw(generator, count)


def redrawn_cosines(
    snapshot: Snapshot, rule: CreditRule, redraws: int, references: Sequence[tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Mean cosine per redraw and state, where the credit acts and in the published index.

    Args:
        snapshot: The run, in the dtype in which fresh credit is delivered.
        rule: Its rule.
        redraws: K.
        references: Unit vectors of g_0..g_L in the view, float64, and where they are defined.

    Returns:
        Two tensors of shape (K, L+1); NaN where no sample is defined.
    """
    n = len(snapshot.probe.x)
    partners = [_partner(references, level) for level in range(len(references))]
    pairs = list(zip(references, partners, strict=True))
    defined = torch.stack([torch.stack([here[1], there[1]]) for here, there in pairs])
    sums = torch.zeros(2, len(pairs), redraws, 2, dtype=torch.float64, device=snapshot.probe.x.device)
    entries = _entries(snapshot, rule) * min(n, _SAMPLES)
    for rows, chunk in redraw(snapshot, "null", redraws, entries):
        for samples in (slice(start, start + _SAMPLES) for start in range(0, n, _SAMPLES)):
            signals = vmap(_delivery(snapshot, rule, samples))(chunk)
            unit = (torch.stack([here[0][samples], there[0][samples]]) for here, there in pairs)
            sums[:, :, rows] += torch.stack(sum_cosines(signals, unit, defined[:, :, samples]))
    means = (sums[0] / sums[1]).transpose(0, 1)
    # In the published index the last state is paired with the signal that acts there, as it is.
    return means[..., 0], torch.cat([means[:, 1:, 1], means[:, -1:, 0]], dim=1)


def _steady(draws: Tensor) -> list[bool]:
    """Per state, whether no redraw changes the cosine, rounding apart: then there is no feedback to test."""
    spread: list[bool] = (draws.amax(dim=0) - draws.amin(dim=0) <= _STEADY).tolist()
    return spread


def _partner(references: Sequence[tuple[Tensor, Tensor]], level: int) -> tuple[Tensor, Tensor]:
    """What signal l is paired with in the published index: g_{l−1}, or nothing where that is in another space."""
    unit, defined = references[level]
    if level and references[level - 1][0].shape == unit.shape:
        return references[level - 1]
    return unit, torch.zeros_like(defined)


def _units(states: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Unit vectors of each state and where they are defined."""
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for levels, (stacked,) in stacks(states):
        found |= dict(zip(levels, zip(*units(stacked), strict=True), strict=True))
    return [found[level] for level in range(len(states))]


def _draw_in(snapshot: Snapshot, credit: Sequence[Tensor]) -> Snapshot:
    """The run in the dtype of its fresh draws: float64, or the run's float32 on a CPU where that is shown to do.

    On a CPU float32 takes half the time. The run's own credit says whether it does: on a fitted net p − 1 cancels,
    and e in float32 points elsewhere. On a GPU float32 products may be rounded to ten bits behind our back.
    """
    double = snapshot.in_dtype(torch.float64)
    if snapshot.dtype != torch.float32 or snapshot.probe.x.is_cuda:
        return double
    errors = by_state(
        lambda run, exact: allowed_error(infidelity(run, exact)[0]).mean(dim=1), credits_in_view(snapshot), credit
    )
    return snapshot if bool((errors < _DRAW_ERROR).all()) else double


def _delivery(snapshot: Snapshot, rule: CreditRule, samples: slice) -> Callable[[RuleState], tuple[Tensor, ...]]:
    """Delivered credit in the view, as a function of the feedback alone."""
    batch, seen = Batch(snapshot.probe.x[samples], snapshot.probe.y[samples]), snapshot.observation
    state = snapshot.state
    top, error = seen.states[-1][samples], seen.error[samples]

    def deliver(feedback: RuleState) -> tuple[Tensor, ...]:
        signals = rule.deliver_observed(snapshot.task, snapshot.params, {**state, **feedback}, batch, top, error)
        pairs = zip(signals, snapshot.observation.references, strict=True)
        return tuple(credit_in_view(c, g, snapshot.view) for c, g in pairs)

    return deliver


def _entries(snapshot: Snapshot, rule: CreditRule) -> int:
    """Numbers that one sample's signals take: a signal shared by all tokens is held once, unless flattened."""
    batch = Batch(snapshot.probe.x[:1], snapshot.probe.y[:1])
    signals = rule.deliver(snapshot.task, snapshot.params, snapshot.state, batch)
    if snapshot.view == "cls":
        return sum(c.untyped_storage().nbytes() // c.element_size() for c in signals)
    return sum(c.numel() for c in signals)


def null_test(observed: Tensor, null: Tensor, fixed: list[bool], keep_draws: bool) -> NullTest:
    """p = (1 + #{null ≥ observed})/(K + 1) per column, with the null's mean and standard deviation.

    Args:
        observed: One value a state or block; NaN where undefined.
        null: Shape (K, columns).
        fixed: Columns that do not depend on the feedback: they have no test.
        keep_draws: Whether the null values go into the result.
    """
    redraws = len(null)
    beyond = (null >= observed).sum(dim=0).double()
    p = torch.where(observed.isnan() | null.isnan().any(dim=0), math.nan, (1 + beyond) / (redraws + 1))
    found = lists(observed, p, null.mean(dim=0), null.std(dim=0), *(null.unbind(dim=1) if keep_draws else ()))
    columns = [[None if skip else value for value, skip in zip(row, fixed, strict=True)] for row in found[:4]]
    draws = [[] if skip else row for row, skip in zip(found[4:], fixed, strict=True)] if keep_draws else None
    return NullTest(observed=columns[0], p=columns[1], mean=columns[2], sd=columns[3], redraws=redraws, draws=draws)


def _mean_cosines(signals: Sequence[Tensor], references: Sequence[Tensor]) -> Tensor:
    """Mean cosine per state; NaN where the two are not in one space (the published index, states of two widths)."""
    alike = [c.shape == g.shape for c, g in zip(signals, references, strict=True)]
    # A zero vector has no direction: no sample is defined, and the mean is NaN.
    paired = [c if same else torch.zeros_like(g) for c, g, same in zip(signals, references, alike, strict=True)]
    return by_state(lambda c, g: mean_defined(*cosines(c, g))[0], paired, references)
