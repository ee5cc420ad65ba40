"""Rotated credit: the null of credit that learned, or that nothing was drawn for.

Each redraw turns the credits of all samples by one Haar-random orthogonal matrix Q, the same for every state of one
width. The mean cosine is then ⟨Q, M⟩ with M = mean ĉ⊗ĝ over the samples: their dependence is kept, no pass is needed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from creditscope.probes.functional.cosine import units

# Up to this width Q is drawn. Above it ⟨Q, M⟩ is: it has variance ‖M‖²/width exactly, and is normal but for an excess
# kurtosis of at most 6/(width + 2), with lighter tails, so that p is never too small.
DRAWN = 64


def rotated_cosines(
    signals: Sequence[Tensor], references: Sequence[Tensor], redraws: int, generator: torch.Generator
) -> Tensor:
    """Mean cosine per redraw and state, shape (K, states); NaN where the two differ in shape or no sample is defined.

    Args:
        signals: Credit per state, one vector a sample, float64.
        references: What it is paired with, likewise.
        redraws: K.
        generator: Where the rotations come from.
    """
    alike = [at for at, (c, g) in enumerate(zip(signals, references, strict=True)) if c.shape == g.shape]
    found = references[0].new_full((redraws, len(references)), torch.nan)
    for width in sorted({references[at].shape[1] for at in alike}):
        states = [at for at in alike if references[at].shape[1] == width]
        pairs = [(units(signals[at]), units(references[at])) for at in states]
        defined = torch.stack([c[1] & g[1] for c, g in pairs])
        credit, reference = (torch.stack([pair[side][0] for pair in pairs]) for side in (0, 1))
        credit = credit * defined.unsqueeze(2) / defined.sum(1)[:, None, None]
        draw = _drawn if width <= DRAWN else _normal
        found[:, states] = draw(credit, reference, redraws, generator)
    return found


def rotations(count: int, width: int, generator: torch.Generator) -> Tensor:
    """Haar-random orthogonal matrices: Q of a QR decomposition whose R has a positive diagonal.

    Args:
        count: How many.
        width: Rows and columns.
        generator: Where they come from.
    """
    entries = torch.randn((count, width, width), generator=generator, dtype=torch.float64, device=generator.device)
    q, r = torch.linalg.qr(entries)
    signed: Tensor = q * r.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)
    return signed


def _drawn(credit: Tensor, reference: Tensor, count: int, generator: torch.Generator) -> Tensor:
    products = torch.einsum("sni,snj->sij", credit, reference)
    return torch.einsum("kij,sij->ks", rotations(count, credit.shape[2], generator), products)


def _normal(credit: Tensor, reference: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The states' joint law has covariance ⟨M_k, M_l⟩/width."""
    values, vectors = torch.linalg.eigh(_inner(credit, reference) / credit.shape[2])
    root = vectors * values.clamp(min=0).sqrt()
    standard = torch.randn((count, len(credit)), generator=generator, dtype=torch.float64, device=generator.device)
    drawn: Tensor = standard @ root.T
    return drawn


def _inner(credit: Tensor, reference: Tensor) -> Tensor:
    """⟨M_k, M_l⟩, through the smaller of the two: the matrices, or the products of samples."""
    states, samples, width = credit.shape
    if width <= samples:
        flat = torch.einsum("sni,snj->sij", credit, reference).flatten(1)
        return flat @ flat.T
    rows = [
        [((credit[k] @ credit[m].T) * (reference[k] @ reference[m].T)).sum() for m in range(states)]
        for k in range(states)
    ]
    return torch.stack([torch.stack(row) for row in rows])
