"""``creditscope identify``: which rule is a code really?"""

from typing import Annotated

import typer


def identify(
    code: Annotated[
        str,
        typer.Argument(
            metavar="package.module:Name",
            help="A function without arguments that gives (model, update, data): a torch module, update(model, batch) "
            "or None for loss.backward(), and a pair of tensors or batches (x, y).",
        ),
    ],
    samples: Annotated[int, typer.Option(min=32, help="On how many samples, one step on each.")] = 320,
    steps: Annotated[int, typer.Option(min=0, help="Steps before the matrices are looked at again.")] = 10,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    format: Annotated[str, typer.Option("--format", help="text, json or md.")] = "text",
) -> None:
    """Find out which rule a code really is, layer by layer.

    From the steps that it takes; with a card to paste.

    The module runs with your rights: identify only code that you would run yourself.

    Example: `creditscope identify their_code.audit:pieces --format md`.
    """
    from creditscope.errors import BadInput, did_you_mean
    from creditscope.registry import load
    from creditscope.scope.identify import identify as identified

    if format not in ("text", "json", "md"):
        raise BadInput(f"wanted --format text, json or md, got {format!r}; {did_you_mean(format, ('text', 'json'))}")
    made = load(code, "code")
    if not callable(made):
        raise BadInput(f"wanted {code} as a function that gives (model, update, data), got a {type(made).__name__}")
    pieces = made()
    if not isinstance(pieces, (tuple, list)) or len(pieces) != 3:
        raise BadInput(f"wanted (model, update, data) from {code}, got a {type(pieces).__name__}; return the three")
    model, update, data = pieces
    card = identified(model, update, data, name=code, samples=samples, steps=steps, seed=seed)
    typer.echo(card.to_json() if format == "json" else card.to_markdown() if format == "md" else card.to_text())
