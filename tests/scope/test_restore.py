"""The model as it was found, whatever happens inside."""

import pytest
import torch
from scope.nets import Net, same, samples, state_of_model, train
from torch import nn

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
