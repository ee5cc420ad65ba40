"""Blocks: an ordered, named partition of any nn.Module into embedding, blocks and readout."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp
from torch.utils.hooks import RemovableHandle

from creditscope.blocks.penalty import penalised, penalised_sum
from creditscope.errors import BadInput, did_you_mean

_LISTS = (nn.ModuleList, nn.Sequential)
Params = Mapping[str, Tensor]
Where = Sequence[str] | Sequence[nn.Module] | nn.ModuleList | Callable[[str, nn.Module], bool] | None


class Pass(NamedTuple):
    """One forward pass, seen at the block boundaries.

    Args:
        states: h_0..h_L.
        branches: f_0..f_{L−1}, each block's branch before the residual add.
        logits: The network's output.
        buffers: The buffers after it, where the caller asked for them.
    """

    states: tuple[Tensor, ...]
    branches: tuple[Tensor, ...]
    logits: Tensor
    buffers: Mapping[str, Tensor] = MappingProxyType({})


@dataclass(frozen=True)
class Blocks:
    """A model and the names of its blocks, in the order in which the residual stream passes them.

    State h_0 is what enters block 0, state h_{l+1} what block l puts out.

    Args:
        model: The module; never changed.
        names: Submodule paths of the blocks.
        modules: The blocks themselves.
        skips: Whether each block adds to its input, as ``with_skips`` found; None: every block that keeps the shape.
        batch_axis: Which axis of the stream is samples; states are given and returned with samples first.
    """

    model: nn.Module
    names: tuple[str, ...]
    modules: tuple[nn.Module, ...] = field(repr=False)
    skips: tuple[bool, ...] | None = None
    batch_axis: int = 0

    @property
    def depth(self) -> int:
        """Number of blocks L."""
        return len(self.names)

    @classmethod
    def of(cls, model: nn.Module, where: Where = None) -> Self:
        """Partition a model.

        Args:
            model: Any module.
            where: Submodule names, modules, a ModuleList, a predicate on (name, module), or None to take the
                longest list of like submodules.
        """
        named = dict(model.named_modules(remove_duplicate=False))
        # One name a module, also where it is registered under several: the one its parameters have.
        own = {id(module): name for name, module in model.named_modules()}
        names = [own[id(named[name])] for name in (_find(model) if where is None else _names(where, named))]
        if not names:
            raise BadInput("the partition has no blocks: wanted at least one submodule; name them with blocks=[...]")
        if len(set(names)) != len(names):
            raise BadInput(f"a block is named twice in {', '.join(names)}; name each once, in the order of the stream")
        return cls(model, tuple(names), tuple(named[name] for name in names))

    def with_skips(self, x: Tensor) -> Self:
        """The same partition, knowing which blocks add to their input.

        Without a skip the branch f_l is all of h_{l+1}. Only running a block can tell: with its parameters at
        zero, one that adds is the identity.

        Args:
            x: A few inputs, to run the model twice.
        """
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        params = {name: p.detach() for name, p in self.model.named_parameters()}
        zeroed = {name: p if self.block_of(name) is None else torch.zeros_like(p) for name, p in params.items()}
        unknown = replace(self, skips=None)
        with torch.no_grad():
            states = unknown.forward({**params, **buffers}, x).states
            # Positive and all different, so that neither a final ReLU nor a constant block can be mistaken.
            probes = {level: torch.linspace(0.5, 1, h.numel()).to(h).reshape(h.shape) for level, h in enumerate(states)}
            branches = unknown.forward({**zeroed, **buffers}, x, replace=probes).branches
        same = [before.shape == after.shape for before, after in pairwise(states)]
        return replace(self, skips=tuple(s and not bool(f.any()) for s, f in zip(same, branches, strict=True)))

    def forward(
        self,
        params: Params,
        x: Tensor,
        *,
        taps: Mapping[int, Tensor] | None = None,
        replace: Mapping[int, Tensor] | None = None,
        detach: bool = False,
        penalty: Tensor | None = None,
    ) -> Pass:
        """Run the unmodified model with other parameters and look at its block boundaries.

        Works inside torch.func transforms: nothing is stored outside this call.

        Args:
            params: Parameters and buffers by name.
            x: Inputs.
            taps: Added to state l as it goes on; differentiating by a zero tap gives the gradient at the state.
            replace: In the place of state l this one goes on; ``states`` holds the one that came out.
            detach: Whether each state is detached as it goes on, so that gradients stay inside one block.
            penalty: λ: a backward pass adds the gradient of λ·mean ‖f_l‖² at each branch; None: it adds nothing.
        """
        states: dict[int, Tensor] = {}
        branches: dict[int, Tensor] = {}

        def boundary(level: int, given: Tensor) -> Tensor:
            h = given.movedim(self.batch_axis, 0) if self.batch_axis else given
            if level != len(states):
                raise BadInput(
                    f"the stream must pass each block once, in the order {', '.join(self.names)}; "
                    f"block {self.names[max(level - 1, 0)]} came out of turn"
                )
            states[level] = h
            if replace is not None and level in replace:
                h = replace[level]
            if detach:
                h = self.cut(h)
            if taps is not None and level in taps:
                h = h + taps[level]
            return h.movedim(0, self.batch_axis) if self.batch_axis else h

        with self._boundary_hooks(boundary, branches, detach, penalty):
            logits = self.run(params, x)
        if len(states) != self.depth + 1:
            missing = [self.names[level - 1] for level in range(1, self.depth + 1) if level not in states]
            raise BadInput(
                f"the forward pass never reached block {', '.join(missing)}; choose blocks that the model uses"
            )
        parts = [branches[i].movedim(self.batch_axis, 0) if self.batch_axis else branches[i] for i in range(self.depth)]
        return Pass(tuple(states[i] for i in range(self.depth + 1)), tuple(parts), logits)

    def run(self, params: Params, x: Tensor) -> Tensor:
        """The output of the model itself with other parameters.

        Args:
            params: Parameters and buffers by name.
            x: Inputs.
        """
        return functional_call(self.model, dict(params), (x,))  # type: ignore[no-any-return]

    def tail(self, params: Params, level: int, h: Tensor, x: Tensor) -> Tensor:
        """The output of the rest of the network from state ``level`` on.

        Everything before that state runs on one sample only, so a tail over many perturbed states costs little.

        Args:
            params: Parameters and buffers by name.
            level: Which state h is.
            h: The state, first axis samples.
            x: Any inputs; the first one feeds the part that is thrown away.
        """
        return self.forward(params, x[:1], replace={level: h}).logits

    @contextmanager
    def removed(self, level: int) -> Iterator[None]:
        """While open, one block's branch is zero: with a skip its input goes on as it is, without one nothing does.

        Args:
            level: Which block.
        """
        module = self.modules[level]
        inner = getattr(module, "branch", None)
        adds = self.skips is not None and self.skips[level]

        def gone(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            h = _stream(module, args) if adds else torch.zeros_like(state_of(output))
            return with_state(output, h, detach=False)

        def silent(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
            return with_state(output, torch.zeros_like(state_of(output)), detach=False)

        with hooks() as handles:
            where, hook = (inner, silent) if isinstance(inner, nn.Module) else (module, gone)
            handles.append(where.register_forward_hook(hook))
            yield

    def parts(self, x: Tensor) -> dict[str, str | int]:
        """Which part each parameter belongs to: ``embedding``, a block's index, or ``readout``.

        A parameter outside the blocks belongs to the embedding when h_0 depends on it.

        Args:
            x: A few inputs, to run the model once.
        """
        params = dict(self.model.named_parameters())
        buffers = dict(self.model.named_buffers())
        reached = self.reached(lambda live: self.forward({**live, **buffers}, x).states[0], params)
        parts: dict[str, str | int] = {}
        for name in params:
            block = self.block_of(name)
            parts[name] = block if block is not None else "embedding" if name in reached else "readout"
        return parts

    def block_of(self, parameter: str) -> int | None:
        """Which block a parameter belongs to; None for one outside of them.

        Args:
            parameter: Its name.
        """
        for index, name in enumerate(self.names):
            if parameter.startswith(f"{name}."):
                return index
        return None

    def cut(self, h: Tensor) -> Tensor:
        """A state as it goes on where gradients stay inside one block.

        Args:
            h: The state.
        """
        return h.detach()

    def vjp(self, function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
        """As ``torch.func.vjp``, for a function that runs the model.

        Args:
            function: Of the primals.
            primals: Trees of tensors.
            has_aux: Whether the function also returns something that is not differentiated.
        """
        return vjp(function, *primals, has_aux=has_aux)

    def reached(self, function: Callable[[Params], Tensor], params: Params) -> set[str]:
        """Names of the parameters that a function of them depends on.

        Args:
            function: Of the parameters; runs the model.
            params: The parameters.
        """
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        with torch.enable_grad():
            out = function(leaves)
        if not out.requires_grad:
            return set()
        found = torch.autograd.grad(out, list(leaves.values()), torch.ones_like(out), allow_unused=True)
        return {name for name, grad in zip(leaves, found, strict=True) if grad is not None}

    @contextmanager
    def _boundary_hooks(
        self,
        boundary: Callable[[int, Tensor], Tensor],
        branches: dict[int, Tensor],
        detach: bool,
        penalty: Tensor | None,
    ) -> Iterator[None]:
        def enter(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            return (boundary(0, _stream(module, args)), *args[1:])

        def leave(level: int) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
            def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
                h, before = state_of(output), _stream(module, args)
                if level not in branches:
                    adds = h.shape == before.shape if self.skips is None else self.skips[level]
                    branches[level] = h - before if adds else h
                    if penalty is not None:
                        h = penalised_sum(h, before, penalty) if adds else penalised(h, penalty)
                return with_state(output, boundary(level + 1, h), detach)

            return hook

        def branch(level: int) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
            def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
                branches[level] = state_of(output)
                if penalty is None:
                    return None
                return with_state(output, penalised(branches[level], penalty), detach=False)

            return hook

        with hooks() as handles:
            handles.append(self.modules[0].register_forward_pre_hook(enter))
            for level, module in enumerate(self.modules):
                inner = getattr(module, "branch", None)
                if isinstance(inner, nn.Module):
                    handles.append(inner.register_forward_hook(branch(level)))
                handles.append(module.register_forward_hook(leave(level)))
            yield


@contextmanager
def hooks() -> Iterator[list[RemovableHandle]]:
    """A list of hook handles; every one is removed on the way out, whatever happened."""
    handles: list[RemovableHandle] = []
    try:
        yield handles
    finally:
        for handle in handles:
            handle.remove()


def _stream(module: nn.Module, args: tuple[Any, ...]) -> Tensor:
    """What enters a block: its first positional argument."""
    if not args or not isinstance(args[0], Tensor):
        raise BadInput(f"block {type(module).__name__} must get the stream as its first positional argument, a tensor")
    return args[0]


def state_of(output: Any) -> Tensor:
    """The state in a block's output: the tensor itself, or the first entry of a tuple."""
    first = output[0] if isinstance(output, tuple) else output
    if not isinstance(first, Tensor):
        raise BadInput(f"a block must put out a tensor or a tuple that starts with one, got {type(first).__name__}")
    return first


def with_state(output: Any, h: Tensor, detach: bool) -> Any:
    """A block's output with another state in it.

    Args:
        output: What the block put out.
        h: In the place of its state.
        detach: Whether the rest of it carries no gradient.
    """
    if not isinstance(output, tuple):
        return h
    # The other outputs of a block would carry gradients past a detach.
    return (h, *(t.detach() if detach and isinstance(t, Tensor) else t for t in output[1:]))


def _find(model: nn.Module) -> list[str]:
    named = dict(model.named_modules(remove_duplicate=False))
    found: dict[tuple[str, type[nn.Module]], list[str]] = {}
    for path, module in named.items():
        if not isinstance(module, _LISTS):
            continue
        children = list(module.named_children())
        kinds = {type(child) for _, child in children}
        if len(kinds) != 1:
            continue
        parent = path.rpartition(".")[0]
        # The stages of a residual net are siblings in it, each a Sequential of blocks of one kind.
        stage = path and isinstance(module, nn.Sequential) and not isinstance(named[parent], _LISTS)
        key = (f"{parent}.*" if stage else path, kinds.pop())
        found.setdefault(key, []).extend(f"{path}.{name}" if path else name for name, _ in children)
    # A Sequential of one child is a wrapper; a ModuleList of one is a list that happens to be short.
    lists = [
        names for (path, _), names in found.items() if len(names) > 1 or isinstance(named.get(path), nn.ModuleList)
    ]
    best = max(lists, key=len, default=[])
    if not best:
        raise BadInput("found no list of like blocks in the model; name them with blocks=['path.0', 'path.1', ...]")
    return best


def _names(where: Any, named: Mapping[str, nn.Module]) -> list[str]:
    if isinstance(where, str) or (
        isinstance(where, nn.Module) and not isinstance(where, (nn.ModuleList, nn.Sequential))
    ):
        raise BadInput(
            f"one block was given; pass a list, e.g. blocks=[{where if isinstance(where, str) else '...'!r}]"
        )
    if callable(where) and not isinstance(where, nn.Module):
        first = {id(module): name for name, module in reversed(list(named.items()))}
        return [name for name, module in named.items() if name == first[id(module)] != "" and where(name, module)]
    paths = {id(module): name for name, module in named.items()}
    names = []
    for item in where:
        if isinstance(item, nn.Module):
            if id(item) not in paths:
                raise BadInput(
                    f"a {type(item).__name__} given as a block is not part of the model; pass its submodules"
                )
            names.append(paths[id(item)])
        elif item in named:
            names.append(item)
        else:
            raise BadInput(f"the model has no block {item!r}; {did_you_mean(str(item), [n for n in named if n])}")
    return names
