"""The cosines of one net in bfloat16 as its own arithmetic gives them, and as they are logged."""

import misleading_cases as small
import torch
from torch.nn import functional

import creditscope as cs
from creditscope.models.resmlp import ResMLP
from creditscope.protocol.check import Outcome
from creditscope.records import EpochRow
from creditscope.scope.credit import rule_credit

HALF = torch.bfloat16
SAMPLES = 256
EPOCHS, CONFIDENCE = 2, 5
MADE = (
    f"Trained: dfa on the bundled images, {EPOCHS} epochs, three blocks of width {small.WIDTH}; its logits times "
    f"{CONFIDENCE}, and the classes that it then names taken for the labels: a net that is sure of {SAMPLES} fitted "
    "samples. All of it is rounded to bfloat16."
)


def measure() -> dict[str, list[object]]:
    """Per state: the cosine of credit and gradient in bfloat16, the one that is logged, and its status."""
    model, feedback, start, data = _fitted()
    outcome, row = _audited(model, feedback, start, data)
    assert row.cosine is not None
    return {
        "own": [*in_its_dtype(model, *data, feedback)],
        "logged": [*row.cosine.mean],
        "status": [*row.cosine.status],
        "fidelity": [str(outcome.ruling), outcome.reason.split("; first fired")[0]],
    }


def in_its_dtype(model: ResMLP, x: torch.Tensor, y: torch.Tensor, feedback: list[torch.Tensor]) -> list[float]:
    """Mean cosine of c_l and g_l per state, every operation in the dtype of the model."""
    states = [model.embed(x)]
    for block in model.blocks:
        states.append(block(states[-1]))
    logits = model.head(model.out_ln(states[-1]))
    error = logits.detach().softmax(1) - functional.one_hot(y, small.CLASSES).to(x.dtype)
    references = torch.autograd.grad(functional.cross_entropy(logits, y, reduction="sum"), states)
    credits = [error @ matrix for matrix in (feedback[0], *feedback)]
    return [float(functional.cosine_similarity(c, g).mean()) for c, g in zip(credits, references, strict=True)]


def _fitted() -> tuple[ResMLP, list[torch.Tensor], dict[str, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Model, feedback, weights at the start, and the samples, all in bfloat16."""
    feedback = small._feedback(1.0)
    model, start = small._net()
    small._train(model, lambda net, x, y: small._direct(net, x, y, feedback, detach=True), epochs=EPOCHS)
    with torch.no_grad():
        for part in model.head.parameters():
            part *= CONFIDENCE
    x = small._images()[1][0][:SAMPLES]
    labels = model(x).argmax(1)
    halved = {name: value.to(HALF) for name, value in start.items()}
    return model.to(HALF), [matrix.to(HALF) for matrix in feedback], halved, (x.to(HALF), labels)


def _audited(
    model: ResMLP,
    feedback: list[torch.Tensor],
    start: dict[str, torch.Tensor],
    data: tuple[torch.Tensor, torch.Tensor],
) -> tuple[Outcome, EpochRow]:
    credit = rule_credit("dfa", {f"B.{at}": matrix for at, matrix in enumerate(feedback)})
    audit = cs.audit_model(
        model, blocks=small.NAMES, loader=data, init=start, name="dfa in half", credit=credit, redraws=99, directions=2
    )
    (judged,) = audit.claims
    outcome = next(outcome for outcome in judged.outcomes if outcome.name == "fidelity")
    return outcome, judged.cell.runs[0].epochs[-1]
