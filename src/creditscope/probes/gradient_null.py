"""The null of the gradient cosine, per block: fresh feedback, or labels shuffled over the samples."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from creditscope.blocks import Batch, CreditRule, RuleState, Snapshot
from creditscope.errors import NotMeasured
from creditscope.probes.functional.cosine import cosines, sum_cosines, units
from creditscope.probes.functional.gradient import one_vector
from creditscope.probes.nulls import null_test, redraw, redrawable
from creditscope.probes.parameters import block_parameters
from creditscope.probes.probe import Measured, Need, Probe, by_state, entries_at_once, float64_copy
from creditscope.probes.seeds import probe_generator
from creditscope.records.measured import NullTest

# The gradient null differentiates by every block parameter once a redraw. Where it decides nothing fewer suffice: on
# large models no more than this many entries of states and parameters are gone through, but at least 19 redraws.
REDRAWS = (19, 199)
# Shuffles differ from the run's own gradient by rounding alone where the labels say nothing to it.
_ROUNDING = 1e-9
_WORK_CPU, _WORK_GPU = 2**26, 2**32
# On a CPU a chunk is smaller than memory allows, by this factor: it should stay in the cache.
_HELD_CPU = 8
# Entries of states and parameters in one chunk of shuffles; on a GPU a share of its memory.
_SHUFFLED_CPU, _SHUFFLED_GPU = 2**21, 1 / 64


@dataclass(frozen=True)
class GradientNull(Probe):
    """Is the parameter gradient aligned, or would any other feedback, or any other labels, do as well?

    Measures: gradient cosine per block against 19 to 199 redraws of the whole feedback (it decides nothing); of a rule
        that delivers no credit, against 199 shuffles of the batch's labels (on large models fewer before the last
        probe), and against a random vector in closed form.
    Healthy: p < .01 in every trained block.
    Fooled by: blocks whose gradient does not depend on the feedback; they have no null (None).
    Null: itself.

    Args:
        redraws: K; capped at 199, and lower on large models.
        keep_draws: Whether the null values themselves go into the row.
    """

    redraws: int = 999
    keep_draws: bool = False

    name: ClassVar[str] = "gradient null"
    unit: ClassVar[str] = "cosine"
    needs: ClassVar[tuple[Need, ...]] = ("train",)
    fields: ClassVar[tuple[str, ...]] = ("gradient_null",)

    def measure(self, snapshot: Snapshot) -> Measured:
        """The rule's own assignment of one batch, mapped over redraws or shuffles."""
        if snapshot.rule is not None and snapshot.rule.family != "signal":
            return Measured({"gradient_null": self._against_labels(snapshot, snapshot.rule)})
        rule = redrawable(snapshot, self.redraws)
        double = float64_copy(snapshot)
        # What the output never uses has no gradient to compare with.
        blocks = [[name for name in names if name in double.bp_grads] for names in block_parameters(snapshot)]
        written = double.rule_grads
        absent = [name for names in blocks for name in names if name not in written]
        if absent:
            raise NotMeasured(f"gradient null: the backward pass wrote no gradient of {absent[0]}; keep every block's")
        own, reference = (
            [one_vector([grads[name] for name in names]) for names in blocks] for grads in (written, double.bp_grads)
        )
        observed = by_state(lambda c, g: cosines(c, g)[0], own, reference)
        null = _redrawn_gradients(double, rule, self.redraws, blocks, reference)
        fixed = (null.amax(dim=0) - null.amin(dim=0) <= 1e-9).tolist()
        return Measured({"gradient_null": null_test(observed, null, fixed, self.keep_draws)})

    def _against_labels(self, snapshot: Snapshot, rule: CreditRule) -> NullTest:
        """An update against that of shuffled labels; blocks of which nothing moves have no test."""
        if self.redraws < 1:
            raise NotMeasured(
                "gradient null wants at least one shuffle of labels, got redraws = 0; raise probe.redraws"
            )
        double = float64_copy(snapshot)
        held = [[name for name in names if name in double.rule_grads] for names in block_parameters(snapshot)]
        at = [block for block, names in enumerate(held) if names]
        if not at:
            raise NotMeasured("gradient null: no block moves in this step")
        blocks = [held[block] for block in at]
        own, reference = (
            [one_vector([grads[name] for name in names]) for names in blocks]
            for grads in (double.rule_grads, double.bp_grads)
        )
        found = by_state(lambda c, g: cosines(c, g)[0], own, reference)
        # The last probe decides, and it is the one whose values are kept.
        redraws = min(self.redraws, REDRAWS[1] if self.keep_draws else _affordable(double))
        draws = _shuffled_gradients(double, rule, redraws, blocks, reference)
        # A gradient that the labels do not touch is no better than its shuffles, whatever rounding says.
        draws = torch.where((draws - found).abs() <= _ROUNDING, found, draws)
        observed = found.new_full((len(held),), math.nan)
        null = draws.new_full((len(draws), len(held)), math.nan)
        observed[at], null[:, at] = found, draws
        test = null_test(observed, null, [False] * len(held), self.keep_draws)
        sizes = {block: len(g) for block, g in zip(at, reference, strict=True)}
        # Of a random direction in n dimensions the cosine with any vector has mean 0 and variance 1/n, exactly.
        sds = [1 / math.sqrt(sizes[block]) if block in sizes else None for block in range(len(held))]
        means = [None if sd is None else 0.0 for sd in sds]
        named = {"kind": "shuffled labels", "random_vector_mean": means, "random_vector_sd": sds}
        return test.model_copy(update=named)


def _cost(double: Snapshot) -> int:
    """Entries of states and parameters that a step goes through."""
    assert double.train is not None
    states = sum(math.prod(shape) for shape in double.task.shapes) * len(double.train.x)
    return states + sum(p.numel() for p in double.moving.values())


def _affordable(double: Snapshot) -> int:
    """How many shuffles or redraws the work bounds allow."""
    fewest, most = REDRAWS
    work = _WORK_GPU if next(iter(double.params.values())).is_cuda else _WORK_CPU
    return min(most, max(fewest, work // _cost(double)))


def _shuffled_gradients(
    double: Snapshot, rule: CreditRule, redraws: int, blocks: list[list[str]], reference: list[Tensor]
) -> Tensor:
    """Gradient cosine per shuffle of the batch's labels and block; everything else is the run's own."""
    train, moving = double.train, double.moving
    assert train is not None
    task = double.held

    def assign(y: Tensor) -> tuple[Tensor, ...]:
        grads = rule.step(task, moving, double.state, Batch(train.x, y), double.noise, double.task.phase).grads
        return tuple(one_vector([grads[name] for name in names]) for names in blocks)

    generator = probe_generator(double.seed, double.epoch, "gradient-null/labels")
    orders = torch.stack([torch.randperm(len(train.y), generator=generator) for _ in range(redraws)]).to(train.y.device)
    size = max(1, entries_at_once(train.x, _SHUFFLED_CPU, _SHUFFLED_GPU) // _cost(double))
    rows = []
    for chunk in torch.split(orders, size):
        drawn = vmap(assign)(train.y[chunk])
        rows.append(by_state(lambda c, g: cosines(c, g.unsqueeze(-2))[0], drawn, reference))
    return torch.cat(rows, 1).T


def _redrawn_gradients(
    double: Snapshot, rule: CreditRule, redraws: int, blocks: list[list[str]], reference: list[Tensor]
) -> Tensor:
    """Gradient cosine per redraw and block."""
    train = double.train
    assert train is not None
    inside = {name for names in blocks for name in names}
    # What is no block's parameter is held fixed: its gradient is never formed.
    rest = {name: p for name, p in double.params.items() if name not in inside}
    task = double.task._replace(fixed={**double.task.fixed, **rest})
    params = {name: p for name, p in double.params.items() if name in inside}

    def assign(feedback: RuleState) -> tuple[Tensor, ...]:
        state = {**double.state, **feedback}
        grads = rule.step(task, params, state, train, double.noise, double.task.phase).grads
        return tuple(one_vector([grads[name] for name in names]) for names in blocks)

    states = sum(math.prod(shape) for shape in double.task.shapes) * len(train.x)
    cost = states + sum(p.numel() for p in params.values())
    fewest, most = REDRAWS
    work = _WORK_GPU if train.x.is_cuda else _WORK_CPU
    redraws = min(redraws, most, max(fewest, work // cost))
    # One sample, the batch, with one reference.
    pairs = [units(g.reshape(1, 1, -1)) for g in reference]
    unit, defined = [pair[0] for pair in pairs], torch.stack([pair[1] for pair in pairs])
    rows = []
    for _, chunk in redraw(double, "gradient-null", redraws, cost if train.x.is_cuda else _HELD_CPU * cost):
        total, count = sum_cosines([c.unsqueeze(1) for c in vmap(assign)(chunk)], unit, defined)
        rows.append((total / count).squeeze(2).T)
    return torch.cat(rows)
