"""``creditscope compare``: two sets of runs side by side."""

from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.audit import Format
from creditscope.cli.written import written


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A folder or log file, or a method.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    logs: Annotated[Path, typer.Option("--in", help="Folder in which methods are looked up.")] = Path("runs"),
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Compare two folders, or two methods of one folder.

    What differs in the recipe, and in everything measured.
    Differences are paired over the seeds that both have, with 95 % intervals, corrected for how many there are.
    Examples: `creditscope compare old new`; `creditscope compare dfa dfa-rms --in runs`.
    """
    from creditscope.errors import BadInput
    from creditscope.protocol.comparison import compare as set_side_by_side
    from creditscope.records.load import load_logs
    from creditscope.records.log import RunLog
    from creditscope.records.method import parse_method

    def side(name: str) -> list[RunLog]:
        if Path(name).exists():
            loaded = load_logs([Path(name)])
            wanted = list(loaded.logs)
        else:
            loaded = load_logs([logs])
            method = str(parse_method(name))
            wanted = [log for log in loaded.logs if log.spec.method == method]
            keys = {log.spec.match_key for log in wanted}
            wanted += [
                log for log in loaded.logs if log.spec.is_baseline and log.spec.match_key in keys and log not in wanted
            ]
        for skipped in loaded.skipped:
            typer.echo(f"skipped {skipped.file}: {skipped.why}", err=True)
        if not wanted:
            raise BadInput(f"{name!r} is neither a file or folder here nor a method of a run in {logs}")
        return wanted

    found = set_side_by_side(side(a), side(b))
    typer.echo(written(found, format_))
