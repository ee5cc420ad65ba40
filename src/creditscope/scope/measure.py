"""From a subject to rows: the per-epoch set, the expensive set, and what had to be said about them."""

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from creditscope.blocks import Batch, Params, Snapshot
from creditscope.errors import BadInput, NotMeasured
from creditscope.probes.expensive import expensive_probes, measure_probes
from creditscope.probes.functional.cosine import cosines
from creditscope.probes.functional.gradient import joint_cosine
from creditscope.probes.guards import samples_are_independent
from creditscope.probes.per_epoch import epoch_fields, snapshot_numbers, summarise
from creditscope.probes.probe import float64_copy
from creditscope.probes.seeds import gaussian, probe_generator
from creditscope.records import EpochRow, HeaderRow, ProbeRow, ProbeSpec, RunSpec
from creditscope.records.images import image_fields
from creditscope.records.provenance import OFF, now, provenance
from creditscope.scope.credit import BackwardCredit
from creditscope.scope.guard import current
from creditscope.scope.growth import per_element, sums_before_normalisers
from creditscope.scope.probe_data import PROBE_BATCH
from creditscope.scope.recipe import Recipe, recipe_fields
from creditscope.scope.shuffle import shuffled_null
from creditscope.scope.subject import Subject

# A central difference of relative step ε agrees with the true gradient to ε²; kinks may spoil single samples.
_STEP = 1e-4
_AGREES = 0.98
# Rounding in float32 or bfloat16 leaves more than this of a gradient's direction.
_BACKPROP = 0.99
_SAME_GRADIENT = 0.95
ORDER_MATTERS = (
    "loss.backward() writes another gradient when the samples come in another order: the model holds something of an "
    "earlier batch; pass backward=... that gives it this one, or the credit adapter of its library"
)
UNLIKE_SHAPES = "states differ in shape: growth is taken on the RMS per element"


@dataclass(frozen=True)
class ModelObservation:
    """One observation of a model.

    Args:
        fields: Fields of an epoch row.
        notes: What a reader must know about them.
    """

    fields: dict[str, Any]
    notes: tuple[str, ...]


def header_of(subject: Subject, name: str, redraws: int, directions: int, recipe: Recipe | None, off: str) -> HeaderRow:
    """The header of a watched run.

    Args:
        subject: The model.
        name: What the user calls the method.
        redraws: K of the nulls.
        directions: M of ρ.
        recipe: How the model is trained, as the user describes it.
        off: What is switched off while it is measured.
    """
    if not re.fullmatch(r"[\w.+@ -]{1,80}", name):
        raise BadInput(
            f"wanted a short name of letters, digits and . + @ - for the method, got {name!r}; it names the log"
        )
    device = subject.data.probe.x.device
    dtype = str(next(iter(subject.model.parameters())).dtype).removeprefix("torch.")
    shapes, depth = subject.task.shapes, subject.task.blocks.depth
    spec = RunSpec(
        rule=name,
        origin="watch",
        model=type(subject.model).__name__,
        width=shapes[0][-1] if len(set(shapes)) == 1 and shapes[0] else None,
        depth=depth,
        view="flat" if subject.view == "flat" else "all",
        classes=subject.task.outputs if subject.data.labelled and subject.task.outputs > 1 else None,
        train_last=subject.train_last,
        seed=subject.seed,
        dtype=dtype if dtype in ("float32", "float64", "bfloat16", "float16") else None,  # type: ignore[arg-type]
        injection=subject.rule.injection if subject.rule is not None else None,
        probe=ProbeSpec(n=len(subject.data.probe.x), batch=PROBE_BATCH, redraws=redraws, directions=directions),
        **recipe_fields(recipe, subject.data.spec),
    )
    # Said even where nothing is: a method that happens to be called bp is not exact by its name.
    exact = list(subject.rule.exact(depth)) if subject.rule is not None else [False] * (depth + 1)
    return HeaderRow(
        spec=spec,
        exact=exact,
        blocks=list(subject.names),
        partition="found" if subject.found else "given",
        parameters=sum(p.numel() for p in subject.model.parameters()),
        threads=torch.get_num_threads(),
        provenance=provenance(device.type, torch.cuda.get_device_name() if device.type == "cuda" else None)
        | {OFF: off},
        # What a reader of the log alone must know.
        source={"growth": UNLIKE_SHAPES} if len(set(shapes)) > 1 else None,
        time_created=now(),
    )


def observe_model(subject: Subject, snapshot: Snapshot, independent: bool | None = None) -> ModelObservation:
    """The per-epoch set, with the reasons why parts of it could not be measured.

    Args:
        subject: The model.
        snapshot: The model now.
        independent: Whether its samples are independent, where that was found before; None: found now, at the price
            of several steps.
    """
    notes = []
    if subject.found:
        notes.append(f"blocks found: {', '.join(subject.names)}; name others with blocks=[...]")
    with torch.no_grad():
        # A few numbers a sample: on a GPU every operation on them would cost more than here.
        fields = epoch_fields(summarise(snapshot_numbers(snapshot).cpu()), snapshot.exact)
    _refuse_zero_credit(snapshot)
    hidden = fields["hidden"].median
    for block, size in (sums_before_normalisers(snapshot) if subject.normalised else {}).items():
        fields["growth"][block] = size / hidden[block] if hidden[block] else None
        notes.append(f"block {subject.names[block]} ends in a normaliser: its growth is taken on the sum before it")
    if len(set(subject.task.shapes)) > 1:
        fields["growth"] = per_element(fields["growth"], subject.task.shapes)
        notes.append(UNLIKE_SHAPES)
    if not (samples_are_independent(snapshot) if independent is None else independent):
        for name in ("reference", "gain", "cosine", "cosine_published", "gamma"):
            fields.pop(name, None)
        notes.append("samples are not independent even in eval mode: no gradient is taken per sample")
    return ModelObservation(fields, tuple(notes))


def expensive_row(subject: Subject, snapshot: Snapshot, redraws: int, directions: int, keep_draws: bool) -> ProbeRow:
    """The expensive set; for a credit read from a backward pass the null is ours, by shuffling its feedback.

    Args:
        subject: The model.
        snapshot: The model now.
        redraws: K of the nulls.
        directions: M of ρ.
        keep_draws: Whether null values go into the row.
    """
    row = measure_probes(snapshot, expensive_probes(redraws, directions, keep_draws))
    if snapshot.grads is not None and subject.backward is None and not _order_is_free(subject, snapshot):
        reasons = row.not_measured | {"gradient_cosine": ORDER_MATTERS}
        row = row.model_copy(update={"gradient_cosine": None, "not_measured": reasons})
    if subject.claims_backprop:
        _require_backprop(subject, row)
    if not isinstance(subject.credit, BackwardCredit) or not subject.credit.feedback:
        return row
    try:
        null = shuffled_null(snapshot, subject.credit, keep_draws)
    except NotMeasured as why:
        return row.model_copy(update={"not_measured": {**row.not_measured, "null": str(why)}})
    reasons = {name: why for name, why in row.not_measured.items() if name != "null"}
    return row.model_copy(update={"null": null, "not_measured": reasons})


def epoch_row(subject: Subject, observed: ModelObservation, init: Params | None, epoch: int, **given: Any) -> EpochRow:
    """The epoch row of one observation.

    Args:
        subject: The model.
        observed: The per-epoch set.
        init: Parameters at initialisation; None: movement is not measured.
        epoch: Epochs done.
        given: Further fields.
    """
    moved = subject.movement(init) if init is not None else None
    return EpochRow(epoch=epoch, movement=moved, **observed.fields, **given)


def accuracy_fields(subject: Subject, correct: Tensor | None) -> dict[str, float]:
    """What an epoch row says of accuracy, also balanced: the mean over classes of the accuracy on each.

    Args:
        subject: The model.
        correct: Per-sample correctness; None where the targets are no labels.
    """
    if correct is None:
        return {}
    right, labels = correct.cpu().double(), subject.data.test.y.cpu()
    if int(labels.min()) < 0:  # a mark of no class: it cannot be balanced
        return {"test_accuracy": float(right.mean())}
    sizes = torch.bincount(labels)
    per_class = torch.bincount(labels, weights=right)[sizes > 0] / sizes[sizes > 0]
    return {"test_accuracy": float(right.mean()), "balanced_accuracy": float(per_class.mean())}


def correct_fields(subject: Subject, correct: Tensor | None) -> dict[str, Any]:
    """What an end row says of single samples: which were right, and their classes where these differ in size.

    Args:
        subject: The model.
        correct: Per-sample correctness; None where the targets are no labels.
    """
    if correct is None:
        return {}
    return image_fields(correct.cpu().numpy(), subject.data.test.y.cpu().numpy(), subject.data.spec.unequal)


def require_true_reference(snapshot: Snapshot, observed: ModelObservation) -> None:
    """Refuse a model whose reference is not the slope of its loss: something in its forward hides the gradient.

    The predicted change ⟨g, v⟩ along random directions is compared with central differences in float64.

    Args:
        snapshot: The model now.
        observed: What was seen of it; without references, or in a diverged net, there is nothing to compare.
    """
    if "reference" not in observed.fields or not all(bool(h.isfinite().all()) for h in snapshot.observation.states):
        return
    double = float64_copy(snapshot)
    batch = double.batches[0]
    n = len(batch.x)
    full = {**double.task.buffers, **double.params}

    def loss(level: int, tap: Tensor) -> Tensor:
        return double.task.loss(double.task.blocks.forward(full, batch.x, taps={level: tap}).logits, batch.y)

    for level, (h, g) in enumerate(zip(double.observation.states, double.observation.references, strict=True)):
        noise = gaussian(tuple(h[:n].shape), probe_generator(snapshot.seed, snapshot.epoch, f"slope/{level}", h.device))
        # Entries that a ReLU left at exactly 0 may meet another one there, and a kink has no slope.
        noise = noise * (h[:n] != 0)
        size = torch.linalg.vector_norm(h[:n].flatten(1), dim=1).median().clamp(min=1e-12)
        length = torch.linalg.vector_norm(noise.flatten(1), dim=1).clamp(min=1e-12)
        v = noise * (_STEP * size / length).reshape(-1, *[1] * (h.ndim - 1))
        with torch.no_grad():
            ahead, behind = loss(level, v), loss(level, -v)
        seen, predicted = (ahead - behind) / 2, (g[:n] * v).flatten(1).sum(1)
        # A difference of two losses that agree to twelve digits is rounding.
        rounding = 1e-12 * float(ahead.abs().max())
        if max(float(seen.abs().max()), float(predicted.abs().max())) <= rounding:
            continue
        agreement = float(cosines(seen, predicted)[0])
        if not agreement >= _AGREES:
            raise BadInput(
                f"wanted the true gradient as reference, but at state {level} autograd disagrees with the slope of the "
                f"loss (cosine {agreement:.3f}): no_grad, .data or a rounding step hides it; "
                "audit a differentiable copy"
            )


def _order_is_free(subject: Subject, snapshot: Snapshot) -> bool:
    """Whether the backward pass writes the same for the same samples in reverse, as the gradient of a mean does."""
    assert snapshot.train is not None
    turned = Batch(*(part.flip(0) for part in snapshot.train))
    parts = []
    for batch in (snapshot.train, turned):
        if (guard := current()) is not None:
            guard.begin_again()
        parts.append(subject.own_gradients(batch) or {})
    one, two = parts
    if not any(bool(grad.any()) for grad in one.values()):
        return True
    return float(joint_cosine(list(one.values()), [two[name] for name in one])) > _SAME_GRADIENT


def _require_backprop(subject: Subject, row: ProbeRow) -> None:
    """Refuse the claim of backprop where the model's own backward writes another gradient."""
    for block, value in zip(subject.names, row.gradient_cosine or (), strict=False):
        if value is not None and value < _BACKPROP:
            raise BadInput(
                f"credit says backprop, but what the backward pass wrote in {block} has cosine {value:.3f} with the "
                "true gradient; pass the credit that is delivered, e.g. backward_credit(model)"
            )


def _refuse_zero_credit(snapshot: Snapshot) -> None:
    delivered = snapshot.observation.delivered
    if delivered is None or any(bool(c.any()) for c in delivered):
        return
    if any(bool(g.any()) for g in snapshot.observation.references):
        raise BadInput(
            "wanted a credit signal, got zeros at every state for every sample; check that the adapter reads the run's "
            "own backward, or leave credit out"
        )
