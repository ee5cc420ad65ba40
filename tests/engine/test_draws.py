"""What the fleet deals: every run its own order, crops and targets, whoever is beside it."""

import pytest
import torch
from cases.fleets import features, images, spec

from creditscope.data.batches import normalise, pad_images
from creditscope.data.order import epoch_crops, epoch_order, random_targets
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
            x, y = draws.next_batch()
            for run, order in enumerate(orders):
                assert torch.equal(x[run], features().x_train[order[step]].double())
                assert torch.equal(y[run], features().y_train[order[step]])


def test_every_sample_once_an_epoch():
    draws = Draws([spec("bp", batch=12)], features())
    draws.begin(3)
    seen = torch.cat([draws.next_batch().x[0] for _ in range(draws.steps)])
    assert torch.equal(seen.sort(0).values, features().x_train.double().sort(0).values)


def test_random_targets_are_fixed_and_the_runs_own():
    runs = [spec("bp", seed=1), spec("bp", seed=1, targets="random"), spec("bp", seed=2, targets="random")]
    draws = Draws(runs, features())
    assert torch.equal(draws.targets[0], features().y_train)
    for run in (1, 2):
        assert torch.equal(draws.targets[run], random_targets(runs[run].seed, 60, 3))
    assert not torch.equal(draws.targets[1], draws.targets[2])


def test_runs_of_one_seed_share_a_draw_but_not_their_targets():
    runs = [spec("bp", images(), seed=s, augment="crop4+flip", targets=t) for s, t in ((1, "labels"), (1, "random"))]
    x, y = Draws(runs, images()).next_batch()
    assert torch.equal(x[0], x[1])
    assert not torch.equal(y[0], y[1])
    alone, _ = Draws(runs[1:], images()).next_batch()
    assert torch.equal(alone[0], x[1])


def test_crops_are_those_of_the_runs_stream():
    run = spec("bp", images(), seed=3, augment="crop4+flip", dtype="float32")
    draws = Draws([run], images())
    draws.begin(2)
    down, right, flip = epoch_crops(3, 2, draws.steps, run.batch)
    order = epoch_order(3, 2, 64, run.batch)
    padded = pad_images(images().x_train, images().mean)
    for step in range(draws.steps):
        x = draws.next_batch().x[0]
        for at, image in enumerate(order[step]):
            top, left = int(down[step, at]), int(right[step, at])
            crop = padded[image][:, top : top + 4, left : left + 4]
            want = normalise(crop.flip(-1) if flip[step, at] else crop, images().mean, images().std)
            assert torch.equal(x[at], want)


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
    with pytest.raises(BadInput, match="a batch of 61 cannot be taken from 60"):
        Draws([spec("bp", batch=61)], features())
