"""Models that a fleet cannot train honestly are refused, by name."""

import pytest
import torch
from cases import fleets
from cases.fleets import spec
from torch import nn

from creditscope.errors import BadInput


class Net(nn.Module):
    """Three blocks with one layer more."""

    def __init__(self, extra, buffer=None):
        super().__init__()
        self.embed = nn.Linear(5, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), extra()) for _ in range(3))
        self.head = nn.Linear(6, 3)
        if buffer is not None:
            self.register_buffer("mark", buffer)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h)


def build(extra=nn.Tanh, buffer=lambda: None, seeds=(1,), **changes):
    runs = [spec("bp", seed=seed, model="mine", width=None, terminal_ln=None, **changes) for seed in seeds]
    return fleets.fleet(runs, factory=lambda run, data: Net(extra, buffer()))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (lambda: nn.BatchNorm1d(6, track_running_stats=False), "'blocks.0.1' keeps no running statistics"),
        (lambda: nn.Dropout(0.1), "'blocks.0.1' drops out units"),
        (lambda: nn.AlphaDropout(0.1), "drops out units"),
    ],
)
def test_what_cannot_be_stacked_is_refused(extra, message):
    with pytest.raises(BadInput, match=message):
        build(extra)


def test_dropout_of_nothing_is_no_dropout():
    made = build(lambda: nn.Dropout(0.0))
    assert float(made.train_epoch(1)) > 0


def test_another_number_of_blocks_than_the_spec_says():
    with pytest.raises(BadInput, match=r"the model has 3 blocks .* its spec says depth 4; set depth=3"):
        build(depth=4)


def test_every_run_has_buffers_of_its_own():
    made = build(buffer=lambda: torch.randn(3), seeds=(1, 2))
    alone = [build(buffer=lambda: torch.randn(3), seeds=(seed,)).buffers["mark"][0] for seed in (1, 2)]
    assert made.buffers["mark"].dtype == torch.float64
    assert not torch.equal(*alone)
    assert {tuple(b.tolist()) for b in made.buffers["mark"]} == {tuple(b.tolist()) for b in alone}
