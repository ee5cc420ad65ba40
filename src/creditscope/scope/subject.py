"""Subject: a user's model, partitioned, checked and ready to be measured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.blocks import Batch, CreditRule, Params, RuleState, Snapshot, Task
from creditscope.blocks.partition import Where
from creditscope.errors import BadInput
from creditscope.probes.functional.movement import movements
from creditscope.probes.probe import by_state, numbers
from creditscope.records.measured import Movement
from creditscope.records.method import TrainLast
from creditscope.scope.bounds import Bounds, Plan, Sizes, batch_that_fits, plan, sizes_of
from creditscope.scope.credit import AdapterRule, Backward, BackwardCredit, CreditAdapter, RuleCredit, run_backward
from creditscope.scope.cuts import plain_names, segments_of, steady_logits, without_head
from creditscope.scope.growth import ends_in_normaliser
from creditscope.scope.inputs import Forward, call
from creditscope.scope.losses import per_sample
from creditscope.scope.probe_data import PROBE_BATCH, Loader, ProbeData, gather
from creditscope.scope.restore import device_of, spared_gradients
from creditscope.scope.shuffle import exact_states
from creditscope.scope.substitution import verified
from creditscope.scope.true_backward import TrueBlocks

LossOf = Callable[[Any, Any], Tensor]
_UNBOUNDED = Bounds()
# Samples of the batch on which parameter gradients are compared.
TRAIN = 64


@dataclass(frozen=True)
class Subject:
    """What is measured, besides the weights themselves.

    Args:
        task: The partitioned model, its per-sample loss, its shapes.
        data: On what.
        credit: What the method delivers; None where it is not known.
        backward: The user's own backward pass; None: that of the loss.
        found: Whether the blocks were found, not named.
        seed: Of the run's probes.
        exact: Per state, whether an adapter's credit is the true gradient by construction.
        normalised: Whether some block ends in a normaliser.
        notes: What a reader of its numbers must know.
        batch: Samples at once.
        sizes: What one sample takes; None: it was not asked.
        allowed: Bytes that measuring may take beside the model.
    """

    task: Task
    data: ProbeData
    credit: CreditAdapter | None
    backward: Backward | None
    found: bool
    seed: int
    exact: tuple[bool, ...]
    normalised: bool
    notes: tuple[str, ...] = ()
    batch: int = PROBE_BATCH
    sizes: Sizes | None = None
    allowed: int = 0

    @classmethod
    def of(
        cls,
        model: nn.Module,
        blocks: Where,
        loader: Loader,
        loss_fn: LossOf | None,
        credit: CreditAdapter | None,
        backward: Backward | None,
        seed: int,
        bounds: Bounds = _UNBOUNDED,
        forward: Forward | None = None,
        batch_axis: int = 0,
    ) -> "Subject":
        """Partition a model and check everything a user can get wrong; call it inside ``restoring``.

        Args:
            model: The model, out of its wrapper.
            blocks: Names of the blocks; None: they are searched for.
            loader: On what to measure.
            loss_fn: The user's loss.
            credit: What the method delivers.
            backward: The user's own backward pass.
            seed: Of the probes.
            bounds: What the user allows.
            forward: The user's own call of the model on a batch.
            batch_axis: Which axis of the stream is samples.
        """
        if credit is not None and not isinstance(credit, CreditAdapter):
            raise BadInput(
                f"wanted a credit adapter with deliver(task, params, batch), got {type(credit).__name__}; "
                "use rule_credit(...), backward_credit(model) or a class of your own"
            )
        if isinstance(credit, BackwardCredit) and credit.model is not model:
            raise BadInput("backward_credit was made for another model; pass backward_credit(model) of the one audited")
        partition = TrueBlocks.of(model, plain_names(blocks))
        dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        data = gather(loader, device_of(model), dtype, forward)
        partition = replace(partition, table=data.table, batch_axis=batch_axis)
        logits = steady_logits(partition, data.probe.x)
        if blocks is None:
            partition = without_head(partition, data.probe.x[:2])
        if any(partition.own_names(at) == [] for at in range(partition.depth)):
            partition = replace(partition, segments=segments_of(partition, data.probe.x[:2]))
        loss = per_sample(loss_fn, logits, data.probe.y[:2])
        top = int(data.test.y.max()) if loss_fn is None and not data.test.y.is_floating_point() else 0
        if loss_fn is None and top < 0:
            raise BadInput(f"wanted targets, got {top} for every sample, which stands for none; pass labels from 0 on")
        if loss_fn is None and top >= logits.shape[-1]:
            raise BadInput(
                f"wanted labels below {logits.shape[-1]}, the number of the model's outputs, got {top}; "
                "number the classes from 0, or pass loss_fn=..."
            )
        task = Task.of(partition, loss, data.probe.x[:2])
        if isinstance(credit, RuleCredit):
            credit.require_feedback(task)
        allowed = bounds.bytes(device_of(model))
        sizes = sizes_of(partition, task.shapes, logits[0].numel(), data.probe.x[:2])
        at_once = batch_that_fits(sizes, allowed, PROBE_BATCH)
        few = Batch(data.probe.x[:at_once], data.probe.y[:at_once])
        notes: tuple[str, ...] = ()
        if isinstance(credit, BackwardCredit):
            credit, notes = verified(task, credit, few)
        shuffles = isinstance(credit, BackwardCredit) and credit.feedback
        return cls(
            task=task,
            data=data,
            credit=credit,
            # A credit that is read from a pass of its own is also where the gradients come from.
            backward=backward or (credit.backward if isinstance(credit, BackwardCredit) else None),
            found=blocks is None,
            seed=seed,
            exact=exact_states(task, credit, few, seed) if shuffles else (False,) * (partition.depth + 1),  # type: ignore[arg-type]
            normalised=ends_in_normaliser(task, data.probe.x[:2]),
            notes=notes,
            batch=at_once,
            sizes=sizes,
            allowed=allowed,
        )

    def planned(self, bounds: Bounds, redraws: int, directions: int, keep_draws: bool) -> Plan:
        """What is measured on how much, by what is allowed; call it inside ``restoring``.

        Args:
            bounds: What the user allows.
            redraws: K of the nulls.
            directions: M of ρ.
            keep_draws: Whether null values go into the row.
        """
        assert self.sizes is not None
        now = self.snapshot(None, 0, expensive=False)
        return plan(now, bounds, self.sizes, self.allowed, bounds.chosen(redraws, directions, keep_draws))

    def on_first(self, n: int) -> "Subject":
        """The same model, measured on its first probe samples.

        Args:
            n: How many.
        """
        if n >= len(self.data.probe.y):
            return self
        return replace(self, data=self.data._replace(probe=Batch(self.data.probe.x[:n], self.data.probe.y[:n])))

    @property
    def partition(self) -> TrueBlocks:
        """The partitioned model."""
        assert isinstance(self.task.blocks, TrueBlocks)
        return self.task.blocks

    @property
    def model(self) -> nn.Module:
        """The user's model."""
        return self.task.blocks.model

    @property
    def rule(self) -> CreditRule | None:
        """The rule, or the adapter in its place."""
        if isinstance(self.credit, RuleCredit):
            return self.credit.rule
        return None if self.credit is None else AdapterRule(self.credit, self.exact)

    @property
    def claims_backprop(self) -> bool:
        """Whether the user says that every block gets the true gradient."""
        depth = self.task.blocks.depth
        return isinstance(self.credit, RuleCredit) and all(self.credit.rule.exact(depth))

    def movement(self, init: Params) -> Movement:
        """How far each block's weight matrices moved: no biases, no norm gains, nothing fixed in a block that trains.

        Args:
            init: Parameters at initialisation.
        """
        named = dict(self.model.named_parameters())
        trainable = self._trainable(named)
        flags = {name: p.requires_grad for name, p in named.items() if p.ndim > 1}
        blocks = [
            [n for n, trains in flags.items() if self.task.blocks.block_of(n) == at and trains in (True, any_trains)]
            for at, any_trains in enumerate(trainable)
        ]
        names = [name for block in blocks for name in block]
        with torch.no_grad():
            pairs = [[stack[name] for name in names] for stack in (named, init)]
            moved = numbers(by_state(movements, *pairs)) if names else []
        return Movement(weights=dict(zip(names, moved, strict=True)), blocks=blocks, trainable=trainable)

    @property
    def names(self) -> tuple[str, ...]:
        """The blocks."""
        return self.task.blocks.names

    @property
    def trainable(self) -> list[bool]:
        """Whether each block holds a parameter that requires a gradient."""
        return self._trainable(dict(self.model.named_parameters()))

    def _trainable(self, named: Params) -> list[bool]:
        trains = {self.task.blocks.block_of(name) for name, p in named.items() if p.requires_grad}
        return [at in trains for at in range(self.task.blocks.depth)]

    @property
    def train_last(self) -> TrainLast | None:
        """How many of the last blocks train; None where it is no last stretch."""
        # A block without weights is not frozen: there is nothing in it to train.
        empty = [not self.partition.own_names(at) for at in range(len(self.names))]
        trains = [t or e for t, e in zip(self.trainable, empty, strict=True)]
        if not any(p.requires_grad for p in self.model.parameters()):
            trains = self.trainable
        count = sum(trains)
        if count == len(trains):
            return "all"
        return count if all(trains[len(trains) - count :]) else None

    def snapshot(self, init: Params | None, epoch: int, step: int = 0, expensive: bool = True) -> Snapshot:
        """The model now, as the probes see it; call it inside ``restoring``.

        Args:
            init: Parameters at initialisation.
            epoch: Epochs done.
            step: Steps done.
            expensive: Whether the expensive set is asked, which also looks at what the backward pass writes.
        """
        few = min(self.batch, TRAIN)
        train = Batch(self.data.probe.x[:few], self.data.probe.y[:few])
        kept = self.data.test
        half = len(kept.x) // 2
        if self.sizes is not None:  # the states of both halves are held at once
            half = min(half, int(0.5 * self.allowed / (16 * self.sizes.states)))
        named = list(self.model.named_parameters())
        fits = self.data.labelled and half >= 2 * self.task.outputs
        return Snapshot(
            task=self.task,
            params={name: p.detach() for name, p in named},
            init=init,
            rule=self.rule,
            state=self._state(),
            probe=self.data.probe,
            batch=self.batch,
            view=self.view,
            seed=self.seed,
            epoch=epoch,
            step=step,
            trained=frozenset(name for name, p in named if p.requires_grad),
            train=train,
            grads=self.own_gradients(train) if expensive else None,
            # Readouts are fitted on one half of what the loader gave and tested on the other.
            fit=Batch(kept.x[-half:], kept.y[-half:]) if fits else None,
            test=Batch(kept.x[:half], kept.y[:half]) if fits else None,
        )

    @property
    def view(self) -> str:
        """Vectors as they are, everything else flattened."""
        return "flat" if all(len(shape) == 1 for shape in self.task.shapes) else "all"

    def correct(self, answers: Tensor) -> Tensor | None:
        """Correctness on everything the loader gave, of text token by token; None where the targets are no labels.

        Args:
            answers: The model's on the probe samples, which need not be computed again.
        """
        y = self.data.test.y
        if y.is_floating_point() or self.task.outputs < 2 or answers.shape != y[: len(answers)].shape:
            return None
        if len(y) == len(answers):
            return answers == y
        with torch.no_grad():
            parts = [
                call(self.model, self.partition.inputs(x)).argmax(-1)
                for x in torch.split(self.data.test.x, 2 * self.batch)
            ]
        return torch.cat(parts) == y

    def _state(self) -> RuleState:
        return self.credit.feedback if isinstance(self.credit, RuleCredit) else {}

    def own_gradients(self, train: Batch) -> dict[str, Tensor] | None:
        """What the user's own backward writes into ``.grad``; None where one of our rules is asked instead.

        Args:
            train: The samples.
        """
        if isinstance(self.credit, RuleCredit) and self.backward is None and not self.claims_backprop:
            return None
        with spared_gradients(self.model):
            run_backward(self.model, self.task.loss, self.partition.inputs(train.x), train.y, self.backward)
            grads = {name: p.grad.detach().clone() for name, p in self.model.named_parameters() if p.grad is not None}
        inside = [name for name in grads if self.task.blocks.block_of(name) is not None]
        if not inside and any(self.trainable):
            raise BadInput(
                "no gradient: the backward pass wrote no .grad of any block's parameter; "
                "pass backward=... that fills them, or check what requires_grad"
            )
        return grads


def initial(subject: Subject, init: Mapping[str, Tensor] | None) -> dict[str, Tensor] | None:
    """Parameters at initialisation from a state dict, checked against the model.

    Args:
        subject: The model.
        init: The user's state dict.
    """
    if init is None:
        return None
    clean = {name.removeprefix("_orig_mod."): value for name, value in init.items()}
    found = {}
    for name, p in subject.model.named_parameters():
        if name not in clean or clean[name].shape != p.shape:
            got = f"shape {tuple(clean[name].shape)}" if name in clean else "none of that name"
            raise BadInput(
                f"wanted {name} of shape {tuple(p.shape)} in init, got {got}; "
                "pass copy.deepcopy(model.state_dict()) taken before training"
            )
        found[name] = clean[name].detach().to(p)
    return found
