"""The scripts of ``docs/`` and ``results/`` are imported by name."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
for folder in ("docs", "results"):
    sys.path.insert(0, str(ROOT / folder))
