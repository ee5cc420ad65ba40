"""One-file HTML report, the reporting form and per-layer tables, all from run logs. No torch here."""

from creditscope.report.form import per_layer_table, reporting_form
from creditscope.report.page import render_report, write_report

__all__ = ["per_layer_table", "render_report", "reporting_form", "write_report"]
