"""The derivative of a user's forward pass as it stands, whatever the code says of its own backward."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from creditscope.scope.true_backward import true_backward

Pullback = Callable[[Sequence[Tensor]], dict[str, Tensor]]


def derivative(
    model: nn.Module,
    function: Callable[[Mapping[str, Tensor]], Sequence[Tensor]],
    at: Mapping[str, Tensor],
    surrogate: bool = False,
) -> tuple[list[Tensor], Pullback]:
    """Run a function of tensors that runs the model; what it returns, and what carries signals back from there.

    Args:
        model: The model.
        function: Of the tensors, by name.
        at: Where.
        surrogate: Whether the model's own backward counts instead.
    """
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in at.items()}
    with nullcontext() if surrogate else true_backward(model), torch.enable_grad():
        out = list(function(leaves))

    def pullback(signals: Sequence[Tensor]) -> dict[str, Tensor]:
        pairs = [(o, s) for o, s in zip(out, signals, strict=True) if o.requires_grad]
        if not pairs:
            return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        outputs, given = [o for o, _ in pairs], [s.to(o) for o, s in pairs]
        found = torch.autograd.grad(outputs, list(leaves.values()), given, allow_unused=True, retain_graph=True)
        grads = zip(leaves.items(), found, strict=True)
        return {name: torch.zeros_like(leaf) if g is None else g for (name, leaf), g in grads}

    return [o.detach() for o in out], pullback
