"""An extension in one file: four credit rules and a check that the package does not know.

``creditscope train --rules extension.outside:KolenPollack,...`` or ``cs.train(specs, rules=[KolenPollack, ...])``.
"""

import math
from dataclasses import dataclass

import torch
from torch.func import vjp

from creditscope.blocks import FeedbackInit
from creditscope.blocks.rule import CreditRule, FeedbackRule, Step
from creditscope.protocol.checks.point import EpochCheck
from creditscope.protocol.evidence import Evidence, Grade
from creditscope.records import FeedbackSpec
from creditscope.records.rule_card import Sketch
from creditscope.rules.block_rule import BlockRule
from creditscope.rules.feedback_alignment import FeedbackAlignment

TRANSPORT = FeedbackAlignment()


def weight_of(entry):
    """The parameter that a feedback matrix stands for."""
    return f"{entry.removeprefix('B.')}.weight"


class Transport(CreditRule):
    """What feedback alignment and its relatives share: every linear map sends its error back through B."""

    family = "signal"
    penalty = "local"
    learns = True

    def init(self, task, params, generator):
        return TRANSPORT.init(task, params, generator)

    def deliver(self, task, params, state, batch):
        return TRANSPORT.deliver(task, params, state, batch)


@dataclass(frozen=True)
class KolenPollack(Transport):
    """B gets the gradient of W and the same optimiser, decay included: W - B shrinks at each step.

    Args:
        start: ``random``, or ``weights``: B = W at the start, and so for ever.
        pull: What B's gradient is multiplied by; 1 is the published rule.
    """

    start: str = "random"
    pull: float = 1.0

    name = "my-kp"
    formula = "the backward pass of BP with W replaced by B; B gets W's own gradient"
    paper = "Kolen & Pollack 1994"
    injection = "gradient at the logits, back through a learned matrix per linear map"
    sketch = Sketch(text="learned backward weight in every linear map", route="chain", random=("head", "norm", "block"))
    feedback_spec = FeedbackSpec(dist="normal", scale="standard deviation of each weight at initialisation")

    def init(self, task, params, generator):
        drawn = TRANSPORT.init(task, params, generator)
        if self.start == "weights":
            return {entry: params[weight_of(entry)].detach().clone() for entry in drawn}
        return drawn

    def trained(self, state, params):
        return frozenset(entry for entry in state if weight_of(entry) in params)

    def step(self, task, params, state, batch, noise, phase):
        step = TRANSPORT.step(task, params, state, batch, noise, phase)
        own = {entry: self.pull * step.grads[weight_of(entry)] for entry in self.trained(state, params)}
        return step._replace(grads={**step.grads, **own})


@dataclass(frozen=True)
class WeightMirror(Transport):
    """Every few steps each map alone hears noise; B grows along the product of response and noise.

    Args:
        every: Steps from one mirror phase to the next.
        rate: How much of the product B takes in.
    """

    every: int = 3
    rate: float = 0.05

    name = "my-wm"
    formula = "the backward pass of BP with W replaced by B; B += rate * mean(response x noise), at W's norm"
    paper = "Akrout et al. 2019"
    injection = "gradient at the logits, back through a mirrored matrix per linear map"

    def noise(self, task, params, batch):
        shapes = {name: p.shape for name, p in params.items() if p.ndim == 2}
        return {name: (batch, shape[1]) for name, shape in shapes.items()}

    def phase(self, moment):
        return "mirror" if moment.step % self.every == 0 else ""

    def step(self, task, params, state, batch, noise, phase):
        step = TRANSPORT.step(task, params, state, batch, noise, phase)
        if phase != "mirror":
            return step
        full = {**task.fixed, **params}
        mirrored = {}
        for entry, matrix in state.items():
            weight, heard = full[weight_of(entry)], noise[weight_of(entry)]
            response = heard @ weight.T
            grown = matrix + self.rate * (response - response.mean(0)).T @ heard / len(heard)
            mirrored[entry] = grown * (weight.norm() / grown.norm())
        return step._replace(state=mirrored)


@dataclass(frozen=True)
class Pepita(FeedbackRule):
    """Two forward passes: the second hears the error at the input, and each block moves by the difference."""

    scale: float = 0.1

    name = "my-pepita"
    family = "update"
    formula = "second pass on x + e·F; block l gets h_{l+1} - h'_{l+1}"
    paper = "Dellaferrera & Kreiman 2022"
    injection = "the error, projected onto the input of a second pass"

    def feedback_inits(self, task, params):
        pixels = math.prod(task.input_shape)
        return {"F": FeedbackInit((task.outputs, pixels), 1 / math.sqrt(pixels))}

    def step(self, task, params, state, batch, noise, phase):
        def run(x):
            def states(params):
                seen = task.forward(params, x, detach=True)
                return seen.states, seen.logits

            return vjp(states, dict(params))

        (first, logits), back = run(batch.x)
        error = task.error(logits, batch.y)
        (second, moved), again = run(batch.x + self.scale * (error @ state["F"]).reshape(batch.x.shape))
        n = len(batch.x)
        local = again((tuple((a - b) / n for a, b in zip(first, second, strict=True)), torch.zeros_like(moved)))[0]
        head = back((tuple(map(torch.zeros_like, first)), error / n))[0]
        return Step(task.loss(logits, batch.y), {name: local[name] + head[name] for name in params})


@dataclass(frozen=True)
class UniformDirect(BlockRule):
    """Direct feedback whose entries are uniform: not every feedback is a Gaussian."""

    name = "udfa"
    formula = "c_{l+1} = e·B_l with fixed uniform B_l"
    paper = "this test"
    injection = "e·B_l at the output of block l, with uniform entries"
    sketch = Sketch(text="error times a uniform matrix, straight to each block", route="direct")
    feedback_spec = FeedbackSpec(dist="uniform", scale="1/sqrt(classes)")

    def feedback_inits(self, task, params):
        sd = 1 / math.sqrt(task.outputs)
        return {
            f"B.{level}": FeedbackInit((task.outputs, shape[-1]), sd, "uniform")
            for level, shape in enumerate(task.shapes)
        }

    def signals(self, task, params, state, error, top, batch):
        signals = [error @ state[f"B.{level}"] for level in range(len(task.shapes))]
        return tuple(c.unsqueeze(1) if len(shape) == 2 else c for c, shape in zip(signals, task.shapes, strict=True))


RULES = (KolenPollack, WeightMirror, Pepita, UniformDirect)


class FeedbackMoves(EpochCheck):
    """A rule that says its feedback learns must show that it moved."""

    name = "feedback"
    label = "least movement of a feedback matrix"
    threshold = 1e-4
    settled_by = "log the movement of the feedback at the last epoch"

    def measure(self, facts, row):
        moved = row.movement.feedback if row.movement is not None else None
        if not moved:
            return Evidence.missing("no feedback of this rule learns")
        return Evidence.point(min(moved.values()), Grade.EXACT)
