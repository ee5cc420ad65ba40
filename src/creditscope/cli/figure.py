"""``creditscope figure``: one of the four artefacts that are pictures, from run logs."""

from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.options import Form, Logs, Methods, TextOrJson, Where, read_logs
from creditscope.cli.say import say


def _names() -> list[str]:
    from creditscope.figures import ARTEFACTS

    return list(ARTEFACTS)


def figure(
    name: Annotated[
        str,
        typer.Argument(help="hero, penalty-rescue, penalty-sweep, snapshot or survival.", autocompletion=_names),
    ],
    logs: Logs,
    out: Annotated[Path, typer.Option(help="The picture: .pdf, .png or .svg; its data go beside it as .csv.")],
    where: Where = None,
    methods: Methods = None,
    width: Annotated[str, typer.Option(help="one or two text columns.")] = "two",
    height: Annotated[
        float | None,
        typer.Option(metavar="INCHES", help="Of the whole figure; one column is at most 4.5 unless asked."),
    ] = None,
    index: Annotated[
        str, typer.Option(help="hero only: cosines in the published index, or acts: where the credit acts.")
    ] = "published",
    format_: Form = TextOrJson.text,
) -> None:
    """Draw one of the figures from logs.

    A missing run is named on stderr and the rest is drawn.

    Example: `creditscope figure hero runs --methods bp,fa,dfa-rms --where epochs=100 --out hero.pdf`.
    """
    import json

    from creditscope.figures import check_request, write_figure

    request = check_request(name, out, width, index, height)
    drawn = write_figure(name, read_logs(logs, where, methods).logs, out, request.width, request.index, request.height)
    for line in drawn.warnings:
        say(line, err=True)
    if format_ is TextOrJson.json:
        say(json.dumps(drawn.table.to_dict() | {"out": str(out)}, indent=2, allow_nan=False))
        return
    for path in (out, out.with_suffix(".csv")):
        say(f"wrote {path}")
