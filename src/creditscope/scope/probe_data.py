"""Probe data from whatever a user has: a loader, a list of batches, a pair of tensors, or a dict of them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten

from creditscope.blocks import Batch
from creditscope.data.dataset import content_hash
from creditscope.errors import BadInput
from creditscope.records import DataSpec
from creditscope.scope.inputs import Forward, Table, told

PROBE_SAMPLES = 1024
PROBE_BATCH = 128
# Samples of a loader that are kept for accuracy and readouts: a whole test set of common size, fewer of large samples.
KEPT_SAMPLES = 10_000
KEPT_BYTES = 2**28
# Classes whose sizes are written into a log.
MOST_CLASSES = 2**16
# Names of the only input and of the targets among the tensors of a batch: no keyword of a model can be either.
_ONLY, _TARGETS = "", "targets of the batch"
# What Hugging Face calls the targets in a dict.
_LABELS = "labels"

Loader = Iterable[Any] | tuple[Tensor, Tensor] | Mapping[str, Tensor]


class ProbeData(NamedTuple):
    """What is measured on.

    Args:
        probe: The first samples, for every probe.
        test: All kept samples, for accuracy.
        spec: What the log records of them.
        table: Named inputs, whose numbers the batches hold; None where they hold the inputs.
    """

    probe: Batch
    test: Batch
    spec: DataSpec
    table: Table | None = None

    @property
    def classified(self) -> bool:
        """Whether every target is a class, also of single tokens."""
        return self.labelled or self.spec.tokens is not None

    @property
    def labelled(self) -> bool:
        """Whether the targets are class labels."""
        return is_labels(self.test.y)


def is_labels(y: Tensor) -> bool:
    """Whether targets are class labels: one whole number a sample."""
    return y.ndim == 1 and not y.is_floating_point() and not y.is_complex()


def _is_text(y: Tensor) -> bool:
    """Whether every token of a sequence has a target."""
    return y.ndim == 2 and not y.is_floating_point() and not y.is_complex() and int(y.min()) >= 0


def _counts(y: Tensor) -> tuple[int, ...] | None:
    """How many samples, or of text tokens, each class has; None where targets are no classes, or very many."""
    if not (_is_text(y) or is_labels(y)) or int(y.min()) < 0 or int(y.max()) >= MOST_CLASSES:
        return None
    return tuple(torch.bincount(y.flatten()).tolist())


def gather(loader: Loader, device: torch.device, dtype: torch.dtype, forward: Forward | None = None) -> ProbeData:
    """Take up to 1,024 probe samples; a loader that knows its length is read up to 10,000 samples for the accuracy.

    Args:
        loader: An iterable of batches, or one batch: (x, y), or a dict of tensors with ``labels`` among them.
        device: The model's device; samples on the CPU are moved there, others must be there already.
        dtype: Of the model; inputs that are numbers take it.
        forward: The user's own call of the model on a batch; batches may then be any structure of tensors.
    """
    structure: list[TreeSpec] = []
    wanted = PROBE_SAMPLES
    parts: list[dict[str, Tensor]] = []
    count = 0
    batches = _pairs(loader) if forward is None else _structured(loader, structure)
    for inputs, y in _each(batches):
        parts.append({name: _placed(t, device, "inputs") for name, t in inputs.items()})
        parts[-1][_TARGETS] = _placed(y, device, "targets")
        _require_alike(parts[0], parts[-1])
        if not count and _has_length(loader):
            room = KEPT_BYTES // max(1, sum(t[:1].numel() * t.element_size() for t in inputs.values()))
            wanted = max(PROBE_SAMPLES, min(KEPT_SAMPLES, room))
        count += len(y)
        if count >= wanted:
            break
    if count < 2:
        raise BadInput(
            f"wanted at least 2 probe samples, got {count or 'an empty loader'}; "
            "pass a loader that yields (x, y) batches (an iterator that was used up yields nothing)"
        )
    columns = {name: torch.cat([part[name] for part in parts])[:wanted] for name in parts[0]}
    y = columns.pop(_TARGETS)
    table = None if _ONLY in columns else Table(columns, forward, structure[0] if structure else None)
    x = columns[_ONLY] if table is None else torch.arange(len(y), device=device)
    x = x.to(dtype) if x.is_floating_point() else x
    spec = DataSpec(
        name="loader",
        hash_test=content_hash(_as_numbers(columns if table else {_ONLY: x}), y.cpu().double().numpy()),
        shape=tuple(next(iter(columns.values())).shape[1:]),
        n_test=len(y),
        class_counts=_counts(y),
        tokens=y.shape[1] if _is_text(y) else None,
    )
    return ProbeData(Batch(x[:PROBE_SAMPLES], y[:PROBE_SAMPLES]), Batch(x, y), spec, table)


def _pairs(loader: Loader) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Batches as named inputs and targets, each checked; the only input has no name."""
    pair = isinstance(loader, (tuple, list)) and len(loader) == 2 and all(isinstance(part, Tensor) for part in loader)
    if not pair and (isinstance(loader, Tensor) or not isinstance(loader, Iterable)):
        raise BadInput(
            f"wanted a loader of (x, y) batches or a pair of tensors, got {_shown(loader)}; pass loader=(x, y)"
        )
    batches: Iterable[Any] = [loader] if pair or isinstance(loader, Mapping) else loader
    for batch in batches:
        inputs, y = _named(batch) if isinstance(batch, Mapping) else _pair(batch)
        for x in inputs.values():
            if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
                raise BadInput(
                    f"wanted as many targets as inputs in a batch, got shapes {tuple(x.shape)} and {tuple(y.shape)}; "
                    "the first axis of both is samples"
                )
        yield {name: x.detach() for name, x in inputs.items()}, y.detach()


def _each(batches: Iterator[Any]) -> Iterator[Any]:
    """The same, with an exception of the loader's own in one line."""
    while True:
        with told("the loader failed", "it is iterated once, and has to yield batches"):
            try:
                batch = next(batches)
            except StopIteration:
                return
        yield batch


def _structured(loader: Loader, structure: list[TreeSpec]) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Batches of any structure, as numbered columns; the targets are the entry ``labels``, or the last tensor."""
    one = isinstance(loader, Mapping) or (
        isinstance(loader, (tuple, list)) and all(isinstance(part, Tensor) for part in loader)
    )
    for batch in [loader] if one else loader:
        leaves, spec = tree_flatten(batch)
        if not leaves or not all(isinstance(leaf, Tensor) and leaf.ndim for leaf in leaves):
            raise BadInput(
                f"wanted batches of tensors whose first axis is samples, got {_shown(batch)}; leave out what is none"
            )
        if len({len(leaf) for leaf in leaves}) > 1:
            raise BadInput(
                f"wanted as many of everything in a batch, got {', '.join(str(len(leaf)) for leaf in leaves)}; "
                "the first axis is samples"
            )
        structure.append(spec)
        if spec != structure[0]:
            raise BadInput("wanted every batch of the same structure; yield them alike")
        y = batch[_LABELS] if isinstance(batch, Mapping) and _LABELS in batch else leaves[-1]
        yield {str(at): leaf.detach() for at, leaf in enumerate(leaves)}, y.detach()


def _pair(batch: Any) -> tuple[dict[str, Tensor], Tensor]:
    if not (isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)):
        raise BadInput(
            f"wanted batches (x, y) of two tensors from the loader, got {_shown(batch)}; yield (inputs, targets)"
        )
    return {_ONLY: batch[0]}, batch[1]


def _named(batch: Mapping[str, Any]) -> tuple[dict[str, Tensor], Tensor]:
    tensors = {name: value for name, value in batch.items() if value is not None}
    odd = next((name for name, value in tensors.items() if not isinstance(value, Tensor)), None)
    if odd is not None:
        raise BadInput(
            f"wanted tensors in a dict batch, got {odd!r} as {_shown(tensors[odd])}; leave it out, or make it a tensor"
        )
    y = tensors.pop(_LABELS, None)
    if y is None or not tensors:
        raise BadInput(
            f"wanted a dict batch with {_LABELS!r} and at least one input, got {_shown(batch)}; "
            f"name the targets {_LABELS!r}, or yield (inputs, targets)"
        )
    return tensors, y


def _require_alike(first: dict[str, Tensor], part: dict[str, Tensor]) -> None:
    """Every batch holds the same tensors, of the same shape a sample."""
    if part.keys() != first.keys():
        odd = sorted(part.keys() ^ first.keys())
        raise BadInput(f"wanted the same entries in every batch, {', '.join(odd)} is not in all; yield them alike")
    for name, tensor in part.items():
        if tensor.shape[1:] != first[name].shape[1:]:
            what = "targets" if name == _TARGETS else name or "inputs"
            raise BadInput(
                f"wanted samples of one shape, got {what} {tuple(first[name].shape[1:])} and then "
                f"{tuple(tensor.shape[1:])}; pad or sort them"
            )


def _as_numbers(columns: Mapping[str, Tensor]) -> NDArray[Any]:
    """What the hash is taken of: a lone input in its own shape, several in one row a sample."""
    if _ONLY in columns:
        return columns[_ONLY].cpu().float().numpy()
    return np.concatenate([t.cpu().double().reshape(len(t), -1).numpy() for t in columns.values()], axis=1)


def _placed(tensor: Tensor, device: torch.device, what: str) -> Tensor:
    if tensor.device.type == device.type:
        return tensor.to(device)
    if tensor.device.type != "cpu":
        raise BadInput(
            f"wanted {what} on {device} like the model, got them on {tensor.device}; "
            f"move one: model.to('{tensor.device}')"
        )
    return tensor.to(device)


def _has_length(loader: Loader) -> bool:
    try:
        len(loader)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _shown(value: Any) -> str:
    """What came, in a few words."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)} ({', '.join(type(part).__name__ for part in value[:4])})"
    if isinstance(value, Mapping):
        return f"a dict with {', '.join(map(repr, list(value)[:4]))}"
    return f"a {type(value).__name__}"
