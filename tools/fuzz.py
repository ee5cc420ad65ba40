"""Search each loader for inputs that break it, guided by coverage (atheris): python tools/fuzz.py [LOADER …].

What breaks a loader is kept under ``tests/cases/crashers``, where the ordinary tests read it from then on.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
MEGABYTES = 3000
SECONDS_AN_INPUT = 20


def search(kind: str, seconds: int, crashers: Path) -> None:
    """Fuzz one loader in this process, which libFuzzer then ends.

    Args:
        kind: The loader.
        seconds: How long to search.
        crashers: Where what breaks it is written.
    """
    import atheris

    with atheris.instrument_imports(include=["creditscope", "yaml", "zipfile", "gzip", "pickletools", "json"]):
        import yaml  # noqa: F401
        from cases.hostile import LOADERS

    loader = LOADERS[kind] if kind != "planted" else None
    folder = Path(tempfile.mkdtemp(prefix="creditscope-fuzz-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, data in enumerate(loader.whole() if loader else [b"fuzz"]):
        (corpus / str(number)).write_bytes(data)

    def one(data: bytes) -> None:
        if loader is not None:
            loader.survives(data, folder)
        elif data.startswith(b"F"):
            raise AssertionError("the planted bug")

    options = [f"-max_total_time={seconds}", f"-artifact_prefix={crashers}/", f"-rss_limit_mb={MEGABYTES}"]
    options += [f"-timeout={SECONDS_AN_INPUT}", "-max_len=20000", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], str(corpus), *options], one)
    atheris.Fuzz()


def main() -> int:
    """Fuzz each loader in a process of its own, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="loaders; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each loader")
    parser.add_argument("--crashers", type=Path, default=TESTS / "cases" / "crashers")
    parser.add_argument("--here", action="store_true", help="search in this process")
    given = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    if given.here:
        search(given.kinds[0], given.seconds, given.crashers)
        return 0
    from cases.hostile import LOADERS

    broken = []
    for kind in given.kinds or LOADERS:
        folder = given.crashers / kind
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, kind, "--here", "--seconds", str(given.seconds), "--crashers", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10 * given.seconds + 120)
        runs = [line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line]
        sys.stdout.write(f"{kind}: {runs[-1] if runs else 'no'} inputs in {given.seconds} s, ")
        sys.stdout.write("nothing found\n" if done.returncode == 0 else f"BROKEN\n{done.stderr[-3000:]}\n")
        sys.stdout.flush()
        if done.returncode != 0:
            broken.append(kind)
        if not any(folder.iterdir()):
            folder.rmdir()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
