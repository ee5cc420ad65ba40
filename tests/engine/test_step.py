"""The schedule, which parameters train, and which are weight matrices."""

import math

import pytest
import torch
from cases import fleets
from cases.fleets import spec

from creditscope.engine.step import (
    cross_entropy,
    dtype_of,
    precision,
    schedule_factor,
    trained_parameters,
    weight_matrices,
)


def test_cosine_falls_from_one_by_epochs():
    factors = [schedule_factor("cosine", epoch, 4) for epoch in (1, 2, 3, 4)]
    assert factors == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2], rel=1e-12)


def test_cosine_is_torchs():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=7)
    for epoch in range(1, 8):
        assert schedule_factor("cosine", epoch, 7) == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-12)
        optimiser.step()
        scheduler.step()


def test_constant_is_one():
    assert {schedule_factor("constant", epoch, 3) for epoch in (1, 2, 3)} == {1.0}


@pytest.mark.parametrize("method", ["bp", "bp@frozen", "bp@readout", "bp@last1", "bp@last3"])
def test_what_trains(method):
    run = spec(method)
    made = fleets.fleet([run])
    names = set(made.params)
    wanted = {name for name in names if fleets.trains(name, run)}
    assert trained_parameters(run, made.task.blocks, made.parts) == wanted
    assert made.trained == (wanted,)
    assert "head.weight" in wanted


def test_what_the_model_holds_fixed_does_not_train():
    def fixed(run, data):
        model = fleets.default_model(run, data)
        model.embed.weight.requires_grad_(False)
        return model

    made = fleets.fleet([spec("bp", model="mine")], factory=lambda run, data: fixed(spec("bp"), data))
    before = made.params["embed.weight"].clone()
    made.train_epoch(1)
    assert torch.equal(made.params["embed.weight"], before)
    assert not torch.equal(made.params["embed.bias"], made.init["embed.bias"])


def test_weight_matrices_are_neither_biases_nor_gains():
    made = fleets.fleet([spec("bp")])
    assert weight_matrices(made.task.blocks, made.parts) == [
        [f"blocks.{level}.branch.1.weight", f"blocks.{level}.branch.3.weight"] for level in range(3)
    ]


def test_the_loss_is_per_sample():
    logits = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0]], dtype=torch.float64)
    loss = cross_entropy(logits, torch.tensor([0, 1]))
    torch.testing.assert_close(loss, torch.tensor([math.log(2), math.log(4)], dtype=torch.float64))


def test_dtypes():
    assert dtype_of(spec("bp", dtype="bfloat16")) is torch.bfloat16


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("matmul", ["float32", "tf32"])
def test_convolutions_have_the_precision_of_products(monkeypatch, matmul, before):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", before)
    with precision(spec("bp", matmul=matmul)):
        assert torch.backends.cudnn.allow_tf32 is (matmul == "tf32")
    assert torch.backends.cudnn.allow_tf32 is before
