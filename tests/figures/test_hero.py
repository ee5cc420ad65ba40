"""The hero's numbers against plain loops over the rows, and its words against opposite cases."""

import math
import statistics

import pytest
from figures.cases import COLLAPSED, DEPTH, Shape, audit_suite, foreign, run, runs

from creditscope.figures import hero_table
from creditscope.figures.hero import MOST_SERIES
from creditscope.figures.table import EXACT
from creditscope.figures.text import sci
from creditscope.records import DataSpec, RunLog
from creditscope.records.measured import Cosines, Gamma

HEALTHY_DFA = Shape(300.0, 0.04, 0.5, (0.4, 0.4, 0.3, 0.35, 0.3), (0.4, 0.3, 0.35, 0.3, 0.3), 0.4)


def raw(log: RunLog) -> dict:
    """The last row as plain data."""
    return log.epochs[-1].model_dump()


def spread(values: list[float]) -> tuple[float, float, float]:
    mean, sd = statistics.fmean(values), statistics.stdev(values)
    return mean, mean - sd, mean + sd


def edit(log: RunLog, **fields: object) -> RunLog:
    """The same run with other values in its last row."""
    last = log.epochs[-1].model_copy(update=fields)
    return RunLog(log.name, log.header, (*log.epochs[:-1], last), log.probes, log.end)


@pytest.mark.parametrize("method", ["bp", "fa-block", "dfa-rms", "dfa-rms@frozen"])
def test_every_value_is_the_seed_mean_of_the_last_rows(method):
    logs = audit_suite(20)
    mine = [log for log in logs if log.spec.method == method]
    table = hero_table(logs)
    (pair,) = table.of("A", method)
    accuracies, gammas = [raw(log)["test_accuracy"] for log in mine], [raw(log)["gamma"]["published"] for log in mine]
    assert (pair.y, pair.low, pair.high) == pytest.approx(spread(accuracies), rel=1e-12)
    assert (pair.x, pair.x_low, pair.x_high) == pytest.approx(spread(gammas), rel=1e-12)
    cosines, norms = table.of("B", method), table.of("C", method)
    assert [point.x for point in cosines] == list(range(DEPTH))
    assert [point.x for point in norms] == list(range(DEPTH + 1))
    for points, key, inner in ((cosines, "cosine_published", "mean"), (norms, "reference", "median")):
        for point in points:
            values = [raw(log)[key][inner][int(point.x)] for log in mine]
            assert (point.y, point.low, point.high) == pytest.approx(spread(values), rel=1e-12, abs=1e-15)
            assert point.logs == tuple(log.name for log in mine)
            assert point.n == 3


def test_acting_index_shows_the_acting_cosine_and_its_mean():
    logs = runs("dfa-rms", epochs=20)
    table = hero_table(logs, "acts")
    points = table.of("B", "dfa-rms")
    assert [point.x for point in points] == list(range(DEPTH + 1))
    for point in points:
        assert point.y == pytest.approx(statistics.fmean(raw(log)["cosine"]["mean"][int(point.x)] for log in logs))
    (pair,) = table.of("A", "dfa-rms")
    assert pair.x == pytest.approx(statistics.fmean(raw(log)["gamma"]["acting"] for log in logs))


def test_captions_say_collapse_only_where_the_logs_show_it():
    sick = hero_table([*runs("bp"), *runs("dfa-rms", shape=COLLAPSED)])
    well = hero_table([*runs("bp"), *runs("dfa-rms", shape=HEALTHY_DFA)])
    cosines = {point.x: point.y for point in sick.of("B", "dfa-rms")}
    deep = sorted(value for block, value in cosines.items() if block > 0)
    assert plain(sick.panel("B").caption).startswith(
        f"dfa-rms is aligned at l = 0 alone ({cosines[0]:.2f}); elsewhere {deep[0]:z.2f} to {deep[-1]:.2f}."
    )
    least = min(point.y for point in well.of("B", "dfa-rms"))
    assert f"dfa-rms is aligned at every l shown: at least {least:.2f} at l = " in plain(well.panel("B").caption)
    assert "Exact by construction: bp." in well.panel("B").caption
    norms = [point.y for point in sick.of("C", "dfa-rms")]
    (floor,) = [point.y for point in sick.of("C", kind="line")]
    assert max(norms) < floor
    assert plain(sick.panel("C").caption).startswith(
        f"dfa-rms sinks below the floor at every l shown, down to {sci(min(norms))}: "
        f"{sci(floor / min(norms))} times too small. bp stays above the floor 1.28e-5"
    )
    assert plain(well.panel("C").caption).startswith("Every reference stays above the floor 1.28e-5: the least is ")
    assert "sinks" not in well.panel("C").caption


def test_a_cosine_against_the_reference_is_said_with_its_place():
    shape = Shape(300.0, 0.04, 0.5, (0.4, -0.2, 0.0, -0.3, 0.0), (0.4, -0.2, 0.0, -0.3, 0.0), 0.1)
    caption = plain(hero_table(runs("dfa-rms", shape=shape)).panel("B").caption)
    assert "; against the reference at l = 1, 3." in caption


def test_quadrant_words_follow_the_signs():
    low = Shape(300.0, 0.04, 0.05, (-0.2,) * 5, (-0.2,) * 5, 0.0)
    odd = Shape(300.0, 0.04, 0.5, (-0.2,) * 5, (-0.2,) * 5, 0.0)
    table = hero_table([*runs("bp"), *runs("dfa", shape=low), *runs("fa-block", shape=odd)])
    caption = plain(table.panel("A").caption)
    at = {point.series: point for point in table.of("A", kind="point")}
    assert f"Looks like learning: bp (Γ 1.00, accuracy {at['bp'].y:.2f})." in caption
    assert f"Neither: dfa (Γ −0.20, accuracy {at['dfa'].y:.2f})." in caption
    assert f"Accurate, not aligned: fa-block (Γ −0.20, accuracy {at['fa-block'].y:.2f})." in caption
    assert plain(hero_table(runs("bp")).panel("A").caption).startswith("Looks like learning: bp (")
    both = plain(hero_table(audit_suite(5)).panel("A").caption)
    assert both.startswith("Looks like learning: all ")


@pytest.mark.parametrize(("frozen", "words"), [(0.45, "Below its own frozen"), (0.15, "Above its own frozen")])
def test_frozen_twin_is_compared_by_its_sign(frozen, words):
    twin = Shape(300.0, 0.04, frozen, COLLAPSED.acting, COLLAPSED.published, 0.0)
    logs = [*runs("dfa-rms"), *runs("dfa-rms@frozen", shape=twin)]
    caption = plain(hero_table(logs).panel("A").caption)
    means = [statistics.fmean(raw(log)["test_accuracy"] for log in logs[i : i + 3]) for i in (0, 3)]
    assert words in caption
    assert f"dfa-rms {100 * (means[0] - means[1]):+.1f} pp".replace("+-", "-").replace(" -", " −") in caption


def test_a_frozen_run_of_another_recipe_is_no_twin():
    logs = [*runs("dfa-rms", epochs=30), *runs("dfa-rms@frozen", epochs=20)]
    assert "twin" not in hero_table(logs).panel("A").caption


def test_chance_is_one_over_classes_and_unknown_is_said():
    (line,) = hero_table(runs("bp", classes=20)).of("A", kind="line")
    assert line.y == 1 / 20
    assert line.logs == tuple(log.name for log in runs("bp", classes=20))
    unknown = hero_table([foreign("bp", 1, full=True)])
    assert unknown.of("A", kind="line") == ()
    assert "no line is drawn" in unknown.panel("A").caption
    mixed = hero_table([*runs("bp", classes=20), *runs("dfa")])
    assert mixed.of("A", kind="line") == ()


def test_missing_families_are_named():
    assert hero_table(runs("bp")).warnings == (
        "hero: no fa run in these logs; drawn without it",
        "hero: no dfa run in these logs; drawn without it",
    )
    assert hero_table(audit_suite(10)).warnings == ()


def test_foreign_partial_logs_show_what_they_hold():
    table = hero_table([foreign("bp", 1, full=True), foreign("dfa-rms+pen0.01", 1)])
    assert table.panel("B").empty == "no log holds cosines block by block"
    assert {point.series for point in table.of("A", kind="point")} == {"bp"}
    assert [point.x for point in table.of("C", "dfa+pen0.01") if point.y is not None] == [2.0]
    assert "hero: the logs of dfa+pen0.01 hold nothing for panel A or B" in table.warnings
    assert any("dfa+pen0.01 (4)" in note for note in table.notes)
    assert any("not logged, read as a mean over 128: dfa+pen0.01" in note for note in table.notes)


def test_exact_by_construction_is_marked_and_unusable_cosines_are_left_out():
    log = run("dfa-rms")
    status = ["ok", "zero-vector", "below-fidelity", "ok", "ok"]
    log = edit(log, cosine_published=Cosines(mean=[0.4, None, 0.9, 0.1, 0.0], status=status))
    table = hero_table([log, run("bp")])
    assert [point.y for point in table.of("B", "dfa-rms")] == [0.4, None, None, 0.1]
    assert any("cosines left out (below-fidelity, zero-vector)" in note for note in table.notes)
    assert {point.note for point in table.of("B", "bp")} == {EXACT}
    assert {point.note for point in table.of("B", "dfa-rms")} == {""}


def test_a_zero_on_the_log_axis_is_left_out_and_said():
    log = run("dfa-rms")
    norms = log.epochs[-1].reference.model_copy(update={"median": [0.1, 0.0, 0.1, None, 0.1]})
    table = hero_table([edit(log, reference=norms)])
    assert "Left out of panel C, zero or not logged: dfa-rms (2)." in table.notes


def test_a_killed_seed_stays_out_of_the_mean():
    logs = [*runs("dfa-rms", seeds=(42, 123)), run("dfa-rms", 456, stop=7)]
    table = hero_table(logs)
    (pair,) = table.of("A", "dfa-rms")
    assert pair.n == 2
    assert pair.y == pytest.approx(statistics.fmean(raw(log)["test_accuracy"] for log in logs[:2]))
    assert "dfa-rms, seed 456: ended early, left out of the mean." in table.notes


def test_runs_that_all_ended_early_are_shown_at_their_last_common_epoch():
    logs = [run("dfa-rms", 1, stop=7), run("dfa-rms", 2, stop=9)]
    table = hero_table(logs)
    (pair,) = table.of("A", "dfa-rms")
    assert pair.y == pytest.approx(statistics.fmean(log.epochs[7].test_accuracy for log in logs))
    assert "dfa-rms: ended early; shown at its last common epoch, 7." in table.notes


def test_a_clamped_gamma_is_used_only_alone_and_said():
    log = edit(run("dfa-rms"), gamma=Gamma(clamped=0.3))
    table = hero_table([log])
    assert table.of("A", "dfa-rms")[0].x == 0.3
    assert "dfa-rms: Γ is the clamped value, the only one logged." in table.notes
    both = hero_table([edit(run("dfa-rms"), gamma=Gamma(clamped=0.3, published=0.2))])
    assert both.of("A", "dfa-rms")[0].x == 0.2
    assert not any("clamped" in note for note in both.notes)


def test_one_seed_has_no_error_bar():
    table = hero_table([run("bp"), run("dfa-rms")])
    assert all(point.low is None and point.high is None for point in table.points)
    assert "One seed each: no error bars." in table.notes


def test_more_methods_than_can_be_told_apart_are_named_not_drawn():
    logs = [run("dfa-rms", width=width) for width in range(10, 10 + MOST_SERIES + 2)]
    table = hero_table(logs)
    assert len(table.series) == MOST_SERIES
    (line,) = [line for line in table.warnings if "not drawn" in line]
    assert "d = 18" in line or "d = 19" in line


def test_claims_are_drawn_first_and_then_the_twins_they_clear_by_the_least():
    """Seven claims, three twins with margins of +10, −10 and +1 points: one place is left, for the one that wins."""

    def pair(width, margin):
        shape = Shape(300.0, 0.04, 0.4, (0.1,) * 5, (0.1,) * 5, 0.0)
        twin = Shape(300.0, 0.04, 0.4 - margin, (0.1,) * 5, (0.1,) * 5, 0.0)
        return [run("dfa-rms", shape=shape, width=width), run("dfa-rms@frozen", shape=twin, width=width)]

    rivals = [log for width, margin in ((10, 0.1), (11, -0.1), (12, 0.01)) for log in pair(width, margin)]
    claims = [run("dfa-rms", width=width) for width in range(13, 17)]
    table = hero_table([*reversed(rivals), *claims])
    drawn = [item.label for item in table.series]
    assert len(drawn) == MOST_SERIES == 8
    assert [label for label in drawn if "@frozen" in label] == ["dfa-rms@frozen (d = 11)"]
    left_out = "dfa-rms@frozen (d = 10), dfa-rms@frozen (d = 12)"
    assert f"Not drawn: {left_out}." in table.notes
    assert any(left_out in line for line in table.warnings)
    caption = plain(table.panel("A").caption)
    assert "Below its own frozen-blocks twin: dfa-rms (d = 11) −10.0 pp." in caption
    assert "Above it: dfa-rms (d = 10) +10.0 pp, dfa-rms (d = 12) +1.0 pp." in caption


def test_the_strip_follows_the_logs():
    strip = hero_table(audit_suite(10)).strip
    assert (strip.depth, strip.terminal_ln) == (DEPTH, True)
    assert [card.name for card in strip.rules] == ["bp", "fa-block", "dfa"]
    assert [card.sketch.route for card in strip.rules] == ["chain", "chain", "direct"]
    mixed = hero_table([*runs("bp"), *runs("bp", terminal_ln=False)]).strip
    assert mixed.terminal_ln is None


def test_runs_on_other_data_are_another_series():
    logs = [*runs("bp"), *runs("bp", data=DataSpec(name="fashion-mini"))]
    assert [item.label for item in hero_table(logs).series] == ["bp (cifar10)", "bp (fashion-mini)"]


def test_floor_is_the_threshold_of_the_reference_check():
    (line,) = hero_table(runs("bp")).of("C", kind="line")
    assert line.y == pytest.approx(1e-7 * 128, rel=1e-15)
    assert math.isclose(line.y, 1.28e-5)


def plain(words: str) -> str:
    return words.replace("\u00a0", " ")
