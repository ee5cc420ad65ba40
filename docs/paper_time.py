"""Where the time of ``reproduce paper`` went, from the wall-clock fields of the committed logs."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from statistics import median

from page_data import NOT_MEASURED, markdown_table, provenance_line, results, share

from creditscope.records import RunLog

PAPER = """\
## Where the time of `reproduce paper` goes

```console
$ creditscope reproduce paper --device cuda --out paper
```

"""
# To be dropped when the runs are made again.
OLDER = """\
These logs are older than the tracing of a fleet's credit
and the batching of the dear probes: the section on the ResMLP runs by themselves was measured after both."""


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
    fleets = paper_fleets().values()
    begun = min(_created(log) for logs in fleets for log in logs)
    ended = max(_created(logs[0]) + timedelta(seconds=_total(logs)) for logs in fleets)
    return (ended - begun).total_seconds()


def paper_steps(model: str) -> int:
    """Run-steps of all runs of a model."""
    return sum(_steps(logs) for logs in paper_fleets().values() if logs[0].spec.model == model)


def _dear(logs: Sequence[RunLog]) -> float:
    return sum(row.time_probe or 0.0 for log in logs for row in log.probes)


def _rounds(logs: Sequence[RunLog], first: int, last: int) -> list[float]:
    """Seconds of a fleet's epochs, each until its last row."""
    by_epoch: dict[int, float] = {}
    for log in logs:
        for row in log.epochs:
            if first <= row.epoch <= last:
                by_epoch[row.epoch] = max(by_epoch.get(row.epoch, 0.0), row.time_epoch or 0.0)
    return list(by_epoch.values())


def paper_section() -> str:
    """Where the time of ``reproduce paper`` went, from the committed logs."""
    fleets = sorted(paper_fleets().values(), key=_total)
    if not fleets:
        return PAPER + f"The committed runs have not all ended: {NOT_MEASURED}.\n"
    wall = paper_seconds()
    listed = [
        (
            f"{logs[0].spec.model}{'' if logs[0].spec.terminal_ln else ', no terminal LN'}", str(len(logs)),
            str(logs[0].spec.epochs), f"{_steps(logs):,}", logs[0].header.path or "", f"{_total(logs):.0f}",
            f"{_dear(logs):.0f}",
        )
        for logs in fleets
    ]  # fmt: skip
    heads = ("fleet", "runs", "epochs", "run-steps", "path", "s from its start to its end", "s in dear probes")
    dear = sum(map(_dear, fleets))
    built = (max(_created(logs[0]) for logs in fleets) - min(_created(logs[0]) for logs in fleets)).total_seconds()
    longest = fleets[-1]
    bounds = [0, *sorted({logs[0].spec.epochs or 0 for logs in fleets})]
    stretches = []
    for before, last in pairwise(bounds):
        still = [logs for logs in fleets if (logs[0].spec.epochs or 0) >= last]
        took = _rounds(longest, before + 1, last)
        names = ", ".join(f"{len(logs)} × {logs[0].spec.model}" for logs in still)
        stretches.append((f"{before + 1}–{last}", names, f"{median(took):.2f}", f"{sum(took):.0f}"))
    alone = _alone(fleets, longest)
    others = ("epochs", "fleets at work", "median s an epoch of each", "s together")
    facts = longest[0].header.provenance
    return f"""{PAPER}\
{wall:.0f} s from the start of the first fleet to the end of the last, for {paper_steps("resmlp"):,} run-steps of ResMLP
and {paper_steps("vit-mini"):,} of ViT-Mini. {OLDER}

{markdown_table(heads, listed)}

Fleets take turns on the card, an epoch each, so the time of one fleet's epoch includes the turns of the others; what
was spent where shows in how the epochs shorten when a fleet has ended:

{markdown_table(others, stretches)}

- While ResMLP alone was at work: {alone}.
- Dear probes, one run after another: {dear:.0f} s, {share(dear / wall)} of the whole.
- Building, recording and compiling the later fleets, until the last one could start: {built:.0f} s.
- The rest, {wall - dear - built:.0f} s, is training steps, evaluation, per-epoch probes and the writing of rows.

{provenance_line(facts)}
"""


def _alone(fleets: Sequence[Sequence[RunLog]], longest: Sequence[RunLog]) -> str:
    """What a run-step of ResMLP takes in the epochs after every other model's last, dear probes apart."""
    others = max((logs[0].spec.epochs or 0 for logs in fleets if logs[0].spec.model != "resmlp"), default=0)
    last = longest[0].spec.epochs or 0
    dear = {row.epoch for logs in fleets for log in logs for row in log.probes}
    took = [
        each for epoch in range(others + 1, last + 1) if epoch not in dear for each in _rounds(longest, epoch, epoch)
    ]
    working = [logs for logs in fleets if (logs[0].spec.epochs or 0) == last and logs[0].spec.model == "resmlp"]
    if not took:
        return NOT_MEASURED
    steps = sum(_steps(logs) for logs in working) / last
    return f"{1e6 * median(took) / steps:.0f} µs a run-step, evaluation, per-epoch probes and rows included"
