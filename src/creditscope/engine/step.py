"""One pure step's worth of credit for one run; the fleet maps it over runs."""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.blocks import Batch, Blocks, CreditRule, RuleState, Step, Task
from creditscope.errors import BadInput
from creditscope.records import RunSpec
from creditscope.rules.wrappers import Penalised


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Per-sample cross-entropy, in nats; of a sequence whose every token has a target, the mean over them."""
    # torch's own also looks for labels to ignore: a dozen operations more under vmap.
    loss = -functional.log_softmax(logits, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1)
    return loss.mean(-1) if y.ndim > 1 else loss


class Sent(NamedTuple):
    """What a step of one run, or of a stack of runs, is computed from.

    Args:
        params: The parameters.
        state: The rule's state.
        buffers: The model's buffers.
        numbers: The rule's float options and λ (``penalty``), as tensors.
        noise: Fresh random numbers.
        x: Inputs.
        y: Targets.
    """

    params: Mapping[str, Tensor]
    state: RuleState
    buffers: Mapping[str, Tensor]
    numbers: Mapping[str, Tensor]
    noise: Mapping[str, Tensor]
    x: Tensor
    y: Tensor


def take_step(rule: CreditRule, task: Task, trained: frozenset[str], phase: str, sent: Sent) -> Step:
    """One run's step on one batch.

    Args:
        rule: The rule.
        task: What is trained.
        trained: Names of the parameters that train; the others are held fixed.
        phase: Which kind of step.
        sent: From what.
    """
    moving = {name: p for name, p in sent.params.items() if name in trained}
    fixed = {name: p for name, p in sent.params.items() if name not in trained}
    task = task._replace(buffers=sent.buffers, fixed=fixed)
    step = with_numbers(rule, sent.numbers).step(task, moving, sent.state, Batch(sent.x, sent.y), sent.noise, phase)
    _refuse_unknown(rule, step, moving, sent, phase)
    return step


def with_numbers(rule: CreditRule, numbers: Mapping[str, Tensor]) -> CreditRule:
    """A rule with its run's own numbers in the place of float options, and with the run's penalty.

    Args:
        rule: The rule.
        numbers: By option, and ``penalty`` for λ.
    """
    own = rule.with_numbers({name: value for name, value in numbers.items() if name != "penalty"})
    return Penalised(own, numbers["penalty"]) if "penalty" in numbers else own


def _refuse_unknown(rule: CreditRule, step: Step, moving: Mapping[str, Tensor], sent: Sent, phase: str) -> None:
    """Refuse what a rule returns for something that the run has not: an ignored update would be another rule."""
    learning, moves = rule.trained(sent.state, moving), rule.moves(phase)
    wanted = [*(moving if moves.weights else ()), *(sorted(learning) if moves.state else ())]
    for name in step.grads:
        if name in wanted:
            continue
        if name in moving or name in learning:
            raise BadInput(f"rule {rule.name} gives a gradient for {name!r}, which moves() says rests in this step")
        raise BadInput(
            f"rule {rule.name} gives a gradient for {name!r}, neither a parameter that trains nor an entry of its "
            f"state that it declares trained; name it in trained(), or leave it out"
        )
    samples = sent.y.shape[:1]
    if step.loss.shape != samples:
        raise BadInput(
            f"rule {rule.name}: wanted a loss for each of {samples[0]} samples, got {tuple(step.loss.shape)}"
        )
    for name, grad in step.grads.items():
        own = moving[name] if name in moving else sent.state[name]
        if (grad.shape, grad.dtype) != (own.shape, own.dtype):
            raise BadInput(
                f"rule {rule.name}: the gradient of {name!r} is {grad.dtype} of shape {tuple(grad.shape)}, wanted "
                f"{own.dtype} of shape {tuple(own.shape)}"
            )
    for name in wanted:
        if name not in step.grads:
            raise BadInput(f"rule {rule.name} gives no gradient for {name!r}, which trains; give one, zeros if need be")
    for what, given, known in (("state", step.state, sent.state), ("buffer", step.buffers, sent.buffers)):
        for name, value in given.items():
            if name not in known:
                raise BadInput(f"rule {rule.name} returns a {what} entry {name!r} that the run has not")
            if (value.shape, value.dtype) != (known[name].shape, known[name].dtype):
                raise BadInput(
                    f"rule {rule.name} returns {what} entry {name!r} as {value.dtype} of shape {tuple(value.shape)}, "
                    f"it was {known[name].dtype} of shape {tuple(known[name].shape)}"
                )
    for name in step.decay:
        if name not in step.grads:
            raise BadInput(f"rule {rule.name} decays {name!r} and gives no gradient for it; give one, zeros if need be")
    if step.state and not rule.learns:
        raise BadInput(f"rule {rule.name} changes its state and does not say that it learns; set learns = True")
    both = sorted(set(step.state) & learning)
    if both:
        raise BadInput(f"rule {rule.name} returns {both[0]!r}, which the optimiser trains; choose one of the two")


def schedule_factor(schedule: str, epoch: int, epochs: int) -> float:
    """The factor on the learning rate during an epoch, counted from 1.

    Args:
        schedule: ``cosine`` (to 0, stepped per epoch) or ``constant``.
        epoch: The epoch about to be trained, 1..epochs.
        epochs: Epochs planned.
    """
    if schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (epoch - 1) / epochs))


def trained_parameters(spec: RunSpec, blocks: Blocks, parts: dict[str, str | int]) -> frozenset[str]:
    """Names of the parameters that train in a run: what the method says, less what the model itself holds fixed.

    Args:
        spec: The run.
        blocks: The partitioned model.
        parts: Which part each parameter belongs to (``Blocks.parts``).
    """
    first = 0 if spec.train_last == "all" or spec.train_last is None else blocks.depth - spec.train_last
    embedding = spec.train_embedding is not False

    def trains(part: str | int) -> bool:
        if isinstance(part, int):
            return part >= first
        return part == "readout" or embedding

    fixed = {name for name, p in blocks.model.named_parameters() if not p.requires_grad}
    return frozenset(name for name, part in parts.items() if trains(part) and name not in fixed)


def weight_matrices(blocks: Blocks, parts: dict[str, str | int]) -> list[list[str]]:
    """Names of each block's weight matrices: no biases, no norm gains.

    Args:
        blocks: The partitioned model.
        parts: Which part each parameter belongs to.
    """
    shapes = {name: p.ndim for name, p in blocks.model.named_parameters()}
    return [
        [name for name, part in parts.items() if part == index and shapes[name] > 1] for index in range(blocks.depth)
    ]


def dtype_of(spec: RunSpec) -> torch.dtype:
    """The torch dtype of a run."""
    dtype = getattr(torch, spec.dtype or "float32")
    assert isinstance(dtype, torch.dtype)
    return dtype


@contextmanager
def in_training(modules: Collection[nn.Module]) -> Iterator[None]:
    """While open, modules are in training mode: a batch norm sees its batch and moves its running statistics.

    Args:
        modules: Those of a model that train, in eval mode before and after.
    """
    for module in modules:
        module.training = True
    try:
        yield
    finally:
        for module in modules:
            module.training = False


@contextmanager
def precision(spec: RunSpec) -> Iterator[None]:
    """While open, float32 matrix products and convolutions have the precision that a run states.

    Args:
        spec: The run.
    """
    before, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if spec.matmul == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = spec.matmul == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = convolutions
