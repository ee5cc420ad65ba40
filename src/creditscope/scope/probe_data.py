"""Probe data from whatever a user has: a loader, a list of batches, or a pair of tensors."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from creditscope.blocks import Batch
from creditscope.data.dataset import content_hash
from creditscope.errors import BadInput
from creditscope.records import DataSpec

PROBE_SAMPLES = 1024
PROBE_BATCH = 128
# Samples of a loader that are kept for accuracy and readouts: a whole test set of common size, fewer of large samples.
KEPT_SAMPLES = 10_000
KEPT_BYTES = 2**28

Loader = Iterable[Any] | tuple[Tensor, Tensor]


class ProbeData(NamedTuple):
    """What is measured on.

    Args:
        probe: The first samples, for every probe.
        test: All kept samples, for accuracy.
        spec: What the log records of them.
    """

    probe: Batch
    test: Batch
    spec: DataSpec

    @property
    def labelled(self) -> bool:
        """Whether the targets are class labels."""
        return is_labels(self.test.y)


def is_labels(y: Tensor) -> bool:
    """Whether targets are class labels: one whole number a sample."""
    return y.ndim == 1 and not y.is_floating_point() and not y.is_complex()


def gather(loader: Loader, device: torch.device, dtype: torch.dtype) -> ProbeData:
    """Take up to 1,024 probe samples; a loader that knows its length is read up to 10,000 samples for the accuracy.

    Args:
        loader: An iterable of (x, y) batches, or a pair of tensors.
        device: Where the model lives; samples on the CPU are moved there, others must be there already.
        dtype: Of the model; inputs that are numbers take it.
    """
    wanted = PROBE_SAMPLES
    xs: list[Tensor] = []
    ys: list[Tensor] = []
    count = 0
    for x, y in _pairs(loader):
        xs.append(_placed(x, device, "inputs"))
        ys.append(_placed(y, device, "targets"))
        if xs[-1].shape[1:] != xs[0].shape[1:] or ys[-1].shape[1:] != ys[0].shape[1:]:
            raise BadInput(
                f"wanted samples of one shape, got inputs {tuple(xs[0].shape[1:])} and then {tuple(xs[-1].shape[1:])}, "
                f"targets {tuple(ys[0].shape[1:])} and then {tuple(ys[-1].shape[1:])}; pad or sort them"
            )
        if not count and _has_length(loader):
            room = KEPT_BYTES // max(1, xs[0][:1].numel() * xs[0].element_size())
            wanted = max(PROBE_SAMPLES, min(KEPT_SAMPLES, room))
        count += len(x)
        if count >= wanted:
            break
    if count < 2:
        raise BadInput(
            f"wanted at least 2 probe samples, got {count or 'an empty loader'}; "
            "pass a loader that yields (x, y) batches (an iterator that was used up yields nothing)"
        )
    x, y = torch.cat(xs)[:wanted], torch.cat(ys)[:wanted]
    if x.is_floating_point():
        x = x.to(dtype)
    counts = tuple(torch.bincount(y).tolist()) if is_labels(y) and int(y.min()) >= 0 else None
    spec = DataSpec(
        name="loader",
        hash_test=content_hash(x.cpu().float().numpy(), y.cpu().double().numpy()),
        shape=tuple(x.shape[1:]),
        n_test=len(x),
        class_counts=counts,
    )
    return ProbeData(Batch(x[:PROBE_SAMPLES], y[:PROBE_SAMPLES]), Batch(x, y), spec)


def _pairs(loader: Loader) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches as pairs of tensors, each checked."""
    if isinstance(loader, (tuple, list)) and len(loader) == 2 and all(isinstance(part, Tensor) for part in loader):
        batches: Iterable[Any] = [loader]
    elif isinstance(loader, Tensor) or not isinstance(loader, Iterable):
        raise BadInput(
            f"wanted a loader of (x, y) batches or a pair of tensors, got {_shown(loader)}; pass loader=(x, y)"
        )
    else:
        batches = loader
    for batch in batches:
        ok = isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)
        if not ok:
            raise BadInput(
                f"wanted batches (x, y) of two tensors from the loader, got {_shown(batch)}; yield (inputs, targets)"
            )
        x, y = batch
        if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
            raise BadInput(
                f"wanted as many targets as inputs in a batch, got shapes {tuple(x.shape)} and {tuple(y.shape)}; "
                "the first axis of both is samples"
            )
        yield x.detach(), y.detach()


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
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(repr, list(value)[:4]))}"
    return f"a {type(value).__name__}"
