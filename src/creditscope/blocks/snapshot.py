"""Snapshot: all that a probe may see of one run at one moment. Each quantity is computed when first asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from creditscope.blocks.observe import Observation, observe
from creditscope.blocks.partition import Params
from creditscope.blocks.rule import CreditRule, RuleState
from creditscope.blocks.task import Batch, Task
from creditscope.errors import NotMeasured


@dataclass(frozen=True)
class Snapshot:
    """One run at one moment.

    Args:
        task: The partitioned model and its loss.
        params: Parameters now.
        init: Parameters at initialisation, or None where they were not kept.
        rule: The rule, or None for a model whose credit is not known.
        state: The rule's own state, its feedback among it.
        probe: The probe samples.
        batch: Size of the probe batches.
        view: How a state becomes one vector per sample.
        seed: Seed of this run's probes: random directions and redraws follow from it.
        epoch: Epochs done.
        step: Optimiser steps done.
        trained: Names of the parameters that train.
        train: One training batch, for parameter gradients.
        update: The last actual step net of decay, by parameter name.
        grads: Parameter gradients that somebody else's backward wrote on ``train``; None: ask the rule.
        fit: Samples to fit linear readouts on; None: not measured.
        test: Samples to test them on.
        noise: Random numbers for that step, as the rule asks for them.
    """

    task: Task
    params: Params
    init: Params | None
    rule: CreditRule | None
    state: RuleState
    probe: Batch
    batch: int
    view: str
    seed: int
    epoch: int = 0
    step: int = 0
    trained: frozenset[str] | None = None
    train: Batch | None = None
    update: Mapping[str, Tensor] | None = None
    grads: Mapping[str, Tensor] | None = None
    fit: Batch | None = None
    test: Batch | None = None
    noise: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """Number of blocks L."""
        return self.task.blocks.depth

    @property
    def exact(self) -> tuple[bool, ...]:
        """Per state, whether the credit is exact by construction."""
        return self.rule.exact(self.depth) if self.rule is not None else (False,) * (self.depth + 1)

    @property
    def batches(self) -> list[Batch]:
        """The probe samples in probe batches."""
        xs, ys = torch.split(self.probe.x, self.batch), torch.split(self.probe.y, self.batch)
        return [Batch(x, y) for x, y in zip(xs, ys, strict=True)]

    @cached_property
    def observation(self) -> Observation:
        """States, references, credit, error, logits and loss on all probe samples."""
        with torch.no_grad():
            parts = [observe(self.task, self.params, self.rule, self.state, batch) for batch in self.batches]
        return _join(parts)

    @cached_property
    def first_broken(self) -> int | None:
        """The first state with an entry that is not finite on some probe sample, or None."""
        fine = are_finite(self.observation.states).tolist()
        return fine.index(False) if False in fine else None

    @cached_property
    def tail_losses(self) -> tuple[Tensor, ...]:
        """Per state, the loss of each probe sample as the rest of the network gives it from that state on."""
        with torch.no_grad():
            return tuple(
                self.tail_loss(at, h, self.probe.y, self.dtype) for at, h in enumerate(self.observation.states)
            )

    @cached_property
    def delivered(self) -> tuple[Tensor, ...]:
        """c_0..c_L; raises NotMeasured where no credit was saved."""
        if self.observation.delivered is None and self.rule is not None:
            raise NotMeasured(f"{self.rule.name} is of the {self.rule.family} family: no credit at the states")
        if self.observation.delivered is None:
            raise NotMeasured(
                "no-credit-saved: the rule's own feedback is needed; pass credit=... or save it with the run"
            )
        return self.observation.delivered

    @cached_property
    def rule_grads(self) -> dict[str, Tensor]:
        """The raw gradient that the rule wrote on ``train``, before momentum and decay."""
        if self.grads is not None:
            return dict(self.grads)
        if self.rule is None or self.train is None:
            raise NotMeasured("parameter gradients: neither a rule nor gradients of the user's own backward are known")
        step = self.rule.step(self.held, self.moving, self.state, self.train, self.noise, self.task.phase)
        return {name: grad for name, grad in step.grads.items() if name in self.params}

    @cached_property
    def moving(self) -> Params:
        """The parameters that a step is about: those that train, where a rule's update may depend on which do."""
        if self.rule is None or self.rule.family == "signal" or self.trained is None:
            return self.params
        return {name: p for name, p in self.params.items() if name in self.trained}

    @property
    def held(self) -> Task:
        """The task with all other parameters held fixed."""
        rest = {name: p for name, p in self.params.items() if name not in self.moving}
        return self.task._replace(fixed={**self.task.fixed, **rest}) if rest else self.task

    @cached_property
    def bp_grads(self) -> dict[str, Tensor]:
        """The true gradient of the mean task loss on ``train``, of the parameters that it depends on."""
        if self.train is None:
            raise NotMeasured("parameter gradients: no training batch was kept")
        train = self.train

        def loss(params: dict[str, Tensor]) -> Tensor:
            logits = self.task.forward(params, train.x).logits
            return self.task.loss(logits, train.y).mean()

        out, pullback = self.task.blocks.vjp(loss, dict(self.params))
        return {name: grad for name, grad in pullback(torch.ones_like(out))[0].items() if grad is not None}

    def tail_loss(
        self, level: int, h: Tensor, y: Tensor, dtype: torch.dtype = torch.float64, x: Tensor | None = None
    ) -> Tensor:
        """Per-sample loss of the rest of the network from a state on.

        Args:
            level: Which state h is.
            h: The state, first axis samples.
            y: Targets of these samples.
            dtype: In which the rest of the network is computed.
            x: Inputs of these samples, for a network that reads them again further on; None: the probe samples.
                States that are several times as many are copies, those of one sample side by side.
        """
        there = self if dtype == self.dtype else self.in_dtype(dtype)
        given = there.probe.x if x is None else x
        return there.task.loss(there.task.tail(there.params, level, h.to(dtype), given), y)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the run."""
        return next(iter(self.params.values())).dtype

    def in_dtype(self, dtype: torch.dtype) -> "Snapshot":
        """The same run with parameters, state and inputs in another dtype.

        Args:
            dtype: For example float64, to ask what rounding did.
        """
        if dtype == self.dtype:
            return self
        if dtype not in self._casts:
            self._casts[dtype] = self._cast(dtype)
        return self._casts[dtype]

    @cached_property
    def _casts(self) -> dict[torch.dtype, "Snapshot"]:
        return {}

    def _cast(self, dtype: torch.dtype) -> "Snapshot":
        def cast(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}

        def cast_batch(batch: Batch | None) -> Batch | None:
            return batch and Batch(batch.x.to(dtype) if batch.x.is_floating_point() else batch.x, batch.y)

        probe = cast_batch(self.probe)
        assert probe is not None
        return replace(
            self,
            task=self.task._replace(buffers=cast(self.task.buffers), fixed=cast(self.task.fixed)),
            params=cast(self.params),
            state=cast(self.state),
            probe=probe,
            train=cast_batch(self.train),
            noise=cast(self.noise),
        )


def are_finite(states: Sequence[Tensor]) -> Tensor:
    """Per state, whether every entry is finite: one answer from the device for all.

    Args:
        states: Tensors of any shapes.
    """
    # The outermost entries are NaN where any is.
    return torch.stack([torch.stack(h.aminmax()) for h in states]).isfinite().all(dim=1)


def _join(parts: list[Observation]) -> Observation:
    if len(parts) == 1:
        return parts[0]

    def rows(name: str) -> tuple[Tensor, ...] | None:
        lists = [getattr(part, name) for part in parts]
        if lists[0] is None:
            return None
        return tuple(torch.cat(column) for column in zip(*lists, strict=True))

    states, branches, references = rows("states"), rows("branches"), rows("references")
    assert states is not None
    assert branches is not None
    assert references is not None
    error, logits, loss = (torch.cat([getattr(part, name) for part in parts]) for name in ("error", "logits", "loss"))
    return Observation(states, branches, references, rows("delivered"), error, logits, loss)
