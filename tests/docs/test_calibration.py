"""The page on error rates: what its file holds is what the simulation gives, and a broken promise would stand there."""

import json
from itertools import pairwise
from pathlib import Path

import make_calibration
import pytest
from error_rates import Rates
from make_calibration import BEYOND, PARTS, SEEDS

DOCS = Path(__file__).parents[2] / "docs"
BY_KEY = {part.key: part for part in (*PARTS, *BEYOND)}


def test_the_page_is_what_its_script_writes():
    assert (DOCS / "calibration.md").read_text(encoding="utf-8") == make_calibration.build(), "run make_calibration.py"


@pytest.mark.parametrize(("key", "row"), [("redrawn", 45), ("aligned", 45), ("depth", 1), ("learning", 13)])
def test_a_stored_count_is_what_the_simulation_gives(key, row):
    part = BY_KEY[key]
    stored = make_calibration.counted(part)[row]
    again = make_calibration.rates_of(part.made[row], part.judged, stored.trials, row)
    # Rounding on another machine may decide a trial that lies on the edge.
    assert (again.passes, again.fires) == pytest.approx((stored.passes, stored.fires), abs=1)
    assert stored.passes + stored.fires > 0


def test_every_promise_is_asked_over_all_numbers_of_seeds_and_all_nulls():
    assert {made.seeds for part in PARTS for made in part.made} == set(SEEDS)
    assert {made.null_sd for made in BY_KEY["redrawn"].made} == {0.02, 0.05, 0.15}
    for part in (*PARTS, *BEYOND):
        for made, rates in zip(part.made, make_calibration.counted(part), strict=True):
            assert made.seeds > 1 or (rates.passes, rates.fires) == (0, 0), "one seed decides nothing"


def changed(monkeypatch, key, change):
    held = json.loads(json.dumps(make_calibration.stored()))
    for rates in held["rates"][key]:
        change(rates)
    monkeypatch.setattr(make_calibration, "stored", lambda: held)


def test_a_broken_promise_is_bold_and_named(monkeypatch):
    title = BY_KEY["redrawn"].title
    assert f"- {title}" not in make_calibration.build()
    changed(monkeypatch, "redrawn", lambda rates: rates.update(passes=200))
    assert "**5.0 ± 0.3**" in make_calibration.build()
    assert f"- {title}: passes 5.0 ± 0.3 % (3 seeds, null sd 0.02" in make_calibration.build()
    assert f"- {title}: passes 5.0 ± 0.1 % with 10 seeds, promised 2 %" in make_calibration.build()


def test_a_check_that_hardly_fires_where_it_should_is_named(monkeypatch):
    assert make_calibration.broken(BY_KEY["blind"]) == []
    changed(monkeypatch, "blind", lambda rates: rates.update(fires=3400))
    assert len(make_calibration.broken(BY_KEY["blind"])) == sum(made.seeds > 1 for made in BY_KEY["blind"].made)


def test_redrawn_feedback_is_promised_less_where_seeds_spread_no_wider_than_the_null():
    promised = {made.spread: make_calibration.promised(BY_KEY["redrawn"], made) for made in BY_KEY["redrawn"].made}
    assert promised == {1: 0.01, 3: 0.02}


def test_more_seeds_see_smaller_effects():
    for rows in (make_calibration.stored()["cosines"], make_calibration.stored()["margins"]):
        for few, many in pairwise(rows):
            if few["seeds"] < many["seeds"] and few["passes"] is not None:
                assert many["passes"] < few["passes"]
                assert many["fires"] > few["fires"]


def test_the_share_and_its_error_by_hand():
    rates = Rates(400, 100, 0)
    assert (rates.share("passes"), rates.error("passes")) == (0.25, pytest.approx((0.25 * 0.75 / 400) ** 0.5))
    assert rates.error("fires") == pytest.approx((1 / 400 * 399 / 400 / 400) ** 0.5)
