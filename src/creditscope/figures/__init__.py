"""The figures: arithmetic in ``x_table``, drawing in ``plot_x``; every value computed from logs. No torch here."""

from creditscope.figures.hero import hero_table
from creditscope.figures.hero_plot import plot_hero
from creditscope.figures.penalty_rescue import penalty_rescue_table
from creditscope.figures.penalty_rescue_plot import plot_penalty_rescue
from creditscope.figures.penalty_sweep import penalty_sweep_table, plot_penalty_sweep
from creditscope.figures.snapshot import plot_snapshot, snapshot_table
from creditscope.figures.survival import plot_survival, survival_table
from creditscope.figures.table import Point, Table
from creditscope.figures.write import ARTEFACTS, Drawn, check_request, draw_figure, write_figure

__all__ = [
    "ARTEFACTS",
    "Drawn",
    "Point",
    "Table",
    "check_request",
    "draw_figure",
    "hero_table",
    "penalty_rescue_table",
    "penalty_sweep_table",
    "plot_hero",
    "plot_penalty_rescue",
    "plot_penalty_sweep",
    "plot_snapshot",
    "plot_survival",
    "snapshot_table",
    "survival_table",
    "write_figure",
]
