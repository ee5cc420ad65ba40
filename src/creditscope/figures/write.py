"""From logs to a picture and its data: draw, save byte for byte the same, and show in a notebook."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from matplotlib.figure import Figure

from creditscope.errors import BadInput, argument, did_you_mean
from creditscope.figures.hero import Index, hero_table
from creditscope.figures.hero_plot import plot_hero
from creditscope.figures.penalty_rescue import penalty_rescue_table
from creditscope.figures.penalty_rescue_plot import plot_penalty_rescue
from creditscope.figures.penalty_sweep import penalty_sweep_table, plot_penalty_sweep
from creditscope.figures.snapshot import plot_snapshot, snapshot_table
from creditscope.figures.style import Width, styled
from creditscope.figures.survival import plot_survival, survival_table
from creditscope.figures.table import Table
from creditscope.records import RunLog
from creditscope.records.files import write_together

ARTEFACTS: dict[
    str, tuple[Callable[[Sequence[RunLog], Index], Table], Callable[[Table, Width, float | None], Figure]]
] = {
    "hero": (hero_table, plot_hero),
    "penalty-rescue": (lambda logs, index: penalty_rescue_table(logs), plot_penalty_rescue),
    "penalty-sweep": (lambda logs, index: penalty_sweep_table(logs), plot_penalty_sweep),
    "snapshot": (lambda logs, index: snapshot_table(logs), plot_snapshot),
    "survival": (lambda logs, index: survival_table(logs), plot_survival),
}
MIN_HEIGHT, MAX_HEIGHT = 1.5, 20.0
# Metadata without a date or a version, so that the same logs give the same bytes.
_METADATA: dict[str, dict[str, Any]] = {
    ".pdf": {"Creator": "creditscope", "Producer": "creditscope", "CreationDate": None},
    ".png": {"Software": "creditscope"},
    ".svg": {"Creator": "creditscope", "Date": None},
}


@dataclass(frozen=True)
class Drawn:
    """A figure with the data behind it; a notebook shows it as a picture.

    Args:
        figure: The picture.
        table: Its data, with the logs behind each value.
    """

    figure: Figure
    table: Table

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which runs are missing, one line each."""
        return self.table.warnings

    def encode(self, suffix: str) -> bytes:
        """The picture in one file format.

        Args:
            suffix: ``.pdf``, ``.png`` or ``.svg``.
        """
        return encoded(self.figure, suffix)

    def _repr_png_(self) -> bytes:
        return self.encode(".png")


def encoded(figure: Figure, suffix: str) -> bytes:
    """A picture in one file format, byte for byte the same each time.

    Args:
        figure: The picture.
        suffix: ``.pdf``, ``.png`` or ``.svg``.
    """
    check_suffix(suffix)
    out = io.BytesIO()
    with styled():
        figure.savefig(out, format=suffix[1:].lower(), metadata=_METADATA[suffix.lower()])
    return out.getvalue()


def check_suffix(suffix: str) -> None:
    """Refuse a file format that no figure can be written in.

    Args:
        suffix: With its dot.
    """
    if suffix.lower() not in _METADATA:
        wanted = ", ".join(_METADATA)
        said = f" must end in one of {wanted}, got {suffix or 'no suffix'!r}; rename the output file"
        raise BadInput(argument("out"), said)


@dataclass(frozen=True)
class Request:
    """Options that were checked.

    Args:
        width: One or two text columns.
        index: Which cosines the hero shows.
        height: Inches of the whole figure; None: as the width has it.
    """

    width: Width
    index: Index
    height: float | None = None


def check_request(name: str, out: Path, width: str, index: str, height: float | None = None) -> Request:
    """Refuse bad options before any log is read.

    Args:
        name: The artefact.
        out: Where it goes.
        width: ``one`` or ``two``.
        index: ``published`` or ``acts``.
        height: Inches.
    """
    _check_name(name)
    check_suffix(out.suffix)
    if not out.parent.is_dir():
        said = f": there is no folder {out.parent.name!r} to write {out.name} in; make it first"
        raise BadInput(argument("out"), said)
    if width not in get_args(Width):
        raise BadInput(argument("width"), f" wants {' or '.join(get_args(Width))}, got {width!r}")
    if index not in get_args(Index):
        raise BadInput(argument("index"), f" wants {' or '.join(get_args(Index))}, got {index!r}")
    if index != "published" and name != "hero":
        raise BadInput(argument("index"), f" is an option of hero only; drop it for {name}")
    if height is not None and not MIN_HEIGHT <= height <= MAX_HEIGHT:
        raise BadInput(argument("height"), f" wants {MIN_HEIGHT:g} to {MAX_HEIGHT:g} inches, got {height:g}")
    return Request(cast(Width, width), cast(Index, index), height)


def _check_name(name: str) -> None:
    if name not in ARTEFACTS:
        raise BadInput(f"no figure is called {name!r}; {did_you_mean(name, ARTEFACTS)}")


def draw_figure(
    name: str, logs: Sequence[RunLog], width: Width = "two", index: Index = "published", height: float | None = None
) -> Drawn:
    """Draw one artefact from run logs.

    Args:
        name: ``hero``, ``penalty-rescue``, ``penalty-sweep``, ``snapshot`` or ``survival``.
        logs: Any runs, ours or imported.
        width: One or two text columns.
        index: Hero only: ``published``, or ``acts``: cosines where the credit acts.
        height: Inches of the whole figure; None: as the width has it, in one column no more than a journal prints.
    """
    _check_name(name)
    table_of, plot = ARTEFACTS[name]
    table = table_of(logs, index)
    if not table.drawn:
        reasons = "; ".join(dict.fromkeys(panel.empty for panel in table.panels))
        raise BadInput(f"{name}: nothing to draw from {len(logs)} logs: {reasons}; pass logs that hold these")
    with styled():
        return Drawn(plot(table, width, height), table)


def write_figure(
    name: str,
    logs: Sequence[RunLog],
    out: Path,
    width: Width = "two",
    index: Index = "published",
    height: float | None = None,
) -> Drawn:
    """Write one artefact, and next to it a CSV with the data of every panel and the logs behind them.

    Args:
        name: ``hero``, ``penalty-rescue``, ``penalty-sweep``, ``snapshot`` or ``survival``.
        logs: Any runs, ours or imported.
        out: The picture: ``.pdf``, ``.png`` or ``.svg``.
        width: One or two text columns.
        index: Hero only: ``published``, or ``acts``: cosines where the credit acts.
        height: Inches of the whole figure; None: as the width has it, in one column no more than a journal prints.
    """
    check_suffix(out.suffix)
    drawn = draw_figure(name, logs, width, index, height)
    write_together({out.with_suffix(".csv"): drawn.table.to_csv().encode(), out: drawn.encode(out.suffix)})
    return drawn
