"""A model whose training step is audited: its groups of parameters, its forward pass, and what backprop would write."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from creditscope.blocks.partition import hooks
from creditscope.errors import BadInput, did_you_mean
from creditscope.probes.functional.movement import movements
from creditscope.records.measured import Movement
from creditscope.scope.derivative import derivative
from creditscope.scope.inputs import logits_of
from creditscope.scope.probe_data import PROBE_BATCH, ProbeData
from creditscope.scope.randomness import seeded
from creditscope.scope.user_step import kept

Groups = Sequence[str] | Mapping[str, Sequence[str]] | None
Forward = Callable[[nn.Module, Any], Any]
Loss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class UpdateNet:
    """A model as this audit sees it.

    Args:
        model: The model.
        data: On what it is measured.
        groups: Parameter names by group.
        forward: As its user calls it.
        loss: Of (outputs, targets).
        surrogate: Whether its own backward pass gives the reference.
    """

    model: nn.Module
    data: ProbeData
    groups: dict[str, list[str]]
    forward: Forward
    loss: Loss
    surrogate: bool

    def batch(self, y: Tensor) -> Any:
        """The samples of the step with these targets, as the loader gave them.

        Args:
            y: Targets.
        """
        x = self.data.probe.x[: len(y)]
        return (x, y) if self.data.table is None else {**self.data.table.rows(x, dtype_of(self.model)), "labels": y}

    def inputs(self, x: Tensor, dtype: torch.dtype) -> Any:
        """Samples as the model takes them.

        Args:
            x: As a batch holds them.
            dtype: Of the arithmetic.
        """
        if self.data.table is not None:
            return self.data.table.rows(x, dtype)
        return x.to(dtype) if x.is_floating_point() else x

    def gradients(
        self, y: Tensor, dtype: torch.dtype, training: tuple[bool, ...] | None, seed: int
    ) -> dict[str, Tensor]:
        """What backprop would write for the mean loss.

        Args:
            y: Targets of the first samples.
            dtype: Of the arithmetic.
            training: Mode of each module; None: evaluation.
            seed: Of what the forward pass draws.
        """
        called = Called(self.model, self.forward)
        x = self.inputs(self.data.probe.x[: len(y)], dtype)
        params = {name: p.detach().to(dtype) for name, p in self.model.named_parameters() if p.is_floating_point()}
        buffers = {
            f"model.{name}": b.to(dtype, copy=True) if b.is_floating_point() else b.clone()
            for name, b in self.model.named_buffers()
        }
        targets = y if y.dtype != dtype_of(self.model) else y.to(dtype)

        def loss(params: Mapping[str, Tensor]) -> list[Tensor]:
            named = {f"model.{name}": p for name, p in params.items()}
            return [self.loss(functional_call(called, {**named, **buffers}, (x,)), targets).mean()]

        with kept(self.model), seeded(seed):
            for module, mode in zip(
                self.model.modules(), training or [False] * sum(1 for _ in self.model.modules()), strict=True
            ):
                vars(module)["training"] = mode
            (total,), back = derivative(self.model, loss, params, self.surrogate)
            return back([torch.ones_like(total)])


class Called(nn.Module):
    """A model called as its user calls it.

    Args:
        model: The model.
        forward: As its user calls it.
    """

    def __init__(self, model: nn.Module, forward: Forward) -> None:
        super().__init__()
        self.model = model
        self.called = forward

    def forward(self, x: Any) -> Any:
        """The outputs."""
        return logits_of(self.called(self.model, x))


def looked_through(net: UpdateNet) -> tuple[list[str], dict[str, float], Tensor]:
    """Modules in the order in which they were last called, how each one's output grew, and the outputs.

    Args:
        net: The model.
    """
    called: dict[str, None] = {}
    growth: dict[str, float] = {}

    def see(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            called.pop(name, None)
            called[name] = None
            sizes = [_size(args[0] if args else None), _size(output[0] if isinstance(output, tuple) else output)]
            if sizes[0] and sizes[1] is not None:
                growth[name] = max(growth.get(name, 0.0), sizes[1] / sizes[0])

        return hook

    outs = []
    with hooks() as handles, torch.no_grad():
        handles += [module.register_forward_hook(see(name)) for name, module in net.model.named_modules() if name]
        for x in torch.split(net.data.test.x, 4 * PROBE_BATCH):
            out = logits_of(net.forward(net.model, net.inputs(x, dtype_of(net.model))))
            if not isinstance(out, Tensor) or out.ndim < 1 or len(out) != len(x):
                got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
                raise BadInput(f"wanted outputs with samples on the first axis, got {got}; pass forward=...")
            outs.append(out)
    return list(called), growth, torch.cat(outs)


def _size(value: Any) -> float | None:
    """Median over samples of the root mean square of an activation."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim < 2 or not value.numel():
        return None
    return float(value.double().flatten(1).square().mean(1).sqrt().median())


def groups_of(model: nn.Module, where: Groups, called: Sequence[str]) -> dict[str, list[str]]:
    """Parameter names by group.

    Args:
        model: The model.
        where: What the user asks for.
        called: Modules in the order in which they were last called.
    """
    names = [name for name, _ in model.named_parameters()]
    if where is None:
        wanted: dict[str, Sequence[str]] = {name: [name] for name in _layers(model, "")}
        # The output layer is exact in nearly every rule, and would speak for the others.
        order = [name for name in called if name in wanted] or list(wanted)
        if len(wanted) > 1:
            del wanted[order[-1]]
    elif isinstance(where, str) or not all(isinstance(name, str) for name in where):
        raise BadInput("wanted blocks as names of modules, or groups of names; e.g. blocks=['layers.0', 'layers.1']")
    else:
        wanted = dict(where) if isinstance(where, Mapping) else {name: [name] for name in where}
    groups = {}
    for group, parts in wanted.items():
        found = [n for n in names if any(part in ("", n) or n.startswith(f"{part}.") for part in parts)]
        if not found:
            raise BadInput(f"no parameter of the model is in {group!r}; {did_you_mean(group, _prefixes(names))}")
        groups[group] = found
    return groups


def _layers(module: nn.Module, prefix: str) -> list[str]:
    """Children that hold parameters; lists, and a lone child, are taken apart."""
    children = [
        (f"{prefix}{name}", child) for name, child in module.named_children() if any(True for _ in child.parameters())
    ]
    if not children and prefix:
        return [prefix[:-1]]
    found = [f"{prefix}{name}" for name, p in module.named_parameters(recurse=False) if p.ndim > 1]
    for name, child in children:
        apart = isinstance(child, (nn.Sequential, nn.ModuleList, nn.ModuleDict)) or len(children) == 1
        found += _layers(child, f"{name}.") if apart else [name]
    return found


def _prefixes(names: Sequence[str]) -> set[str]:
    parts = (name.split(".") for name in names)
    return {".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)}


def movement_of(net: UpdateNet, init: Mapping[str, Tensor]) -> Movement:
    """How far the weight matrices of each group moved.

    Args:
        net: The model.
        init: Its state at initialisation.
    """
    params = dict(net.model.named_parameters())
    moved: dict[str, float | None] = {}
    for name in (name for names in net.groups.values() for name in names if params[name].ndim > 1):
        start = init.get(name, init.get(f"_orig_mod.{name}"))
        if start is None or start.shape != params[name].shape:
            raise BadInput(f"wanted {name} in init; pass copy.deepcopy(model.state_dict()) taken before training")
        value = float(movements(params[name].detach()[None], start.to(params[name])[None]))
        moved[name] = None if math.isnan(value) else value
    return Movement(
        weights=moved,
        blocks=[[name for name in names if name in moved] for names in net.groups.values()],
        trainable=[any(params[name].requires_grad for name in names) for names in net.groups.values()],
    )


def dtype_of(model: nn.Module) -> torch.dtype:
    """The dtype of a model's arithmetic.

    Args:
        model: The model.
    """
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
