"""What a reader would see at once: words that overlap, run off the page or sit on a caption box."""

from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 0.75


def words(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that is drawn, with its place in pixels, at the resolution of a saved picture."""
    figure.set_dpi(300)
    figure.canvas.draw()
    hidden = {id(label) for axes in figure.axes for label in _tick_labels(axes, drawn=False)}
    hidden |= {id(text) for axes in figure.axes for text in _axis_words(axes)}
    texts = [text for text in figure.findobj(Text) if id(text) not in hidden]
    return [
        (text.get_text(), text.get_window_extent()) for text in texts if text.get_visible() and text.get_text().strip()
    ]


def _axis_words(axes: Axes) -> list[Text]:
    """The words of axes that are switched off."""
    if axes.axison:
        return []
    return [axes.xaxis.label, axes.yaxis.label, *_tick_labels(axes, drawn=True), *_tick_labels(axes, drawn=False)]


def _tick_labels(axes: Axes, drawn: bool) -> list[Text]:
    """Tick labels inside (or outside) the view: matplotlib keeps both, and draws the first."""
    found = []
    for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            inside = low <= tick.get_loc() * (1 + 1e-12) and tick.get_loc() * (1 - 1e-12) <= high
            if inside == drawn:
                found += [tick.label1, tick.label2]
    return found


def problems(figure: Figure) -> list[object]:
    """Everything that is wrong with the page."""
    placed = words(figure)
    return [*_touching(placed), *_outside(figure, placed), *misplaced_captions(figure)]


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that touch."""
    return _touching(words(figure))


def _touching(found: list[tuple[str, Bbox]]) -> list[tuple[str, str]]:
    placed = [(text, _shrunk(box)) for text, box in found]
    return [(a, b) for (a, box_a), (b, box_b) in combinations(placed, 2) if box_a.overlaps(box_b)]


def clipped(figure: Figure) -> list[str]:
    """Texts that run off the page."""
    return _outside(figure, words(figure))


def _outside(figure: Figure, found: list[tuple[str, Bbox]]) -> list[str]:
    width, height = figure.bbox.width, figure.bbox.height
    return [
        text
        for text, box in found
        if box.x0 < -SLACK or box.y0 < -SLACK or box.x1 > width + SLACK or box.y1 > height + SLACK
    ]


def misplaced_captions(figure: Figure) -> list[str]:
    """Caption boxes that touch a panel or do not hold their words; the page has been drawn."""
    boxed = [axes for axes in figure.axes if any(patch.get_gid() == "caption" for patch in axes.patches)]
    wrong = []
    for axes in boxed:
        box = next(patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)).get_window_extent()
        text = axes.texts[0]
        inside = text.get_window_extent()
        if inside.x0 < box.x0 or inside.x1 > box.x1 or inside.y0 < box.y0 or inside.y1 > box.y1:
            wrong.append(f"words leave their box: {text.get_text()}")
        for other in figure.axes:
            around = other.get_tightbbox() if other.axison else None
            if around is not None and _shrunk(around).overlaps(_shrunk(box)):
                wrong.append(f"box touches a panel: {text.get_text()}")
    return wrong


def smallest_type(figure: Figure) -> float:
    """The smallest font size on the page, in points."""
    return min(text.get_fontsize() for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip())


def _shrunk(box: Bbox) -> Bbox:
    return Bbox([[box.x0 + SLACK, box.y0 + SLACK], [box.x1 - SLACK, box.y1 - SLACK]])
