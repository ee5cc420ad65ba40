"""CPU seconds and memory of `ls`, `audit` and `report` over thousands of small logs.

    python benchmarks/many_logs.py [--logs 10000] > docs/many_logs.json

The logs are those of the tests: four epochs and one probe each, cells of three seeds and their frozen twins.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

VERB = """
import json, resource, sys, time
from creditscope.cli import main
import creditscope.protocol.audit, creditscope.report.page
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    main()
finally:
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    sys.stderr.write(json.dumps({"cpu_s": round(time.process_time() - began, 1), "mib": round(peak)}) + "\\n")
"""


def write_logs(count: int, folder: Path) -> None:
    """Write that many logs."""
    from cases import specs

    from creditscope.records.log import _encode

    heads = [json.loads(_encode(specs.header(method))) for method in ("dfa", "dfa@frozen")]
    rows = (specs.epoch(0), specs.epoch(1), specs.probe(1), specs.epoch(2), specs.epoch(3), specs.end(3))
    body = b"".join(map(_encode, rows))
    for index in range(count):
        pair, within = divmod(index, 6)
        head = heads[within // 3]
        head["spec"] |= {"seed": within % 3, "batch": 100 + pair}
        (folder / f"{index:05d}.jsonl").write_bytes(json.dumps(head).encode() + b"\n" + body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=10_000)
    count = parser.parse_args().logs
    with tempfile.TemporaryDirectory() as scratch:
        logs = Path(scratch) / "logs"
        logs.mkdir()
        write_logs(count, logs)
        found = {}
        for verb in (("ls", logs), ("audit", logs), ("report", logs, "--out", Path(scratch) / "page.html")):
            done = subprocess.run([sys.executable, "-c", VERB, *map(str, verb)], capture_output=True, text=True)
            found[verb[0]] = json.loads(done.stderr.splitlines()[-1])
    print(json.dumps({"logs": count, "verbs": found}, indent=1))


if __name__ == "__main__":
    main()
