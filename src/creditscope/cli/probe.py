"""``creditscope probe``: measure a saved run again."""

from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.options import OwnRules
from creditscope.cli.say import say


def probe(
    checkpoint: Annotated[Path, typer.Argument(help="A run's .safetensors file; its .jsonl log lies beside it.")],
    data: Annotated[
        str | None, typer.Option(help="Its data set, if not by the name in its spec: NAME, FILE.npz or FILE.txt.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of data that is not bundled; default: the CREDITSCOPE_DATA variable.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    redraws: Annotated[
        int | None, typer.Option(min=0, help="Redraws of the feedback null; default: the run's.")
    ] = None,
    directions: Annotated[int | None, typer.Option(min=0, help="Directions of ρ; default: the run's.")] = None,
    rules: OwnRules = None,
    model: Annotated[
        str | None, typer.Option(metavar="package.module:Name", help="What built its model, where that is your own.")
    ] = None,
) -> None:
    """Measure a checkpoint again and append to its log.

    The expensive set: nulls, ρ, nudge, fidelity and more.

    Example: `creditscope probe runs/dfa-rms-s42-1a2b3c4d.safetensors --redraws 999`.
    """
    from creditscope.engine.start import own_model
    from creditscope.execution.remeasure import probe_checkpoint

    row = probe_checkpoint(
        checkpoint,
        data=data,
        data_dir=data_dir,
        device=device,
        redraws=redraws,
        directions=directions,
        rules=rules or (),
        model=own_model(model)[1] if model is not None else None,
    )
    measured = [name for name in type(row).model_fields if getattr(row, name) and name not in _NO_PROBE]
    say(f"epoch {row.epoch}: measured {', '.join(measured)}; appended to {checkpoint.stem}.jsonl")
    for name, why in row.not_measured.items():
        say(f"not measured: {name}: {why}", err=True)


_NO_PROBE = ("kind", "epoch", "step", "not_measured", "nonfinite", "time_probe")
