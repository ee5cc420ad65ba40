"""What the fleet deals: every run its own order, crops and targets, whoever is beside it."""

import pytest
import torch
from cases.fleets import features, images, spec

from creditscope.data.order import epoch_order, random_targets
from creditscope.engine.draws import Draws
from creditscope.errors import BadInput


def test_batches_follow_the_runs_own_order():
    runs = [spec("bp", seed=seed) for seed in (1, 2, 1)]
    draws = Draws(runs, features())
    assert draws.steps == 5
    for epoch in (1, 2, 1):
        draws.begin(epoch)
        orders = [epoch_order(run.seed, epoch, 60, 12) for run in runs]
        for step in range(draws.steps):
            x, y = draws.deal()
            for run, order in enumerate(orders):
                assert torch.equal(x[run], features().x_train[order[step]])
                assert torch.equal(y[run], features().y_train[order[step]])


def test_every_sample_once_an_epoch():
    draws = Draws([spec("bp", batch=12)], features())
    draws.begin(3)
    seen = torch.cat([draws.deal().x[0] for _ in range(draws.steps)])
    assert torch.equal(seen.sort(0).values, features().x_train.sort(0).values)


def test_random_targets_are_fixed_and_the_runs_own():
    runs = [spec("bp", seed=1), spec("bp", seed=1, targets="random"), spec("bp", seed=2, targets="random")]
    draws = Draws(runs, features())
    assert torch.equal(draws.targets[0], features().y_train)
    for run in (1, 2):
        assert torch.equal(draws.targets[run], random_targets(runs[run].seed, 60, 3))
    assert not torch.equal(draws.targets[1], draws.targets[2])


def test_buffers_stay_where_they_are():
    """A CUDA graph reads them at the address it recorded."""
    draws = Draws([spec("bp", images(), augment="crop4+flip")], images())
    places = [buffer.data_ptr() for buffer in draws._buffers]
    draws.begin(2)
    assert [buffer.data_ptr() for buffer in draws._buffers] == places


def test_crops_of_what_is_no_picture_are_refused():
    with pytest.raises(BadInput, match=r"wants uint8 images, 'synthetic' holds torch.float32 of shape \(5,\)"):
        Draws([spec("bp", augment="crop4+flip")], features())


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(BadInput, match="a batch of 61 cannot be cut from 60"):
        Draws([spec("bp", batch=61)], features())
