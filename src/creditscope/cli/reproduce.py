"""``creditscope reproduce``: a whole study in one command."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.say import say


def reproduce(
    name: Annotated[str, typer.Argument(metavar="demo|paper", help="demo: bundled images, minutes. paper: CIFAR-10.")],
    out: Annotated[Path | None, typer.Option(help="Folder for everything; default: the study's name.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of data that is not bundled; default: the CREDITSCOPE_DATA variable.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out already holds.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, with the time from a short calibration, and stop.")
    ] = False,
) -> None:
    """Train everything the five artefacts need, audit it, draw the figures and write the report."""
    from creditscope.cli.display import TrainDisplay, fit, plan_text
    from creditscope.protocol.present import render, sections
    from creditscope.records.table import Table
    from creditscope.studies.reproduce import plan, study
    from creditscope.studies.reproduce import reproduce as run_study

    chosen = study(name)
    if dry_run:
        planned = plan(chosen, data_dir, device, lambda number, of: say(f"timing fleet {number} of {of} ...", err=True))
        say(plan_text([members for members, _ in planned]))
        rows = [
            (str(number), *(f"{seconds:.0f} s" for seconds in (cost.train, cost.measure, cost.probe, cost.total)))
            for number, (_, cost) in enumerate(planned, 1)
        ]
        say("")
        say(fit(Table(("fleet", "training", "measuring", "probing", "total"), tuple(rows))))
        say(f"about {sum(cost.total for _, cost in planned):.0f} s on this device; nothing was trained")
        return
    folder = out or Path(name)
    with TrainDisplay() as display:
        command = "creditscope " + " ".join(sys.argv[1:])
        made = run_study(
            chosen, folder, data_dir=data_dir, device=device, resume=resume, progress=display, command=command
        )
    for warning in made.warnings:
        say(warning, err=True)
    say(render(sections(made.audit, timeline=False, decisions=True)[:1], "table", None))
    say("")
    for path in made.files:
        say(f"wrote {path}")
    say(f"why, check by check: creditscope audit {folder / 'runs'}")
