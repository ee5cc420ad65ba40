"""What a reader sees, in every figure and both widths: no overlap, no truncation, all type large enough."""

import pytest
from figures.cases import Shape, audit_suite, foreign, penalty_suite, run, runs, snapshot_suite, vit_suite
from figures.layout import clipped, misplaced_captions, overlapping, problems, smallest_type, words

from creditscope.figures import draw_figure
from creditscope.figures.hero_text import QUADRANTS, SHORT
from creditscope.figures.page import fit, pretty, text_width, wrap
from creditscope.figures.penalty_rescue import CONTROL
from creditscope.figures.style import ladder, line_styles, styled


def crowded():
    below = Shape(5e3, 3e-3, 0.06, (-0.1, -0.2, -0.1, -0.05, -0.1), (-0.1, -0.2, -0.1, -0.05, -0.1), 0.0)
    return [
        *audit_suite(20),
        *runs("dfa", epochs=20),
        *runs("dfa-rms+pen0.01", epochs=20),
        *runs("dfa-rms", epochs=10),
        run("bp", 99, 20, stop=12),
        *runs("fa", shape=below, epochs=20),
    ]


def killed():
    whole = [log for log in penalty_suite() if log.spec.method != "dfa-rms+pen0.1"]
    return [*whole, run("dfa-rms+pen0.1", 42, stop=13), run("dfa-rms", 7, stop=9), run("dfa-rms+pen0.01", 7, stop=9)]


def unequal():
    return [*runs("bp", epochs=40), run("bp", 3, 25), run("dfa-rms", 1, 40), run("dfa-rms", 3, 20), *vit_suite()]


def published():
    return [
        foreign("bp", 42, 60, full=True),
        foreign("dfa-rms", 42, 60, full=True),
        *(foreign(f"dfa-rms+pen{value}", 42) for value in ("0.0001", "0.01", "0.1")),
    ]


CASES = [
    ("hero", lambda: audit_suite(20), "published"),
    ("hero", lambda: audit_suite(20), "acts"),
    ("hero", crowded, "published"),
    ("hero", published, "published"),
    ("hero", lambda: runs("dfa-rms", depth=12, probes=False, epochs=3), "published"),
    ("penalty-rescue", penalty_suite, "published"),
    ("penalty-rescue", killed, "published"),
    ("penalty-rescue", published, "published"),
    ("penalty-sweep", penalty_suite, "published"),
    ("penalty-sweep", killed, "published"),
    ("penalty-sweep", published, "published"),
    ("snapshot", snapshot_suite, "published"),
    ("snapshot", vit_suite, "published"),
    ("snapshot", unequal, "published"),
    ("snapshot", published, "published"),
]


@pytest.mark.parametrize("width", ["one", "two"])
@pytest.mark.parametrize(("name", "logs", "index"), CASES)
def test_layout(name, logs, index, width):
    figure = draw_figure(name, logs(), width, index).figure
    assert problems(figure) == []
    assert smallest_type(figure) >= 6.5
    assert figure.get_size_inches()[0] == {"one": 3.35, "two": 7.0}[width]
    # As high as a journal prints one column.
    assert width == "two" or figure.get_size_inches()[1] <= 4.5 + 1e-9


def test_the_overlap_test_can_fail():
    figure = draw_figure("hero", audit_suite(5)).figure
    figure.text(0.05, 0.5, "one upon")
    figure.text(0.05, 0.5, "the other")
    figure.text(0.97, 0.02, "off the page")
    assert ("one upon", "the other") in overlapping(figure)
    assert clipped(figure) == ["off the page"]


@pytest.mark.parametrize("width", ["one", "two"])
def test_quadrant_words_keep_clear_of_the_edges(width):
    figure = draw_figure("hero", audit_suite(5), width).figure
    names = {text: name for texts in (QUADRANTS, SHORT) for name, text in texts.items()}
    boxes = {names[text]: box for text, box in words(figure) if text in names}
    panel = next(axes for axes in figure.axes if "Γ" in axes.get_xlabel())
    assert set(boxes) == set(QUADRANTS)
    if width == "two":
        assert set(QUADRANTS.values()) <= {text for text, _ in words(figure)}
    zero = panel.transData.transform((0, 0))[0]
    air = 0.01 * 300
    for name in ("neither", "accurate"):
        box = boxes[name]
        assert panel.bbox.x0 + air < box.x0 < box.x1 < zero - air


def test_the_title_with_cost_and_gap_takes_one_line():
    figure = draw_figure("penalty-rescue", penalty_suite()).figure
    (title,) = [text for text, _ in words(figure) if text.startswith("(c) Cost to BP")]
    assert "\n" not in title


def test_one_column_has_two_rows():
    def rows(width: str) -> int:
        axes = [axes for axes in draw_figure("hero", audit_suite(5), width).figure.axes if axes.axison]
        return len({round(axes.get_position().y0, 3) for axes in axes})

    assert rows("two") == 1
    assert rows("one") == 2


@pytest.mark.parametrize("name", ["hero", "penalty-rescue", "penalty-sweep", "snapshot"])
def test_a_figure_is_as_high_as_asked(name):
    logs = audit_suite(5) if name == "hero" else penalty_suite() if "penalty" in name else snapshot_suite()
    assert draw_figure(name, logs, "one", height=8.0).figure.get_size_inches()[1] == pytest.approx(8.0)


def test_a_panel_without_a_series_is_closed_and_the_caption_says_why():
    drawn = draw_figure("hero", published())
    titles = [text for text, _ in words(drawn.figure) if text[:3] in ("(A)", "(B)", "(C)")]
    assert [title[:3] for title in titles] == ["(A)", "(C)"]
    assert any("Not drawn: (B), no log holds cosines" in text.replace("\n", " ") for text, _ in words(drawn.figure))


def test_rows_that_are_compared_have_the_same_axes():
    figure = draw_figure("snapshot", snapshot_suite()).figure
    limits = {}
    for axes in figure.axes:
        limits.setdefault(axes.get_ylabel(), set()).add(axes.get_ylim())
    assert len(limits) == 2
    assert all(len(found) == 1 for found in limits.values())


def test_lines_are_named_at_their_ends_in_their_colours():
    drawn = draw_figure("penalty-sweep", penalty_suite())
    looks = ladder([item.label for item in drawn.table.series])
    (panel,) = [axes for axes in drawn.figure.axes if axes.get_ylabel() == "test accuracy"]
    ends = {text.get_text(): text for text in panel.texts if text.get_text() in looks}
    assert set(ends) == set(looks)
    final = {item.label: drawn.table.of("c", item.label, "point")[-1].y for item in drawn.table.series}
    order = sorted(ends, key=lambda name: ends[name].xy[1])
    assert order == sorted(final, key=lambda name: final[name])
    assert all(ends[name].get_color() == looks[name].color for name in ends)
    assert drawn.figure.legends == []


def test_the_strip_names_the_drawn_methods_in_their_colours():
    drawn = draw_figure("hero", [*audit_suite(5), *runs("dfa", epochs=5)])
    looks = line_styles(drawn.table.series)
    named = {text.get_text(): text.get_color() for axes in drawn.figure.axes for text in axes.texts}
    for method in ("bp", "fa-block", "dfa-rms", "dfa"):
        assert named[method] == looks[method].color
    assert looks["dfa"].color != looks["dfa-rms"].color


def test_a_control_that_would_squash_the_bars_is_cut_and_it_is_said():
    drawn = draw_figure("penalty-rescue", penalty_suite())
    (panel,) = [axes for axes in drawn.figure.axes if "mean over" in axes.get_ylabel()]
    tallest = max(bar.high for bar in drawn.table.of("b", kind="bar") if bar.high is not None and bar.x != CONTROL)
    assert tallest < panel.get_ylim()[1] < 1.0
    assert any("bars of the BP gradient are cut, at 1.00" in text.replace("\n", " ") for text, _ in words(drawn.figure))


def test_captions_and_notes_are_printed():
    drawn = draw_figure("hero", audit_suite(5))
    shown = " ".join(text.replace("\n", " ").replace("$", "") for text, _ in words(drawn.figure))
    for words_of in (*(panel.caption for panel in drawn.table.panels), *drawn.table.notes):
        assert words_of in shown


def test_wrap_keeps_every_word_within_the_width():
    with styled():
        text = "the stream ‖h_L‖ grows and " + "x" * 90 + " ends at l\u00a0=\u00a04"
        lines = wrap(text, 1.5, 7).split("\n")
    assert all(text_width(line, 7) <= 1.5 for line in lines)
    assert "".join(lines).replace(" ", "") == pretty(text).replace(" ", "")
    assert any("$l$\u00a0=\u00a04" in line for line in lines)


def test_a_foreign_name_cannot_break_the_type():
    assert pretty("cost $5") == r"cost \$5"
    assert text_width(fit("x" * 300, 1.0, 7), 7) <= 1.0
    log = run("dfa-rms")
    odd = log.__class__(
        "odd.json",
        log.header.model_copy(
            update={"spec": log.spec.model_copy(update={"origin": "import", "rule": "we$ird_{\\frac" + "y" * 200})}
        ),
        log.epochs,
        (),
        log.end,
    )
    for width in ("one", "two"):
        figure = draw_figure("hero", [odd, *runs("bp")], width).figure
        assert clipped(figure) == []
        assert misplaced_captions(figure) == []
