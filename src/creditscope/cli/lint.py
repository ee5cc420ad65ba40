"""``creditscope lint``: warn of the pitfalls in measuring code."""

from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.say import say


def lint(
    files: Annotated[list[Path] | None, typer.Argument(help="Python files, notebooks or folders.")] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    explain: Annotated[str | None, typer.Option("--explain", help="Explain one code, such as CS001, and stop.")] = None,
) -> None:
    """Warn of the pitfalls in your own measuring code.

    Exit 1 if there are any, 2 if nothing could be linted.

    Examples: `creditscope lint measure.py`; `creditscope lint --explain CS001`.
    """
    import json

    from creditscope.errors import BadInput, CreditscopeError, did_you_mean
    from creditscope.lint import lint_files, pitfall

    try:
        if format not in ("text", "json"):
            raise BadInput(f"wanted --format text or json, got {format!r}; {did_you_mean(format, ('text', 'json'))}")
        if explain is not None:
            say(pitfall(explain).explain())
            return
        if not files:
            raise BadInput("wanted files or folders to lint, got none; try `creditscope lint measure.py`")
        report = lint_files(files)
    except CreditscopeError as error:
        say(f"creditscope lint: {error}", err=True)
        raise typer.Exit(2) from None

    for skipped in report.skipped:
        say(f"skipped {skipped.file}: {skipped.why}", err=True)
    if format == "json":
        say(json.dumps(report.to_dict(), indent=2))
    else:
        for finding in report.findings:
            say(f"{finding}\n    fix: {finding.fix}")
    say(f"{_count(len(report.findings), 'finding')} in {_count(len(report.linted), 'file')}", err=True)
    if not report.linted:
        raise typer.Exit(2)
    if report.findings:
        raise typer.Exit(1)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
