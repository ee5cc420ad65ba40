"""Thousands of runs: all are judged, and a page shows the claims that tell most."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from creditscope.protocol.audit import Audit
from creditscope.protocol.cells import Cell
from creditscope.protocol.verdict import VerdictKind
from creditscope.records.load import log_files, read_file
from creditscope.records.log import RunLog

# Above this a page is too large to open, and nobody reads it.
MOST_CLAIMS = 40
# From this number of files on, the rows of a run are kept only where the page shows them.
MANY_FILES = 400

_ORDER = (VerdictKind.WALKED_BACK, VerdictKind.INCOMPLETE, VerdictKind.TRUSTWORTHY)


def most_telling(audit: Audit) -> Audit:
    """The audit with no more claims than a page can show, walked back ones first, and the baselines of these.

    Args:
        audit: The whole audit.
    """
    if len(audit.claims) <= MOST_CLAIMS:
        return audit
    claims = sorted(audit.claims, key=lambda cell: _ORDER.index(cell.verdict.kind) if cell.verdict else 0)[:MOST_CLAIMS]
    opponents = [
        (claim.cell.baseline.runs if claim.cell.baseline else (), *claim.cell.related.readouts) for claim in claims
    ]
    wanted = {run.name for each in opponents for runs in each for run in runs}
    baselines = [
        cell for cell in audit.cells if cell.verdict is None and any(run.name in wanted for run in cell.cell.runs)
    ]
    return replace(audit, cells=(*claims, *baselines))


def left_out(whole: Audit, shown: Audit) -> tuple[str, ...]:
    """What a page says of the claims that it does not show.

    Args:
        whole: The whole audit.
        shown: What ``most_telling`` left of it.
    """
    if len(shown.claims) == len(whole.claims):
        return ()
    counts = ", ".join(
        f"{sum(cell.verdict is not None and cell.verdict.kind is kind for cell in whole.claims)} {kind}"
        for kind in _ORDER
    )
    return (
        f"All {len(whole.claims)} claims were judged ({counts}); this page shows {len(shown.claims)} of them, walked "
        f"back ones first. creditscope audit --format json holds every one.",
    )


def with_rows(audit: Audit, paths: Iterable[Path], runs: Iterable[RunLog]) -> Audit:
    """An audit that kept no rows, with those of some runs read again: what it says stays as it is.

    Args:
        audit: The audit.
        paths: Where its logs lie.
        runs: The runs whose rows a page shows.
    """
    wanted = {run.name for run in runs}
    found: dict[str, list[Path]] = {}
    for path in (path for given in paths for path in log_files(given)):
        if path.name in wanted:
            found.setdefault(path.name, []).append(path)
    whole = {
        (log.name, log.spec): log for name in sorted(wanted) for path in found.get(name, ()) for log in read_file(path)
    }

    def filled(runs: Sequence[RunLog]) -> tuple[RunLog, ...]:
        logs = [whole.get((run.name, run.spec)) for run in runs]
        return tuple(
            run if log is None else replace(run, header=log.header, epochs=log.epochs, probes=log.probes)
            for run, log in zip(runs, logs, strict=True)
        )

    def cell_of(cell: Cell) -> Cell:
        baseline = None if cell.baseline is None else replace(cell.baseline, runs=filled(cell.baseline.runs))
        related = replace(cell.related, readouts=tuple(map(filled, cell.related.readouts)))
        return replace(cell, runs=filled(cell.runs), baseline=baseline, related=related)

    return replace(audit, cells=tuple(replace(judged, cell=cell_of(judged.cell)) for judged in audit.cells))
