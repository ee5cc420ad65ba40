"""Which linear explanation of a layer's signal holds on samples that it was not fitted to?"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Directions of a source below this share of its largest are rounding.
_RANK = 1e-5
_ITERATIONS = 400
_CONVERGED = 1e-14
_MOST_UNKNOWNS = 1024
# Of the squares of a column, entries of the wrong sign may hold what noise leaves.
_AGAINST = 1e-4


@dataclass(frozen=True)
class Term:
    """An unknown matrix M between a source and the signal: δ_i = J_iᵀ(s_i·M).

    Args:
        source: s, (n, d).
        local: J: None for none, (n, d_out) where it is diagonal, else (n, d_later, d_out).
        width: Columns of M.
    """

    source: Tensor
    local: Tensor | None
    width: int


@dataclass(frozen=True)
class Explained:
    """A fitted explanation.

    Args:
        r2: Share of the signal's squares that it predicts on samples held out; NaN where there is no signal.
        matrices: M of each term, on the span of its source.
    """

    r2: float
    matrices: tuple[Tensor, ...] = ()


def r_squared(signal: Tensor, predicted: Tensor) -> float:
    """1 − ‖δ − δ̂‖²/‖δ‖², about zero.

    Args:
        signal: δ.
        predicted: δ̂.
    """
    total = float(signal.square().sum())
    return 1 - float((signal - predicted).square().sum()) / total if total else float("nan")


def scaled(signal: Tensor, given: Tensor, known: Tensor | None, train: Tensor, test: Tensor) -> Explained:
    """An explanation without an unknown but the size of what is given.

    Args:
        signal: δ, (n, d).
        given: What the rest of it should be proportional to.
        known: A part of δ that is known already; None: none is.
        train: Samples to find the factor on.
        test: Samples to test it on.
    """
    rest = signal if known is None else signal - known
    size = float(given[train].square().sum())
    factor = float((given[train] * rest[train]).sum()) / size if size else 0.0
    predicted = signal[test] - rest[test] + factor * given[test]
    return Explained(r_squared(signal[test], predicted), (torch.tensor([[factor]], dtype=torch.float64),))


def fitted(
    signal: Tensor, terms: Sequence[Term], known: Tensor | None, train: Tensor, test: Tensor
) -> Explained | None:
    """Least squares for all unknown matrices together, by conjugate gradients.

    Args:
        signal: δ, (n, d).
        terms: The unknowns.
        known: A part of δ that is known already.
        train: Samples to fit on.
        test: Samples to test on.

    Returns:
        None where the samples are too few for so many unknowns.
    """
    rest = signal if known is None else signal - known
    whitened = [_whitened(term.source, train) for term in terms]
    if any(2 * source.shape[1] > len(train) for source, _ in whitened):
        return None
    white = [Term(source, term.local, term.width) for (source, _), term in zip(whitened, terms, strict=True)]
    found = _conjugate_gradients([_part(term, train) for term in white], rest[train])
    predicted = signal[test] - rest[test] + apply([_part(term, test) for term in white], found)
    matrices = tuple(back @ m for (_, back), m in zip(whitened, found, strict=True))
    return Explained(r_squared(signal[test], predicted), matrices)


def scale_free(signal: Tensor, term: Term, train: Tensor, test: Tensor) -> Explained | None:
    """An unknown matrix, and an unknown size for each sample: δ_i ∝ J_iᵀ(s_i·M), as after a normalisation.

    The M for which the smallest share of squares lies across δ_i; what is tested is the share along it.

    Args:
        signal: δ, (n, d).
        term: Its source and, where each unit acts for itself, its derivative.
        train: Samples to fit on.
        test: Samples to test on.

    Returns:
        None where the unknowns are too many.
    """
    white, back = _whitened(term.source, train)
    local = torch.ones_like(signal) if term.local is None else term.local
    if local.ndim != 2:
        return None
    kept = local[train].any(0)
    k, d = white.shape[1], int(kept.sum())
    if k * d > _MOST_UNKNOWNS or 2 * k * d > len(train) * (d - 1):
        return None
    unit = signal / torch.linalg.vector_norm(signal, dim=1, keepdim=True).clamp(min=1e-300)
    u, g, w = unit[train][:, kept], local[train][:, kept], white[train]
    every = torch.einsum("na,nb,ni,ij->aibj", w, w, g.square(), torch.eye(d, dtype=w.dtype)).reshape(k * d, k * d)
    on = torch.einsum("na,ni->nai", w, u * g).reshape(len(w), k * d)
    sizes, vectors = torch.linalg.eigh(every)
    root = vectors / sizes.clamp(min=1e-12 * float(sizes.max())).sqrt()
    best = root @ torch.linalg.eigh(root.T @ (on.T @ on) @ root).eigenvectors[:, -1]
    m = torch.zeros(k, signal.shape[1], dtype=w.dtype)
    m[:, kept] = best.reshape(k, d)
    return Explained(along(signal[test], local[test] * (white[test] @ m)), (back @ m,))


def same_signs(matrix: Tensor, like: Tensor, left: Tensor, right: Tensor) -> float:
    """The share of columns of a matrix that can have the signs of another, where only a part of it was seen.

    Args:
        matrix: The part that was seen.
        like: The other.
        left: The projection onto what the source spans.
        right: The projection onto what reaches the signal.
    """
    signs, found = like.sign(), matrix
    for _ in range(_ITERATIONS):
        allowed = (found * signs).clamp(min=0) * signs
        found = allowed + left @ (matrix - allowed) @ right
    against = (found * signs).clamp(max=0).square().sum(0)
    return float((against <= _AGAINST * found.square().sum(0)).double().mean())


def reaching(term: Term, train: Tensor) -> Tensor:
    """The projection onto what of the unknown's columns reaches the signal, (width, width).

    Args:
        term: The term.
        train: The samples that were fitted on.
    """
    if term.local is None:
        return torch.eye(term.width, dtype=term.source.dtype)
    local = term.local[train]
    if local.ndim == 2:
        return torch.diag(local.any(0).to(local))
    return span(local.transpose(1, 2).reshape(-1, term.width), torch.arange(len(local) * local.shape[2]))


def carried(before: Sequence[Term], now: Sequence[Term], matrices: Sequence[Tensor], train: Tensor) -> list[Term]:
    """An explanation with its matrices given: a factor for each column is unknown, and what was never seen of them.

    Args:
        before: The terms that gave the matrices.
        now: The same terms at another look.
        matrices: Of each.
        train: The samples that were fitted on.
    """
    found = []
    for old, new, m in zip(before, now, matrices, strict=True):
        told = new.source @ m
        ones = torch.ones(len(told), 1, dtype=told.dtype)
        local = torch.ones_like(told) if new.local is None else new.local
        found.append(Term(ones, local * (told if local.ndim == 2 else told.unsqueeze(2)), new.width))
        if new.local is not None and new.local.ndim == 3:
            hidden = torch.linalg.eigh(torch.eye(new.width, dtype=told.dtype) - reaching(old, train))
            unseen = hidden.eigenvectors[:, hidden.eigenvalues > 0.5]
            if unseen.shape[1]:
                found.append(Term(new.source, torch.einsum("nkj,kq->nqj", new.local, unseen), unseen.shape[1]))
    return found


def along(signal: Tensor, predicted: Tensor) -> float:
    """The share of the squares of a prediction that lies along the signal, each sample by itself.

    Args:
        signal: δ.
        predicted: δ̂, of any size.
    """
    unit = signal / torch.linalg.vector_norm(signal, dim=1, keepdim=True).clamp(min=1e-300)
    return float((predicted * unit).sum(1).square().sum() / predicted.square().sum().clamp(min=1e-300))


def apply(terms: Sequence[Term], matrices: Sequence[Tensor]) -> Tensor:
    """Σ J_iᵀ(s_i·M) over the terms.

    Args:
        terms: The terms.
        matrices: M of each.
    """
    return torch.stack([_through(term.local, term.source @ m) for term, m in zip(terms, matrices, strict=True)]).sum(0)


def _through(local: Tensor | None, signal: Tensor) -> Tensor:
    if local is None:
        return signal
    return local * signal if local.ndim == 2 else torch.einsum("nk,nkj->nj", signal, local)


def _adjoint(term: Term, signal: Tensor) -> Tensor:
    local = term.local
    if local is not None:
        signal = local * signal if local.ndim == 2 else torch.einsum("nj,nkj->nk", signal, local)
    return term.source.T @ signal


def _part(term: Term, rows: Tensor) -> Term:
    return Term(term.source[rows], None if term.local is None else term.local[rows], term.width)


def _whitened(source: Tensor, train: Tensor) -> tuple[Tensor, Tensor]:
    """The source in coordinates that are orthonormal over the training samples, and the way back."""
    _, sizes, v = torch.linalg.svd(source[train], full_matrices=False)
    kept = sizes > _RANK * sizes.max().clamp(min=1e-300)
    back = v[kept].T / sizes[kept]
    return source @ back, back


def span(source: Tensor, train: Tensor) -> Tensor:
    """The projection onto what the training samples of a source span, (d, d).

    Args:
        source: (n, d).
        train: Those samples.
    """
    _, sizes, v = torch.linalg.svd(source[train], full_matrices=False)
    kept = v[sizes > _RANK * sizes.max().clamp(min=1e-300)]
    projection: Tensor = kept.T @ kept
    return projection


def _conjugate_gradients(terms: Sequence[Term], signal: Tensor) -> list[Tensor]:
    found = [torch.zeros(term.source.shape[1], term.width, dtype=signal.dtype) for term in terms]
    rest = [_adjoint(term, signal) for term in terms]
    step = [r.clone() for r in rest]
    size = start = sum(float(r.square().sum()) for r in rest)
    for _ in range(_ITERATIONS):
        if not size > _CONVERGED * start:
            break
        image = apply(terms, step)
        factor = size / float(image.square().sum())
        found = [m + factor * s for m, s in zip(found, step, strict=True)]
        rest = [r - factor * _adjoint(term, image) for r, term in zip(rest, terms, strict=True)]
        before, size = size, sum(float(r.square().sum()) for r in rest)
        step = [r + size / before * s for r, s in zip(rest, step, strict=True)]
    return found
