"""``creditscope reproduce``: a whole study in one command."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from creditscope.cli.say import say
from creditscope.errors import BadInput


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="demo|paper|zoo",
            help="demo: bundled images, minutes. paper: CIFAR-10. zoo: every rule on every model that it can train.",
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for everything; default: the study's name.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of data that is not bundled; default: the CREDITSCOPE_DATA variable.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out already holds.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, with the time from a short calibration, and stop.")
    ] = False,
    small: Annotated[bool, typer.Option("--small", help="zoo: two small models on the bundled images.")] = False,
    part: Annotated[
        str | None, typer.Option(help="zoo: some of mlp, resmlp, resnet, vit-mini, gpt-mini; default: all.")
    ] = None,
    rules: Annotated[
        str | None, typer.Option(help="zoo: some rules, each with its twins, such as fa,kp; default: all.")
    ] = None,
) -> None:
    """Train, audit, draw and report a whole study.

    The zoo gives every rule and every twin the same three learning rates, chosen on held-out training samples.
    """
    if name == "zoo":
        _zoo(out or Path(name), data_dir, device, (resume, dry_run), (small, part, rules))
        return
    if small or part or rules:
        raise BadInput(f"--small, --part and --rules are options of zoo, got {name!r}; drop them")
    from creditscope.cli.display import fit, plan_text, say_verdicts, terminal_columns
    from creditscope.cli.progress import TrainDisplay
    from creditscope.protocol.present import sections
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
    say_verdicts(made.audit, sections(made.audit, timeline=False)[:1], terminal_columns())
    say("")
    for path in made.files:
        say(f"wrote {path}")
    say(f"why, check by check: creditscope audit {folder / 'runs'}")


def _zoo(
    out: Path,
    data_dir: Path | None,
    device: str,
    how: tuple[bool, bool],
    which: tuple[bool, str | None, str | None],
) -> None:
    from creditscope.cli.display import fit, say_verdicts, terminal_columns
    from creditscope.cli.progress import TrainDisplay
    from creditscope.figures import write_figure
    from creditscope.protocol.audit import audit
    from creditscope.protocol.present import sections
    from creditscope.studies.zoo import plan_table, plan_zoo, train_zoo, training_seconds

    resume, dry_run = how
    small, parts, rules = which
    planned = plan_zoo(small, _listed(parts), _listed(rules), data_dir)
    table = plan_table(planned)
    say(fit(table))
    for each in planned:
        for rule, why in each.left_out.items():
            say(f"left out of {each.part.name}: {rule}: {why}", err=True)
    say(f"{sum(each.count for each in planned)} runs in all")
    if not resume:  # whoever goes on knows how long it takes
        seconds = sum(training_seconds(each, device) for each in planned)
        say(f"about {seconds / 60:.1f} minutes of training steps on this device, measuring apart")
    if dry_run:
        say("nothing was trained (--dry-run)")
        return
    with TrainDisplay() as display:
        logs = train_zoo(planned, out, device, resume, display)
    judged = audit(logs)
    say_verdicts(judged, sections(judged, timeline=False)[:1], terminal_columns())
    for suffix in (".pdf", ".png"):
        drawn = write_figure("survival", logs, out / f"survival{suffix}")
    for line in drawn.warnings:
        say(line, err=True)
    say("")
    for suffix in (".pdf", ".png", ".csv"):
        say(f"wrote {out / f'survival{suffix}'}")
    say(f"why, check by check: creditscope audit {out}/*/runs")


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
