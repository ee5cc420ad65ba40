"""Locality: change the weights downstream and see whether updates upstream notice."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import Function

from creditscope.blocks import Blocks, LossFn
from creditscope.blocks.partition import Where, hooks
from creditscope.errors import BadInput, did_you_mean
from creditscope.probes.seeds import gaussian, probe_generator
from creditscope.scope.credit import run_backward
from creditscope.scope.inputs import Inputs, as_given, call, logits_of, with_logits
from creditscope.scope.losses import per_sample
from creditscope.scope.probe_data import gather
from creditscope.scope.restore import device_of, plain_model, restoring, spared_gradients
from creditscope.scope.subject import LossOf
from creditscope.scope.true_backward import TrueBlocks

UpdateFn = Callable[[nn.Module, Any, Tensor], Mapping[str, Tensor] | None]
Hold = Literal["output", "activations", "nothing"]
# Recomputing on other values of the same size turns the last bits at most; a leak turns the first digits.
_TOLERANCE = 1e-5
_READOUT = "readout"


@dataclass(frozen=True)
class Leak:
    """One update that notices weights it should not know.

    Args:
        block: The block, or ``embedding``, whose update changed.
        parameter: Its parameter.
        source: The part downstream whose weights were changed.
        change: ‖Δupdate‖/‖update‖.
    """

    block: str
    parameter: str
    source: str
    change: float


@dataclass(frozen=True)
class Locality:
    """What the perturbations showed.

    Args:
        leaks: Every leak, the largest first; empty when the updates are local.
        sources: The parts that were perturbed.
        upstream: Number of parameters whose updates were watched.
        hold: What was held fixed.
    """

    leaks: tuple[Leak, ...]
    sources: tuple[str, ...]
    upstream: int
    hold: Hold

    @property
    def local(self) -> bool:
        """Whether no update noticed."""
        return not self.leaks

    def __str__(self) -> str:
        held = {
            "output": "with the network's output held fixed",
            "activations": "with every activation held fixed",
            "nothing": "with nothing held fixed",
        }[self.hold]
        done = f"the weights of {', '.join(self.sources)} were changed one part at a time, {held}"
        if self.local:
            return f"local: {done}; the updates of {self.upstream} parameters upstream stayed the same"
        first = self.leaks[0]
        more = len({(leak.block, leak.parameter) for leak in self.leaks}) - 1
        return (
            f"leak: {done}; the update of {first.parameter} in {first.block} follows the weights of {first.source} "
            f"(changed by {100 * first.change:.3g} %)" + (f", and {more} more parameters leak" if more else "")
        )


def check_locality(
    model: nn.Module,
    blocks: Where = None,
    batch: tuple[Tensor, Tensor] | Mapping[str, Tensor] | None = None,
    loss_fn: LossOf | None = None,
    update_fn: UpdateFn | None = None,
    *,
    split: int | str | None = None,
    hold: Hold = "output",
    seed: int = 0,
) -> Locality:
    """Show that updates upstream of a split do not depend on weights downstream of it, or name the leak.

    A rule that is told only the output error is local with ``hold="output"``; one that carries the error back through
    fixed matrices also uses slopes downstream, and is free of weight transport with ``hold="activations"``; a rule with
    a loss of its own in each block is local with ``hold="nothing"``. Backprop leaks in all three.

    Args:
        model: The model; left as it was.
        blocks: As in ``audit_model``.
        batch: A few inputs and targets, (x, y) or a dict with ``labels``.
        loss_fn: The loss whose backward writes the updates into ``.grad``; None: cross-entropy.
        update_fn: Your own rule in its place: called with (model, x, y), it fills ``.grad`` or returns updates by name.
        split: The last block upstream, by name or index; None tries every split.
        hold: What a change downstream may not touch: the ``output``, all ``activations``, or ``nothing``.
        seed: Of the changes.
    """
    if batch is None:
        raise BadInput("wanted a batch to compute updates on, got none; pass batch=(x, y)")
    if hold not in get_args(Hold):
        raise BadInput(f"unknown hold {hold!r}; {did_you_mean(str(hold), get_args(Hold))}")
    if loss_fn is not None and update_fn is not None:
        raise BadInput("wanted loss_fn or update_fn, got both; your own update_fn knows its loss")
    inner = plain_model(model)
    with restoring(inner):
        dtype = next(inner.parameters()).dtype
        (x, y), _, _, table = gather(batch, device_of(inner), dtype)
        partition = replace(TrueBlocks.of(inner, blocks), table=table)
        logits, outer = _wrappers(inner, partition.inputs(x))
        _require_holdable(inner, hold)
        loss = None if update_fn is not None else per_sample(loss_fn, logits[:2], y[:2])
        return _Trial(partition, x, y, loss, update_fn, hold, seed, outer).run(_split_index(partition, split))


@dataclass(frozen=True)
class _Trial:
    """One call of ``check_locality``."""

    blocks: TrueBlocks
    x: Tensor
    y: Tensor
    loss: LossFn | None
    update_fn: UpdateFn | None
    hold: Hold
    seed: int
    outer: frozenset[str]

    @property
    def inputs(self) -> Inputs:
        return self.blocks.inputs(self.x)

    def run(self, split: int | None) -> Locality:
        names = self.blocks.names
        order = {"embedding": -1, _READOUT: len(names)}
        rank = {
            name: part if isinstance(part, int) else order[part] for name, part in self.blocks.parts(self.x[:2]).items()
        }
        used = self._used()
        with self._recorded() as held:
            plain = self._updates()
        if self.hold != "nothing" and "" not in held:
            raise BadInput(
                "update_fn never calls model(x), so the network's output cannot be held fixed; call the model for its "
                "logits, or pass hold='nothing'"
            )
        again = self._updates()
        upstream = [name for name, r in rank.items() if r <= (len(names) - 1 if split is None else split)]
        self._require_updates(plain, again, upstream)
        sources = sorted({r for r in rank.values() if r > (-1 if split is None else split)})
        with torch.no_grad():
            output = call(self.blocks.model, self.inputs)
        leaks: list[Leak] = []
        for source in sources:
            own = [name for name, r in rank.items() if r == source and name in used]
            with self._changed(own, source):
                self._require_effect(output, _part(source, names))
                with self._held(held):
                    changed = self._updates()
            leaks += [
                Leak(_part(rank[name], names), name, _part(source, names), change)
                for name in upstream
                if rank[name] < source and (change := _relative(plain.get(name), changed.get(name))) > _TOLERANCE
            ]
        watched = sum(name in plain for name in upstream)
        leaks.sort(key=lambda leak: -leak.change)
        return Locality(tuple(leaks), tuple(_part(source, names) for source in sources), watched, self.hold)

    def _used(self) -> set[str]:
        """Parameters that the output depends on: fixed feedback that is kept as a parameter is no weight downstream."""
        params = dict(self.blocks.model.named_parameters())
        buffers = dict(self.blocks.model.named_buffers())
        reached = self.blocks.reached(lambda live: self.blocks.forward({**buffers, **live}, self.x[:2]).logits, params)
        with torch.no_grad():
            output = call(self.blocks.model, self.inputs)
            # Past a step function there is no gradient: what is used shows when it is changed.
            for name in [name for name in params if name not in reached]:
                with self._changed([name], -1):
                    if not torch.equal(call(self.blocks.model, self.inputs), output):
                        reached.add(name)
        return reached

    def _updates(self) -> dict[str, Tensor]:
        model = self.blocks.model
        with spared_gradients(model), torch.enable_grad():
            if self.update_fn is not None:
                given = self.update_fn(model, as_given(self.inputs), self.y)
                if given is not None:
                    return {name: update.detach().clone() for name, update in given.items()}
            else:
                assert self.loss is not None
                run_backward(model, self.loss, self.inputs, self.y, None)
            return {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}

    def _require_updates(self, plain: dict[str, Tensor], again: dict[str, Tensor], upstream: list[str]) -> None:
        if not any(name in plain and bool(plain[name].any()) for name in upstream):
            raise BadInput(
                "no gradient: wanted updates upstream of the split, all are absent or zero; fill .grad or return them, "
                "or check what requires_grad"
            )
        for name in upstream:
            if _relative(plain.get(name), again.get(name)) > _TOLERANCE:
                raise BadInput(
                    f"the update of {name} differs from call to call with nothing changed; make update_fn "
                    "deterministic (fix its feedback, seed its draws)"
                )

    def _require_effect(self, before: Tensor, source: str) -> None:
        """A change that the output does not feel would prove nothing."""
        with torch.no_grad():
            if torch.equal(call(self.blocks.model, self.inputs), before):
                raise BadInput(
                    f"changing the weights of {source} does not change the output, so nothing can be shown; "
                    "choose blocks that the model uses"
                )

    @contextmanager
    def _changed(self, names: list[str], source: int) -> Iterator[None]:
        """Other weights of the same size in one part; the very tensors of before on the way out."""
        params = dict(self.blocks.model.named_parameters())
        kept = {name: params[name].data for name in names}
        try:
            for name in names:
                old = kept[name]
                noise = gaussian(tuple(old.shape), probe_generator(self.seed, source, name)).to(old)
                size = old.double().square().mean().sqrt().to(old)
                params[name].data = old + noise * torch.where(size > 0, size, torch.ones_like(size))
            yield
        finally:
            for name, old in kept.items():
                params[name].data = old

    @contextmanager
    def _recorded(self) -> Iterator[dict[str, list[Tensor]]]:
        """Values of every output that is to be held, call by call."""
        seen: dict[str, list[Tensor]] = {}

        def record(name: str) -> Any:
            def hook(_: nn.Module, __: Any, output: Any) -> None:
                value = logits_of(output)
                if isinstance(value, Tensor):
                    seen.setdefault(name, []).append(value.detach().clone())

            return hook

        with hooks() as handles:
            handles += [module.register_forward_hook(record(name)) for name, module in self._holding()]
            yield seen

    @contextmanager
    def _held(self, values: dict[str, list[Tensor]]) -> Iterator[None]:
        """Every recorded output has its old value again; gradients pass through it as they would."""
        calls: dict[str, int] = {}

        def put_back(name: str) -> Any:
            def hook(_: nn.Module, __: Any, output: Any) -> Any:
                value = logits_of(output)
                if not isinstance(value, Tensor):
                    return None
                at = calls.get(name, 0)
                calls[name] = at + 1
                if at >= len(values.get(name, ())):
                    raise BadInput("update_fn calls the model more often than before; make it deterministic")
                return with_logits(output, _Held.apply(value, values[name][at]))  # type: ignore[no-untyped-call]

            return hook

        with hooks() as handles:
            handles += [module.register_forward_hook(put_back(name)) for name, module in self._holding()]
            yield

    def _holding(self) -> list[tuple[str, nn.Module]]:
        if self.hold == "nothing":
            return []
        named = list(self.blocks.model.named_modules())
        return [(name, module) for name, module in named if name in self.outer] if self.hold == "output" else named


class _Held(Function):
    """Another value forward, the gradient unchanged backward."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def _wrappers(model: nn.Module, x: Inputs) -> tuple[Tensor, frozenset[str]]:
    """The output, and the model with every part of it that returns that very tensor: a loss may be taken inside."""
    outputs: dict[str, Any] = {}

    def record(name: str) -> Any:
        return lambda _, __, output: outputs.__setitem__(name, output)

    with hooks() as handles, torch.no_grad():
        named = [(name, module) for name, module in model.named_modules() if not name or any(module.children())]
        handles += [module.register_forward_hook(record(name)) for name, module in named]
        logits = call(model, x)
    return logits, frozenset(name for name, output in outputs.items() if logits_of(output) is logits)


def _require_holdable(model: nn.Module, hold: Hold) -> None:
    for name, module in model.named_modules():
        # Such a hook sits on the last operation of the layer, which would be ours.
        if hold == "activations" and module._backward_hooks and not module._is_full_backward_hook:
            raise BadInput(
                f"{name} has a backward hook of the old kind, so its activations cannot be held fixed; "
                "pass hold='output', or use register_full_backward_hook"
            )


def _split_index(blocks: Blocks, split: int | str | None) -> int | None:
    if split is None:
        return None
    if isinstance(split, str):
        if split not in blocks.names:
            raise BadInput(f"no block {split!r} to split after; {did_you_mean(split, blocks.names)}")
        return blocks.names.index(split)
    if not 0 <= split < blocks.depth:
        raise BadInput(
            f"wanted a split after block 0 to {blocks.depth - 1}, got {split}; give an index or a block's name"
        )
    return split


def _part(rank: int, names: tuple[str, ...]) -> str:
    return "embedding" if rank < 0 else _READOUT if rank == len(names) else names[rank]


def _relative(before: Tensor | None, after: Tensor | None) -> float:
    """‖after − before‖/‖before‖; from nothing to something is 1."""
    if before is None and after is None:
        return 0.0
    if before is None or after is None:
        return 1.0
    size = float(torch.linalg.vector_norm(before.double()))
    gap = float(torch.linalg.vector_norm(after.double() - before.double()))
    return gap / size if size > 0 else float(gap > 0)
