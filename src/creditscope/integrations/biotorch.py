"""Credit of BioTorch models: what their own backward delivers, and their feedback, to be shuffled for the null."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.errors import BadInput
from creditscope.scope import BackwardCredit
from creditscope.scope.restore import plain_model

MODES = ("fa", "dfa", "usf", "brsf", "frsf")
# Their feedback is the sign of the forward weight times a magnitude, drawn again in every forward pass.
_SIGNED = ("usf", "brsf", "frsf")
_INSTALL = "BioTorch is not installed; run: pip install --no-deps 'biotorch>=0.0.16'"


def biotorch_credit(
    model: nn.Module, *, loss_fn: Callable[[Any, Any], Tensor] | None = None, redraws: int = 999
) -> BackwardCredit:
    """The credit of a BioTorch model: FA, DFA, uSF, brSF or frSF, as released or built of BioTorch's layers.

    The signal is read from BioTorch's own backward pass. Its null shuffles the entries of every backward weight; for
    the sign-concordant rules that is the signed weight which the backward pass uses, so that the sign is shuffled too.
    brSF draws new magnitudes in every pass: one seeded draw stands for them.

    Args:
        model: The model; left as it is.
        loss_fn: The loss it trains with, of (outputs, targets); None: cross-entropy.
        redraws: How many shuffles.
    """
    inner = plain_model(model)
    direct = [name for name, layer in _layers(inner) if _mode(layer) == "dfa"]
    if direct and not isinstance(inner, _biotorch().BioModule):
        raise BadInput(
            f"wanted the BioModule, got the {type(inner).__name__} with the DFA layer {direct[0]}; only the BioModule "
            "passes the output error to its layers: pass the whole model"
        )
    mean = partial(_mean_loss, loss_fn or functional.cross_entropy)
    return BackwardCredit(
        inner,
        backward=partial(_backward, mean),
        feedback=tuple(f"{name}.weight_backward" for name, _ in _layers(inner)),
        redraws=redraws,
        held=_held_feedback,
    )


class _BioTorch:
    """The names of BioTorch that are used here; importing them needs BioTorch alone."""

    def __init__(self) -> None:
        from biotorch.layers import dfa, fa_constructor
        from biotorch.module.biomodule import BioModule

        self.BioModule = BioModule
        self.direct = (dfa.Linear, dfa.Conv2d)
        self.layers = (fa_constructor.Linear, fa_constructor.Conv2d, *self.direct)


def _biotorch() -> _BioTorch:
    try:
        return _BioTorch()
    except ImportError:
        raise BadInput(_INSTALL) from None


def _layers(model: nn.Module) -> list[tuple[str, Any]]:
    """The layers with a backward weight, each checked."""
    found = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, _biotorch().layers)]
    if not found:
        raise BadInput(
            f"wanted a BioTorch model with feedback ({', '.join(MODES)}), {type(model).__name__} has no such layer; "
            "for BioTorch's backpropagation models pass rule_credit('bp')"
        )
    for name, layer in found:
        if layer.options.get("constrain_weights"):
            raise BadInput(
                f"{name} has constrain_weights=True, which puts another weight in its place in every forward pass; "
                "audit the model without it"
            )
    return found


def _mode(layer: Any) -> str:
    return "dfa" if isinstance(layer, _biotorch().direct) else str(layer.type)


def _mean_loss(loss_fn: Callable[[Any, Any], Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
    return loss_fn(outputs, targets).mean()


def _backward(mean: Callable[[Tensor, Tensor], Tensor], model: nn.Module, x: Tensor, y: Tensor) -> None:
    """BioTorch's own forward and backward pass of the mean loss, in whatever mode the layers are."""
    inner = model.module if isinstance(model, _biotorch().BioModule) else None
    if inner is None or model.mode != "dfa":
        mean(model(x), y).backward()  # type: ignore[no-untyped-call]
        return
    # It passes the error to its layers only where the outermost module trains; those inside keep their mode.
    mode, inner.training = inner.training, True
    try:
        outputs = model(x, y, mean)
    finally:
        inner.training = mode
    mean(outputs, y).backward()  # type: ignore[no-untyped-call]


@contextmanager
def _held_feedback(model: nn.Module) -> Iterator[None]:
    """Inside, the signed weights that the backward pass uses stand in ``weight_backward`` and stay there."""
    signed = [layer for _, layer in _layers(model) if _mode(layer) in _SIGNED]
    kept = [(layer, layer.type, layer.weight_backward) for layer in signed]
    generator = torch.Generator().manual_seed(0)
    try:
        for layer, mode, own in kept:
            layer.weight_backward = nn.Parameter(_signed(layer, str(mode), own, generator), requires_grad=False)
            # Feedback alignment is what BioTorch calls a backward weight that is used as it is.
            layer.type = "fa"
        yield
    finally:
        for layer, mode, own in kept:
            layer.type, layer.weight_backward = mode, own


def _signed(layer: Any, mode: str, own: Any, generator: torch.Generator) -> Tensor:
    sign = layer.weight.detach().sign()
    if mode == "usf":
        return sign * layer.scaling_factor  # type: ignore[no-any-return]
    if mode == "frsf":
        return sign * own.detach().abs()  # type: ignore[no-any-return]
    drawn = torch.empty(layer.weight.shape)
    nn.init.xavier_uniform_(drawn, generator=generator)
    return sign * drawn.abs().to(sign)  # type: ignore[no-any-return]
