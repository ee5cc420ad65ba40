"""ViT-Mini: its shapes, its attention and its blocks against independent formulas."""

import numpy as np
import pytest
import torch
from cases.by_autograd import embed
from cases.models import batch_of, params_of, seeded_generator, vit
from torch import nn
from torch.nn import functional

from creditscope.blocks import Blocks
from creditscope.models.vit_mini import ViTMini


def test_defaults_are_the_recipes():
    model = ViTMini((3, 32, 32), 10)
    assert model.embed.weight.shape == (128, 3 * 4 * 4)
    assert model.position.shape == (1, 65, 128)
    assert model.cls.shape == (1, 1, 128)
    assert len(model.blocks) == 4
    branch = model.blocks[0].branch
    assert branch.attention.heads == 4
    assert branch.mlp[0].weight.shape == (256, 128)
    assert isinstance(model.out_ln, nn.LayerNorm)
    assert isinstance(ViTMini((3, 8, 8), 2, terminal_ln=False).out_ln, nn.Identity)


def test_states_are_tokens_with_the_class_token_first():
    model, x = vit(), batch_of((2, 8, 8), 3).x
    seen = Blocks.of(model).forward(params_of(model), x)
    assert [tuple(h.shape) for h in seen.states] == [(3, 5, 8)] * 3
    assert seen.logits.shape == (3, 3)
    np.testing.assert_allclose(seen.states[0], embed(model, x).detach(), rtol=1e-12)
    cls = (model.cls + model.position[:, :1]).detach()
    np.testing.assert_allclose(seen.states[0][:, :1], cls.expand(3, -1, -1), rtol=1e-12)


def test_images_need_not_be_square():
    model = ViTMini((1, 8, 16), 2, width=8, depth=1)
    assert model.position.shape[1] == 9
    assert model(torch.ones(2, 1, 8, 16)).shape == (2, 2)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_equals_scaled_dot_product_attention(heads):
    torch.manual_seed(0)
    attention = ViTMini((1, 8, 8), 2, width=8, depth=1, heads=heads).double().blocks[0].branch.attention
    h = torch.randn(3, 5, 8, generator=seeded_generator(), dtype=torch.float64)
    q, k, v = (
        linear(h).unflatten(2, (heads, 8 // heads)).transpose(1, 2)
        for linear in (attention.query, attention.key, attention.value)
    )
    wanted = attention.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(h), wanted, rtol=1e-10, atol=1e-12)


def test_a_block_is_a_pre_norm_encoder_layer():
    """Against torch's own encoder layer with the same weights."""
    model = vit(width=8)
    branch = model.blocks[0].branch
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    attention = branch.attention
    maps = (attention.query, attention.key, attention.value)
    with torch.no_grad():
        layer = layer.double()
        layer.self_attn.in_proj_weight.copy_(torch.cat([m.weight for m in maps]))
        layer.self_attn.in_proj_bias.copy_(torch.cat([m.bias for m in maps]))
        pairs = [
            (layer.self_attn.out_proj, attention.out),
            (layer.linear1, branch.mlp[0]),
            (layer.linear2, branch.mlp[2]),
            (layer.norm1, branch.attention_ln),
            (layer.norm2, branch.mlp_ln),
        ]
        for theirs, ours in pairs:
            theirs.load_state_dict(ours.state_dict())
    h = torch.randn(3, 5, 8, generator=seeded_generator(), dtype=torch.float64)
    torch.testing.assert_close(model.blocks[0](h), layer(h), rtol=1e-9, atol=1e-11)


def test_only_the_class_token_is_read_out():
    model, x = vit(), batch_of((2, 8, 8), 3).x
    blocks, params = Blocks.of(model), params_of(model)
    h = blocks.forward(params, x).states[-1].clone()
    logits = blocks.tail(params, 2, h, x)
    h[:, 1:] += 5
    assert torch.equal(blocks.tail(params, 2, h, x), logits)


def test_every_map_is_a_plain_linear():
    kinds = {type(module) for module in ViTMini((3, 8, 8), 2).modules() if not list(module.children())}
    assert kinds == {nn.Linear, nn.LayerNorm, nn.GELU}
