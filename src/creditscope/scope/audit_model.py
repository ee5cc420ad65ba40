"""Audit any module: measure it as it stands, judge it as a log would be judged, leave it as it was."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.blocks import Blocks
from creditscope.blocks.partition import Where
from creditscope.errors import BadInput
from creditscope.protocol.audit import Audit, Logs, audit
from creditscope.protocol.presets import Protocol
from creditscope.records import EndRow, RunLog
from creditscope.scope.bounds import Bounds, Probes, Progress
from creditscope.scope.credit import Backward, CreditAdapter
from creditscope.scope.inputs import Forward
from creditscope.scope.measure import (
    accuracy_fields,
    correct_fields,
    epoch_row,
    expensive_row,
    header_of,
    observe_model,
    require_true_reference,
)
from creditscope.scope.probe_data import Loader
from creditscope.scope.recipe import Recipe
from creditscope.scope.restore import cached_tensors, plain_model, restoring
from creditscope.scope.subject import LossOf, Subject, initial

# A model that is passed is a trained model; how long it trained is not known unless the recipe says so.
TRAINED = 1
_UNBOUNDED = Bounds()


def audit_model(
    model: nn.Module,
    *,
    loader: Loader,
    blocks: Where = None,
    loss_fn: LossOf | None = None,
    credit: CreditAdapter | None = None,
    backward: Backward | None = None,
    baseline: nn.Module | float | Logs | None = None,
    init: Mapping[str, Tensor] | None = None,
    recipe: Recipe | None = None,
    name: str = "model",
    seed: int = 0,
    protocol: str | Protocol = "standard",
    redraws: int = 999,
    directions: int = 32,
    probes: Probes = "standard",
    memory: float | str | None = None,
    budget: float | str | None = None,
    progress: Progress | None = None,
    forward: Forward | None = None,
    batch_axis: int = 0,
) -> Audit:
    """Measure a trained model at every block and judge it. Nothing of the model is changed.

    It is measured in eval mode and in the dtype of its parameters, on at most 1,024 samples of the loader (pass fewer
    for a large model); accuracy is taken on up to 10,000, fewer where samples are large. The reference is the true
    gradient of the forward pass, whatever the model's own backward does.

    Args:
        model: Any module whose outputs have samples first: (samples, classes), (samples, tokens, classes), numbers.
        loader: Batches (x, y) the model was not trained on, or one pair of tensors.
        blocks: Names of the blocks, the modules, a ModuleList, or a predicate on (name, module); None finds them.
        loss_fn: Loss of (outputs, targets), a mean or per sample; None: cross-entropy.
        credit: What the method delivers at each state; None: what needs no credit is measured.
        backward: Your own forward and backward pass on (model, x, y), which fills ``.grad``; None: loss.backward().
        baseline: A trained twin with frozen blocks (see ``frozen_copy``), its accuracy, or its logs.
        init: ``state_dict`` at initialisation, for movement and for nulls.
        recipe: How the model and its twin were trained, e.g. ``{"epochs": 20, "batch": 64, "optimiser": "SGD lr=0.1",
            "schedule": "constant"}``: without it no baseline is known to match.
        name: What the method is called in the audit.
        seed: The run's seed; probe directions and redraws follow from it. Judge several together with
            ``cs.audit([*one.logs, *two.logs])``.
        protocol: ``standard``, ``published``, or a ``Protocol``.
        redraws: K, redraws of the fresh-feedback null.
        directions: M, random directions of ρ.
        probes: ``quick``, ``standard``, ``full`` (with ρ, and on all samples), or names of probes.
        memory: What measuring may take beside the model: bytes, or "8 GiB"; None: what is free. Work is split to it,
            and samples are left out where it cannot be split, which is said.
        budget: Seconds, or "25x": times one forward and backward pass over the same samples; None: no bound. Fewer
            samples are measured where it would take longer, which is said.
        progress: Called with what is measured and the share done; None: a bar on a terminal.
        forward: Your own call, ``lambda model, batch: outputs``, on a batch as the loader yields it: any structure of
            tensors with samples first; targets are its entry ``labels`` or its last tensor. None: ``model(x)``.
        batch_axis: Which axis of the stream between blocks is samples; 1 for (tokens, samples, width).
    """
    common: dict[str, Any] = {"loss_fn": loss_fn, "recipe": recipe, "name": name, "seed": seed, "forward": forward}
    common |= {"bounds": Bounds(memory, budget, probes, progress), "batch_axis": batch_axis}
    own: dict[str, Any] = {
        "credit": credit,
        "backward": backward,
        "init": init,
        "redraws": redraws,
        "directions": directions,
    }
    log = model_log(model, loader, blocks, **common, **own)
    if log.spec.is_baseline:
        raise BadInput("every block of the model is frozen: wanted a trained model; pass this one as baseline=...")
    if not isinstance(baseline, nn.Module):
        return audit(log, protocol, baseline)
    _require_twin(plain_model(model), plain_model(baseline), log.header.blocks or [], init)
    # The twin is judged by its accuracy alone: its own credit is never asked for.
    twin = model_log(baseline, loader, log.header.blocks, **common, redraws=0, directions=0, expensive=False)
    frozen = twin.spec.model_copy(update={"train_last": 0, "model": log.spec.model, "injection": None})
    twin = replace(twin, name=f"{log.name} (frozen twin)", header=twin.header.model_copy(update={"spec": frozen}))
    return audit(log, protocol, [twin])


def model_log(
    model: nn.Module,
    loader: Loader,
    blocks: Where,
    loss_fn: LossOf | None,
    credit: CreditAdapter | None = None,
    backward: Backward | None = None,
    init: Mapping[str, Tensor] | None = None,
    recipe: Recipe | None = None,
    name: str = "model",
    seed: int = 0,
    redraws: int = 999,
    directions: int = 32,
    expensive: bool = True,
    bounds: Bounds = _UNBOUNDED,
    forward: Forward | None = None,
    batch_axis: int = 0,
) -> RunLog:
    """The log of one observation of a model: one epoch row, one probe row, one end row.

    Args:
        model: As in ``audit_model``.
        loader: Likewise.
        blocks: Likewise.
        loss_fn: Likewise.
        credit: Likewise.
        backward: Likewise.
        init: Likewise.
        recipe: Likewise.
        name: Likewise.
        seed: Likewise.
        redraws: Likewise.
        directions: Likewise.
        expensive: Whether the expensive set is measured.
        bounds: How much is measured.
        forward: As in ``audit_model``.
        batch_axis: Likewise.
    """
    inner = plain_model(model)
    with restoring(inner) as off:
        subject = Subject.of(inner, blocks, loader, loss_fn, credit, backward, seed, bounds, forward, batch_axis)
        start = initial(subject, init)
        planned = subject.planned(bounds, redraws, directions, keep_draws=True)
        subject = subject.on_first(planned.n)
        bounds.say(f"measuring (about {planned.seconds:.3g} s)", 0.0)
        header = header_of(subject, name, redraws, directions, recipe, off)
        epoch = header.spec.epochs or TRAINED
        snapshot = subject.snapshot(start, epoch, expensive=expensive)
        observed = observe_model(subject, snapshot)
        if expensive:
            require_true_reference(snapshot, observed)
        correct = subject.correct(observed.answers)
        row = epoch_row(subject, observed, start, epoch, **accuracy_fields(subject, correct))
        bounds.say("the expensive set", 0.5)
        probes = (expensive_row(subject, snapshot, planned, True, observed.independent),) if expensive else ()
        bounds.say("measured", 1.0)
    end = EndRow(status="finished", epoch=epoch, test_accuracy=row.test_accuracy, **correct_fields(subject, correct))
    bypassed = {why for row in probes for why in row.not_measured.values() if "by-passes" in why}
    notes = [
        *observed.notes,
        *planned.notes,
        *bypassed,
        *([f"{off} was on; measured with it off, in the parameters' dtype"] if "autocast" in off else []),
    ]
    return RunLog(name, header, (row,), probes, end, tuple(notes))


def frozen_copy(model: nn.Module, blocks: Where = None) -> nn.Module:
    """The frozen twin: a copy with its blocks frozen as they are now. Make it before training, train it the same way.

    Args:
        model: The model at initialisation.
        blocks: Where its blocks are, as in ``audit_model``.
    """
    inner = plain_model(model)
    # A tensor that is kept from the last forward pass has a history, which cannot be copied.
    cached = [t for t in cached_tensors(inner) if not t.is_leaf]
    twin = copy.deepcopy(inner, {id(t): t.detach().clone() for t in cached})
    partition = Blocks.of(twin, list(Blocks.of(inner, blocks).names))
    for module in partition.modules:
        module.requires_grad_(False)
    return twin


def _require_twin(model: nn.Module, baseline: nn.Module, blocks: list[str], init: Mapping[str, Tensor] | None) -> None:
    """Refuse a baseline that does not match the model: another architecture, or blocks that were trained."""
    ours, theirs = ({name: tuple(p.shape) for name, p in m.named_parameters()} for m in (model, baseline))
    if ours != theirs:
        odd = sorted(set(ours.items()) ^ set(theirs.items()))[0][0]
        raise BadInput(
            f"wanted a baseline of the same architecture, it differs in {odd}; "
            "train frozen_copy(model) of the model at initialisation"
        )
    start = {name.removeprefix("_orig_mod."): value for name, value in (init or {}).items()}
    for name, p in baseline.named_parameters():
        inside = any(name.startswith(f"{block}.") for block in blocks)
        moved = name in start and not torch.equal(start[name].to(p), p.detach())
        if inside and moved:
            raise BadInput(
                f"wanted a baseline whose blocks stayed at initialisation, but {name} moved; "
                "train frozen_copy(model) of the model at initialisation"
            )
        if inside and name not in start and p.requires_grad:
            raise BadInput(
                f"wanted a baseline with frozen blocks, but {name} requires a gradient and may have trained; "
                "pass init=..., or a trained frozen_copy(model)"
            )
