"""The linter: pitfalls in a user's own measuring code, from its syntax tree. Nothing is executed."""

from creditscope.lint.finding import Finding, LintReport, Skipped
from creditscope.lint.pitfall import Pitfall
from creditscope.lint.pitfalls import PITFALLS, pitfall
from creditscope.lint.run import lint_files, lint_source

__all__ = ["PITFALLS", "Finding", "LintReport", "Pitfall", "Skipped", "lint_files", "lint_source", "pitfall"]
