"""``creditscope sweep``: a grid of runs from a YAML file, here or on a Ray cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from creditscope.execution.sweep import SweepPlan


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
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the runs that --out already holds.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
) -> None:
    """Train a sweep. Finished runs are never done again; a changed setting is a new run.

    Examples: `creditscope sweep examples/sweeps/quick.yaml`; `creditscope sweep grid.yaml --on ray --address auto
    --fleet-size 64 --out runs`.
    """
    from contextlib import ExitStack

    from creditscope.cli.display import plan_text, summary_text
    from creditscope.cli.sweep_display import SweepDisplay
    from creditscope.engine.memory import fleet_bytes, free_bytes
    from creditscope.errors import BadInput
    from creditscope.execution.cost import sweep_seconds
    from creditscope.execution.job import FleetJob, dataset
    from creditscope.execution.local import pick_device
    from creditscope.execution.ray_cluster import RayFleets
    from creditscope.execution.sweep import InProcess, fetch_done, hold_sweep, plan_sweep, read_logs, run_sweep
    from creditscope.plans.grid import expand
    from creditscope.plans.spec_file import read_spec

    if on not in ("local", "ray"):
        raise BadInput(f"--on {on}: wanted local or ray")
    if on == "local" and (address or store or scratch):
        raise BadInput("--address, --store and --scratch go with --on ray; add it, or drop them")
    wanted = read_spec(spec)
    loaded = {name: dataset(name, data_dir) for name in wanted.data}
    specs = expand(wanted, {name: (data.spec, data.classes) for name, data in loaded.items()})
    names = {data.spec.name: name for name, data in loaded.items()}
    if len(names) < len(loaded):
        raise BadInput(f"{spec.name}: two data files share a name ({', '.join(loaded)}); rename one")
    where = pick_device(device if on == "local" else "cpu")
    pattern = FleetJob(0, (), "", data_dir, device, cpus if on == "ray" else None, store, scratch)
    with ExitStack() as stack:
        if not dry_run:
            hold_sweep(out, stack, alone=on == "ray")
            if store is not None:
                fetch_done(store, specs, out)
        plan = plan_sweep(
            specs,
            out,
            data=names,
            resume=resume or dry_run or store is not None,
            limit=free_bytes(where) if on == "local" else None,
            fleet_size=fleet_size,
            job=pattern,
            where=where.type,
        )
        typer.echo(plan_text([job.specs for job in plan.jobs]))
        typer.echo(_more(plan, max((fleet_bytes(job.specs, where.type) for job in plan.jobs), default=0)))
        if on == "local" or device == "cpu" or dry_run:
            seconds = sweep_seconds(plan, where)
            typer.echo(f"about {seconds:.0f} s one after another on this {where.type}, by a short calibration")
        else:
            typer.echo("how long it takes is not known before its fleets run: the cluster's devices are not here")
        if dry_run:
            typer.echo("nothing was trained (--dry-run)")
            return
        display = stack.enter_context(SweepDisplay(plan))
        if on == "local":
            run_sweep(plan, out, InProcess(out, display), display.on_fleet)
        elif plan.jobs:
            ray = stack.enter_context(RayFleets(address, cpus, gpus, device, retries))
            display.say_slots(ray.slots)
            run_sweep(plan, out, ray, display.on_fleet)
        logs = read_logs(plan, out)
    typer.echo(summary_text(logs))
    typer.echo(f"{len(logs)} logs in {out}; next: creditscope audit {out}")


def _more(plan: "SweepPlan", largest: int) -> str:
    done = f"{len(plan.done)} of {len(plan.runs)} runs are done already; " if plan.done else ""
    return f"{done}the largest fleet takes about {largest / 2**20:.0f} MiB"
