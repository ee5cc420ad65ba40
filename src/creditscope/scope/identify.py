"""Which rule is this code really? From what its steps on single samples write, without knowing its feedback."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from creditscope.errors import BadInput
from creditscope.probes.seeds import probe_generator
from creditscope.scope.candidates import Candidate, Look, Rows, candidates, later_sites, leaks
from creditscope.scope.explain import (
    along,
    apply,
    carried,
    fitted,
    reaching,
    same_signs,
    span,
)
from creditscope.scope.identity import Identity, LayerIdentity, named
from creditscope.scope.inputs import logits_of
from creditscope.scope.losses import per_sample
from creditscope.scope.probe_data import Loader, gather
from creditscope.scope.randomness import seeded
from creditscope.scope.restore import device_of, plain_model
from creditscope.scope.sites import Sites
from creditscope.scope.update_net import Called, Forward, Loss, UpdateNet, dtype_of
from creditscope.scope.user_step import Update, UserStep, kept

# An explanation that is right leaves what rounding leaves; one that is wrong and fits well leaves far more (the tests
# hold nulls against it). Of those that do as well, the one with the fewest unknowns is named.
HOLDS = 0.9999
_AS_GOOD, _TIE = 1e-5, 1e-6
_EXACT = ("gradient", "weight", "sign of weight")
# What rounding in float32 leaves of squares, with room.
_LEFT = 1e-7
_DIRECT = ("target", "sign of error", "error")
# A matrix is the weight itself where their cosine is above the first; it has its signs where more than the second
# share agrees, and is like it at all where the cosine is beyond the third, in standard deviations of chance.
_SAME, _SIGNS, _CHANCE = 0.999, 0.9, 4.0
# The bias takes the same step as the weights where the two agree to rounding.
_ALIKE = 0.99999
# A matrix has moved where its former self explains less than it does by more than this share of squares.
_MOVED = 1e-6
LEAST, BATCH = 32, 64


def identify(
    model: nn.Module,
    update: Update | None,
    loader: Loader,
    *,
    forward: Forward | None = None,
    loss_fn: Loss | None = None,
    state: Sequence[Any] = (),
    name: str = "code",
    samples: int = 320,
    steps: int = 10,
    seed: int = 0,
) -> Identity:
    """Find out which rule a code really is. Nothing of the model, the optimiser or the randomness is changed.

    The step is taken on one sample at a time, and taken back: what it writes on a layer's weights, divided by what
    enters the layer, is the signal that reached it. Each signal is then explained, on half of the samples, by the true
    gradient, by a linear map of the error, its sign or the target, or by a later layer's signal through the derivative
    between them; what counts is how well that predicts the other half. "Unknown" is an answer.

    Args:
        model: Any module.
        update: ``update(model, batch)``: one training step, in place; None: the model's own ``loss.backward()``.
        loader: Batches (x, y), as in ``audit_model``.
        forward: ``forward(model, x)`` gives outputs (samples, classes); None: ``model(x)``.
        loss_fn: Loss of (outputs, targets); None: cross-entropy.
        state: What ``update`` changes and does not close over, as in ``audit_updates``.
        name: What the code is called on the card.
        samples: How many at most; a layer wants four times its width.
        steps: Steps before the matrices are looked at again.
        seed: Of what is drawn.
    """
    inner = plain_model(model)
    run = forward or (lambda module, x: module(**x) if isinstance(x, Mapping) else module(x))
    with kept(inner), seeded(seed):
        inner.eval()
        data = gather(loader, device_of(inner), dtype_of(inner))
        net = UpdateNet(inner, data, {}, run, loss_fn or functional.cross_entropy, False)
        n = min(samples, len(data.probe.x))
        if n < LEAST:
            raise BadInput(f"wanted at least {LEAST} samples to tell explanations apart, got {n}; pass more")
        step = UserStep.of(inner, update or _backward_of(net), state)
        look = _look(net, step, n, seed)
        again = _look_again(net, step, state, n, seed, steps) if update is not None and steps else None
    order = torch.randperm(n, generator=probe_generator(seed, 0, "held out"))
    # Where nothing enters some layer, its weights tell nothing, and what follows from them is wrong.
    looks = [look] if again is None else [look, again]
    seen = torch.stack([s.seen for each in looks for s in each.signals.values()]).all(0)
    order = order[seen[order]]
    rows = order[: len(order) // 2], order[len(order) // 2 :]
    layers: dict[str, LayerIdentity] = {}
    told: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    for site in reversed(look.sites.sites):
        layers[site.name] = _layer(look, again, site.name, told, rows)
    if all(layer.kind == "still" for layer in layers.values()):
        raise BadInput("the step wrote nothing on the weights of any layer that was looked into; pass update=...")
    hidden = [layers[site.name] for site in look.sites.sites if site.name != look.output]
    rule = named(hidden, layers.get(look.output or ""))
    widest = max(site.outputs.shape[1] for site in look.sites.sites)
    if rule.startswith("unknown") and 2 * widest > len(rows[0]):
        rule += f" ({n} samples are too few for a width of {widest}: pass samples={4 * widest + LEAST})"
    return Identity(
        name=name,
        rule=rule,
        layers=tuple(layers[site.name] for site in look.sites.sites),
        output=look.output,
        samples=n,
        steps=steps if again is not None else 0,
        left_out=dict(look.sites.left_out),
    )


def _backward_of(net: UpdateNet) -> Update:
    """The model's own backward pass, which fills ``.grad`` and steps nowhere."""

    def update(model: nn.Module, batch: Any) -> None:
        x, y = (batch, batch["labels"]) if isinstance(batch, Mapping) else batch
        x = {k: v for k, v in x.items() if k != "labels"} if isinstance(x, Mapping) else x
        net.loss(logits_of(net.forward(model, x)), y).mean().backward()  # type: ignore[no-untyped-call]

    return update


def _batch(net: UpdateNet, rows: slice) -> Any:
    """These samples as the loader gave them."""
    x, y = net.data.probe.x[rows], net.data.probe.y[rows]
    return (x, y) if net.data.table is None else {**net.data.table.rows(x, dtype_of(net.model)), "labels": y}


def _look(net: UpdateNet, step: UserStep, n: int, seed: int) -> Look:
    x, y = net.data.probe.x[:n], net.data.probe.y[:n]

    # Copies: the steps that follow change the weights in place.
    held = {name: t.detach().clone() for name, t in (*net.model.named_parameters(), *net.model.named_buffers())}
    called, named_copies = Called(net.model, net.forward), {f"model.{name}": t for name, t in held.items()}

    def call() -> Tensor:
        inputs = net.inputs(x, dtype_of(net.model))
        return functional_call(called, named_copies, (inputs,))  # type: ignore[no-any-return]

    try:
        sites = Sites.of(net.model, call)
    except Exception as failure:
        said = (str(failure).strip().splitlines() or [""])[0]
        what = type(failure).__name__
        raise BadInput(f"the model failed on these inputs: {what}: {said}; pass forward=...") from failure
    if not sites.sites:
        raise BadInput("found no linear layer that runs once and puts out one vector a sample: nothing to identify by")
    loss = per_sample(None if net.loss is functional.cross_entropy else net.loss, sites.outputs, y)
    z = sites.outputs.detach().double().requires_grad_()
    with torch.enable_grad():
        error = torch.autograd.grad(loss(z, y).sum(), z)[0].flatten(1)
    sources = {"error": error, "sign of error": error.sign()}
    if net.data.labelled and sites.outputs.ndim == 2:
        sources = {"target": functional.one_hot(y, sites.outputs.shape[1]).double(), **sources}
    signals = sites.read(lambda at: step.take(_batch(net, slice(at, at + 1)), seed), n)
    for at, found in signals.items():
        if not bool(found.vectors.isfinite().all()):
            raise BadInput(f"the step writes NaN or infinite numbers on {at}; identify an earlier state, or steps=0")
    # In units of the error: the learning rate, which joins a change but not a gradient, is no part of a signal.
    last = sites.sites[-1].name
    if signals[last].vectors.shape == error.shape and bool(signals[last].vectors.any()):
        rate = float((signals[last].vectors * error).sum() / error.square().sum())
        signals = {at: replace(s, vectors=s.vectors / (rate or 1.0)) for at, s in signals.items()}
    weights = {site.name: held[f"{site.name}.weight".lstrip(".")] for site in sites.sites}
    flat = {at: weight.double().reshape(len(weight), -1) for at, weight in weights.items()}
    return Look(sites, sites.local(), signals, sites.true_signals(lambda out: loss(out, y)), sources, flat)


def _look_again(net: UpdateNet, step: UserStep, state: Sequence[Any], n: int, seed: int, steps: int) -> Look:
    """The same after some steps on batches, and with other random numbers."""
    with step.taken_back(), seeded(seed + 1), torch.enable_grad():
        for at in range(steps):
            start = at * BATCH % n
            step.update(net.model, _batch(net, slice(start, start + BATCH)))
        net.model.eval()
        return _look(net, UserStep.of(net.model, step.update, state), n, seed + 1)


def _layer(
    look: Look, again: Look | None, name: str, told: tuple[dict[str, Tensor], dict[str, Tensor]], rows: Rows
) -> LayerIdentity:
    """What reached one layer: of the explanations that do as well as the best, the one with the fewest unknowns.

    ``told`` collects, for both looks, the signals at what enters each layer, which layers further back build on.
    """
    signal = look.signals[name]
    alike = None if signal.bias is None else signal.bias > _ALIKE
    if not signal.moves:
        return LayerIdentity(name, "still", bias=alike)
    tried = [c for c in candidates(look, name, told[0], rows) if not math.isnan(c.found.r2)]
    if signal.rank_one < HOLDS or not tried:
        return LayerIdentity(name, "unknown", bias=alike, decay=signal.decay)
    best = _chosen(tried)
    if best.kind not in _EXACT:
        # A leak may be small: it is one where it accounts for nearly all that is left, and that is not rounding.
        mixed = max(leaks(look, name, rows), key=lambda c: c.found.r2, default=None)
        left = 1 - best.found.r2
        if mixed is not None and left > _LEFT and 1 - mixed.found.r2 < left / 10 and mixed.found.r2 >= HOLDS:
            best = mixed
    plain = next((c.found.r2 for c in tried if c.kind == "gradient"), None)
    holds = best.found.r2 >= HOLDS
    found = LayerIdentity(
        layer=name,
        kind=best.kind if holds else "unknown",
        r2=best.found.r2,
        gradient=plain,
        bias=alike,
        decay=signal.decay,
        guess="" if holds else best.kind,
        only=list(later_sites(look, name)) == [look.output],
    )
    if not holds:
        return found
    told[0].update(best.entering)
    other = None if again is None else _again(again, name, best, told[1], rows)
    if other is not None:
        told[1].update(other.entering)
    if not best.terms or best.kind == "leak":
        return found
    word, likeness, signs = _like(look, name, best, rows)
    moves = None if other is None or again is None else _moved(again, name, best, other, rows)
    return replace(found, matrix=word, likeness=likeness, signs=signs, moves=moves)


def _chosen(tried: Sequence[Candidate]) -> Candidate:
    """The best with no unknowns, with a matrix to each class, or with a matrix to each unit: the first that will do."""
    most = max(c.found.r2 for c in tried)
    for kinds in (_EXACT, _DIRECT, tuple(f"{kind}, normalised" for kind in _DIRECT)):
        level = [c for c in tried if c.kind in kinds]
        top = max((c.found.r2 for c in level), default=-math.inf)
        if 1 - top <= 1.25 * (1 - most) + _AS_GOOD:
            return next(c for c in level if c.found.r2 >= top - _TIE)
    return next(c for c in tried if c.found.r2 >= most - _AS_GOOD)


def _again(again: Look, name: str, best: Candidate, told: Mapping[str, Tensor], rows: Rows) -> Candidate | None:
    """The same explanation at the second look; None where it no longer holds."""
    alike = (c for c in candidates(again, name, told, rows) if c.shape == best.shape)
    found = next(alike, None)
    return found if found is not None and found.found.r2 >= HOLDS else None


def _moved(look: Look, name: str, first: Candidate, second: Candidate, rows: Rows) -> bool:
    """Whether the matrices of the first look fail to explain the second as well as its own do.

    Their columns may be scaled, as a gain does that the rule passes by.
    """
    signal = look.signals[name].vectors * look.signals[name].often
    if first.kind.endswith("normalised"):
        kept: float | None = along(signal[rows[1]], apply(second.terms, first.found.matrices)[rows[1]])
    else:
        fit = fitted(signal, carried(first.terms, second.terms, first.found.matrices, rows[0]), second.known, *rows)
        kept = None if fit is None else fit.r2
    misfit = 2 - first.found.r2 - second.found.r2
    return kept is None or kept < second.found.r2 - _MOVED - 10 * misfit


def _like(look: Look, name: str, best: Candidate, rows: Rows) -> tuple[str, float, float | None]:
    """What a matrix is like: the weight, or for a direct one the map that the true gradient would need."""
    seen = best.found.matrices[0]
    next_to_output = best.kind == "error" and best.through and list(later_sites(look, name)) == [look.output]
    seen_part = span(best.terms[0].source, rows[0])
    reached = reaching(best.terms[0], rows[0])
    if best.kind == "transport" or next_to_output:
        own, weight = "the weight", look.weights[next(iter(best.entering), look.output or "")]
        other = seen_part @ weight @ reached
    else:
        fit = fitted(look.true[name] * look.signals[name].often, best.terms, None, *rows)
        own, other = "the gradient's own map", seen if fit is None else fit.matrices[0]
    cosine = float((seen * other).sum() / seen.norm() / other.norm())
    signs = same_signs(seen, weight, seen_part, reached) if own == "the weight" else None
    # Of a matrix on a span of rank r with w columns, r·w entries are free.
    free = round(float(seen_part.trace())) * seen.shape[1]
    if cosine > _SAME:
        word = f"{own} itself"
    elif signs is not None and signs > _SIGNS:
        word = "the signs of the weight, other sizes"
    elif abs(cosine) < _CHANCE / math.sqrt(free):
        word = f"random: like {own} no more than by chance"
    else:
        word = f"another one, of cosine {cosine:.2f} with {own}"
    return word, cosine, signs
