"""The oldest versions that pyproject.toml allows, one requirement a line, for ``make test-oldest``.

torch is left out: its oldest release is tested on the machine with a GPU, and these tests need none of it.
"""

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
LEFT_OUT = {"torch"}


def oldest(requirements: list[str]) -> list[str]:
    """Lower bounds as exact requirements.

    Args:
        requirements: As pyproject.toml states them, each with one lower bound.
    """
    found = []
    for requirement in requirements:
        match = re.fullmatch(r"(?P<name>[A-Za-z0-9_.-]+)(\[[^]]*\])?>=(?P<version>[0-9.]+)", requirement)
        if match is None:
            raise SystemExit(f"{requirement!r}: wanted NAME>=VERSION, so that the oldest version is known")
        if match["name"] not in LEFT_OUT:
            found.append(f"{match['name']}=={match['version']}")
    return found


if __name__ == "__main__":
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    sys.stdout.write("\n".join(oldest(project["dependencies"])) + "\n")
