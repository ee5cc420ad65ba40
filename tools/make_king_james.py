"""Build the bundled text king-james from what the Debian package ``bible-kjv`` prints.

Every line loses its reference (``Ge1:1 ``); nothing else changes. Run it with that output and the output folder::

    bible -f gen1:1-rev22:21 > verses.txt
    python tools/make_king_james.py verses.txt src/creditscope/data/king_james

The same input gives the same content hashes, which ``creditscope.data.king_james`` pins; it prints them.
"""

import lzma
import re
import sys
from pathlib import Path

from creditscope.data.text import text_dataset

VERSES = 31_102
_REFERENCE = re.compile(r"^\d?[A-Za-z]+\d+:\d+ ")


def without_references(printed: str) -> str:
    """One verse a line, without the reference that each begins with.

    Args:
        printed: What the program printed.
    """
    lines = printed.splitlines()
    odd = [line for line in lines if not _REFERENCE.match(line)]
    if odd or len(lines) != VERSES:
        raise SystemExit(
            f"wanted {VERSES} verses that begin with a reference, got {len(lines)}, {len(odd)} without one"
        )
    return "".join(f"{_REFERENCE.sub('', line)}\n" for line in lines)


def main(source: Path, out: Path) -> None:
    """Write the compressed text and report the content hash of each split.

    Args:
        source: What the program printed.
        out: Folder to write to.
    """
    text = without_references(source.read_text(encoding="ascii"))
    (out / "text.txt.xz").write_bytes(lzma.compress(text.encode("ascii"), preset=9 | lzma.PRESET_EXTREME))
    spec = text_dataset("king-james", text, source.name).spec
    sys.stdout.write(f"train {spec.hash_train}\ntest {spec.hash_test}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
