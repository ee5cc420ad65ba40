"""Draw the gallery's figures from the committed results: a picture for the page, a PDF for print, a CSV of the data."""

import sys
from collections.abc import Sequence
from pathlib import Path

from page_data import DOCS, runs

from creditscope.figures import write_figure
from creditscope.records import RunLog

FIGURES = DOCS / "figures"


def _all(methods: Sequence[str], epochs: int, **cell: object) -> list[RunLog]:
    return [log for method in methods for log in runs(method, epochs, **cell)]  # type: ignore[arg-type]


def chosen() -> dict[str, tuple[str, list[RunLog]]]:
    """File stem, artefact and logs of each figure."""
    penalty = ["bp", "bp+pen0.01", "dfa-rms", *(f"dfa-rms+pen{value}" for value in ("0.0001", "0.001", "0.01", "0.1"))]
    with_baselines = _all([*penalty, "bp@frozen", "bp+pen0.01@frozen", "dfa-rms@frozen"], 30)
    both = ["bp", "dfa-rms"]
    return {
        "hero": ("hero", _all(["bp", "fa-block", "dfa-rms", "dfa"], 100)),
        "penalty-rescue": ("penalty-rescue", with_baselines),
        "penalty-sweep": ("penalty-sweep", with_baselines),
        "snapshot-resmlp": ("snapshot", [*_all(both, 100), *_all(both, 100, terminal_ln=False)]),
        "snapshot-vit": ("snapshot", _all(both, 30, model="vit-mini")),
    }


def draw(folder: Path, suffixes: Sequence[str]) -> list[str]:
    """Write every figure; returns what was missing, one line each.

    Args:
        folder: Where they go.
        suffixes: File formats.
    """
    missing = []
    for stem, (artefact, logs) in chosen().items():
        for suffix in suffixes:
            drawn = write_figure(artefact, logs, folder / f"{stem}{suffix}")
        missing += [f"{stem}: {line}" for line in drawn.warnings]
    hero = chosen()["hero"][1]
    for suffix in suffixes:
        write_figure("hero", hero, folder / f"hero-acts{suffix}", index="acts")
    return missing


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    sys.stderr.writelines(f"{line}\n" for line in draw(FIGURES, (".png", ".svg", ".pdf")))
