"""Blocks: every way to name a partition, what is seen at its boundaries, and the models it refuses."""

import numpy as np
import pytest
import torch
from cases.models import (
    CONV_BLOCKS,
    PLAIN_BLOCKS,
    batch_of,
    conv_net,
    params_of,
    plain_mlp,
    resmlp,
    scrambled,
    seeded_generator,
    tuple_net,
    vit,
)
from torch import nn
from torch.func import grad, vmap

from creditscope.blocks import Blocks
from creditscope.errors import BadInput
from creditscope.models.resmlp import ResMLP

NAMES = ("blocks.0", "blocks.1", "blocks.2")


def hooks_on(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


# Naming a partition


@pytest.mark.parametrize(
    "where",
    [
        lambda m: None,
        lambda m: NAMES,
        lambda m: list(NAMES),
        lambda m: list(m.blocks),
        lambda m: m.blocks,
        lambda m: lambda name, module: name.startswith("blocks.") and name.count(".") == 1,
    ],
    ids=["none", "tuple", "names", "modules", "module-list", "predicate"],
)
def test_every_way_to_name_the_blocks(where):
    model = resmlp()
    blocks = Blocks.of(model, where(model))
    assert blocks.names == NAMES
    assert blocks.depth == 3
    assert all(a is b for a, b in zip(blocks.modules, model.blocks, strict=True))


class Stages(nn.Module):
    """A residual net of stages, beside a list that is shorter than all of them together."""

    def __init__(self, *sizes):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
        for number, size in enumerate(sizes):
            self.add_module(f"layer{number}", nn.Sequential(*(nn.Tanh() for _ in range(size))))


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (Stages(2, 1, 2), ("layer0.0", "layer0.1", "layer1.0", "layer2.0", "layer2.1")),
        (Stages(1), ("heads.0", "heads.1")),
        (nn.Sequential(nn.Sequential(nn.Tanh(), nn.Tanh()), nn.Sequential(nn.Tanh(), nn.Tanh())), ("0", "1")),
        (nn.ModuleDict({"only": nn.ModuleList([nn.Tanh()]), "wrap": nn.Sequential(nn.ReLU())}), ("only.0",)),
    ],
    ids=["stages", "a wrapper is no stage", "lists in a list", "a short list"],
)
def test_what_is_found(model, found):
    assert Blocks.of(model).names == found


def test_names_may_skip_and_mix_with_modules():
    model = resmlp()
    assert Blocks.of(model, ["blocks.0", model.blocks[2]]).names == ("blocks.0", "blocks.2")


def test_none_takes_the_longest_list_of_like_submodules():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.short = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
            self.mixed = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU())
            self.inner = nn.Module()
            self.inner.stack = nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))

    assert Blocks.of(Net()).names == ("inner.stack.0", "inner.stack.1", "inner.stack.2")


def test_a_model_of_depth_1_is_cut_too():
    assert Blocks.of(ResMLP((5,), 2, width=4, depth=1)).names == ("blocks.0",)


REFUSED = {
    "unknown": (lambda m: ["blocks.0", "block.1"], "the model has no block 'block.1'; did you mean 'blocks.1'"),
    "far": (lambda m: ["zzz"], "the model has no block 'zzz'; known: blocks, blocks.0, "),
    "twice": (
        lambda m: ["blocks.0", "blocks.0"],
        "a block is named twice in blocks.0, blocks.0; name each once, in the order of the stream",
    ),
    "empty": (
        lambda m: [],
        "the partition has no blocks: wanted at least one submodule; name them with blocks=[...]",
    ),
    "no-match": (lambda m: lambda name, module: False, "the partition has no blocks: "),
    "foreign": (
        lambda m: [nn.Linear(2, 2)],
        "a Linear given as a block is not part of the model; pass its submodules",
    ),
    "string": (lambda m: "blocks.0", "one block was given; pass a list, e.g. blocks=['blocks.0']"),
    "module": (lambda m: m.blocks[0], "one block was given; pass a list, e.g. blocks=['...']"),
}


@pytest.mark.parametrize(("where", "message"), REFUSED.values(), ids=list(REFUSED))
def test_refused_cuts(where, message):
    model = resmlp()
    with pytest.raises(BadInput) as caught:
        Blocks.of(model, where(model))
    assert str(caught.value).startswith(message)


def test_a_model_without_a_list_of_blocks():
    with pytest.raises(BadInput) as caught:
        Blocks.of(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    wanted = "found no list of like blocks in the model; name them with blocks=['path.0', 'path.1', ...]"
    assert str(caught.value) == wanted


# What is seen


def test_states_branches_and_logits_are_those_of_a_plain_loop():
    model, x = resmlp(), batch_of((5,), 4).x
    seen = Blocks.of(model).forward(params_of(model), x)
    h = model.embed(x)
    for level, block in enumerate(model.blocks):
        f = block.branch(h)
        assert torch.equal(seen.states[level], h)
        assert torch.equal(seen.branches[level], f)
        h = h + f
    assert torch.equal(seen.states[3], h)
    assert torch.equal(seen.logits, model(x))


def test_other_parameters_are_used_and_the_model_is_left_alone():
    model, other, x = resmlp(seed=1), resmlp(seed=2), batch_of((5,), 4).x
    before = params_of(model)
    assert torch.equal(Blocks.of(model).forward(params_of(other), x).logits, other(x))
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_without_a_skip_the_branch_is_the_whole_state():
    model, x = plain_mlp(), batch_of((5,), 3).x
    blocks = Blocks.of(model, PLAIN_BLOCKS).with_skips(x)
    seen = blocks.forward(params_of(model), x)
    assert blocks.skips == (False, False, False)
    assert all(torch.equal(f, h) for f, h in zip(seen.branches, seen.states[1:], strict=True))


def test_with_a_skip_the_branch_is_what_was_added():
    model, x = conv_net(), batch_of((1, 4, 4), 3).x
    blocks = Blocks.of(model, CONV_BLOCKS).with_skips(x)
    seen = blocks.forward(params_of(model), x)
    assert blocks.skips == (True, False, False)
    added = torch.tanh(model.same.conv(seen.states[0]))
    np.testing.assert_allclose(seen.branches[0], added.detach(), rtol=1e-12, atol=1e-14)


class PostNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, h):
        return self.norm(h + self.linear(h))


class PostReLU(nn.Module):
    """The classic residual block: the stream is not negative, and passes a final ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, h):
        return torch.relu(h + self.linear(h))


class Batchwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(4), nn.Linear(4, 4)

    def forward(self, h):
        return h + self.linear(self.norm(h))


@pytest.mark.parametrize(
    ("block", "adds"),
    [
        (PostNorm, False),
        (PostReLU, True),
        (Batchwise, True),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, norm_first=True), True),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, norm_first=False), False),
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()), False),
        (nn.ReLU, True),
    ],
    ids=["post-norm", "post-relu", "batchwise", "encoder-pre", "encoder-post", "plain", "no-weights"],
)
def test_skips_are_found_by_running_the_block(block, adds):
    """Two in a row, so that what one puts out cannot fool the other."""
    model = scrambled(nn.Sequential(nn.Linear(5, 4), block(), block(), nn.Linear(4, 3))).train()
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    blocks = Blocks.of(model, ["1", "2"]).with_skips(batch_of((5,), 3).x)
    assert blocks.skips == (adds, adds)
    assert all(torch.equal(b, buffers[name]) for name, b in model.named_buffers())


def test_blocks_that_return_tuples():
    model, x = tuple_net(), batch_of((5,), 3).x
    seen = Blocks.of(model).forward(params_of(model), x)
    assert torch.equal(seen.logits, model(x))
    assert [tuple(h.shape) for h in seen.states] == [(3, 4)] * 3


# Taps, replacement, detaching


@pytest.mark.parametrize("make", [resmlp, vit], ids=["resmlp", "vit"])
def test_differentiating_by_zero_taps_gives_the_gradient_at_every_state(make):
    model = make()
    x = batch_of((5,) if make is resmlp else (2, 8, 8), 3).x
    blocks, params = Blocks.of(model), params_of(model)
    shapes = [h.shape for h in blocks.forward(params, x).states]
    taps = {level: torch.zeros(shape, dtype=torch.float64) for level, shape in enumerate(shapes)}

    got = grad(lambda taps: blocks.forward(params, x, taps=taps).logits.sin().sum())(taps)
    live = {name: p.requires_grad_() for name, p in params.items()}
    seen = blocks.forward(live, x)
    wanted = torch.autograd.grad(seen.logits.sin().sum(), seen.states)
    for level, g in enumerate(wanted):
        np.testing.assert_allclose(got[level], g, rtol=1e-10, atol=1e-14)


def test_a_tap_is_added_to_the_state_as_it_goes_on():
    model, x = resmlp(), batch_of((5,), 4).x
    blocks, params = Blocks.of(model), params_of(model)
    tap = torch.randn(3, 6, generator=seeded_generator(), dtype=torch.float64)
    tapped, plain = blocks.forward(params, x, taps={1: tap}), blocks.forward(params, x)
    assert torch.equal(tapped.states[1], plain.states[1]), "the state itself is reported as it was"
    assert torch.equal(tapped.logits, blocks.tail(params, 1, plain.states[1] + tap, x))


@pytest.mark.parametrize("make", [resmlp, vit], ids=["resmlp", "vit"])
def test_the_tail_from_any_state_ends_where_the_whole_does(make):
    model = make()
    x = batch_of((5,) if make is resmlp else (2, 8, 8), 3).x
    blocks, params = Blocks.of(model), params_of(model)
    seen = blocks.forward(params, x)
    for level, h in enumerate(seen.states):
        np.testing.assert_allclose(blocks.tail(params, level, h, x), seen.logits, rtol=1e-12)
        many = torch.cat([h, h, h])
        np.testing.assert_allclose(blocks.tail(params, level, many, x), seen.logits.repeat(3, 1), rtol=1e-12)


def test_what_stands_before_a_replaced_state_has_no_influence():
    model, x = resmlp(), batch_of((5,), 4).x
    blocks, params = Blocks.of(model), params_of(model)
    h = torch.randn(3, 6, generator=seeded_generator(), dtype=torch.float64)
    assert torch.equal(blocks.tail(params, 2, h, x), blocks.tail(params, 2, h, x * 100))


def test_detached_gradients_stay_inside_one_block():
    model, x = tuple_net(), batch_of((5,), 3).x
    blocks = Blocks.of(model)
    live = {name: p.requires_grad_() for name, p in params_of(model).items()}
    seen = blocks.forward(live, x, detach=True)
    parts = blocks.parts(x)
    for output, part in zip((*seen.states, seen.logits), ("embedding", 0, 1, "readout"), strict=True):
        grads = torch.autograd.grad(output.sum(), list(live.values()), allow_unused=True, retain_graph=True)
        reached = {name for name, g in zip(live, grads, strict=True) if g is not None}
        assert reached == {name for name, owner in parts.items() if owner == part}
    assert torch.equal(seen.logits, model(x)), "detaching changes no value"


def test_a_forward_pass_works_inside_vmap_of_grad():
    models, x = [resmlp(seed=seed) for seed in (0, 1)], batch_of((5,), 4).x
    blocks = Blocks.of(models[0])
    params = [params_of(model) for model in models]
    stacked = {name: torch.stack([p[name] for p in params]) for name in params[0]}

    def slope(params):
        return grad(lambda p: blocks.forward(p, x).logits.square().sum())(params)

    got = vmap(slope)(stacked)
    for run, model in enumerate(models):
        model(x).square().sum().backward()
        for name, p in model.named_parameters():
            np.testing.assert_allclose(got[name][run], p.grad, rtol=1e-9, atol=1e-12)


# Parts


def test_parts_of_a_resmlp():
    parts = Blocks.of(resmlp()).parts(batch_of((5,), 4).x)
    assert {name: part for name, part in parts.items() if not name.startswith("blocks.")} == {
        "embed.weight": "embedding",
        "embed.bias": "embedding",
        "out_ln.weight": "readout",
        "out_ln.bias": "readout",
        "head.weight": "readout",
        "head.bias": "readout",
    }
    assert all(part == int(name.split(".")[1]) for name, part in parts.items() if name.startswith("blocks."))
    assert set(parts) == {name for name, _ in resmlp().named_parameters()}


def test_the_class_token_and_positions_of_a_vit_belong_to_its_embedding():
    parts = Blocks.of(vit()).parts(batch_of((2, 8, 8), 3).x)
    assert {name for name, part in parts.items() if part == "embedding"} == {
        "cls",
        "position",
        "embed.weight",
        "embed.bias",
    }


def test_more_than_nine_blocks_are_told_apart():
    model = resmlp(depth=11)
    parts = Blocks.of(model).parts(batch_of((5,), 4).x)
    assert parts["blocks.1.branch.1.weight"] == 1
    assert parts["blocks.10.branch.1.weight"] == 10


def test_a_model_may_have_no_embedding_and_frozen_parameters():
    model = plain_mlp()
    for p in model.parameters():
        p.requires_grad_(False)
    parts = Blocks.of(model, ["0", *PLAIN_BLOCKS]).parts(batch_of((5,), 3).x)
    assert parts["0.weight"] == 0
    assert "embedding" not in parts.values()
    assert not any(p.requires_grad for p in model.parameters())


# Models that do not fit


def refused_forward(model, where, x, match):
    blocks = Blocks.of(model, where)
    with pytest.raises(BadInput, match=match):
        blocks.forward(dict(model.named_parameters()), x)
    assert hooks_on(model) == 0


class Looped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.spare = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        return self.b(self.a(self.a(x)))


def test_a_block_that_runs_twice_or_out_of_turn():
    x = torch.ones(2, 4)
    wanted = "^the stream must pass each block once, in the order a, b; block a came out of turn$"
    refused_forward(Looped(), ["a", "b"], x, wanted)
    order = r"^the stream must pass each block once, in the order 2, 0; block 0 came out of turn$"
    refused_forward(nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))), ["2", "0"], x, order)


def test_a_block_that_is_never_reached():
    model = Looped()
    model.a = nn.Identity()
    wanted = "^the forward pass never reached block spare; choose blocks that the model uses$"
    refused_forward(model, ["b", "spare"], torch.ones(2, 4), wanted)


class Keyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Linear(4, 4)

    def forward(self, x):
        return self.block(input=x)


def test_a_block_that_gets_the_stream_by_keyword():
    wanted = "^block Linear must get the stream as its first positional argument, a tensor$"
    refused_forward(Keyword(), ["block"], torch.ones(2, 4), wanted)


class Dictionary(nn.Module):
    def forward(self, h):
        return {"h": h}


def test_a_block_that_returns_something_else():
    model = nn.Sequential(nn.Linear(4, 4), Dictionary())
    wanted = "^a block must put out a tensor or a tuple that starts with one, got dict$"
    refused_forward(model, ["1"], torch.ones(2, 4), wanted)


def test_hooks_are_gone_after_an_exception_inside_the_model():
    model = resmlp()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        Blocks.of(model).forward(params_of(model), torch.ones(2, 99, dtype=torch.float64))
    assert hooks_on(model) == 0
