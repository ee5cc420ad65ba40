"""What a reader sees, in every figure and both widths: no overlap, no truncation, all type large enough."""

import pytest
from figures.cases import Shape, audit_suite, foreign, penalty_suite, run, runs, snapshot_suite, vit_suite
from figures.layout import clipped, misplaced_captions, overlapping, problems, smallest_type, words

from creditscope.figures import draw_figure
from creditscope.figures.hero_text import QUADRANTS
from creditscope.figures.page import fit, pretty, text_width, wrap
from creditscope.figures.style import styled


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
    boxes = {text: box for text, box in words(figure) if text in QUADRANTS.values()}
    panel = next(axes for axes in figure.axes if "Γ" in axes.get_xlabel())
    assert set(boxes) == set(QUADRANTS.values())
    zero = panel.transData.transform((0, 0))[0]
    air = 0.01 * 300
    for name in ("neither", "accurate"):
        box = boxes[QUADRANTS[name]]
        assert panel.bbox.x0 + air < box.x0 < box.x1 < zero - air


def test_the_title_with_cost_and_gap_takes_one_line():
    figure = draw_figure("penalty-rescue", penalty_suite()).figure
    (title,) = [text for text, _ in words(figure) if text.startswith("(c) Cost to BP")]
    assert "\n" not in title


def test_panels_are_stacked_in_one_column():
    def rows(width: str) -> int:
        axes = [axes for axes in draw_figure("hero", audit_suite(5), width).figure.axes if axes.axison]
        return len({round(axes.get_position().y0, 3) for axes in axes})

    assert rows("two") == 1
    assert rows("one") == 3


def test_an_empty_panel_says_why_inside():
    figure = draw_figure("hero", published()).figure
    assert any("no log holds cosines" in text for text, _ in words(figure))


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
