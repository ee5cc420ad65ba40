"""Groups and segments cover a fleet without gap or overlap."""

from itertools import pairwise

import torch
from cases import fleets
from cases.fleets import METHODS, spec

from creditscope.engine.groups import fleet_order


def made():
    runs = [spec(m, seed=s, lr=(0.01, 0.02)[s % 2]) for m in METHODS for s in (1, 2)]
    return fleets.fleet(runs)


def test_each_rule_is_one_group_and_its_frozen_twins_another():
    fleet = made()
    rules = [(one.rule, str(one.options), one.credit_norm, one.train_last == 0) for one in fleet.specs]
    assert len(fleet.groups) == len(set(rules)) == 9
    assert [g.start for g in fleet.groups] == [0, *(g.stop for g in fleet.groups[:-1])]
    assert fleet.groups[-1].stop == len(fleet.specs)
    for group in fleet.groups:
        assert len(set(rules[group.runs])) == 1
        assert all(fleet.group_of(run) is group for run in range(group.start, group.stop))


def test_segments_share_rate_and_mask_and_stay_in_their_group():
    fleet = made()
    segments = fleet.optimiser.segments
    assert [s.start for s in segments] == [0, *(s.stop for s in segments[:-1])]
    assert segments[-1].stop == len(fleet.specs)
    for segment in segments:
        runs = range(segment.start, segment.stop)
        assert {fleet.specs[run].optimiser.lr for run in runs} == {segment.lr}
        assert {fleet.trained[run] for run in runs} == {segment.trained}
        assert len({id(fleet.group_of(run)) for run in runs}) == 1


def test_penalties_are_one_number_a_run_or_none_at_all():
    fleet = made()
    for group in fleet.groups:
        wanted = [one.penalty for one in fleet.specs[group.runs]]
        assert ("penalty" in group.numbers) == any(wanted)
        if any(wanted):
            torch.testing.assert_close(group.numbers["penalty"], torch.tensor(wanted, dtype=torch.float64))


def test_a_run_without_penalty_beside_one_with_it_is_untouched():
    plain, _ = fleets.trained([spec("dfa")])
    beside, _ = fleets.trained([spec("dfa"), spec("dfa+pen1")])
    at = next(run for run, one in enumerate(beside.specs) if one.penalty == 0)
    for name, p in plain.params.items():
        torch.testing.assert_close(beside.params[name][at], p[0], rtol=1e-9, atol=1e-12)


def test_the_order_is_total():
    keys = [fleet_order(one) for one in made().specs]
    assert all(a < b for a, b in pairwise(keys))


def test_no_gradient_is_formed_of_what_trains_in_no_run():
    fleet = made()
    dealt = fleet.draws.next_batch()
    for at, group in enumerate(fleet.groups):
        grads = fleet.credit(at, *dealt)
        assert all(group.start <= start < group.stop for _, start in grads)
        assert {name for name, _ in grads} == group.trained
        wanted = set().union(*fleet.trained[group.start : group.stop])
        assert group.trained == wanted
    assert any(not any(name.startswith("blocks.") for name in group.trained) for group in fleet.groups)
