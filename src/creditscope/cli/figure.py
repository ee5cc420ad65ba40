"""``creditscope figure``: one of the four artefacts that are pictures, from run logs."""

from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.say import say


def figure(
    name: Annotated[str, typer.Argument(help="hero, penalty-rescue, penalty-sweep, snapshot or survival.")],
    logs: Annotated[list[Path], typer.Argument(help="Log files or folders, ours or the published JSON layouts.")],
    out: Annotated[Path, typer.Option(help="The picture: .pdf, .png or .svg; its data go beside it as .csv.")],
    width: Annotated[str, typer.Option(help="one or two text columns.")] = "two",
    index: Annotated[
        str, typer.Option(help="hero only: cosines in the published index, or acts: where the credit acts.")
    ] = "published",
) -> None:
    """Draw an artefact from run logs; a missing run is named on stderr and the rest is drawn."""
    from creditscope.figures import check_request, write_figure
    from creditscope.records.load import load_logs

    request = check_request(name, out, width, index)
    loaded = load_logs(logs)
    for skipped in loaded.skipped:
        say(f"skipped {skipped.file}: {skipped.why}", err=True)
    drawn = write_figure(name, loaded.logs, out, request.width, request.index)
    for line in drawn.warnings:
        say(line, err=True)
    say(f"wrote {out} and {out.with_suffix('.csv')}")
