"""The one way to print: what a log or a file name brings cannot steer the terminal."""

import typer


def say(text: str, *, err: bool = False) -> None:
    """Print a text; control characters, escapes and undecodable bytes are shown as such.

    Args:
        text: One or more lines.
        err: Whether to stderr.
    """
    from creditscope.records.table import visible

    typer.echo(visible(text), err=err)
