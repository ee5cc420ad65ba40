"""The derivative of a user's forward pass as it stands, whatever the code says of its own backward."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from creditscope.scope.true_backward import TrueBlocks

Pullback = Callable[[Sequence[Tensor]], dict[str, Tensor]]
Function = Callable[[Mapping[str, Tensor]], Sequence[Tensor]]


def derivative(
    model: nn.Module, function: Function, at: Mapping[str, Tensor], surrogate: bool = False
) -> tuple[list[Tensor], Pullback]:
    """Run a function of tensors that runs the model; what it returns, and what carries signals back from there.

    Args:
        model: The model.
        function: Of the tensors, by name.
        at: Where.
        surrogate: Whether the model's own backward counts instead.
    """
    if surrogate:
        return _as_written(function, at)
    out, back = TrueBlocks(model, (), ()).vjp(lambda tensors: list(function(tensors)), dict(at))

    def pullback(signals: Sequence[Tensor]) -> dict[str, Tensor]:
        found = back([s.to(o) for s, o in zip(signals, out, strict=True)])[0]
        return {name: torch.zeros_like(t) if found[name] is None else found[name] for name, t in at.items()}

    return out, pullback


def _as_written(function: Function, at: Mapping[str, Tensor]) -> tuple[list[Tensor], Pullback]:
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in at.items()}
    with torch.enable_grad():
        out = list(function(leaves))

    def pullback(signals: Sequence[Tensor]) -> dict[str, Tensor]:
        pairs = [(o, s.to(o)) for o, s in zip(out, signals, strict=True) if o.requires_grad]
        if not pairs:
            return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        outputs, given = zip(*pairs, strict=True)
        found = torch.autograd.grad(outputs, list(leaves.values()), given, allow_unused=True, retain_graph=True)
        grads = zip(leaves.items(), found, strict=True)
        return {name: torch.zeros_like(leaf) if g is None else g for (name, leaf), g in grads}

    return [o.detach() for o in out], pullback
