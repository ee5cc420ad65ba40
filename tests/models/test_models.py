"""Building a model by name, and the refusals."""

import pytest
import torch

from creditscope.errors import BadInput
from creditscope.models import MODELS, build_model, full_options, options_of
from creditscope.models.mlp import MLP
from creditscope.models.resmlp import ResMLP
from creditscope.models.vit_mini import ViTMini


@pytest.mark.parametrize(("name", "kind"), [("resmlp", ResMLP), ("mlp", MLP), ("vit-mini", ViTMini)])
@pytest.mark.parametrize("terminal_ln", [True, False])
def test_models_by_name(name, kind, terminal_ln):
    model = build_model(name, (1, 8, 8), 3, width=8, depth=2, terminal_ln=terminal_ln)
    assert type(model) is kind
    assert len(model.blocks) == 2
    assert model(torch.ones(2, 1, 8, 8)).shape == (2, 3)
    assert any(n.startswith("out_ln") for n, _ in model.named_parameters()) == terminal_ln


def test_every_model_has_a_name():
    assert set(MODELS.names()) == {"resmlp", "mlp", "vit-mini", "gpt-mini", "resnet"}


REFUSED = {
    "unknown": (
        ("resmpl", (5,), 8),
        "unknown model 'resmpl'; did you mean 'resmlp' or 'resnet'? (your own: write package.module:Name)",
    ),
    "vectors": (
        ("vit-mini", (5,), 8),
        "vit-mini wants images whose sides are multiples of 4, got shape (5,); use changes['model']='resmlp'",
    ),
    "odd": (
        ("vit-mini", (3, 30, 32), 8),
        "vit-mini wants images whose sides are multiples of 4, got shape (3, 30, 32); use changes['model']='resmlp'",
    ),
    "width": (
        ("vit-mini", (3, 32, 32), 30),
        "vit-mini has 4 heads and wants a width that is a multiple of 4, got 30",
    ),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=list(REFUSED))
def test_refused_models(given, message):
    name, shape, width = given
    with pytest.raises(BadInput) as caught:
        build_model(name, shape, 10, width=width, depth=2, terminal_ln=True)
    assert str(caught.value) == message


def test_options_are_what_a_model_is_told_besides_its_shape():
    assert options_of("resmlp") == {"second_sd": 0.01}
    assert options_of("mlp") == {"activation": "relu"}
    assert options_of("vit-mini") == {"patch": 4, "heads": 4, "ratio": 2}
    assert full_options("vit-mini", {"patch": "8", "heads": "4"}) == {"patch": 8}
    model = build_model("vit-mini", (1, 8, 8), 3, width=8, depth=1, terminal_ln=True, options={"patch": "8"})
    assert model.position.shape == (1, 2, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": "many"}, "model.heads: wanted a whole number, got 'many'"),
        ({"haeds": "2"}, "changes['model.haeds']: vit-mini has no such option; did you mean 'heads'?"),
    ],
)
def test_refused_options(options, message):
    with pytest.raises(BadInput) as caught:
        full_options("vit-mini", options)
    assert str(caught.value) == message
