"""Audit a rule that is known by its training step alone: what one step writes, against what backprop would write."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.errors import BadInput
from creditscope.probes.functional.gradient import joint_cosine
from creditscope.probes.nulls import null_test
from creditscope.probes.seeds import probe_generator
from creditscope.protocol.audit import Audit, Logs, audit
from creditscope.protocol.presets import Protocol
from creditscope.records import EndRow, EpochRow, HeaderRow, ProbeRow, ProbeSpec, RunLog, RunSpec
from creditscope.records.images import image_fields
from creditscope.records.measured import Fidelity
from creditscope.records.provenance import OFF, now, provenance
from creditscope.records.rule_card import RuleCard
from creditscope.scope.probe_data import PROBE_BATCH, Loader, ProbeData, gather
from creditscope.scope.recipe import Recipe, recipe_fields
from creditscope.scope.restore import device_of, plain_model, restoring
from creditscope.scope.update_net import (
    Forward,
    Groups,
    Loss,
    UpdateNet,
    dtype_of,
    groups_of,
    looked_through,
    movement_of,
)
from creditscope.scope.user_step import Update, UserStep

TRAINED = 1
_BACKPROP = 0.9999
_SURROGATE = "the reference is the gradient of the model's own backward pass, surrogate derivatives included"
_NO_STREAM = "only what a step writes is looked at, no residual stream"
_OF_A_STREAM = ("clamp", "null", "rho", "nudge", "drift", "probe_accuracy", "participation", "idle")


def audit_updates(
    model: nn.Module,
    update: Update,
    loader: Loader,
    *,
    blocks: Groups = None,
    forward: Forward | None = None,
    loss_fn: Loss | None = None,
    reference: Literal["gradient", "surrogate"] = "gradient",
    state: Sequence[Any] = (),
    baseline: nn.Module | float | Logs | None = None,
    init: Mapping[str, Tensor] | None = None,
    recipe: Recipe | None = None,
    name: str = "model",
    seed: int = 0,
    protocol: str | Protocol = "standard",
    redraws: int = 199,
) -> Audit:
    """Measure what a method's own training step writes, and judge it as an update rule. Nothing is changed.

    For each group of parameters: the cosine of the update with backprop's gradient of the mean loss on the same batch,
    against the same step on labels shuffled over the samples; the descent of the step; movement, scale, accuracy. The
    update is the gradient that an optimiser was given where it took a step, else minus the change of the weights.

    Args:
        model: Any module, trained by ``update``.
        update: ``update(model, batch)``: one step of training, which changes the parameters in place.
        loader: Batches the model was not trained on, as in ``audit_model``; handed on as they come.
        blocks: Modules by name; or groups of parameters, such as ``{"net": [""]}`` for the whole net; None: every
            child that holds parameters, lists taken apart, without the output layer.
        forward: ``forward(model, x)`` gives outputs (samples, classes); None: ``model(x)``.
        loss_fn: Loss of (outputs, targets), a mean or per sample; None: cross-entropy.
        reference: ``gradient``: the true one of the forward pass; ``surrogate``: that of the model's own backward
            pass, for spiking nets; the audit says so.
        state: Optimisers, and other objects with a ``state_dict``, that ``update`` changes and does not close over.
        baseline: As in ``audit_model``.
        init: ``state_dict`` at initialisation, for movement.
        recipe: As in ``audit_model``.
        name: What the method is called in the audit.
        seed: Of the run, and of what is drawn here.
        protocol: ``standard``, ``published``, or a ``Protocol``.
        redraws: K, how often labels are shuffled; each takes a step.
    """
    log = update_log(
        model,
        update,
        loader,
        blocks=blocks,
        forward=forward,
        loss_fn=loss_fn,
        reference=reference,
        state=state,
        init=init,
        recipe=recipe,
        name=name,
        seed=seed,
        redraws=redraws,
    )
    if not isinstance(baseline, nn.Module):
        return audit(log, protocol, baseline)
    given = {"blocks": blocks, "forward": forward, "loss_fn": loss_fn, "recipe": recipe, "name": name, "seed": seed}
    twin = update_log(baseline, None, loader, **given)  # type: ignore[arg-type]
    spec = log.spec.model_copy(update={"train_last": 0, "injection": None})
    header = twin.header.model_copy(update={"spec": spec})
    return audit(log, protocol, [replace(twin, name=f"{log.name} (frozen twin)", header=header)])


def update_log(
    model: nn.Module,
    update: Update | None,
    loader: Loader,
    *,
    blocks: Groups = None,
    forward: Forward | None = None,
    loss_fn: Loss | None = None,
    reference: str = "gradient",
    state: Sequence[Any] = (),
    init: Mapping[str, Tensor] | None = None,
    recipe: Recipe | None = None,
    name: str = "model",
    seed: int = 0,
    redraws: int = 199,
) -> RunLog:
    """The log of one look at a model and its step; without a step, of the model alone.

    Args:
        model: As in ``audit_updates``.
        update: Likewise; None: a twin, whose accuracy alone counts.
        loader: Likewise.
        blocks: Likewise.
        forward: Likewise.
        loss_fn: Likewise.
        reference: Likewise.
        state: Likewise.
        init: Likewise.
        recipe: Likewise.
        name: Likewise.
        seed: Likewise.
        redraws: Likewise.
    """
    if reference not in ("gradient", "surrogate"):
        raise BadInput(f"wanted reference as 'gradient' or 'surrogate', got {reference!r}")
    inner = plain_model(model)
    surrogate = reference == "surrogate"
    run = forward or (lambda module, x: module(**x) if isinstance(x, Mapping) else module(x))
    with restoring(inner) as off:
        data = gather(loader, device_of(inner), dtype_of(inner))
        net = UpdateNet(inner, data, {}, run, loss_fn or functional.cross_entropy, surrogate)
        called, growth, out = looked_through(net)
        if loss_fn is None and not (data.labelled and out.ndim == 2):
            raise BadInput(
                f"wanted class labels and outputs of shape (samples, classes) for cross-entropy, got outputs "
                f"{tuple(out.shape)}; pass loss_fn=... or forward=..."
            )
        net = replace(net, groups=groups_of(inner, blocks, called))
        header = _header(net, name, seed, redraws, recipe, off, found=blocks is None)
        correct = (out.argmax(-1) == data.test.y).cpu() if data.labelled and out.ndim == 2 else None
    epoch = header.spec.epochs or TRAINED
    row = EpochRow(
        epoch=epoch,
        movement=None if init is None else movement_of(net, init),
        growth=[growth.get(group) for group in net.groups],
        **_accuracy(data, correct),
    )
    probes: tuple[ProbeRow, ...] = ()
    notes = [_SURROGATE] if surrogate else []
    if update is not None:
        probe, said = _probe(net, UserStep.of(inner, update, state), epoch, seed, redraws)
        probes, notes = (probe,), [*notes, *said]
        if name == "bp" and not all(value is not None and value >= _BACKPROP for value in probe.gradient_cosine or ()):
            raise BadInput("a method called bp is taken for backprop, and this step is not; choose another name")
    images = {} if correct is None else image_fields(correct.numpy(), data.test.y.cpu().numpy(), data.spec.unequal)
    end = EndRow(status="finished", epoch=epoch, test_accuracy=row.test_accuracy, **images)
    return RunLog(name, header, (row,), probes, end, tuple(notes))


def _probe(net: UpdateNet, step: UserStep, epoch: int, seed: int, redraws: int) -> tuple[ProbeRow, list[str]]:
    """The update of each group against backprop, and against the same step on shuffled labels."""
    began = time.monotonic()
    y = net.data.probe.y[:PROBE_BATCH]
    reasons = dict.fromkeys(_OF_A_STREAM, _NO_STREAM)
    written = step.require_repeatable(net.batch(y), seed)
    own = dtype_of(net.model)
    low = net.gradients(y, own, written.training, seed)
    notes, fidelity = [], None
    try:
        true = net.gradients(y, torch.float64, written.training, seed)
    except (RuntimeError, TypeError) as error:
        true = low
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        reasons["fidelity"] = f"the model does not run in float64: {why}"
        notes.append(f"backprop's gradient is taken in {str(own).removeprefix('torch.')}: {why}")
    else:
        phi = [_cosine(low, true, names) for names in net.groups.values()]
        fidelity = Fidelity(median=phi, dtype=str(own).removeprefix("torch."))
    held = {group: [name for name in names if name in true] for group, names in net.groups.items()}
    values = [_cosine(written.directions, true, names) for names in held.values()]
    descent = [_cosine(written.change, true, names) for names in held.values()]
    still = [group for group, value in zip(held, values, strict=True) if value is None]
    if still:
        reasons["gradient_cosine"] = f"no update or no gradient of {', '.join(still)}"
    raw = sorted({name for names in held.values() for name in names} - set(written.grads))
    if written.grads and raw:
        notes.append(f"no optimiser steps {raw[0]}{' and others' if len(raw) > 1 else ''}: the change itself is taken")
    null = None
    if redraws < 1:
        reasons["gradient_null"] = "shuffled labels: no redraws were asked for"
    else:
        rows = []
        for at in range(redraws):
            order = torch.randperm(len(y), generator=probe_generator(seed, at, "shuffled labels")).to(y.device)
            # What the step draws is drawn anew too.
            other = step.take(net.batch(y[order]), seed + 1 + at)
            rows.append([_cosine(other.directions, true, names) or 0.0 for names in held.values()])
        drawn = torch.tensor(rows, dtype=torch.float64)
        fixed = [bool((column.max() - column.min()) <= 1e-12) for column in drawn.unbind(1)]
        observed = torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)
        sizes = [sum(true[name].numel() for name in names) for names in held.values()]
        null = null_test(observed, drawn, fixed, keep_draws=True).model_copy(
            update={
                "kind": "shuffled labels",
                # Of a random direction in d dimensions: exact, nothing needs to be drawn.
                "random_vector_mean": [0.0] * len(sizes),
                "random_vector_sd": [1 / math.sqrt(size) for size in sizes],
            }
        )
        if all(fixed):
            reasons["gradient_null"], null = "the step is the same when labels are shuffled: it does not use them", None
    row = ProbeRow(
        epoch=epoch,
        fidelity=fidelity,
        gradient_cosine=values,
        gradient_null=null,
        step_descent=descent,
        not_measured=reasons,
        time_probe=time.monotonic() - began,
    )
    return row, notes


def _cosine(one: Mapping[str, Tensor], other: Mapping[str, Tensor], names: Sequence[str]) -> float | None:
    """Of two sets of tensors, each taken as one vector; None where one of them is zero."""
    known = [name for name in names if name in one and name in other]
    if not known:
        return None
    value = float(joint_cosine([one[name] for name in known], [other[name] for name in known]))
    return None if math.isnan(value) else value


def _accuracy(data: ProbeData, correct: Tensor | None) -> dict[str, Any]:
    if correct is None:
        return {}
    right, labels = correct.double(), data.test.y.cpu()
    sizes = torch.bincount(labels)
    per_class = torch.bincount(labels, weights=right)[sizes > 0] / sizes[sizes > 0]
    return {"test_accuracy": float(right.mean()), "balanced_accuracy": float(per_class.mean())}


def _header(
    net: UpdateNet, name: str, seed: int, redraws: int, recipe: Recipe | None, off: str, found: bool
) -> HeaderRow:
    device = net.data.probe.x.device
    dtype = str(dtype_of(net.model)).removeprefix("torch.")
    spec = RunSpec(
        rule=name,
        origin="watch",
        model=type(net.model).__name__,
        depth=len(net.groups),
        classes=len(net.data.spec.class_counts or ()) if len(net.data.spec.class_counts or ()) > 1 else None,
        train_last="all",
        seed=seed,
        dtype=dtype if dtype in ("float32", "float64", "bfloat16", "float16") else None,  # type: ignore[arg-type]
        injection="as its own step says",
        probe=ProbeSpec(n=len(net.data.probe.x), batch=PROBE_BATCH, redraws=redraws, directions=0),
        **recipe_fields(recipe, net.data.spec),
    )
    return HeaderRow(
        spec=spec,
        rule=RuleCard(name=name, family="update", formula="its own training step"),
        exact=[False] * (len(net.groups) + 1),
        blocks=list(net.groups),
        partition="found" if found else "given",
        parameters=sum(p.numel() for p in net.model.parameters()),
        threads=torch.get_num_threads(),
        provenance=provenance(device.type, torch.cuda.get_device_name() if device.type == "cuda" else None)
        | {OFF: off},
        source={"reference": _SURROGATE} if net.surrogate else None,
        time_created=now(),
    )
