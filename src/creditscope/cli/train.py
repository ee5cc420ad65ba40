"""``creditscope train``: train a preset or a list of methods, and log all of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from creditscope.cli.options import Checks, protocol_of
from creditscope.cli.say import say
from creditscope.models import MODELS
from creditscope.registry import DATASETS, GRAMMAR
from creditscope.rules import RULES

if TYPE_CHECKING:
    from creditscope.records import EndRow, EpochRow, HeaderRow, ProbeRow


def train(
    preset: Annotated[
        str, typer.Option(help="Which list of runs: demo, audit, penalty, snapshot or vit (see --dry-run).")
    ] = "demo",
    rules: Annotated[
        str | None,
        typer.Option(
            help="Methods instead of the preset's, separated by commas: "
            f"{GRAMMAR} with RULE one of {', '.join(RULES.names())}, or package.module:Name of your own; "
            "e.g. bp,dfa-rms,dfa-rms+pen0.01,dfa-rms@frozen,bp@last2."
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, separated by commas, e.g. 42,123,456; default: the preset's.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(DATASETS.names())}, FILE.npz, FILE.txt (a text), or package.module:Name of your own; "
            "default: the preset's."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of data that is not bundled; default: the CREDITSCOPE_DATA variable.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(MODELS.names())}, or package.module:Name of your own, called as ResMLP is; default: the "
            "preset's."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs; default: the preset's.")] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(help="adamw, or sgd: with momentum, and decoupled decay as AdamW's; default: the preset's."),
    ] = None,
    momentum: Annotated[float | None, typer.Option(help="Of --optimizer sgd, 0 (none) to 1; default: 0.9.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder for logs and checkpoints.")] = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the runs that --out already holds.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting: width=128, depth=6, lr=1e-3, terminal_ln=false, targets=random, rule.OPTION=..., "
            "model.OPTION=... (mlp: model.activation=tanh), ...",
        ),
    ] = None,
    monitor: Annotated[
        str | None, typer.Option(metavar="alert|stop", help="Judge while training: say when a run is lost, or stop it.")
    ] = None,
    check: Checks = None,
    log_to: Annotated[
        str | None,
        typer.Option(
            metavar="SINK,…",
            help="Write each row to other tools too: tensorboard, wandb, mlflow, csv, parquet, separated by commas.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
) -> None:
    """Train runs; each leaves a log and a checkpoint.

    Runs of equal shape train as one stack.

    Examples: `creditscope train --preset demo --out demo`; `creditscope train --preset penalty --data-dir ~/cifar10
    --device cuda --out runs`; `creditscope train --rules bp,dfa-rms,dfa-rms@frozen --data mine.npz --set width=128`.
    """
    from creditscope.cli.display import plan_text, summary_text
    from creditscope.cli.progress import TrainDisplay
    from creditscope.data import load_data
    from creditscope.engine.start import own_model
    from creditscope.errors import BadInput
    from creditscope.execution.context import pick_device
    from creditscope.execution.local import local_limits
    from creditscope.execution.local import train as train_specs
    from creditscope.execution.plan import pack
    from creditscope.integrations.sink import log_to as open_sinks
    from creditscope.integrations.sink import sink_names
    from creditscope.plans.presets import build_specs
    from creditscope.plans.presets import preset as find_preset
    from creditscope.rules.build import given_rules, read_methods

    if check and monitor is None:
        raise BadInput("--check judges while training: add --monitor alert or --monitor stop")
    where = pick_device(device)
    chosen = find_preset(preset)
    changes = parse_settings(set_ or [])
    sinks_asked = sink_names([] if log_to is None else log_to)
    said = {"epochs": epochs, "optimiser.name": optimizer, "momentum": momentum}
    changes |= {key: str(value) for key, value in said.items() if value is not None}
    dataset = load_data(data or chosen.data, data_dir)
    methods, own = read_methods(rules) if rules else (None, ())
    build = None
    if model is not None:
        changes["model"], build = own_model(model)
    given = given_rules(own)
    specs = build_specs(
        chosen,
        dataset.spec,
        dataset.classes,
        methods,
        parse_seeds(seeds) if seeds is not None else None,
        changes,
        given,
    )
    if dry_run:
        limits = local_limits(where, None, given)
        fleets = [part for fleet in pack(specs) for part in limits.cut(fleet)]
        say(f"{plan_text(fleets)}; nothing was trained (--dry-run)")
        return
    display = TrainDisplay()
    judge = display.watch(monitor, protocol_of("standard", checks=check)) if monitor is not None else None

    def on_row(header: "HeaderRow", row: "EpochRow | ProbeRow | EndRow") -> str | None:
        sinks(header, row)
        return judge(header, row) if judge is not None else None

    with open_sinks(sinks_asked, out, display.note) as sinks, display:
        logs = train_specs(
            specs,
            out,
            data=dataset,
            model=build,
            device=device,
            resume=resume,
            on_row=on_row,
            progress=display,
            rules=own,
        )
    say(summary_text(logs))
    say(f"{len(logs)} logs in {out}; next: creditscope audit {out}")


def parse_seeds(text: str) -> list[int]:
    """Seeds from the command line.

    Args:
        text: For example ``42,123``.
    """
    from creditscope.errors import BadInput

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"--seeds {text}: wanted whole numbers separated by commas, such as 42,123") from None


def parse_settings(pairs: list[str]) -> dict[str, str | list[str]]:
    """``key=value`` settings from the command line; ``[a,b]`` is a list.

    Args:
        pairs: For example ``["width=128", "probe.epochs=[0,5]"]``.
    """
    from creditscope.errors import BadInput

    settings: dict[str, str | list[str]] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise BadInput(f"--set {pair}: wanted key=value, such as width=128")
        is_list = value.startswith("[") and value.endswith("]")
        settings[key] = [part for part in value[1:-1].split(",") if part] if is_list else value
    return settings
