"""From a subject to rows: the per-epoch set, the expensive set, and what had to be said about them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from creditscope.blocks import Batch, Params, Snapshot, are_finite, observe
from creditscope.errors import BadInput, NotMeasured
from creditscope.probes.epoch_cosines import observed_credit, samples_of
from creditscope.probes.expensive import expensive_probes, measure_probes
from creditscope.probes.functional.cosine import cosines
from creditscope.probes.functional.gradient import joint_cosine
from creditscope.probes.guards import samples_are_independent
from creditscope.probes.per_epoch import EpochNumbers, epoch_fields, joined, sample_numbers, summarise
from creditscope.probes.probe import float64_copy
from creditscope.probes.seeds import gaussian, probe_generator
from creditscope.records import EpochRow, HeaderRow, ProbeRow, ProbeSpec, RunSpec
from creditscope.records.images import image_fields, sequence_fields
from creditscope.records.provenance import OFF, now, provenance
from creditscope.scope.bounds import SOME, Plan, first
from creditscope.scope.credit import BackwardCredit
from creditscope.scope.growth import per_element, sums_before_normalisers
from creditscope.scope.guard import current
from creditscope.scope.losses import IGNORED
from creditscope.scope.recipe import Recipe, recipe_fields
from creditscope.scope.shuffle import shuffled_null
from creditscope.scope.subject import Subject

# A central difference of relative step ε agrees with the true gradient to ε²; kinks may spoil single samples.
_STEP = 1e-4
_AGREES = 0.98
_SLOPE_SAMPLES = 16
# States that are moved at once.
_TOGETHER = 4
# Rounding in float32 or bfloat16 leaves more than this of a gradient's direction.
_BACKPROP = 0.99
_SAME_GRADIENT = 0.95
ORDER_MATTERS = (
    "loss.backward() writes another gradient when the samples come in another order: the model holds something of an "
    "earlier batch; pass backward=... that gives it this one, or the credit adapter of its library"
)
NOT_ASKED = "not asked for: pass probes='full', or its name among probes=[...]"
UNLIKE_SHAPES = "states differ in shape: growth is taken on the RMS per element"


@dataclass(frozen=True)
class ModelObservation:
    """One observation of a model.

    Args:
        fields: Fields of an epoch row.
        notes: What a reader must know about them.
        answers: The largest output of every probe sample (of text, of every token).
        finite: Whether every state is.
        independent: Whether the samples are, of each other.
    """

    fields: dict[str, Any]
    notes: tuple[str, ...]
    answers: Tensor
    finite: bool
    independent: bool


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
        classes=subject.task.outputs if subject.data.classified and subject.task.outputs > 1 else None,
        train_last=subject.train_last,
        seed=subject.seed,
        dtype=dtype if dtype in ("float32", "float64", "bfloat16", "float16") else None,  # type: ignore[arg-type]
        injection=subject.rule.injection if subject.rule is not None else None,
        probe=ProbeSpec(n=len(subject.data.probe.x), batch=subject.batch, redraws=redraws, directions=directions),
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
    notes = [*subject.notes]
    if subject.found:
        notes.append(f"blocks found: {', '.join(subject.names)}; name others with blocks=[...]")
    numbers, answers, loss, finite = _by_batch(snapshot)
    fields = epoch_fields(summarise(numbers), snapshot.exact) | {"test_loss": float(loss.double().mean())}
    hidden = fields["hidden"].median
    for block, size in (sums_before_normalisers(snapshot) if subject.normalised else {}).items():
        fields["growth"][block] = size / hidden[block] if hidden[block] else None
        notes.append(f"block {subject.names[block]} ends in a normaliser: its growth is taken on the sum before it")
    if len(set(subject.task.shapes)) > 1:
        fields["growth"] = per_element(fields["growth"], subject.task.shapes)
        notes.append(UNLIKE_SHAPES)
    if independent is None:
        independent = samples_are_independent(first(snapshot, SOME))
    if not independent:
        for name in ("reference", "gain", "cosine", "cosine_published", "gamma"):
            fields.pop(name, None)
        notes.append("samples are not independent even in eval mode: no gradient is taken per sample")
    return ModelObservation(fields, tuple(notes), answers, finite, independent)


def expensive_row(
    subject: Subject, snapshot: Snapshot, plan: Plan, keep_draws: bool, independent: bool | None = None
) -> ProbeRow:
    """The expensive set; for a credit read from a backward pass the null is ours, by shuffling its feedback.

    Args:
        subject: The model.
        snapshot: The model now.
        plan: Which probes, on how many samples.
        keep_draws: Whether null values go into the row.
        independent: Whether its samples are independent, where that was found before.
    """
    snapshot = first(snapshot, plan.few)
    tails = tuple(probe for probe in plan.probes if "tail" in probe.needs)
    row = measure_probes(snapshot, [probe for probe in plan.probes if probe not in tails], independent)
    if tails:
        on_tails = measure_probes(first(snapshot, plan.tails), tails, independent)
        measured = {name: getattr(on_tails, name) for probe in tails for name in probe.fields}
        reasons = row.not_measured | on_tails.not_measured
        spent = (row.time_probe or 0.0) + (on_tails.time_probe or 0.0)
        row = row.model_copy(update={**measured, "not_measured": reasons, "time_probe": spent})
    asked = {name for probe in plan.probes for name in probe.fields}
    left = [name for probe in expensive_probes() for name in probe.fields if name not in asked]
    row = row.model_copy(update={"not_measured": dict.fromkeys(left, NOT_ASKED) | row.not_measured})
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
    if labels.ndim > 1:  # the share of the tokens that have a target
        return {"test_accuracy": float(right[labels != IGNORED].mean())}
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
    if correct is None or (correct.ndim > 1 and subject.data.spec.tokens is None):
        return {}
    if correct.ndim > 1:
        return sequence_fields(correct.sum(1).cpu().numpy())
    return image_fields(correct.cpu().numpy(), subject.data.test.y.cpu().numpy(), subject.data.spec.unequal)


def require_true_reference(snapshot: Snapshot, observed: ModelObservation) -> None:
    """Refuse a model whose reference is not the slope of its loss: something in its forward hides the gradient.

    The predicted change ⟨g, v⟩ along random directions is compared with central differences in float64.

    Args:
        snapshot: The model now.
        observed: What was seen of it; without references, or in a diverged net, there is nothing to compare.
    """
    if "reference" not in observed.fields or not observed.finite:
        return
    _refuse_step_functions(snapshot)
    snapshot = first(snapshot, _SLOPE_SAMPLES)
    double = float64_copy(snapshot)
    x, y = double.probe
    full = {**double.task.buffers, **double.params}
    moves, predicted = {}, {}
    largest_output = float(double.observation.logits.abs().max())
    for level, (h, g) in enumerate(zip(double.observation.states, double.observation.references, strict=True)):
        noise = gaussian(tuple(h.shape), probe_generator(snapshot.seed, snapshot.epoch, f"slope/{level}", h.device))
        # Entries that a ReLU left at exactly 0 may meet another one there, and a kink has no slope.
        noise = noise * (h != 0)
        size = torch.linalg.vector_norm(h.flatten(1), dim=1).median().clamp(min=1e-12)
        length = torch.linalg.vector_norm(noise.flatten(1), dim=1).clamp(min=1e-12)
        moves[level] = noise * (_STEP * size / length).reshape(-1, *[1] * (h.ndim - 1))
        predicted[level] = (g * moves[level]).flatten(1).sum(1)

    def agreement(levels: Sequence[int]) -> float:
        """Of the predicted with the seen change, when these states are moved at once, each by as much as matters."""
        sizes = {at: float(predicted[at].abs().max()) for at in levels}
        largest = max(sizes.values()) or 1.0
        scale = {at: largest / max(size, 1e-3 * largest) for at, size in sizes.items()}
        share = {at: s / max(scale.values()) for at, s in scale.items()}
        with torch.no_grad():
            ahead, behind = (
                double.task.loss(
                    double.task.blocks.forward(
                        full, x, taps={at: sign * share[at] * moves[at] for at in levels}
                    ).logits,
                    y,
                )
                for sign in (1, -1)
            )
        seen, wanted = (ahead - behind) / 2, torch.stack([share[at] * predicted[at] for at in levels]).sum(0)
        # A difference of two losses that agree to twelve digits is rounding, and so is one that is tiny beside outputs.
        rounding = max(1e-12 * float(ahead.abs().max()), 1e-14 * largest_output)
        if max(float(seen.abs().max()), float(wanted.abs().max())) <= rounding:
            return 1.0
        return float(cosines(seen, wanted)[0])

    for start in range(0, len(moves), _TOGETHER):
        together = range(start, min(start + _TOGETHER, len(moves)))
        # One wrong state among several turns the sum less than it turns its own.
        if agreement(together) >= 1 - (1 - _AGREES) / _TOGETHER**2:
            continue
        level, worst = min(((at, agreement([at])) for at in together), key=lambda pair: pair[1])
        if not worst >= _AGREES:
            raise BadInput(
                f"wanted the true gradient as reference, but at state {level} autograd disagrees with the slope of the "
                f"loss (cosine {worst:.3f}): no_grad, .data or a rounding step hides it; "
                "audit a differentiable copy"
            )


def _refuse_step_functions(snapshot: Snapshot) -> None:
    """A true gradient of exactly zero where the model's own backward writes one: a step function with a surrogate."""
    if snapshot.grads is None or snapshot.train is None:
        return
    same = first(snapshot, len(snapshot.train.y)).observation
    zero = [level for level, g in enumerate(same.references) if not bool(g.any())]
    if not zero:
        return
    block_of = {name: snapshot.task.blocks.block_of(name) for name in snapshot.grads}
    before = [g for name, g in snapshot.grads.items() if (at := block_of[name]) is not None and at < zero[-1]]
    if any(bool(g.any()) for g in before):
        raise BadInput(
            f"the true gradient at state {zero[-1]} is zero for every sample, and the backward pass writes another: "
            "spikes or a rounding step have no slope, and the code puts a surrogate in its place; audit its updates "
            "with cs.audit_updates(..., reference='surrogate')"
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


def _by_batch(snapshot: Snapshot) -> tuple[EpochNumbers, Tensor, Tensor, bool]:
    """A few numbers a sample, answers, losses and whether all is finite; no batch's states outlive it."""
    parts, answers, losses = [], [], []
    finite, told, asked = True, snapshot.rule is None, False
    for batch, few in zip(snapshot.batches, samples_of(snapshot.batches), strict=True):
        with torch.no_grad():
            seen = observe(snapshot.task, snapshot.params, snapshot.rule, snapshot.state, batch)
            own = [g[:few] for g in seen.references]
            run = (snapshot.task, snapshot.params, snapshot.rule, snapshot.state, batch, snapshot.view)
            # On a GPU every operation on a few numbers would cost more than here.
            parts.append(EpochNumbers(sample_numbers(seen, snapshot.view), observed_credit(own, *run)).cpu())
        answers.append(seen.logits.argmax(-1) if seen.logits.ndim > 1 else seen.logits)
        losses.append(seen.loss)
        finite = finite and bool(are_finite(seen.states).all())
        told = told or seen.delivered is None or any(bool(c.any()) for c in seen.delivered)
        asked = asked or any(bool(g.any()) for g in seen.references)
    if asked and not told:
        raise BadInput(
            "wanted a credit signal, got zeros at every state for every sample; check that the adapter reads the run's "
            "own backward, or leave credit out"
        )
    return joined(parts, -1), torch.cat(answers), torch.cat(losses), finite
