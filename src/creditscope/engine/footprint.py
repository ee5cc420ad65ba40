"""How much memory each part of a fleet's work holds at its peak: it runs on shapes alone, and computes nothing."""

import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from creditscope.blocks import Batch, Blocks, CreditRule, Params, RuleState, Task, observe
from creditscope.engine.step import Sent, cross_entropy, in_training, take_step
from creditscope.models import build_model
from creditscope.probes.epoch_cosines import SAMPLES
from creditscope.probes.per_epoch import EpochNumbers, epoch_numbers, summarise
from creditscope.probes.perturbation import ENTRIES
from creditscope.probes.probe import planned_for
from creditscope.records.method import Option

_META = torch.device("meta")
_aten = torch.ops.aten


@dataclass(frozen=True)
class Shapes:
    """What the tensors of a run depend on.

    Args:
        model: One of our models.
        input: Shape of one input.
        classes: Number of outputs.
        width: Width of the residual stream.
        depth: Number of blocks.
        terminal_ln: Whether a LayerNorm stands before the head.
        view: How a state becomes one vector a sample.
        dtype: Of the parameters.
        options: Options of the model that differ from their defaults.
        tokens: Targets of one sample where it is a sequence of characters; None: one, and inputs are numbers.
    """

    model: str
    input: tuple[int, ...]
    classes: int
    width: int
    depth: int
    terminal_ln: bool
    view: str
    dtype: torch.dtype
    options: tuple[tuple[str, Option], ...] = ()
    tokens: int | None = None

    @property
    def item(self) -> int:
        """Bytes of one entry of an input as the network sees it."""
        return self.dtype.itemsize if self.tokens is None else torch.int64.itemsize

    def batch(self, *size: int, dtype: torch.dtype | None = None) -> Batch:
        """So many samples, of shapes alone.

        Args:
            size: Leading axes.
            dtype: Of numbers; None: the run's.
        """
        numbers = torch.int64 if self.tokens is not None else dtype or self.dtype
        labels = size if self.tokens is None else (*size, self.tokens)
        x = torch.empty((*size, *self.input), dtype=numbers, device=_META)
        return Batch(x, torch.empty(labels, dtype=torch.int64, device=_META))


class Tally(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the tensors that are made inside and still held, and their peak."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = 0
        self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        out = func(*args, **(kwargs or {}))
        if func is _aten.convolution.default:
            self.peak = max(self.peak, self.held + _columns(out, *args[:2]))
        elif func is _aten.convolution_backward.default:
            self.peak = max(self.peak, self.held + _columns(*args[:3]))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata not in given:
                self._add(leaf.untyped_storage())
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return

        def gone(_: object) -> None:
            self.held -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, gone)
        self.held += size
        self.peak = max(self.peak, self.held)


def _columns(out: Tensor, x: Tensor, weight: Tensor) -> int:
    """Bytes of all patches of a batch, which a convolution in float64 writes out on a CPU.

    Args:
        out: What it puts out, or the gradient there.
        x: What comes in.
        weight: Its kernels.
    """
    if x.dtype != torch.float64:
        return 0
    return 8 * len(x) * math.prod(weight.shape[1:]) * math.prod(out.shape[2:])


def parameter_sizes(shapes: Shapes) -> dict[str, int]:
    """Entries of each parameter.

    Args:
        shapes: Of the run.
    """
    return {name: p.numel() for name, p in _task(shapes).blocks.model.named_parameters()}


def state_size(shapes: Shapes, rule: CreditRule) -> int:
    """Entries of the state of a run's rule: twice where it learns, and three times those that the optimiser trains.

    Args:
        shapes: Of the run.
        rule: Its rule.
    """
    known = _state_shapes(shapes, rule)
    state = {name: torch.empty(shape, device=_META) for name, shape in known.items()}
    trained = rule.trained(state, parameter_sizes(shapes))
    once = sum(math.prod(shape) for shape in known.values())
    return once * (2 if rule.learns else 1) + 2 * sum(math.prod(known[name]) for name in trained)


@lru_cache(maxsize=64)
def step_peak(shapes: Shapes, rule: CreditRule, penalised: bool, batch: int, runs: int) -> int:
    """The credit of a stack of runs, gradients included, their batches apart.

    Args:
        shapes: Of the runs.
        rule: Their rule.
        penalised: Whether some run has a penalty.
        batch: Samples.
        runs: How many.
    """
    task = _task(shapes)
    params = _params(task, runs)
    numbers = {name: _empty(shapes, runs) for name, value in rule.options.items() if isinstance(value, float)}
    if penalised:
        numbers["penalty"] = _empty(shapes, runs)
    asked = rule.noise(task, {name: p[0] for name, p in params.items()}, batch)
    noise = {name: _empty(shapes, runs, *shape) for name, shape in asked.items()}
    x, y = shapes.batch(runs, batch)
    buffers = {name: b.new_empty(runs, *b.shape) for name, b in task.buffers.items()}
    sent = Sent(params, _state(shapes, rule, runs), buffers, numbers, noise, x, y)
    with in_training(list(task.blocks.model.modules())):
        return _tallied(lambda: vmap(partial(take_step, rule, task, frozenset(params), ""))(sent))


@lru_cache(maxsize=64)
def probe_peak(shapes: Shapes, rule: CreditRule, batch: int, device: str, runs: int) -> int:
    """The per-epoch probes of a stack of runs on one probe batch.

    Args:
        shapes: Of the runs.
        rule: Their rule.
        batch: Probe samples taken at once.
        device: ``cpu`` or ``cuda``.
        runs: How many.
    """
    task = _task(shapes)

    def numbers_of(params: Params, state: RuleState, batch: Batch) -> EpochNumbers:
        return epoch_numbers(task, params, rule, state, batch, shapes.view, min(len(batch.y), SAMPLES))

    given = (_params(task, runs), _state(shapes, rule, runs))
    seen = shapes.batch(batch)
    with planned_for(device):
        return _tallied(lambda: summarise(vmap(numbers_of, in_dims=(0, 0, None))(*given, seen)))


@lru_cache(maxsize=64)
def forward_peak(shapes: Shapes, batch: int, runs: int) -> int:
    """A forward pass of a stack of runs over the same samples.

    Args:
        shapes: Of the runs.
        batch: Samples.
        runs: How many.
    """
    task = _task(shapes)

    def logits(params: Params, x: Tensor) -> Tensor:
        return task.blocks.forward({**task.buffers, **params}, x).logits

    params, x = _params(task, runs), shapes.batch(batch).x
    return _tallied(lambda: vmap(logits, in_dims=(0, None))(params, x))


@lru_cache(maxsize=64)
def expensive_peak(shapes: Shapes, rule: CreditRule, samples: int, batch: int, directions: int) -> int:
    """The expensive probes of one run, their inputs apart: ρ, with what is observed in the run's dtype and in float64.

    Args:
        shapes: Of the run.
        rule: Its rule.
        samples: Probe samples.
        batch: Those taken at once.
        directions: M of ρ.
    """
    task = _task(shapes)
    state = math.prod(task.shapes[0])
    rows = directions * min(samples, max(1, ENTRIES // (directions * state)))

    def work() -> object:
        params, kept_state = _params(task, 1), _state(shapes, rule, 1)
        one, sent = ({name: t[0] for name, t in tensors.items()} for tensors in (params, kept_state))
        kept: list[object] = []
        for dtype in (shapes.dtype, torch.float64):
            now, back = ({name: t.to(dtype) for name, t in tensors.items()} for tensors in (one, sent))
            x, y = shapes.batch(samples, dtype=dtype)
            parts = zip(x.split(batch), y.split(batch), strict=True)  # type: ignore[no-untyped-call]
            kept += [now, back, x, [observe(task, now, rule, back, Batch(*part)) for part in parts]]
        directions_, moved = (torch.empty(rows, *task.shapes[0], dtype=torch.float64, device=_META) for _ in range(2))
        logits = task.tail(now, 0, moved, x)
        return kept, directions_, logits

    return _tallied(work)


def _tallied(work: Callable[[], object]) -> int:
    tally = Tally()
    with torch.no_grad(), tally:
        work()
    return tally.peak


@lru_cache(maxsize=16)
def _task(shapes: Shapes, device: torch.device = _META) -> Task:
    with device, torch.random.fork_rng(devices=[]):
        size = (shapes.width, shapes.depth, shapes.terminal_ln, dict(shapes.options))
        model = build_model(shapes.model, shapes.input, shapes.classes, *size).to(shapes.dtype).eval()
    blocks, buffers = Blocks.of(model), dict(model.named_buffers())
    few = torch.zeros_like(shapes.batch(2).x, device=device)
    with torch.no_grad():
        seen = blocks.forward({**dict(model.named_parameters()), **buffers}, few)
    states = tuple(tuple(h.shape[1:]) for h in seen.states)
    indices = None if few.is_floating_point() else few.dtype
    return Task(blocks, cross_entropy, states, shapes.classes, shapes.input, buffers, indices)


def _params(task: Task, runs: int) -> dict[str, Tensor]:
    named = task.blocks.model.named_parameters()
    return {name: torch.empty(runs, *p.shape, dtype=p.dtype, device=_META) for name, p in named}


def _state(shapes: Shapes, rule: CreditRule, runs: int) -> RuleState:
    return {name: _empty(shapes, runs, *shape) for name, shape in _state_shapes(shapes, rule).items()}


@lru_cache(maxsize=64)
def _state_shapes(shapes: Shapes, rule: CreditRule) -> dict[str, tuple[int, ...]]:
    # A rule may draw with the standard deviation of the weights: it gets a real model.
    task = _task(shapes, torch.device("cpu"))
    params = {name: p.detach() for name, p in task.blocks.model.named_parameters()}
    return {name: tuple(t.shape) for name, t in rule.init(task, params, torch.Generator()).items()}


def _empty(shapes: Shapes, *size: int) -> Tensor:
    return torch.empty(size, dtype=shapes.dtype, device=_META)
