"""A user's own training step, taken and taken back: what it wrote, with everything left as it was found."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from creditscope.blocks.partition import hooks
from creditscope.errors import BadInput
from creditscope.probes.precision import full_precision
from creditscope.scope.fingerprint import reachable
from creditscope.scope.randomness import seeded
from creditscope.scope.restore import spared_gradients

Update = Callable[[Any, Any], object]
# Two runs of one step differ by less where nothing is left over of the first: sums on a GPU change their order.
_SAME_STEP = 1e-3
_MEMBERS = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True)
class Written:
    """What one step wrote, by parameter name.

    Args:
        change: θ after it less θ before.
        grads: ``.grad`` when the optimiser took its step, for the parameters of an optimiser that did.
        training: Mode of each module when the model was first run; None where the step never ran it.
    """

    change: Mapping[str, Tensor]
    grads: Mapping[str, Tensor]
    training: tuple[bool, ...] | None

    def direction(self, name: str) -> Tensor:
        """What is comparable with a gradient: the raw one, before momentum and decay; else minus the change.

        Args:
            name: Of the parameter.
        """
        return self.grads[name] if name in self.grads else -self.change[name]

    @property
    def directions(self) -> dict[str, Tensor]:
        """The same for every parameter."""
        return {name: self.direction(name) for name in self.change}


@dataclass(frozen=True)
class UserStep:
    """A user's step on a model.

    Args:
        model: The model.
        update: ``update(model, batch)``, which changes the parameters in place.
        state: Objects besides the model that it changes: optimisers, and whatever else has a ``state_dict``.
        back: What puts each of them back.
    """

    model: nn.Module
    update: Update
    state: tuple[Any, ...]
    back: tuple[Callable[[], object], ...]

    @classmethod
    def of(cls, model: nn.Module, update: Update, state: Sequence[Any]) -> "UserStep":
        """The step with what it keeps, which is searched for among the values that it closes over.

        Args:
            model: The model.
            update: The user's function.
            state: What the user names.
        """
        if not callable(update):
            raise BadInput(f"wanted update as a function of (model, batch), got {type(update).__name__}")
        for thing in state:
            if not _is_held(thing):
                raise BadInput(
                    f"wanted state as optimisers and other objects with a state_dict, got {type(thing).__name__}"
                )
        inside = {id(part) for part in (*model.modules(), *model.parameters(), *model.buffers())}
        found = {id(thing): thing for thing in (*state, *reachable(update)) if _is_held(thing)}
        held = tuple(thing for key, thing in found.items() if key not in inside)
        return cls(model, update, held, tuple(map(_how_back, held)))

    def take(self, batch: Any, seed: int) -> Written:
        """Take the step, see what it wrote, take it back.

        Args:
            batch: Handed to the function.
            seed: Of everything it draws.
        """
        before = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        optimisers = [thing for thing in self.state if isinstance(thing, torch.optim.Optimizer)]
        names = {id(p): name for name, p in self.model.named_parameters()}
        grads: dict[str, Tensor] = {}
        modes: list[tuple[bool, ...]] = []

        def keep(optimiser: torch.optim.Optimizer, _: Any, __: Any) -> None:
            for p in (p for group in optimiser.param_groups for p in group["params"]):
                if p.grad is not None and id(p) in names:
                    name, grad = names[id(p)], p.grad.detach().double()
                    grads[name] = grads[name] + grad if name in grads else grad.clone()

        def see(module: nn.Module, _: Any) -> None:
            if not modes:
                modes.append(tuple(m.training for m in self.model.modules()))

        with self.taken_back(), seeded(seed), torch.enable_grad(), hooks() as handles:
            handles += [optimiser.register_step_pre_hook(keep) for optimiser in optimisers]
            handles += [module.register_forward_pre_hook(see) for module in self.model.modules()]
            self.update(self.model, batch)
            now = dict(self.model.named_parameters())
            if now.keys() != before.keys() or any(now[name].shape != p.shape for name, p in before.items()):
                raise BadInput("update put other parameters into the model; change those it has in place")
            change = {name: now[name].detach().double() - p.double() for name, p in before.items()}
            # Code that only fills ``.grad`` and leaves the step to its caller.
            if not any(bool(moved.any()) for moved in change.values()):
                grads |= {name: p.grad.detach().double() for name, p in now.items() if p.grad is not None}
        return Written(change, grads, modes[0] if modes else None)

    def require_repeatable(self, batch: Any, seed: int) -> Written:
        """The step, refused where it is another when taken again: something that it changes was not put back.

        Args:
            batch: Handed to the function.
            seed: Of everything it draws.
        """
        first, again = self.take(batch, seed), self.take(batch, seed)
        one, two = (torch.cat([w.change[name].flatten() for name in first.change]) for w in (first, again))
        if not bool(one.isfinite().all()):
            raise BadInput("update made parameters NaN or infinite on the first batch; audit an earlier checkpoint")
        if not bool(one.any()):
            raise BadInput("update changed no parameter of the model; it must change the model it is given, in place")
        if float((one - two).norm()) > _SAME_STEP * float(one.norm()):
            raise BadInput(
                "update does something else when it is called again on the same model, batch and seed: it keeps state "
                "that could not be put back; pass state=[optimiser, ...]"
            )
        return first

    @contextmanager
    def taken_back(self) -> Iterator[None]:
        """Whatever happens inside, model and state are bitwise as before on the way out."""
        try:
            with kept(self.model):
                yield
        finally:
            with torch.no_grad():
                for back in self.back:
                    back()


@contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """A model is bitwise as before on the way out; nothing of what its code does inside is looked at or changed.

    Args:
        model: The model.
    """
    modules = [(m, dict(vars(m)), {name: dict(vars(m)[name]) for name in _MEMBERS}) for m in model.modules()]
    params = [(p, p.data, p.detach().clone(), p.requires_grad) for p in model.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with spared_gradients(model), full_precision():
            yield
    finally:
        for module, attributes, members in modules:
            vars(module).clear()
            vars(module).update(attributes)
            for name, held in members.items():
                vars(module)[name].clear()
                vars(module)[name].update(held)
        with torch.no_grad():
            for p, storage, values, trains in params:
                p.data = storage
                p.copy_(values)
                p.requires_grad_(trains)
            for buffer, values in buffers:
                buffer.copy_(values)


def _is_held(thing: Any) -> bool:
    kinds = (torch.optim.Optimizer, nn.Module, Tensor, np.ndarray, torch.Generator, np.random.Generator)
    return isinstance(thing, kinds) or all(
        callable(getattr(type(thing), n, None)) for n in ("state_dict", "load_state_dict")
    )


def _how_back(thing: Any) -> Callable[[], object]:
    """What puts an object back to what it is now."""
    if isinstance(thing, torch.optim.Optimizer):
        return _optimiser_back(thing)
    if isinstance(thing, Tensor):
        return _tensor_back(thing)
    if isinstance(thing, np.ndarray):
        numbers = thing.copy()
        return lambda: np.copyto(thing, numbers)
    if isinstance(thing, nn.Module):
        held = [_tensor_back(t) for t in (*thing.parameters(), *thing.buffers())]
        return lambda: [back() for back in held]
    if isinstance(thing, torch.Generator):
        drawn = thing.get_state()
        return lambda: thing.set_state(drawn)
    if isinstance(thing, np.random.Generator):
        state = copy.deepcopy(thing.bit_generator.state)
        return lambda: setattr(thing.bit_generator, "state", state)
    saved = copy.deepcopy(thing.state_dict())
    return lambda: thing.load_state_dict(saved)


def _tensor_back(tensor: Tensor) -> Callable[[], object]:
    values, grad = tensor.detach().clone(), tensor.grad if tensor.is_leaf else None

    def back() -> None:
        tensor.detach().copy_(values)
        if tensor.is_leaf:
            tensor.grad = grad

    return back


def _optimiser_back(optimiser: torch.optim.Optimizer) -> Callable[[], None]:
    """By hand: ``load_state_dict`` casts what it loads, and puts other tensors in the place of those that are there."""
    groups = [dict(group) for group in optimiser.param_groups]
    state = {
        p: {key: (value, value.detach().clone() if isinstance(value, Tensor) else value) for key, value in kept.items()}
        for p, kept in optimiser.state.items()
    }

    def back() -> None:
        for group, before in zip(optimiser.param_groups, groups, strict=True):
            group.clear()
            group.update(before)
        optimiser.state.clear()
        for p, kept in state.items():
            for value, copied in kept.values():
                if isinstance(value, Tensor):
                    value.copy_(copied)
            optimiser.state[p] = {key: value for key, (value, _) in kept.items()}

    return back
