"""Sites: the linear maps of a model, what enters and leaves each, and the derivatives between one and the next."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.blocks.partition import hooks
from creditscope.scope.derivative import Pullback, derivative
from creditscope.scope.user_step import Written

# A site's derivative is held as a matrix a sample, of at most so many entries over all samples.
MOST_ENTRIES = 2**26
OUTPUTS = "outputs of the model"
# A float32 weight cannot change by less than this share of it; a decay is one where it explains what is left.
_ROUNDING, _DECAYS = 3e-7, 0.98
# Of the usual squares, so much must enter a layer on a sample for its weights to tell what reached it.
_ENTERS = 1e-3
# A unit that is on for fewer samples tells nothing: its part of a matrix would be fitted to a handful.
_OFTEN = 0.2


@dataclass(frozen=True)
class Site:
    """A linear map that puts out one vector a sample.

    Args:
        name: Of the module.
        inputs: What enters it, (n, d_in).
        outputs: What it puts out, (n, d_out).
    """

    name: str
    inputs: Tensor
    outputs: Tensor


@dataclass(frozen=True)
class Sites:
    """The sites of a model in the order of the forward pass, on some samples.

    Args:
        model: The model.
        call: Runs it on those samples; returns the outputs.
        sites: Each linear map that runs once and puts out one vector a sample.
        outputs: The model's outputs.
        left_out: Other maps with weights, and why.
    """

    model: nn.Module
    call: Callable[[], Tensor]
    sites: tuple[Site, ...]
    outputs: Tensor
    left_out: Mapping[str, str]

    @classmethod
    def of(cls, model: nn.Module, call: Callable[[], Tensor]) -> "Sites":
        """Run the model and look at its linear maps.

        Args:
            model: The model.
            call: Runs it on the samples.
        """
        seen: dict[str, list[tuple[Tensor, Tensor]]] = {}
        left_out: dict[str, str] = {}

        def see(name: str) -> Callable[[nn.Module, Any, Any], None]:
            return lambda _, args, out: seen.setdefault(name, []).append((args[0].detach(), out.detach()))

        maps = [(name, m) for name, m in model.named_modules() if _is_map(m)]
        with hooks() as handles, torch.no_grad():
            handles += [module.register_forward_hook(see(name)) for name, module in maps]
            outputs = call()
        sites = []
        for name, _ in maps:
            calls = seen.get(name, [])
            if len(calls) != 1:
                left_out[name] = "never called" if not calls else f"called {len(calls)} times in one pass"
            elif calls[0][1][0].numel() != calls[0][1].shape[1]:
                left_out[name] = "its weights are shared over places: no signal of its own can be told"
            else:
                sites.append((list(seen).index(name), Site(name, *(t.flatten(1).double() for t in calls[0]))))
        return cls(model, call, tuple(site for _, site in sorted(sites, key=lambda pair: pair[0])), outputs, left_out)

    def true_signals(self, loss: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """The true gradient of the summed loss at each site's outputs, per sample.

        Args:
            loss: Per-sample loss of the outputs.
        """

        def total(taps: Mapping[str, Tensor]) -> list[Tensor]:
            with self._tapped(taps, frozen=False, seen={}):
                return [loss(self.call()).sum()]

        (value,), back = derivative(self.model, total, self._taps())
        return {name: grad.double() for name, grad in back([torch.ones_like(value)]).items()}

    def read(self, written: Callable[[int], Written], n: int) -> "dict[str, Signal]":
        """What reached each site, from one step on each sample.

        Args:
            written: What the step on a sample wrote.
            n: How many samples.
        """
        named = dict(self.model.named_modules())
        readings: dict[str, list[Reading]] = {site.name: [] for site in self.sites}
        for at in range(n):
            wrote = written(at)
            for site in self.sites:
                readings[site.name].append(Reading.of(site, at, named[site.name].weight.detach(), wrote))
        return {name: Signal.of(found) for name, found in readings.items()}

    def local(self) -> "Local":
        """The derivatives between sites while every site's own output is held fixed."""
        names = [site.name for site in self.sites]

        def entering(taps: Mapping[str, Tensor]) -> list[Tensor]:
            seen: dict[str, Tensor] = {}
            with self._tapped(taps, frozen=True, seen=seen):
                out = self.call()
            return [*(seen[name] for name in names), out]

        taps = self._taps()
        outs, back = derivative(self.model, entering, taps)
        return Local(taps, dict(zip([*names, OUTPUTS], outs, strict=True)), back)

    def _taps(self) -> dict[str, Tensor]:
        like = next(p for p in self.model.parameters() if p.is_floating_point())
        return {s.name: torch.zeros_like(s.outputs, dtype=like.dtype) for s in self.sites}

    @contextmanager
    def _tapped(self, taps: Mapping[str, Tensor], frozen: bool, seen: dict[str, Tensor]) -> Iterator[None]:
        named = dict(self.model.named_modules())

        def tap(site: Site) -> Callable[[nn.Module, Any, Any], Tensor]:
            def hook(_: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
                seen[site.name] = args[0].flatten(1)
                held = site.outputs.to(out).reshape(out.shape) if frozen else out
                return held + taps[site.name].reshape(out.shape)

            return hook

        with hooks() as handles:
            handles += [named[site.name].register_forward_hook(tap(site)) for site in self.sites]
            yield


@dataclass(frozen=True)
class Local:
    """Derivatives of what enters each site by what the sites before it put out.

    Args:
        taps: Added to each site's output.
        entering: What enters each site; under ``OUTPUTS``, the model's outputs.
        pullback: Carries signals back from all of those.
        known: Derivatives that were asked for before.
    """

    taps: Mapping[str, Tensor]
    entering: Mapping[str, Tensor]
    pullback: Pullback
    known: dict[tuple[str, str], Tensor | None] = field(default_factory=dict)

    def back(self, later: str, signal: Tensor, earlier: str) -> Tensor:
        """A signal at what enters one site, carried back to the outputs of an earlier one; zero where nothing leads.

        Args:
            later: The site where it enters.
            signal: (n, d).
            earlier: The site where it ends.
        """
        signals = [signal.to(at) if name == later else torch.zeros_like(at) for name, at in self.entering.items()]
        return self.pullback(signals)[earlier].double()

    def matrix(self, later: str, earlier: str) -> Tensor | None:
        """The derivative itself: (n, d) where each output acts on its own input alone, else (n, d_later, d_earlier).

        Args:
            later: The site where a signal enters.
            earlier: The site where it ends.

        Returns:
            None where nothing leads from one to the other, or where it is too large to hold.
        """
        if (later, earlier) not in self.known:
            self.known[later, earlier] = self._matrix(later, earlier)
        return self.known[later, earlier]

    def _matrix(self, later: str, earlier: str) -> Tensor | None:
        at, tap = self.entering[later], self.taps[earlier]
        wide = at.shape[1]
        if at.shape == tap.shape:
            ones = self.back(later, torch.ones_like(at), earlier)
            weights = 1.0 + torch.arange(wide, dtype=at.dtype, device=at.device) % 3
            if torch.allclose(
                self.back(later, weights.expand_as(at), earlier), ones * weights.double(), rtol=1e-4, atol=1e-7
            ):
                return ones if bool(ones.any()) else None
        if at.numel() * tap.shape[1] > MOST_ENTRIES:
            return None
        unit = torch.eye(wide, dtype=at.dtype, device=at.device)
        found = torch.stack([self.back(later, unit[k].expand_as(at), earlier) for k in range(wide)], dim=1)
        return found if bool(found.any()) else None


def _is_map(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim in (2, 4) and not isinstance(module, nn.Embedding)


@dataclass(frozen=True)
class Reading:
    """What one step on one sample wrote on one site.

    Args:
        signal: What reached its outputs, (d_out).
        bias: What its bias was told; None without one.
        size: Squares of what entered: where it is next to nothing, the weights tell nothing.
        total: Squares of what was written on the weights.
        held: The part of them that is a signal times what enters.
        decay: Share of the weight that the step took off; None where that cannot be told.
    """

    signal: Tensor
    bias: Tensor | None
    size: float
    total: float
    held: float
    decay: float | None

    @classmethod
    def of(cls, site: Site, at: int, weight: Tensor, written: Written) -> "Reading":
        """Of a weight gradient δ·aᵀ and the known a: δ = G·a/‖a‖².

        Args:
            site: The site.
            at: Which sample.
            weight: Its weight now.
            written: What the step wrote.
        """
        names = [f"{site.name}.{part}".lstrip(".") for part in ("weight", "bias")]
        a = site.inputs[at]
        grad = written.direction(names[0]).reshape(len(weight), -1)
        bias = written.direction(names[1]) if names[1] in written.change else None
        total = float(grad.square().sum())
        if grad.shape[1] != len(a):  # a padded convolution: only its bias can tell
            return cls(torch.zeros_like(grad[:, 0]) if bias is None else bias, None, 1.0, total, total, None)
        size = float(a.square().sum())
        signal = grad @ a / size if size else torch.zeros_like(grad[:, 0])
        held = float(signal.square().sum()) * size
        return cls(signal, bias, size, total, held, _decay(written.change[names[0]], weight, a))


def _decay(change: Tensor, weight: Tensor, a: Tensor) -> float | None:
    """What a step takes off a weight besides a signal times what enters, which has no part across a."""
    size = a.square().sum()
    if not size:
        return None
    change, weight = change.reshape(len(weight), -1), weight.double().reshape(len(weight), -1)
    rest, across = (m - torch.outer(m @ a, a) / size for m in (change, weight))
    share = -float((rest * across).sum() / across.square().sum().clamp(min=1e-300))
    if float(rest.norm()) <= _ROUNDING * float(weight.norm()):
        return 0.0
    explained = 1 - float((rest + share * across).square().sum() / rest.square().sum())
    return share if explained > _DECAYS else None


@dataclass(frozen=True)
class Signal:
    """What reached one site on all samples.

    Args:
        vectors: (n, d_out).
        seen: Whether enough entered to tell, per sample.
        rank_one: Share of what was written on the weights that is a signal times what enters.
        bias: Cosine of the bias's own step with it; None without a bias, 0 where the bias stands still.
        moves: Whether anything was written on the weights.
        decay: Share of the weight that a step takes off; None where that cannot be told.
    """

    vectors: Tensor
    seen: Tensor
    rank_one: float
    bias: float | None
    moves: bool
    decay: float | None

    @property
    def often(self) -> Tensor:
        """1 for units that a signal reaches often enough to tell how, else 0, as for a rectifier that is mostly off."""
        return ((self.vectors != 0).double().mean(0) > _OFTEN).double()

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> "Signal":
        """All samples together.

        Args:
            readings: Of one site, sample by sample.
        """
        vectors = torch.stack([reading.signal for reading in readings])
        sizes = torch.tensor([reading.size for reading in readings])
        biases = [reading.bias for reading in readings if reading.bias is not None]
        total = sum(reading.total for reading in readings)
        bias = None
        if biases and bool(vectors.any()):
            told = torch.stack(biases)
            bias = float((told * vectors).sum() / told.norm() / vectors.norm()) if bool(told.any()) else 0.0
        decays = [reading.decay for reading in readings]
        known = [decay for decay in decays if decay is not None]
        decay = sum(known) / len(known) if len(known) == len(decays) else None
        held = sum(reading.held for reading in readings) / total if total else 0.0
        return cls(vectors, sizes > _ENTERS * sizes.median(), held, bias, total > 0, decay)
