"""A scope driven by events: what it hears, what it says, and that it ends once."""

import logging
from types import SimpleNamespace

import pytest
import torch
from scope.nets import Net, samples

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.integrations.watched import Watched, decay_of

FAST = {"redraws": 9, "directions": 1}


@pytest.fixture
def watched():
    return Watched(lambda model: cs.watch(model, probe=samples(), budget=1.0, **FAST))


def test_events_give_the_rows_of_a_plain_loop(watched):
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    watched.start(model, 0)
    for number in range(2):
        watched.stepping(optimizer)
        watched.step()
        assert watched.epoch(0.5 + number / 4, 2.0) is False
    watched.finish()
    log = watched.scope.log
    rows = [(row.epoch, row.step, row.test_accuracy, row.train_loss, row.lr) for row in log.epochs[1:]]
    assert rows == [(1, 1, 0.5, 2.0, 0.25), (2, 2, 0.75, 2.0, 0.25)]
    assert log.end.status == "finished"


def test_it_ends_once_and_hears_nothing_after(watched):
    watched.start(Net(), 0)
    watched.finish(RuntimeError("the loop broke"))
    ended = watched.scope.log.end
    watched.finish()
    watched.step()
    assert watched.epoch(None, None) is False
    assert watched.scope.log.end is ended
    assert (ended.status, ended.reason) == ("failed", "RuntimeError: the loop broke")


def test_before_the_start_there_is_no_scope(watched):
    watched.finish()
    with pytest.raises(BadInput, match="nothing was watched yet: the scope is there once training has begun"):
        watched.scope  # noqa: B018


def test_a_metric_that_never_came_is_said_at_the_end(watched, caplog):
    watched.start(Net(), 0)
    assert watched.number("val_acc", {"val_accuracy": 0.5}) is None
    assert watched.number("loss", {}) is None
    assert watched.number("loss", {"loss": torch.tensor(1.5)}) == 1.5
    assert watched.number(None, {"loss": 1.0}) is None
    with caplog.at_level(logging.WARNING, "creditscope"):
        watched.finish()
    said = [line for line in caplog.messages if "metric" in line]
    assert said == ["the metric 'val_acc' was never there, the log has none; did you mean 'val_accuracy'?"]


def test_a_training_that_goes_on_is_said_to(watched, caplog):
    with caplog.at_level(logging.WARNING, "creditscope"):
        watched.start(Net(), 3)
    assert caplog.messages[0] == "training goes on after epoch 3: epoch 0 of this log is not initialisation"
    watched.finish()


def test_only_decoupled_decay_counts_and_the_largest_of_the_groups():
    one, two = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    groups = [{"params": [one], "weight_decay": 0.1}, {"params": [two], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=0.5)
    assert decay_of(adamw) == 0.05
    assert decay_of(SimpleNamespace(optimizer=adamw)) == 0.05
    assert decay_of(torch.optim.SGD([one], lr=0.5, weight_decay=0.1)) == 0.0
