"""What a user can get wrong with a model: one line each, wanted, got, do."""

import copy

import pytest
import torch
from scope.nets import Net, same, samples, state_of_model
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.scope import backward_credit, rule_credit
from creditscope.scope.subject import Subject

FAST = {"redraws": 0, "directions": 1}


class Grows(nn.Module):
    """Puts out another width with every call."""

    def __init__(self):
        super().__init__()
        self.linear, self.width = nn.Linear(6, 6), 6

    def forward(self, h):
        self.width += 1
        return torch.nn.functional.pad(self.linear(h), (0, self.width - 6))


class Sums(nn.Module):
    def forward(self, h):
        return h.sum(1, keepdim=True).expand(-1, 4)


class Turned(nn.Module):
    """Puts samples on the second axis."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, h):
        return self.linear(h).unsqueeze(0)


class Wraps(nn.Module):
    def __init__(self, turn):
        super().__init__()
        self.net, self.turn = Net(), turn

    def forward(self, x):
        return self.turn(self.net(x))


class Says:
    def __init__(self, credit):
        self.credit = credit

    def deliver(self, task, params, batch):
        return self.credit(task, batch)


def shapes(task, batch):
    return [torch.ones(len(batch.x), *shape) for shape in task.shapes]


def nothing(model, x, y):
    pass


def frozen(model):
    return model.requires_grad_(False)


@pytest.mark.parametrize(
    ("model", "given", "says"),
    [
        (Net(), {"blocks": ["block.0"]}, "the model has no block 'block.0'; did you mean 'blocks.0' or"),
        (Net(), {"blocks": "blocks.0"}, "one block was given; pass a list, e.g. blocks=['blocks.0']"),
        (Net(), {"blocks": []}, "the partition has no blocks: wanted at least one submodule"),
        (nn.Linear(6, 4), {}, "found no list of like blocks in the model; name them with blocks="),
        (
            nn.Sequential(Grows(), Sums()),
            {"blocks": ["0"]},
            "wanted states of one shape in every call, but block 0 puts out (7,) and then (8,); choose blocks where",
        ),
        (
            nn.Sequential(Turned(), nn.Flatten(0, 1), nn.Linear(6, 4)),
            {"blocks": ["0"]},
            "wanted states with samples on axis 0, state 1 of 2 samples has shape (1, 2, 6); pass batch_axis",
        ),
        (Net(inputs=7), {}, "the model failed on inputs (48, 6) torch.float32: RuntimeError: "),
        (
            Wraps(lambda z: {"scores": z}),
            {"blocks": ["net.blocks.0"]},
            "from the model, got dict for 2 samples; pass forward=",
        ),
        (
            Wraps(lambda z: z[:, 0]),
            {"blocks": ["net.blocks.0"]},
            "are no class labels of outputs (2,); pass loss_fn=",
        ),
        (frozen(Net()), {}, "no gradient: the loss depends on no parameter that requires one; unfreeze what trains"),
        (Net(), {"backward": nothing}, "no gradient: the backward pass wrote no .grad of any block's parameter; pass"),
        (Net(), {"credit": 3}, "wanted a credit adapter with deliver(task, params, batch), got int; use rule_credit"),
        (Net(), {"credit": backward_credit(Net())}, "backward_credit was made for another model; pass backward_credit"),
        (
            Net(),
            {"credit": Says(lambda task, batch: [None])},
            "wanted credit for the 4 states h_0..h_3, got 1; return one tensor a state, None where it is not known",
        ),
        (Net(), {"credit": Says(lambda task, batch: None)}, "wanted credit for the 4 states h_0..h_3, got NoneType;"),
        (
            Net(),
            {"credit": Says(lambda task, batch: [c[:, :3] for c in shapes(task, batch)])},
            "wanted credit of shape (48, 8) at state 0, like the state, got (48, 3); deliver it per sample",
        ),
        (
            Net(),
            {"credit": Says(lambda task, batch: [0 * c for c in shapes(task, batch)])},
            "wanted a credit signal, got zeros at every state for every sample; check that the adapter reads",
        ),
        (
            Net(),
            {"credit": rule_credit("dfa", {"B.0": torch.zeros(4, 8)})},
            "wanted feedback B.1 of shape (4, 8), got none; the rule feeds back through B.0, B.1, B.2: pass the run's",
        ),
        (
            Net(),
            {"credit": rule_credit("dfa", {f"B.{level}": torch.zeros(8, 4) for level in range(3)})},
            "wanted feedback B.0 of shape (4, 8), got (8, 4); the rule feeds back through B.0, B.1, B.2",
        ),
        (
            Net(),
            {"credit": rule_credit("bp", {"B.0": torch.zeros(1)})},
            "wanted no feedback B.0, got (1,); the rule feeds",
        ),
        (Net(), {"init": {"embed.weight": torch.zeros(8, 6)}}, "wanted embed.bias of shape (8,) in init, got none of"),
        (
            Net(),
            {"init": Net(width=9).state_dict()},
            "wanted embed.weight of shape (8, 6) in init, got shape (9, 6); pass copy.deepcopy(model.state_dict())",
        ),
        (Net(), {"baseline": Net(width=9)}, "wanted a baseline of the same architecture, it differs in blocks.0.lin"),
        (Net(), {"baseline": Net(seed=1)}, "wanted a baseline with frozen blocks, but blocks.0.norm.weight requires"),
        (Net(), {"baseline": 34.9}, "a baseline accuracy is a fraction in [0, 1], got 34.9; write e.g. 0.349"),
        (
            Net(classes=3),
            {},
            "wanted labels below 3, the number of the model's outputs, got 3; number the classes from 0",
        ),
        (
            Net(),
            {"name": "a/b"},
            "wanted a short name of letters, digits and . + @ - for the method, got 'a/b'; it names",
        ),
        (Net(), {"protocol": "standart"}, "unknown protocol 'standart'; did you mean 'standard' or 'standard@1'?"),
    ],
)
def test_bad_input_is_refused_in_one_line(model, given, says):
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(BadInput) as error:
        cs.audit_model(model, loader=samples(), **FAST, **given)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


X, Y = samples(8)
with FakeTensorMode():
    # What looks like a CUDA tensor to anyone who asks, on machines without CUDA.
    ON_CUDA = torch.empty(8, 6, device="cuda")


@pytest.mark.parametrize("door", ["audit_model", "watch"])
@pytest.mark.parametrize(
    ("loader", "says"),
    [
        ([], "wanted at least 2 probe samples, got an empty loader; pass a loader that yields (x, y) batches"),
        (
            [(X, Y, Y)],
            "wanted batches (x, y) of two tensors from the loader, got a tuple of 3 (Tensor, Tensor, Tensor)",
        ),
        ([(X, ("a", "b"))], "from the loader, got a tuple of 2 (Tensor, tuple); yield (inputs, targets)"),
        ([((X, X), Y)], "from the loader, got a tuple of 2 (tuple, Tensor); yield (inputs, targets)"),
        ((ON_CUDA, Y), "wanted inputs on cpu like the model, got them on cuda:0; move one: model.to('cuda:0')"),
        ([{"x": ON_CUDA, "labels": Y}], "wanted inputs on cpu like the model, got them on cuda:0; move one"),
    ],
)
def test_a_bad_loader_is_refused_at_both_doors(door, loader, says):
    model = Net()
    before = state_of_model(model)
    with pytest.raises(BadInput) as error:
        getattr(cs, door)(model, **{"loader" if door == "audit_model" else "probe": loader}, **FAST)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert same(before, state_of_model(model))


def test_a_model_without_values_is_refused():
    model = nn.Sequential(nn.Linear(6, 6, device="meta"), nn.Linear(6, 4, device="meta"))
    with pytest.raises(BadInput, match="wanted a model with values, its parameters are on the meta device; load or"):
        cs.audit_model(model, blocks=["0"], loader=samples(), **FAST)


def test_a_twin_whose_blocks_moved_is_refused():
    model = Net()
    init = copy.deepcopy(model.state_dict())
    with pytest.raises(
        BadInput, match=r"stayed at initialisation, but blocks\.0\.norm\.\w+ moved|but blocks\.0\.linear"
    ):
        cs.audit_model(model, loader=samples(), init=init, baseline=Net(seed=1), **FAST)


def test_a_model_with_frozen_blocks_is_no_claim():
    with pytest.raises(BadInput, match=r"every block of the model is frozen: .* pass this one as baseline="):
        cs.audit_model(cs.frozen_copy(Net()), loader=samples(), **FAST)


def test_blocks_that_do_not_train_are_not_judged():
    model = Net()
    model.blocks[0].requires_grad_(False)
    log = cs.audit_model(model, loader=samples(), init=model.state_dict(), **FAST).claims[0].cell.runs[0]
    assert log.spec.train_last == 2
    assert log.epochs[0].movement.trainable == [False, True, True]


def test_rule_names_are_checked():
    with pytest.raises(BadInput, match="unknown rule 'dfaa'; did you mean 'dfa'"):
        rule_credit("dfaa")


def test_one_output_has_no_argmax():
    x, _ = samples()
    y = torch.randint(2, (48,))

    def loss(z, t):
        return torch.nn.functional.binary_cross_entropy_with_logits(z[:, 0], t.to(z), reduction="none")

    log = cs.audit_model(Net(classes=1), loader=(x, y), loss_fn=loss, **FAST).claims[0].cell.runs[0]
    assert log.epochs[0].test_accuracy is None
    assert log.spec.classes is None
    assert log.epochs[0].reference is not None


def test_blocks_without_a_matrix_have_none_that_moved():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(4))

        def forward(self, h):
            return h * self.gain

    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(Scale(), Scale()), nn.Linear(4, 2))
    init = {name: p.detach().clone() for name, p in model.named_parameters()}
    x, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    moved = Subject.of(model, ["1.0", "1.1"], (x, y), None, None, None, 0).movement(init)
    assert (moved.weights, moved.blocks, moved.trainable) == ({}, [[], []], [True, True])
