"""The model as it was found, whatever happens inside."""

import random
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from scope.nets import Net, same, samples, state_of_model, train
from torch import nn

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.scope.restore import device_of, plain_model, restoring, spared_gradients


@pytest.mark.parametrize("broken", [False, True])
def test_everything_is_put_back(broken):
    model = train(Net(), *samples())
    model.train()
    model.blocks[1].eval()
    torch.manual_seed(3)
    before = state_of_model(model)
    try:
        with restoring(model):
            assert not any(m.training for m in model.modules())
            assert all(p.grad is None for p in model.parameters())
            model(samples()[0]).sum().backward()
            torch.randn(5)
            assert float(model.calls) != float(before["buffers"]["calls"])
            if broken:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert broken
    assert same(before, state_of_model(model))


def test_spared_gradients_are_the_same_tensors():
    model = train(Net(), *samples())
    grads = [p.grad for p in model.parameters()]
    with spared_gradients(model):
        model(samples()[0]).sum().backward()
    assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))


def test_a_compiled_model_is_unwrapped():
    model = Net()
    assert plain_model(torch.compile(model, backend="eager")) is model


def test_a_part_compiled_on_its_own_is_refused():
    model = Net()
    model.blocks[1] = torch.compile(model.blocks[1], backend="eager")
    with pytest.raises(BadInput, match=r"^blocks\.1 is compiled on its own, .* compile the whole model instead"):
        plain_model(model)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (None, "wanted a torch.nn.Module as the model, got NoneType; pass the module itself"),
        (nn.DataParallel(nn.Linear(2, 2)), "wanted the model itself, got a DataParallel around it; pass model.module"),
        (nn.ReLU(), "wanted a model with parameters, ReLU has none; pass the model you train"),
        (nn.LazyLinear(2), "the model has lazy parameters that no input has shaped yet; run it once on a batch"),
    ],
)
def test_what_is_no_model_is_refused(model, says):
    with pytest.raises(BadInput) as error:
        plain_model(model)
    assert str(error.value) == says


def test_a_model_on_two_devices_is_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(BadInput, match="wanted a model on one device, its parameters are on cpu, meta; move it to one"):
        device_of(model)


def test_what_is_switched_off_while_a_model_is_measured_is_said():
    model = torch.nn.Linear(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16), restoring(model) as off:
        assert off == "autocast bfloat16"
        assert not torch.is_autocast_enabled("cpu")
    with restoring(model) as off:
        assert off == "nothing"


class Meddler(nn.Module):
    """A block that does something to itself whenever it runs."""

    def __init__(self, deed):
        super().__init__()
        self.f, self.deed = nn.Linear(8, 8), deed
        self.register_buffer("count", torch.zeros(3))
        self.cache, self.list = torch.ones(4), [1]

    def forward(self, h):
        self.deed(self)
        return h + torch.tanh(self.f(h))


def replaced(block):
    block.f.weight.data = block.f.weight.data * 1.0


DEEDS = {
    "clamps its weights": lambda b: b.f.weight.data.clamp_(-0.1, 0.1),
    "writes without a gradient": lambda b: under_no_grad(b.f.weight.mul_, 0.5),
    "puts other memory in": replaced,
    "freezes its weights": lambda b: b.f.weight.requires_grad_(False),
    "counts in a buffer": lambda b: b.count.add_(1),
    "writes into an attribute": lambda b: b.cache.add_(1),
    "grows a list": lambda b: b.list.append(2),
    "sets a hook on itself": lambda b: b.register_forward_hook(lambda *_: None),
    "draws": lambda b: torch.rand(3),
    "draws with NumPy": lambda b: np.random.rand(3),
    "draws with Python": lambda b: random.random(),
    "seeds": lambda b: torch.manual_seed(7),
}


def under_no_grad(function, *args):
    with torch.no_grad():
        function(*args)


def everything(model):
    """All of a model and of the process that an audit could change, as comparable values."""
    tensors = [t.clone() for t in (*model.parameters(), *model.buffers(), *(b.cache for b in model[1:3]))]
    plain = [
        [id(p) for p in model.parameters()],
        [p.requires_grad for p in model.parameters()],
        [p.data_ptr() for p in model.parameters()],
        [len(m._forward_hooks) for m in model.modules()],
        [list(b.list) for b in model[1:3]],
        [sorted(vars(m)) for m in model.modules()],
        random.getstate(),
        np.random.get_state()[1].tolist(),
    ]
    return [*tensors, torch.get_rng_state()], plain


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("failing", [False, True])
def test_a_model_that_changes_itself_is_found_as_it_was(deed, failing):
    torch.manual_seed(0)
    calls = []

    def act(block):
        DEEDS[deed](block)
        calls.append(1)
        if failing and len(calls) > 9:
            raise RuntimeError("boom\nand more")

    model = nn.Sequential(nn.Linear(6, 8), Meddler(act), Meddler(act), nn.Linear(8, 4))
    before = everything(model)
    told = "the model failed while it was measured .RuntimeError: boom."
    with pytest.raises(BadInput, match=told) if failing else nullcontext():
        cs.audit_model(model, blocks=["1", "2"], loader=samples(), redraws=0, directions=1)
    tensors, plain = everything(model)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before[0], strict=True))
    assert plain == before[1]


def test_a_backward_that_takes_the_step_itself_is_undone():
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(model, x, y):
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    before = [p.clone() for p in model.parameters()]
    audit = cs.audit_model(model, blocks=["1"], loader=samples(), backward=step, redraws=0, directions=1)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
    # Put back after each of the passes, so that all of them are of the same weights.
    np.testing.assert_allclose(audit.logs[0].probes[0].gradient_cosine, 1, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: torch.jit.script(nn.Sequential(nn.Linear(6, 4))), "is a torch.jit module"),
        (lambda: nn.Sequential(nn.Linear(6, 4, dtype=torch.complex64)), "wanted real parameters"),
    ],
)
def test_what_cannot_be_measured_is_refused_untouched(make, says):
    with pytest.raises(BadInput, match=says):
        cs.audit_model(make(), loader=samples())


def test_a_loader_and_a_backward_that_fail_are_told_in_one_line():
    def loader():
        yield samples(n=4)
        raise OSError("disk")

    with pytest.raises(BadInput, match=r"the loader failed \(OSError: disk\)"):
        cs.audit_model(Net(), loader=loader())
    with pytest.raises(BadInput, match=r"backward=... failed \(ZeroDivisionError: division by zero\)"):
        cs.audit_model(Net(), loader=samples(), backward=lambda m, x, y: 1 / 0)


def test_draws_leave_the_generator_that_another_thread_may_use():
    model = Net()
    before = torch.get_rng_state()
    with restoring(model):
        first = [torch.randn(3), torch.rand(2), torch.randint(9, (4,)), torch.randperm(5), torch.empty(3).normal_()]
        dropped = nn.functional.dropout(torch.ones(64), 0.5)
        assert torch.equal(torch.get_rng_state(), before)
    with restoring(model):
        again = [torch.randn(3), torch.rand(2), torch.randint(9, (4,)), torch.randperm(5), torch.empty(3).normal_()]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert 0 < int((dropped == 0).sum()) < 64
