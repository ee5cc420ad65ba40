"""How much of a model is measured: which probes, on how many samples, in how much memory and time."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from creditscope.blocks import Batch, Snapshot, observe
from creditscope.engine.memory import free_bytes
from creditscope.errors import BadInput, did_you_mean
from creditscope.probes.expensive import expensive_probes
from creditscope.probes.probe import Probe
from creditscope.scope.true_backward import Shadows, TrueBlocks

Probes = str | Sequence[str]
Progress = Callable[[str, float], None]

# Decides no check, and costs a pass through the rest of the net for every direction at every state.
_FULL_ONLY = ("rho",)
_QUICK = ("fidelity", "clamp onset", "fresh-feedback null", "gradient cosine", "gradient null", "step descent")
# Samples of the expensive set, and of those of its probes that run the rest of the net again from every state.
_SAMPLES = {"quick": 32, "standard": 256, "full": 1024}
_TAIL_SAMPLES = {"quick": 16, "standard": 16, "full": 1024}
# Samples on which it is checked that they do not depend on each other.
SOME = 16
_FEWEST = 16
# A float64 copy, its gradient and what torch holds for a moment beside them, over what a forward pass makes.
_PASS = 3.0
# Observed tensors a state: states, branches, references and credit, in the run's dtype and in float64.
_OBSERVED = 4
_UNITS = {"B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class Bounds:
    """What the user allows.

    Args:
        memory: Bytes, or a text such as "8 GiB", for what measuring needs beside the model; None: what is free.
        budget: Seconds, or a text such as "25x": times one forward and backward pass over the same samples; None: no
            bound.
        probes: ``quick``, ``standard``, ``full``, or names of probes.
        progress: Called with what is measured and the share done; None: a bar, where somebody watches.
    """

    memory: float | str | None = None
    budget: float | str | None = None
    probes: Probes = "standard"
    progress: Progress | None = None

    def bytes(self, device: torch.device) -> int:
        """The memory bound.

        Args:
            device: The model's.
        """
        if self.memory is None:
            return free_bytes(device)
        number, unit = _split(self.memory, "memory", "B", "'8 GiB'")
        if unit.upper() not in _UNITS:
            raise BadInput(f"wanted memory in bytes or with a unit, got {self.memory!r}; write memory='8 GiB'")
        return int(number * _UNITS[unit.upper()])

    def seconds(self, step: float) -> float:
        """The time bound.

        Args:
            step: Seconds of one forward and backward pass over the same samples.
        """
        if self.budget is None:
            return math.inf
        number, unit = _split(self.budget, "budget", "s", "25 (seconds) or '25x' (of a step)")
        if unit not in ("s", "x", "×"):
            raise BadInput(f"wanted budget in seconds or times a step, got {self.budget!r}; write budget='25x'")
        return number if unit == "s" else number * step

    def chosen(self, redraws: int, directions: int, keep_draws: bool) -> tuple[Probe, ...]:
        """The probes that were asked for.

        Args:
            redraws: K of the nulls.
            directions: M of ρ.
            keep_draws: Whether null values go into the row.
        """
        known = {probe.name: probe for probe in expensive_probes(redraws, directions, keep_draws)}
        if isinstance(self.probes, str):
            if self.probes not in _SAMPLES:
                raise BadInput(f"unknown probes {self.probes!r}; {did_you_mean(self.probes, tuple(_SAMPLES))}")
            names: Sequence[str] = _QUICK if self.probes == "quick" else tuple(known)
            return tuple(known[n] for n in known if n in names and (self.probes == "full" or n not in _FULL_ONLY))
        for name in self.probes:
            if name not in known:
                raise BadInput(f"unknown probe {name!r}; {did_you_mean(str(name), tuple(known))}")
        return tuple(known[name] for name in self.probes)

    @property
    def preset(self) -> str:
        """The preset whose numbers of samples hold."""
        return self.probes if isinstance(self.probes, str) else "standard"

    def say(self, what: str, share: float) -> None:
        """Tell how far it is.

        Args:
            what: What is measured now.
            share: Of the time that was estimated.
        """
        if self.progress is not None:
            self.progress(what, min(1.0, share))
        elif sys.stderr.isatty():
            full = round(20 * min(1.0, share))
            sys.stderr.write(f"\r{'█' * full}{'░' * (20 - full)} {what:<40.40}" + ("\n" if share >= 1 else ""))


@dataclass(frozen=True)
class Plan:
    """What is measured on how much.

    Args:
        n: Probe samples.
        batch: Samples at once.
        few: Samples of the expensive set.
        tails: Samples of those of its probes that run the rest of the net from every state.
        probes: The expensive set.
        seconds: Estimated.
        bytes: Estimated, beside the model.
        notes: What was made smaller than asked.
    """

    n: int
    batch: int
    few: int
    tails: int
    probes: tuple[Probe, ...]
    seconds: float
    bytes: int
    notes: tuple[str, ...] = field(default=())

    def smaller(self, share: float) -> "Plan":
        """The same on a share of the samples, and on a few at least.

        Args:
            share: Between 0 and 1.
        """
        n, few, tails = (max(min(_FEWEST, size), int(share * size)) for size in (self.n, self.few, self.tails))
        return replace(self, n=n, few=few, tails=tails)


@dataclass(frozen=True)
class Sizes:
    """What one sample takes.

    Args:
        made: Bytes that a forward pass makes.
        states: Entries of all states and of the outputs.
        width: Bytes of an entry in the run's dtype.
        fixed: Bytes that do not depend on the samples: the float64 copy of the parameters and their gradients.
    """

    made: int
    states: int
    width: int
    fixed: int

    @property
    def at_once(self) -> float:
        """Bytes of one sample in a float64 pass forward and backward."""
        return _PASS * self.made * 8 / self.width + 2 * _OBSERVED * 8 * self.states

    @property
    def kept(self) -> float:
        """Bytes of one sample that stay while the expensive set is measured."""
        return _OBSERVED * (self.width + 8) * self.states


def sizes_of(blocks: TrueBlocks, shapes: Sequence[tuple[int, ...]], outputs: int, x: torch.Tensor) -> Sizes:
    """What one sample takes, from one forward pass of a few.

    Args:
        blocks: The partitioned model.
        shapes: Of one sample's states.
        outputs: Entries of its outputs.
        x: A few inputs.
    """
    params, buffers = dict(blocks.model.named_parameters()), dict(blocks.model.named_buffers())
    width = next(iter(params.values())).element_size()
    with torch.no_grad(), Shadows() as made:
        blocks.forward({**params, **buffers}, x)
    weights = sum(p.numel() for p in params.values())
    return Sizes(made.bytes // len(x), outputs + sum(map(math.prod, shapes)), width, (2 * 8 + 2 * width) * weights)


def batch_that_fits(sizes: Sizes, allowed: int, most: int) -> int:
    """How many samples are measured at once.

    Args:
        sizes: What one takes.
        allowed: Bytes.
        most: At most so many.
    """
    fits = int(0.6 * (allowed - sizes.fixed) / sizes.at_once)
    if fits < 2:
        raise BadInput(
            f"measuring needs {_shown(sizes.fixed + 4 * sizes.at_once)} beside the model, {_shown(allowed)} is allowed "
            "or free; raise memory=..., or free some"
        )
    return max(2, min(most, 1 << (fits.bit_length() - 1)))


def plan(snapshot: Snapshot, bounds: Bounds, sizes: Sizes, allowed: int, probes: tuple[Probe, ...]) -> Plan:
    """Fit what was asked into what is allowed: fewer samples rather than a crash, and said.

    Args:
        snapshot: The model now.
        bounds: What the user allows.
        sizes: What one sample takes.
        allowed: Bytes.
        probes: The expensive set that was asked for.
    """
    n = len(snapshot.probe.y)
    room = int(0.4 * (allowed - sizes.fixed) / sizes.kept)
    few = max(2, min(n, _SAMPLES[bounds.preset], room))
    notes = (
        []
        if few == min(n, _SAMPLES[bounds.preset])
        else [f"the expensive set is measured on {few} samples: {_shown(allowed)} of memory hold no more"]
    )
    tails = max(2, min(few, _TAIL_SAMPLES[bounds.preset]))
    costs = _Costs.of(snapshot, probes)
    whole = n * costs.step
    limit = bounds.seconds(whole)
    found = Plan(n, snapshot.batch, few, tails, probes, costs.total(n, few, tails), 0)
    if found.seconds > limit:
        least = costs.total(min(n, _FEWEST), min(few, _FEWEST), min(tails, _FEWEST))
        share = max(0.0, min(1.0, (limit - costs.fixed) / max(found.seconds - costs.fixed, 1e-12)))
        found = found.smaller(share)
        found = replace(found, seconds=costs.total(found.n, found.few, found.tails))
        notes.append(
            f"measured on {found.n} samples ({found.few} for the expensive set) to keep within {limit:.3g} s"
            + (f"; even {_FEWEST} are estimated to take {least:.3g} s" if least > limit else "")
        )
    peak = sizes.fixed + found.batch * sizes.at_once + found.few * sizes.kept
    return replace(found, bytes=int(peak), notes=tuple(notes))


@dataclass(frozen=True)
class _Costs:
    """Seconds a sample, by what is done with it."""

    step: float
    double: float
    depth: int
    tails: int
    credit: bool
    fixed: float

    @classmethod
    def of(cls, snapshot: Snapshot, probes: tuple[Probe, ...]) -> "_Costs":
        """Timed on one small batch, in the run's dtype and in float64."""
        m = min(8, len(snapshot.probe.y))
        some = first(snapshot, m)
        double = some.in_dtype(torch.float64)
        names = {probe.name: probe for probe in probes}
        rho = getattr(names.get("rho"), "directions", 0)
        tails = 3 * ("nudge" in names) + rho
        train = min(snapshot.batch, len(snapshot.probe.y))
        step, wide = (_seconds(each) / m for each in (some, double))
        # The checks that come first (independence, slope, order of the samples) are on one batch each.
        return cls(step, wide, snapshot.depth, tails, snapshot.rule is not None, train * (4 * step + 3 * wide))

    def total(self, n: int, few: int, tails: int) -> float:
        """Estimated seconds.

        Args:
            n: Probe samples.
            few: Of the expensive set.
            tails: Of its tails.
        """
        passes = (self.depth + 1) / 2 * (1 + self.tails) if self.tails else 0
        return self.fixed + n * self.step + few * self.double * (1 + self.credit) + tails * passes * self.double / 3


def first(snapshot: Snapshot, n: int) -> Snapshot:
    """The same run on its first probe samples.

    Args:
        snapshot: The run.
        n: How many.
    """
    if n >= len(snapshot.probe.y):
        return snapshot
    return replace(snapshot, probe=Batch(snapshot.probe.x[:n], snapshot.probe.y[:n]))


def _seconds(snapshot: Snapshot) -> float:
    """Of one observation, once what is done at first only is done."""
    best = math.inf
    for _ in range(2):
        began = time.perf_counter()
        with torch.no_grad():
            observe(snapshot.task, snapshot.params, None, {}, snapshot.probe)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return best


def _split(value: float | str, what: str, unit: str, example: str) -> tuple[float, str]:
    text = str(value).strip()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ× ")
    try:
        number = float(digits)
    except ValueError:
        number = math.nan
    if not number > 0 or math.isinf(number):
        raise BadInput(f"wanted {what} as a number above 0, got {value!r}; write {what}={example}")
    return number, text[len(digits) :].strip() or unit


def _shown(size: float) -> str:
    return f"{size / 2**30:.3g} GiB"
