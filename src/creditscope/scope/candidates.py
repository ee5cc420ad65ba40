"""The explanations of what reached a layer, each tried: from those without an unknown to those with the most."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from creditscope.scope.explain import Explained, Term, apply, fitted, scale_free, scaled
from creditscope.scope.sites import OUTPUTS, Local, Signal, Sites

_MOST_UNSOLVED, _FOLLOWING = 2, 3
Rows = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Candidate:
    """An explanation that was tried.

    Args:
        kind: Its kind.
        found: How well it does.
        terms: Its unknowns.
        known: What was known of the signal before.
        entering: By later site, the signal at what enters it, where this explanation tells it.
        later: The site whose signal it takes, where it takes one.
        through: Whether it acts behind a derivative.
    """

    kind: str
    found: Explained
    terms: tuple[Term, ...] = ()
    known: Tensor | None = None
    entering: Mapping[str, Tensor] = field(default_factory=dict)
    later: str = ""
    through: bool = False

    @property
    def shape(self) -> tuple[str, str, bool]:
        """What makes it the same explanation at another look."""
        return self.kind, self.later, self.through


@dataclass(frozen=True)
class Look:
    """One round of steps on single samples.

    Args:
        sites: The layers.
        local: The derivatives between them.
        signals: What reached each.
        true: The true gradient there.
        sources: The error and what is made of it, and the target.
        weights: Of each layer, as matrices.
    """

    sites: Sites
    local: Local
    signals: Mapping[str, Signal]
    true: Mapping[str, Tensor]
    sources: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]

    @property
    def output(self) -> str | None:
        """The site that puts out what the model does; None where there is none."""
        last = self.sites.sites[-1] if self.sites.sites else None
        same = last is not None and torch.equal(last.outputs, self.sites.outputs.flatten(1).double())
        return last.name if last is not None and same else None


def leaks(look: Look, name: str, rows: Rows) -> Iterator[Candidate]:
    """Direct signals with the true gradient mixed in.

    Args:
        look: One round.
        name: Of the layer.
        rows: Samples to fit and to test on.
    """
    often = look.signals[name].often
    signal, true = look.signals[name].vectors * often, look.true[name] * often
    ones = torch.ones(len(signal), 1, dtype=torch.float64)
    nearest = list(later_sites(look, name).values())[:1]
    for source in look.sources.values():
        for local in (often.expand_as(signal), *nearest):
            terms = (Term(source, local, local.shape[1]), Term(ones, true, len(often)))
            if fit := fitted(signal, terms, None, *rows):
                yield Candidate("leak", fit, terms)


def later_sites(look: Look, name: str) -> dict[str, Tensor]:
    """The later sites that what this one puts out reaches directly, with the derivative."""
    names = [site.name for site in look.sites.sites]
    found = {later: look.local.matrix(later, name) for later in names[names.index(name) + 1 :]}
    often = look.signals[name].often
    return {later: local * often for later, local in found.items() if local is not None}


def candidates(look: Look, name: str, entering: Mapping[str, Tensor], rows: Rows) -> Iterator[Candidate]:
    """From the fewest unknowns to the most."""
    often = look.signals[name].often
    signal, width = look.signals[name].vectors * often, len(often)
    # A term without a derivative has one all the same where some units are left out.
    here = None if bool(often.all()) else often.expand_as(signal)
    yield Candidate("gradient", scaled(signal, look.true[name] * often, None, *rows))
    later = later_sites(look, name)
    direct = look.local.matrix(OUTPUTS, name)
    direct = None if direct is None else direct * often
    known = torch.zeros_like(signal)
    if direct is not None:
        known = known + apply([Term(look.sources["error"], direct, 0)], [torch.eye(direct.shape[1]).double()])
    for at, local in later.items():
        if at in entering:
            known = known + apply([Term(entering[at], local, 0)], [torch.eye(entering[at].shape[1]).double()])
    known_part = known if bool(known.any()) else None
    open_ = {at: local for at, local in later.items() if at not in entering and look.signals[at].moves}
    sources = {at: look.signals[at].vectors for at in open_}
    for kind, change in (("weight", lambda w: w), ("sign of weight", torch.sign)):
        if not open_:
            break
        carried = {at: sources[at] @ change(look.weights[at]) for at in open_}
        parts = [Term(carried[at], open_[at], 0) for at in open_]
        total = apply(parts, [torch.eye(part.source.shape[1]).double() for part in parts])
        found = scaled(signal, total, known_part, *rows)
        factor = float(found.matrices[0])
        yield Candidate(kind, found, entering={at: factor * part for at, part in carried.items()})
    nearest = [local for local in (*later.values(), direct) if local is not None][:1]
    places = [(here, width), *((local, local.shape[1]) for local in nearest)]
    direct_terms = [
        (kind, at > 0, Term(source, local, wide))
        for kind, source in look.sources.items()
        for at, (local, wide) in enumerate(places)
    ]
    for kind, through, term in direct_terms:
        if fit := fitted(signal, (term,), None, *rows):
            yield Candidate(kind, fit, (term,), through=through)
    for kind, through, term in direct_terms:
        if fit := scale_free(signal, term, *rows):
            yield Candidate(f"{kind}, normalised", fit, (term,), through=through)
    if 0 < len(open_) <= _MOST_UNSOLVED:
        terms = tuple(Term(sources[at], local, look.weights[at].shape[1]) for at, local in open_.items())
        if fit := fitted(signal, terms, known_part, *rows):
            told = {at: term.source @ m for at, term, m in zip(open_, terms, fit.matrices, strict=True)}
            yield Candidate("transport", fit, terms, known_part, told)
    names = [site.name for site in look.sites.sites]
    following = names[names.index(name) + 1 :][:_FOLLOWING]
    for at in (at for at in following if look.signals[at].moves and at != look.output):
        term = Term(look.signals[at].vectors, here, width)
        if fit := fitted(signal, (term,), None, *rows):
            yield Candidate("next signal", fit, (term,), later=at)
