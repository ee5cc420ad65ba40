"""The one table renderer: plain text, Markdown, LaTeX (booktabs) and HTML from one grid of strings."""

import html
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Align = Literal["left", "right"]
MIN_COLUMN = 6

_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030a": "r", "\u0327": "c"}
_LATEX = {
    "ø": r"{\o}",
    "Ø": r"{\O}",
    "ß": r"{\ss}",
    "æ": r"{\ae}",
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "≈": r"$\approx$",
    "−": r"$-$",
    "→": r"$\rightarrow$",
    "∞": r"$\infty$",
    "‖": r"$\|$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "λ": r"$\lambda$",
    "γ": r"$\gamma$",
    "Γ": r"$\Gamma$",
    "φ": r"$\varphi$",
    "ρ": r"$\rho$",
    "…": r"\ldots{}",
    "–": "--",
    "—": "---",
}
_MARKDOWN = {char: "\\" + char for char in "\\|`*_[]#~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
# LaTeX looks past the end of a row for \\[…] and \\*: the next cell must not start with either.
_LATEX_ROW_END = {"[": "{[}", "]": "{]}", "*": "{*}"}


# Spaces that do not break, or are thin: Python calls them unprintable.
_SPACES = "\u00a0\u2009\u202f"


@dataclass(frozen=True)
class Table:
    """A grid of strings; a newline inside a cell starts a second line of that cell.

    Args:
        columns: Headings.
        rows: Cells, one tuple a row, as long as ``columns``.
        align: Per column; left where it is not given.
        title: Shown above; becomes the LaTeX caption.
        files: A column of file names, which are never broken: in text that is too wide each has a line of its own.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    align: tuple[Align, ...] = ()
    title: str = ""
    files: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)} columns: {row}")

    @property
    def least_width(self) -> int:
        """Columns of a terminal that the text form needs when it wraps between words only."""
        return sum(self._word_widths()) + 2 * max(0, len(self.columns) - 1)

    def to_text(self, width: int | None = None) -> str:
        """Plain text with two spaces between columns and a rule under the headings.

        Args:
            width: Wrap the widest columns until the table fits; None never wraps.
        """
        if self.files and width is not None and sum(self._natural_widths()) + 2 * len(self.columns) - 2 > width:
            at = self.columns.index(self.files)
            columns, *rows = (row[:at] + row[at + 1 :] for row in (self.columns, *self.rows))
            bare = Table(columns, tuple(rows), self.align[:at] + self.align[at + 1 :], self.title)
            return bare._as_text(width, [f"  {row[at]}" for row in self.rows])
        return self._as_text(width, [])

    def _as_text(self, width: int | None, under: Sequence[str]) -> str:
        """The text; ``under`` has a line for each row, which is never wrapped."""
        widths = self._fit(width)
        lines = [self.title] if self.title else []
        lines += self._text_row(self.columns, widths)
        lines.append("  ".join("-" * w for w in widths))
        tall = any("\n" in cell for row in self.rows for cell in row)
        for index, row in enumerate(self.rows):
            lines += [""] if tall and index else []
            lines += self._text_row(row, widths)
            lines += under[index : index + 1]
        return "\n".join(visible(line, keep="") for line in lines)

    def to_markdown(self) -> str:
        """A GitHub-flavoured table."""
        marks = ["---:" if self._align(i) == "right" else "---" for i in range(len(self.columns))]
        grid = [self.columns, *self.rows]
        lines = ["| " + " | ".join(markdown(cell) for cell in row) + " |" for row in grid]
        lines.insert(1, "| " + " | ".join(marks) + " |")
        return "\n".join([f"**{markdown(self.title)}**", "", *lines] if self.title else lines)

    def to_latex(self) -> str:
        """A ``tabular`` with booktabs rules, inside a ``table`` when there is a title."""
        spec = "".join("r" if self._align(i) == "right" else "l" for i in range(len(self.columns)))
        body = [" & ".join(latex(cell) for cell in row) + r" \\" for row in self.rows]
        head = " & ".join(latex(cell) for cell in self.columns) + r" \\"
        tabular = [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        tabular.append(r"\end{tabular}")
        if not self.title:
            return "\n".join(tabular)
        return "\n".join(
            [r"\begin{table}", r"\centering", rf"\caption{{{latex(self.title)}}}", *tabular, r"\end{table}"]
        )

    def to_html(self) -> str:
        """An HTML table; every cell is escaped."""
        head = "".join(f"<th>{_html(cell)}</th>" for cell in self.columns)
        body = "".join("<tr>" + "".join(f"<td>{_html(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        caption = f"<caption>{_html(self.title)}</caption>" if self.title else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _repr_html_(self) -> str:
        return self.to_html()

    def _align(self, column: int) -> Align:
        return self.align[column] if column < len(self.align) else "left"

    def _natural_widths(self) -> list[int]:
        grid = [self.columns, *self.rows]
        return [max(len(line) for row in grid for line in row[i].split("\n")) for i in range(len(self.columns))]

    def _fit(self, width: int | None) -> list[int]:
        widths = self._natural_widths()
        room = sum(widths) if width is None else width - 2 * (len(widths) - 1)
        for least in (self._word_widths(), [MIN_COLUMN] * len(widths)):
            while sum(widths) > room and any(w > m for w, m in zip(widths, least, strict=True)):
                widest = max((i for i, w in enumerate(widths) if w > least[i]), key=widths.__getitem__)
                widths[widest] -= 1
        return widths

    def _word_widths(self) -> list[int]:
        grid = [self.columns, *self.rows]
        return [
            max((len(word) for row in grid for word in row[i].split()), default=1) for i in range(len(self.columns))
        ]

    def _text_row(self, cells: tuple[str, ...], widths: list[int]) -> list[str]:
        wrapped = [_wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
        lines = []
        for k in range(max(len(cell) for cell in wrapped)):
            parts = [cell[k] if k < len(cell) else "" for cell in wrapped]
            padded = [
                part.rjust(width) if self._align(i) == "right" else part.ljust(width)
                for i, (part, width) in enumerate(zip(parts, widths, strict=True))
            ]
            lines.append("  ".join(padded).rstrip())
        return lines


def _wrap(cell: str, width: int) -> list[str]:
    lines: list[str] = []
    for line in cell.split("\n"):
        lines += textwrap.wrap(line, max(1, width), break_on_hyphens=False) or [""]
    return lines


def visible(text: str, keep: str = "\n") -> str:
    """Text with control characters replaced, so that a name in a log cannot steer a terminal or turn a line around.

    Args:
        text: Any text.
        keep: Control characters that stay; spaces of every width always do.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep or char in _SPACES else "�" for char in text)


def csv_cell(text: str) -> str:
    """Text for one cell of a CSV file: a spreadsheet shows it, and computes nothing."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def markdown(text: str) -> str:
    """Text for one Markdown table cell."""
    return _translate(text, _MARKDOWN).replace("\n", "<br>")


def latex(text: str) -> str:
    """Text for one LaTeX table cell."""
    accented = {char: _accented(char) for char in set(text) if char.isalpha() and not char.isascii()}
    return _translate(text, accented | _LATEX | _LATEX_ROW_END).replace("\n", " ")


def _accented(char: str) -> str:
    """A letter with an accent, as every LaTeX reads it; any other letter as it is."""
    base, *marks = list(unicodedata.normalize("NFD", char))
    return f"\\{_ACCENTS[marks[0]]}{{{base}}}" if len(marks) == 1 and marks[0] in _ACCENTS else char


def _html(text: str) -> str:
    return html.escape(visible(text)).replace("\n", "<br>")


def _translate(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(char, char) for char in visible(text))
