"""Where the time of ``reproduce paper`` went, from the wall-clock fields of the committed logs."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from itertools import pairwise

import yaml
from page_data import NOT_MEASURED, RESULTS, markdown_table, provenance_line, results, share

from creditscope.records import RunLog
from creditscope.records.log import wall_seconds

PAPER = """\
## Where the time of `reproduce paper` goes

```console
$ creditscope reproduce paper --device cuda --out paper
```

"""


@cache
def paper_fleets() -> dict[tuple[str, ...], list[RunLog]]:
    """The committed runs of ``reproduce paper`` by fleet; the control on random targets is another command's."""
    fleets: dict[tuple[str, ...], list[RunLog]] = {}
    for log in results().logs:
        if log.spec.targets == "labels":
            fleets.setdefault(tuple(log.header.fleet or (log.spec.run_id,)), []).append(log)
    finished = all(log.end is not None for logs in fleets.values() for log in logs)
    return fleets if finished else {}


def _created(log: RunLog) -> datetime:
    assert log.header.time_created is not None
    return datetime.fromisoformat(log.header.time_created)


def _total(logs: Sequence[RunLog]) -> float:
    """Seconds from a fleet's first row to its end."""
    return max(log.end.time_total or 0.0 for log in logs if log.end is not None)


def _steps(logs: Sequence[RunLog]) -> int:
    return sum(log.epochs[-1].step or 0 for log in logs)


def paper_seconds() -> float:
    """From the first fleet's start to the last one's end."""
    seconds = wall_seconds(log for logs in paper_fleets().values() for log in logs)
    assert seconds is not None, "paper_fleets gives finished runs alone"
    return seconds


def command_seconds() -> float | None:
    """What the whole command took by the clock of the shell, as noted with the logs."""
    commands = yaml.safe_load((RESULTS / "commands.yaml").read_text(encoding="utf-8"))
    return next((command.get("seconds") for command in commands if command.get("study") == "paper"), None)


def paper_steps(model: str) -> int:
    """Run-steps of all runs of a model."""
    return sum(_steps(logs) for logs in paper_fleets().values() if logs[0].spec.model == model)


def _expensive(logs: Sequence[RunLog]) -> float:
    return sum(row.time_probe or 0.0 for log in logs for row in log.probes)


def _starts(fleets: Sequence[Sequence[RunLog]]) -> list[float]:
    """Seconds from the first fleet's start to that of each."""
    created = [_created(logs[0]) for logs in fleets]
    return [(each - min(created)).total_seconds() for each in created]


def _done(logs: Sequence[RunLog], seconds: float) -> float:
    """Run-steps that a fleet has done so many seconds after its start; inside an epoch they are spread evenly."""
    each = _steps(logs) / (logs[0].spec.epochs or 1)
    done = 0.0
    for row in logs[0].epochs:
        took = row.time_epoch or 0.0
        if row.epoch:
            done += each * min(1.0, max(0.0, seconds) / took if took else 1.0)
        seconds -= took
    return done


def _stretches(fleets: Sequence[Sequence[RunLog]]) -> list[tuple[str, ...]]:
    """What was done between the end of one fleet and that of the next."""
    starts = _starts(fleets)
    ends = [start + _total(logs) for start, logs in zip(starts, fleets, strict=True)]
    lines = []
    for begin, end in pairwise((0.0, *sorted(ends))):
        working = [logs for logs, last in zip(fleets, ends, strict=True) if last > begin]
        steps = dict.fromkeys(("resmlp", "vit-mini"), 0.0)
        for start, logs in zip(starts, fleets, strict=True):
            steps[logs[0].spec.model or ""] += _done(logs, end - start) - _done(logs, begin - start)
        names = ", ".join(f"{len(logs)} × {logs[0].spec.model}" for logs in working)
        lines.append((f"{begin:.0f}–{end:.0f}", names, *(f"{round(each, -3):,.0f}" for each in steps.values())))
    return lines


def paper_section() -> str:
    """Where the time of ``reproduce paper`` went, from the committed logs."""
    fleets = sorted(paper_fleets().values(), key=_total)
    if not fleets:
        return PAPER + f"The committed runs have not all ended: {NOT_MEASURED}.\n"
    listed = [
        (
            f"{logs[0].spec.model}{'' if logs[0].spec.terminal_ln else ', no terminal LN'}", str(len(logs)),
            str(logs[0].spec.epochs), f"{_steps(logs):,}", logs[0].header.path or "", f"{start:.0f}",
            f"{start + _total(logs):.0f}", f"{_expensive(logs):.0f}",
        )
        for start, logs in zip(_starts(fleets), fleets, strict=True)
    ]  # fmt: skip
    heads = ("fleet", "runs", "epochs", "run-steps", "path", "from s", "to s", "s in expensive probes")
    others = ("s", "fleets that train or are being built", "run-steps of ResMLP", "of ViT-Mini")
    expensive, wall = sum(map(_expensive, fleets)), paper_seconds()
    whole = command_seconds()
    took = "" if whole is None else f"{whole:.0f} s in all, "
    return f"""{PAPER}\
{took}{wall:.0f} s from the start of the first fleet to the end of the last,
for {paper_steps("resmlp"):,} run-steps of ResMLP
and {paper_steps("vit-mini"):,} of ViT-Mini.

{markdown_table(heads, listed)}

Fleets take turns on the GPU.
What was done between the end of one and that of the next:

{markdown_table(others, _stretches(fleets))}

Expensive probes took {expensive:.0f} s, {share(expensive / wall)} of the whole. The rest is training steps, evaluation,
per-epoch probes, and building, recording and compiling the fleets.

{provenance_line(fleets[-1][0].header.provenance)}
"""
