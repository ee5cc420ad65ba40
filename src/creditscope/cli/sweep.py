"""``creditscope sweep``: a grid of runs from a YAML file, here or on a Ray cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from creditscope.cli.options import OwnRules
from creditscope.cli.say import say

if TYPE_CHECKING:
    from creditscope.execution.plan import Plan


def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="Which runs: see examples/sweeps.")],
    on: Annotated[str, typer.Option("--on", metavar="local|ray", help="Where to train.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="A running Ray cluster (auto, HOST:PORT); default: a Ray of our own here.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for logs and checkpoints.")] = Path("runs"),
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="With --on ray: upload finished files there (file://, s3://)."),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(help="With --on ray: a folder that every machine sees; there a lost fleet goes on, not anew."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of data that is not bundled; default: the CREDITSCOPE_DATA variable.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    fleet_size: Annotated[
        int | None, typer.Option(min=1, help="Most runs of a fleet; default: as many as fit the memory.")
    ] = None,
    cpus: Annotated[int, typer.Option(min=1, help="With --on ray: cores a fleet asks for.")] = 1,
    gpus: Annotated[
        float | None, typer.Option(min=0, help="With --on ray: GPUs a fleet asks for; default: 1 if there are any.")
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="With --on ray: how often a lost fleet is run again.")] = 3,
    rules: OwnRules = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the runs that --out already holds.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
) -> None:
    """Train a grid of runs from a YAML file, here or on Ray.

    Finished runs are never done again; a changed setting is a new run.

    Examples: `creditscope sweep examples/sweeps/quick.yaml`; `creditscope sweep grid.yaml --on ray --address auto
    --fleet-size 64 --out runs`.
    """
    from creditscope.cli.display import plan_text, summary_text
    from creditscope.cli.progress import TrainDisplay
    from creditscope.errors import BadInput
    from creditscope.execution.context import check_device, pick_device
    from creditscope.execution.plan import known_bytes
    from creditscope.execution.ray_cluster import RaySettings
    from creditscope.execution.sweep import sweep as train_sweep
    from creditscope.execution.sweep import sweep_runs, sweep_seconds
    from creditscope.rules.build import given_rules

    if on == "local" and (address or store or scratch):
        raise BadInput("--address, --store and --scratch go with --on ray; add it, or drop them")
    check_device(device)
    where = pick_device(device if on == "local" else "cpu")
    asked = sweep_runs(spec, data_dir, rules or ())
    given = given_rules(rules or ())

    def show(plan: "Plan") -> None:
        largest = max((known_bytes(job.specs, where.type, given) or 0 for job in plan.jobs), default=0)
        done = f"{len(plan.done)} of {len(plan.runs)} runs are done already; " if plan.done else ""
        say(plan_text([job.specs for job in plan.jobs]))
        say(f"{done}the largest fleet takes about {largest / 2**20:.0f} MiB")
        if dry_run:
            seconds = sweep_seconds(plan, asked.remote, where)
            say(f"about {seconds:.0f} s one after another on this {where.type}, by a short calibration")

    place = RaySettings(address, cpus, gpus, retries, store, scratch) if on == "ray" else on
    with TrainDisplay(show) as display:
        logs = train_sweep(
            asked,
            out,
            on=place,
            device=device,
            fleet_size=fleet_size,
            resume=resume,
            dry_run=dry_run,
            progress=display,
        )
    if dry_run:
        say("nothing was trained (--dry-run)")
        return
    say(summary_text(logs))
    say(f"{len(logs)} logs in {out}; next: creditscope audit {out}")
