"""Steps are asked for in pieces where a GPU takes them slowly; the GPU here is one of our own making."""

import pytest
import torch

from creditscope.engine import cuda_streams
from creditscope.engine.cuda_streams import ASKING_SECONDS, Streams

STEP = ASKING_SECONDS / 4


class Card(Streams):
    """Does a step in ``STEP`` seconds and holds ``room`` of them: the next one waits until there is room."""

    def __init__(self, room):
        super().__init__(torch.device("cpu"))
        self.room = room
        self.clock = 0.0
        self.done_at = []

    def ask(self):
        begin = max([self.clock, *self.done_at[-1:]])
        if len(self.done_at) >= self.room:
            self.clock = max(self.clock, self.done_at[-self.room])
        self.done_at.append(begin + STEP)

    def mark(self):
        done = self.done_at[-1]
        return type("Mark", (), {"query": lambda mark: self.clock >= done})()

    def ahead_by(self):
        return sum(done > self.clock for done in self.done_at)


@pytest.fixture
def card(monkeypatch):
    made = Card(room=10)
    monkeypatch.setattr(cuda_streams.time, "monotonic", lambda: made.clock)
    return made


def test_a_card_with_room_is_asked_for_all_at_once(card):
    assert list(card.paced(10, card.ask)) == []
    assert card.clock == 0


def test_a_card_that_is_full_is_left_alone_until_half_is_done(card):
    held, freed = [], []
    for ready in card.paced(100, card.ask):
        held.append(card.ahead_by())
        assert not ready()
        while not ready():
            card.clock += STEP / 10
        freed.append(card.ahead_by())
    assert len(card.done_at) == 100
    assert len(held) > 5
    assert set(held) == {10}
    assert set(freed) == {4}
    # It never stood still.
    assert card.done_at[-1] == pytest.approx(100 * STEP)


def test_nobody_waits_longer_than_said(card):
    began = 0.0
    for ready in card.paced(100, card.ask):
        assert card.clock - began < ASKING_SECONDS + 2 * STEP
        while not ready():
            card.clock += STEP / 10
        began = card.clock


def test_a_host_that_was_held_up_goes_on_at_once(card):
    """A recording takes seconds, and by then the GPU has done what it was asked for."""

    def slow():
        card.ask()
        card.clock += 1.0

    assert all(ready() for ready in card.paced(3, slow))
    assert len(card.done_at) == 3


def test_a_cpu_is_asked_for_all_steps_in_turn():
    asked = []
    assert list(Streams(torch.device("cpu")).paced(7, lambda: asked.append(1))) == []
    assert len(asked) == 7
