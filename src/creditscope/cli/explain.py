"""``creditscope explain``: which ingredient of a recipe causes what."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.audit import Format
from creditscope.cli.options import OwnRules
from creditscope.cli.written import written


def explain(
    method: Annotated[str, typer.Argument(help="The method to explain, e.g. dfa-rms.")],
    preset: Annotated[str, typer.Option(help="Where the other settings come from.")] = "demo",
    data: Annotated[str | None, typer.Option(help="Data set; default: the preset's.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of data that is not bundled; default: the CREDITSCOPE_DATA variable.")
    ] = None,
    switches: Annotated[str | None, typer.Option(help="Ingredients, separated by commas; default: all.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, separated by commas; default: the preset's.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, e.g. epochs=5; repeat for more.")
    ] = None,
    rules: OwnRules = None,
    pairs: Annotated[int, typer.Option(help="How many of those that matter are also flipped in pairs.")] = 3,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Screen at few epochs first, then what moved most.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; default: explain-METHOD.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw the effects with their intervals: .pdf, .png or .svg.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan with its time, and stop.")] = False,
) -> None:
    """Change each ingredient of a recipe: which causes what?

    Each alone, then those that matter in pairs.
    Same seeds, same order of data, matched frozen twins. Killed and called again, it goes on where it was.
    Examples: `creditscope explain dfa-rms`; `creditscope explain dfa-rms --switches normalisation,lr-up --dry-run`.
    """
    from creditscope.cli.progress import TrainDisplay
    from creditscope.cli.train import parse_seeds, parse_settings
    from creditscope.data import load_data
    from creditscope.figures.effects_plot import write_effects
    from creditscope.figures.write import check_suffix
    from creditscope.plans.presets import preset as find_preset
    from creditscope.records.table import Table
    from creditscope.rules.build import given_rules
    from creditscope.studies.explain import explain as run_explain
    from creditscope.studies.explain import plan_explain

    if figure is not None:
        check_suffix(figure.suffix)
    asked = {
        "preset": preset,
        "data": load_data(data or find_preset(preset).data, data_dir),
        "switches": None if switches is None else [name.strip() for name in switches.split(",")],
        "seeds": None if seeds is None else parse_seeds(seeds),
        "changes": parse_settings(set_ or []),
        "rules": rules or [],
    }
    plan = plan_explain(method, **asked)  # type: ignore[arg-type]
    table = Table(("switch", "change"), tuple((name, each.words) for name, each in plan.flipped.items()))
    typer.echo(table.to_text(shutil.get_terminal_size((120, 24)).columns), err=not dry_run)
    for name, why in plan.refused:
        typer.echo(f"left out: {name}: {why}", err=not dry_run)
    fleets = len({spec.stack_key for spec in plan.runs})
    typer.echo(f"{len(plan.runs)} runs in {fleets} fleets, then pairs of those that matter", err=not dry_run)
    if dry_run:
        seconds = plan.seconds(device, given_rules(rules or []))
        typer.echo(f"about {seconds:.0f} s on this device without the pairs; nothing was trained")
        return
    with TrainDisplay() as display:
        found = run_explain(
            method,
            **asked,  # type: ignore[arg-type]
            out=out or Path(f"explain-{plan.base.method}"),
            pairs=pairs,
            budget=budget,
            device=device,
            progress=display,
        )
    if figure is not None:
        write_effects(found, figure)
        typer.echo(f"wrote {figure}", err=True)
    typer.echo(written(found, format_))
