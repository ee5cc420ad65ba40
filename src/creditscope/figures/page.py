"""The page: blocks stacked from top to bottom, measured in inches, so that nothing overlaps by construction."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cbook import is_math_text
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import text_to_path

from creditscope.figures.style import BODY, FONTS, INK, PALE, SMALL, TITLE
from creditscope.figures.table import Panel

LINE = 1.25 / 72
MARGIN = 0.06
LEFT = 0.47
LEAST_AXES = 0.43  # lower ones show nothing


@dataclass(frozen=True)
class Box:
    """A rectangle of the page in inches, from the lower left corner of the figure."""

    figure: Figure
    left: float
    bottom: float
    width: float
    height: float

    def axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """New axes inside the box.

        Args:
            left: Inches from the box's left edge.
            bottom: Inches from its lower edge.
            width: Inches.
            height: Inches.
        """
        w, h = self.figure.get_size_inches()
        return self.figure.add_axes(((self.left + left) / w, (self.bottom + bottom) / h, width / w, height / h))

    def text(self, x: float, top: float, text: str, size: float, weight: str = "normal", color: str = INK) -> None:
        """Text hung from its upper left corner.

        Args:
            x: Inches from the box's left edge.
            top: Inches below its upper edge.
            text: Already wrapped.
            size: Points.
            weight: ``normal`` or ``bold``.
            color: Ink.
        """
        w, h = self.figure.get_size_inches()
        x, y = (self.left + x) / w, (self.bottom + self.height - top) / h
        self.figure.text(
            x, y, text, fontsize=size, fontweight=weight, color=color, va="top", linespacing=1.15, ha="left"
        )


Paint = Callable[[Box], None]


@dataclass
class Page:
    """Blocks to be stacked.

    Args:
        width: Inches.
    """

    width: float
    blocks: list[tuple[float, Paint]] = field(default_factory=list)

    def add(self, height: float, paint: Paint) -> None:
        """Append a block.

        Args:
            height: Inches.
            paint: Draws it, once the page's height is known.
        """
        self.blocks.append((height, paint))

    @property
    def height(self) -> float:
        """Inches of all blocks and the margins."""
        return sum(height for height, _ in self.blocks) + 2 * MARGIN

    def figure(self) -> Figure:
        """Draw every block."""
        figure = Figure(figsize=(self.width, self.height))
        FigureCanvasAgg(figure)
        top = self.height - MARGIN
        for height, paint in self.blocks:
            paint(Box(figure, MARGIN, top - height, self.width - 2 * MARGIN, height))
            top -= height
        return figure


@dataclass(frozen=True)
class Slot:
    """One panel on the page.

    Args:
        title: Above it.
        paint: Draws into its axes.
        caption: In a box beneath; empty for none.
        right: Inches kept free on the right, for a second axis.
        weight: Share of the row's width, relative to the other panels.
        below: Inches kept free below, for tick labels and the axis label.
        left: Inches kept free on the left, for tick labels and the axis label.
    """

    title: str
    paint: Callable[[Axes], None]
    caption: str = ""
    right: float = 0.05
    weight: float = 1.0
    below: float = 0.31
    left: float = LEFT


@dataclass(frozen=True)
class Body:
    """How the panels and the small print of a figure are laid out.

    Args:
        columns: Panels a row; a last row that holds fewer is as wide.
        height: Height of the axes, in inches.
        total: Height of the whole figure; None: as high as the axes make it.
        most: What the whole figure is not higher than, in inches, unless ``total`` says so.
    """

    columns: int
    height: float
    total: float | None = None
    most: float | None = None


def add_body(
    page: Page, panels: Sequence[Panel], slot: Callable[[Panel], Slot], notes: Sequence[str], body: Body
) -> None:
    """Append the panels that show something, and the small print, which says why the others are closed.

    Args:
        page: The page.
        panels: Every panel, in reading order.
        slot: Makes one of the open ones.
        notes: Sentences.
        body: How they are laid out.
    """
    slots = [slot(panel) for panel in panels if not panel.empty]
    rows = [slots[start : start + body.columns] for start in range(0, len(slots), body.columns)]
    said = [*notes, *closed(panels)]
    height = body.height
    if (free := body.total or body.most) is not None:
        share = (free - fixed_height(page, rows, said)) / len(rows)
        height = share if body.total is not None else min(height, share)
    for row in rows:
        add_row(page, row, max(height, LEAST_AXES))
    add_notes(page, said)


def fixed_height(page: Page, rows: Sequence[Sequence[Slot]], notes: Sequence[str]) -> float:
    """Inches of a figure that are not axes: what stands on the page already, titles, captions and small print.

    Args:
        page: The page.
        rows: The panels that are to come.
        notes: The sentences that are to come.
    """
    small_print = _lines(_small_print(page, notes)) * SMALL * LINE + 0.06 if notes else 0.0
    return page.height + sum(_Row(page, row).fixed for row in rows) + small_print


def add_row(page: Page, slots: Sequence[Slot], height: float) -> None:
    """Append panels side by side.

    Args:
        page: The page.
        slots: The panels.
        height: Of their axes, in inches.
    """
    row = _Row(page, slots)
    page.add(row.fixed + height, partial(row.paint, height))


def add_notes(page: Page, notes: Sequence[str]) -> None:
    """Append the small print.

    Args:
        page: The page.
        notes: Sentences; they run on.
    """
    if text := _small_print(page, notes):
        page.add(_lines(text) * SMALL * LINE + 0.06, lambda box: box.text(0.0, 0.02, text, SMALL, color="#444444"))


def _small_print(page: Page, notes: Sequence[str]) -> str:
    return wrap(" ".join(notes), page.width - 2 * MARGIN - 0.02, SMALL)


def closed(panels: Sequence[Panel]) -> list[str]:
    """Which panels show nothing and are left out, and why.

    Args:
        panels: Every panel.
    """
    whys: dict[str, list[str]] = {}
    for panel in panels:
        if panel.empty:
            whys.setdefault(panel.empty, []).append(f"({panel.key})")
    return [f"Not drawn: {' and '.join(keys)}, {why}." for why, keys in whys.items()]


class _Row:
    """Panels side by side; titles, axes and captions line up.

    Args:
        page: Their page.
        slots: The panels.
    """

    gap = 0.1

    def __init__(self, page: Page, slots: Sequence[Slot]) -> None:
        self.slots = slots
        room = page.width - 2 * MARGIN - self.gap * (len(slots) - 1)
        share = room / sum(slot.weight for slot in slots)
        self.cells = [share * slot.weight for slot in slots]
        paired = list(zip(slots, self.cells, strict=True))
        self.titles = [wrap(slot.title, cell - 0.02, TITLE) for slot, cell in paired]
        self.captions = [wrap(slot.caption, cell - 0.16, SMALL) for slot, cell in paired]
        self.title_height = max(_lines(title) for title in self.titles) * TITLE * LINE + 0.05
        self.below = max(slot.below for slot in slots)
        tallest = max(_lines(text) for text in self.captions)
        self.box_height = tallest * SMALL * LINE + 0.12 if tallest else 0.0
        self.fixed = self.title_height + self.below + (self.box_height + 0.06 if tallest else 0.0) + 0.06

    def paint(self, height: float, box: Box) -> None:
        """Draw the row with axes of this height."""
        left, total = 0.0, self.fixed + height
        bottom = total - self.title_height - height
        for slot, cell, title, caption in zip(self.slots, self.cells, self.titles, self.captions, strict=True):
            box.text(left, self.title_height - 0.05 - _lines(title) * TITLE * LINE, title, TITLE, "bold")
            slot.paint(box.axes(left + slot.left, bottom, cell - slot.left - slot.right, height))
            if caption:
                _caption(box, left, bottom - self.below - 0.02, cell, self.box_height, caption)
            left += cell + self.gap


def _caption(box: Box, left: float, top: float, width: float, height: float, text: str) -> None:
    axes = box.axes(left, top - height, width, height)
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    patch = FancyBboxPatch(
        (0.03, 0.03),
        width - 0.06,
        height - 0.06,
        boxstyle="round,pad=0.0,rounding_size=0.06",
        facecolor=PALE,
        edgecolor="#b5b5ad",
        linewidth=0.5,
    )
    patch.set_gid("caption")
    axes.add_patch(patch)
    axes.text(0.08, height - 0.06, text, fontsize=SMALL, va="top", ha="left", linespacing=1.15, color=INK)


def add_legend(page: Page, entries: Sequence[tuple[str, Artist]]) -> None:
    """Append one legend for all panels, in as many columns as fit.

    Args:
        page: The page.
        entries: Label and handle.
    """
    if not entries:
        return
    labels = [fit(label, page.width - 2 * MARGIN - 0.5, BODY) for label, _ in entries]
    widths = [text_width(label, BODY) + 0.5 for label in labels]
    room = page.width - 2 * MARGIN
    most = next(n for n in range(len(labels), 0, -1) if n == 1 or _columns_fit(widths, n, room))
    rows = -(-len(labels) // most)
    even = -(-len(labels) // rows)
    columns = even if _columns_fit(widths, even, room) else most
    height = rows * 0.145 + 0.06

    def paint(box: Box) -> None:
        w, h = box.figure.get_size_inches()
        box.figure.legend(
            [handle for _, handle in entries],
            labels,
            loc="center",
            bbox_to_anchor=((box.left + box.width / 2) / w, (box.bottom + box.height / 2) / h),
            ncols=columns,
            frameon=False,
            handlelength=2.4,
            columnspacing=1.2,
            handletextpad=0.5,
            borderpad=0.0,
            labelspacing=0.35,
        )

    page.add(height, paint)


def _columns_fit(widths: Sequence[float], columns: int, room: float) -> bool:
    """Whether labels, filled in column by column, fit side by side."""
    short, longer = divmod(len(widths), columns)
    start, total = 0, 0.0
    for column in range(columns):
        size = short + (column < longer)
        total += max(widths[start : start + size])
        start += size
    return total <= room


def _lines(text: str) -> int:
    return text.count("\n") + 1 if text else 0


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Width of one line of text in inches.

    Args:
        text: May hold mathtext.
        size: Points.
        weight: ``normal`` or ``bold``.
    """
    font = FontProperties(family=FONTS, size=size, weight=weight)
    is_math = is_math_text(text)
    plain = text if is_math else text.replace(r"\$", "$")
    width, _, _ = text_to_path.get_text_width_height_descent(plain, font, ismath=is_math)
    return float(width) / 72


def wrap(text: str, width: float, size: float) -> str:
    """Break a text into lines that fit; a word longer than a line is split.

    Args:
        text: Plain text; quantities such as ‖h_L‖ are set as mathematics, no-break spaces hold a line together.
        width: Inches.
        size: Points.
    """
    # Titles are bold and wider than the regular weight measured here; a screen's pixel grid widens all type a little.
    room = width * (0.9 if size >= TITLE else 0.96)
    lines: list[str] = []
    line = ""
    for word in pretty(text).split(" "):
        for piece in _pieces(word, room, size):
            longer = f"{line} {piece}" if line else piece
            if not line or text_width(longer, size) <= room:
                line = longer
            else:
                lines.append(line)
                line = piece
    return "\n".join([*lines, line] if line else lines)


def _pieces(word: str, room: float, size: float) -> list[str]:
    if is_math_text(word) or text_width(word, size) <= room:
        return [word]
    take = max(1, int(len(word) * room / text_width(word, size)) - 1)
    return [word[i : i + take] for i in range(0, len(word), take)]


def fit(text: str, width: float, size: float) -> str:
    """One line of text, truncated with an ellipsis where it is too wide.

    Args:
        text: Any text, also from a foreign log.
        width: Inches.
        size: Points.
    """
    if text_width(pretty(text), size) <= width:
        return pretty(text)
    kept = next((n for n in range(len(text), 0, -1) if text_width(pretty(text[:n] + "…"), size) <= width), 0)
    return pretty(text[:kept] + "…")


_NORM = re.compile(r"‖([hg])_(\w)‖")
_SLOPE = "‖∂ℓ/∂h_l‖"
_INDEX = re.compile(r"\bl\b")


def pretty(text: str) -> str:
    """Set quantities as mathematics and disarm dollar signs.

    Args:
        text: Plain text.
    """
    plain = _INDEX.sub("$l$", text.replace("$", r"\$"))
    plain = plain.replace(_SLOPE, r"$\Vert\partial\ell/\partial{h}_{l}\Vert$")
    return _NORM.sub(r"$\\Vert{\1}_{\2}\\Vert$", plain)
