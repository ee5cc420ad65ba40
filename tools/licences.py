"""Check the licence of every installed package against the list in pyproject.toml: python tools/licences.py.

``[tool.creditscope.licences]`` holds ``allow`` (licences as packages name them) and ``exceptions`` (a package, or a
pattern, and why it is fine).
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Mapping
from fnmatch import fnmatch
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def is_allowed(expression: str, allow: Collection[str]) -> bool:
    """Whether a licence will do: of alternatives one, of parts all.

    Args:
        expression: As a package states it: a name, an SPDX expression, or classifiers joined by ``;``.
        allow: The licences that will do.
    """
    return any(all(part in allow for part in re.split(r" AND |; ", each)) for each in expression.split(" OR "))


def refused(
    packages: Collection[Mapping[str, str]], allow: Collection[str], exceptions: Mapping[str, str]
) -> list[str]:
    """One line for each package whose licence will not do.

    Args:
        packages: As ``pip-licenses --format=json`` lists them.
        allow: The licences that will do.
        exceptions: By name or pattern of a package, why it will do nevertheless.
    """
    return [
        f"{package['Name']} {package['Version']}: {package['License']!r} is not on the list in pyproject.toml"
        for package in packages
        if not is_allowed(package["License"], allow)
        and not any(fnmatch(package["Name"].lower(), pattern) for pattern in exceptions)
    ]


def installed() -> list[dict[str, str]]:
    """Every package of this environment with its licence."""
    command = [str(Path(sys.executable).parent / "pip-licenses"), "--format=json", "--from=mixed"]
    packages: list[dict[str, str]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return packages


def main() -> int:
    """Say what is refused; exit 1 if anything is."""
    settings = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["creditscope"]["licences"]
    packages = installed()
    lines = refused(packages, settings["allow"], settings["exceptions"])
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"{len(packages)} packages, {len(lines)} with a licence that is not allowed\n")
    return 1 if lines or not packages else 0


if __name__ == "__main__":
    sys.exit(main())
