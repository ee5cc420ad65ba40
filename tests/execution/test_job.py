"""One fleet as a job: its halves, what counts as out of memory, and how an error ends it."""

import pickle

import pytest
import torch
from cases.fleets import spec

from creditscope.errors import BadFile, argument
from creditscope.execution.job import FleetJob, is_out_of_memory, outcome_of


def test_what_counts_as_out_of_memory():
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value)


def test_an_error_that_follows_on_it_counts_and_ctrl_c_does_not():
    for after, counts in ((ValueError("cannot save"), True), (KeyboardInterrupt(), False)):
        after.__context__ = MemoryError()
        assert is_out_of_memory(after) == counts


def test_halves_are_the_whole():
    runs = tuple(spec("bp", seed=seed) for seed in range(3))
    first, second = FleetJob(1, runs, threads=2).halves()
    assert (len(first.specs), first.specs + second.specs) == (1, runs)
    assert (first.threads, second.threads) == (2, 2)


def test_an_outcome_keeps_the_error_and_nothing_of_where_it_came_from():
    try:
        raise BadFile("x.jsonl: torn; ", argument("resume", True))
    except BadFile as error:
        kept = outcome_of(error).error
    assert kept.__traceback__ is None
    assert pickle.loads(pickle.dumps(kept)).with_flags == "x.jsonl: torn; --resume"
    with pytest.raises(ZeroDivisionError):
        outcome_of(ZeroDivisionError())
