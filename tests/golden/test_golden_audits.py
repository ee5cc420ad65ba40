"""What ``standard@1`` and ``published`` say of 84 committed CIFAR-10 logs: every number, no words.

The logs judged are those that the kept audits name, so more may be committed beside them.
``python tests/golden/test_golden_audits.py`` writes the files again; a difference is a change of verdicts.
"""

import gzip
import json
import math
from pathlib import Path

import pytest

import creditscope as cs

GOLDEN = Path(__file__).parent / "audits"
LOGS = Path(__file__).parents[2] / "results" / "cifar10-h200"
PROTOCOLS = ("standard@1", "published")
RUNS = 84
# Sentences: they may be said better.
WORDS = ("reason", "reasons", "settles", "notes", "problems", "why")


def numbers(value):
    """An audit without its sentences."""
    if isinstance(value, dict):
        return {key: numbers(part) for key, part in value.items() if key not in WORDS}
    return [numbers(part) for part in value] if isinstance(value, list) else value


def leaves(value, path=""):
    """Every value with its place."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}.{key}")
    elif isinstance(value, list):
        yield f"{path}#", len(value)
        for at, part in enumerate(value):
            yield from leaves(part, f"{path}[{at}]")
    else:
        yield path, value


def file_of(protocol):
    return GOLDEN / f"{protocol}.json.gz"


def kept(protocol):
    return json.loads(gzip.decompress(file_of(protocol).read_bytes()))


def judged(protocol):
    names = sorted(name for cell in kept(protocol)["cells"] for name in cell["logs"])
    assert len(set(names)) == len(names) == RUNS
    return numbers(cs.audit([LOGS / name for name in names], protocol=protocol).to_dict())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_version_1_judges_as_it_did(protocol):
    wanted = dict(leaves(kept(protocol)))
    got = dict(leaves(judged(protocol)))
    assert len(wanted) > 3000
    missing = sorted(set(wanted) - set(got))  # fields may be added, none may go
    assert missing == []
    different = {
        place: (value, got[place])
        for place, value in wanted.items()
        if not (
            math.isclose(value, got[place], rel_tol=1e-9, abs_tol=1e-12)
            if isinstance(value, float) and isinstance(got[place], float)
            else value == got[place]
        )
    }
    assert different == {}


if __name__ == "__main__":
    for name in PROTOCOLS:
        text = json.dumps(judged(name), ensure_ascii=False, separators=(",", ":"))
        file_of(name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
