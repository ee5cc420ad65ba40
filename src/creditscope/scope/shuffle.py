"""The fresh-feedback null of a credit read from a backward pass: the entries of its feedback are shuffled.

For feedback with independent, identically distributed entries every order of them is as likely as the run's own, so
the test is exact whatever the distribution was.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from creditscope.blocks import Batch, Snapshot, Task, observe
from creditscope.errors import NotMeasured
from creditscope.probes.functional.cosine import cosines, mean_defined, units
from creditscope.probes.nulls import null_test
from creditscope.probes.probe import credits_in_view, float64_copy, references_in_view
from creditscope.probes.seeds import probe_generator
from creditscope.records.measured import NullTest
from creditscope.scope.credit import BackwardCredit

SAMPLES = 256
# Rounding in float32 turns a vector by less.
_SAME = 1e-6


@contextmanager
def shuffled(credit: BackwardCredit, generator: torch.Generator) -> Iterator[None]:
    """The entries of every feedback tensor in another order; the very values of before on the way out.

    Args:
        credit: Whose feedback.
        generator: CPU generator of the orders.
    """
    with credit.holding():
        tensors = credit.tensors()
        kept = [t.detach().clone() for t in tensors]
        try:
            for tensor, own in zip(tensors, kept, strict=True):
                order = torch.randperm(own.numel(), generator=generator).to(own.device)
                tensor.data.copy_(own.flatten()[order].reshape(own.shape))
            yield
        finally:
            for tensor, own in zip(tensors, kept, strict=True):
                tensor.data.copy_(own)


def exact_states(task: Task, credit: BackwardCredit, batch: Batch, seed: int) -> tuple[bool, ...]:
    """Per state, whether the signal is the true gradient and no shuffle of the feedback changes it.

    Args:
        task: The partitioned model.
        credit: Whose signal.
        batch: A few samples.
        seed: Of the shuffle.
    """
    params = {name: p.detach() for name, p in task.blocks.model.named_parameters()}
    own = credit.deliver(task, params, batch)
    with shuffled(credit, probe_generator(seed, 0, "exact")):
        other = credit.deliver(task, params, batch)
    with torch.no_grad():
        true = observe(task, params, None, {}, batch).references
    return tuple(
        c is not None and d is not None and bool(c.any()) and torch.equal(c, d) and _alike(c, g)
        for c, d, g in zip(own, other, true, strict=True)
    )


def shuffled_null(snapshot: Snapshot, credit: BackwardCredit, keep_draws: bool) -> NullTest:
    """Mean cosine per state against shuffles of the feedback, on at most 256 samples.

    Args:
        snapshot: The model now.
        credit: Whose feedback is shuffled.
        keep_draws: Whether null values go into the result.
    """
    if credit.redraws < 1:
        raise NotMeasured("fresh-feedback null wants at least one shuffle, got redraws = 0; raise redraws")
    double = float64_copy(snapshot)
    n = min(SAMPLES, len(double.probe.x))
    batch = Batch(double.probe.x[:n], double.probe.y[:n])
    references = [g[:n] for g in references_in_view(double)]
    signals = [c[:n] for c in credits_in_view(double)]
    observed = torch.stack([mean_defined(*cosines(c, g))[0] for c, g in zip(signals, references, strict=True)])
    against = [units(g) for g in references]
    generator = probe_generator(snapshot.seed, snapshot.epoch, "shuffle")
    rows = []
    for _ in range(credit.redraws):
        with shuffled(credit, generator):
            drawn = credit.deliver(double.task, double.params, batch)
        rows.append(torch.stack([_mean(c, *unit) for c, unit in zip(drawn, against, strict=True)]))
    return null_test(observed, torch.stack(rows), list(snapshot.exact), keep_draws)


def _mean(c: Tensor | None, unit: Tensor, defined: Tensor) -> Tensor:
    if c is None:
        return unit.new_tensor(torch.nan)
    own, alive = units(c.flatten(1))
    return mean_defined((own * unit).sum(-1), alive & defined)[0]


def _alike(c: Tensor, g: Tensor) -> bool:
    value, defined = cosines(c.flatten(1), g.flatten(1))
    return bool((value[defined] > 1 - _SAME).all())
