"""Activity-perturbed forward gradient: how the loss changes along a random direction at each state, times it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp

from creditscope.blocks import Identity, Params, Proof, RuleState, Task
from creditscope.blocks.observe import zero_taps
from creditscope.records.rule_card import Sketch
from creditscope.rules.block_rule import Assigned, Seen, SignalRule

KEY = "key"
_KEYS = 2**24
_MASK = 2**32 - 1


@dataclass(frozen=True)
class ForwardActivity(SignalRule):
    """c_l = ⟨g_l, v⟩·v with v normal, fresh for each sample and state (Ren et al. 2023).

    ⟨g_l, v⟩ is a tangent that forward-mode differentiation carries from the state up to the loss. A probe has no noise
    of a step: it sees vectors that follow from a number in the state, drawn from the run's seed.

    Args:
        joint: Whether one pass moves all states at once: c_l = (Σ_k ⟨g_k, v_k⟩)·v_l.
    """

    joint: bool = False

    name = "fg-act"
    formula = "c_l = ⟨g_l, v⟩·v, v ~ N(0, 1) fresh per sample and state, by forward-mode differentiation"
    paper = "Ren et al. 2023"
    injection = "at each state a random direction, as long as the loss rises along it"
    sketch = Sketch(text="random direction at each state, weighted by what it does to the loss", route="direct")
    null_kind = "rotated credit"
    identity = Identity(
        needs=(
            "the change of the loss along a random direction, for each sample and state",
            "a forward pass of tangents from each state",
        ),
        spares=("any way back from the output",),
        proofs=(
            Proof(
                "the mean of K draws is off by √((n + 1)/K) of the gradient's norm",
                "test_the_mean_of_many_draws_is_the_gradient_as_far_off_as_it_should_be",
            ),
            Proof(
                "expected cosine of one draw Γ(n/2)/(√π·Γ((n + 1)/2))",
                "test_the_cosine_of_one_draw_is_that_of_a_random_direction",
            ),
            Proof("with joint the tangents of all states add up", "test_one_joint_tangent_is_the_sum_of_all"),
        ),
        differs=(
            "orobix/fwdgrad perturbs all weights, with one direction for the batch: that is the rule fg; the code of "
            "the paper perturbs the input of each activation, with one local loss a group of channels and patch",
        ),
    )

    def init(self, task: Task, params: Params, generator: torch.Generator) -> RuleState:
        """The number that the vectors of probes follow from."""
        like = next(iter(params.values()))
        return {KEY: torch.randint(_KEYS, (), generator=generator).to(like)}

    def noise(self, task: Task, params: Params, batch: int) -> dict[str, tuple[int, ...]]:
        """One vector for each sample and state."""
        return {f"v.{level}": (batch, *shape) for level, shape in enumerate(task.shapes)}

    def assign(self, task: Task, params: Params, state: RuleState, seen: Seen) -> Assigned:
        """One tangent from each state, or one from all."""
        x, y = seen.batch
        asked = self.noise(task, params, len(x))
        given = seen.noise or keyed_normals(state[KEY], asked)
        v = dict(enumerate(given[name].to(h) for name, h in zip(asked, seen.states, strict=True)))

        def slope_at(level: int) -> Tensor:
            def loss(h: Tensor) -> Tensor:
                return task.loss(task.apart(params, {level: h}, x).logits, y)

            return jvp(loss, (seen.states[level],), (v[level],))[1]  # type: ignore[no-any-return]

        def slope_along_all() -> Tensor:
            def loss(taps: dict[int, Tensor]) -> Tensor:
                return task.loss(task.forward(params, x, taps=taps).logits, y)

            return jvp(loss, (zero_taps(task, x, params),), (v,))[1]  # type: ignore[no-any-return]

        slopes = [slope_along_all()] * len(v) if self.joint else [slope_at(level) for level in v]
        return Assigned(tuple(_scaled(v[level], slope) for level, slope in enumerate(slopes)))


def keyed_normals(key: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Standard normal numbers that follow from a key alone, in float64: the same on every device and in every dtype.

    Args:
        key: A whole number below 2²⁴, in any dtype.
        shapes: By name.
    """
    found, start = {}, 0
    for name, shape in shapes.items():
        count = math.prod(shape)
        places = 2 * torch.arange(start, start + count, device=key.device)
        first, second = (_uniform(key, places + half) for half in (0, 1))
        found[name] = ((-2 * first.log()).sqrt() * (2 * math.pi * second).cos()).reshape(shape)
        start += count
    return found


def _uniform(key: Tensor, places: Tensor) -> Tensor:
    """Between 0 and 1, from a number and places in its sequence."""
    mixed = _mixed(_mixed(places & _MASK) ^ _mixed(key.to(torch.int64) + 1))
    return (mixed.double() + 0.5) / 2**32


def _mixed(value: Tensor) -> Tensor:
    """An integer hash of 32 bits: shifts and odd factors, so that every bit of the input reaches every bit."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        value = ((value ^ (value >> shift)) * factor) & _MASK
    return value ^ (value >> 16)


def _scaled(v: Tensor, slopes: Tensor) -> Tensor:
    return v * slopes.reshape(len(v), *[1] * (v.ndim - 1))
