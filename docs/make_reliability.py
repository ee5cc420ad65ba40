"""Write docs/reliability.md from the faults that a test run injected and from the scaling benchmark.

rm docs/faults.jsonl  # each run adds to it
CREDITSCOPE_FAULT_REPORT=docs/faults.jsonl python -m pytest tests/execution/test_faults.py \
    tests/execution/test_killed.py tests/execution/test_killed_here.py tests/execution/test_ray_cluster.py
python benchmarks/sweep_scale.py > docs/sweep_scale.json
python docs/make_reliability.py
"""

import json
from pathlib import Path
from statistics import median

from creditscope.records.table import Table

HERE = Path(__file__).parent
SCRIPT = "make_reliability.py"

INTRO = """\
# Reliability

The test suite really injected each fault into a small sweep (four runs, in a process of its own) and compared the
folder with that of an undisturbed sweep: every run must finish exactly once, and every row must be equal, bit
for bit, except for wall-clock times. (A fleet that ran out of memory is compared with a sweep of its halves.) *Lost*
counts what was missing or different after recovery; *recovery* is the time from the fault to the last log complete, the
start of a second command included.

This page is written by `docs/make_reliability.py` from `docs/faults.jsonl`, which the tests write, and from
`docs/sweep_scale.json`.
"""

NOT_INJECTED = """
- The tests give up a silent node after three seconds, with gRPC pings every two; Ray's own settings wait longer. The
  node that is cut off runs in a network namespace: its packets go to a hardware address that does not exist, so no
  connection is closed and no process is told; its worker was still training when the sweep ended without it.
- A run is done when its log has its end row **and** its last checkpoint is there: the checkpoint is written first, so a
  kill or a full disk between the two costs an end row, which a resume writes again without training. A run that ended
  and whose last checkpoint was lost is trained again from the newest one that its fleet has.
- SIGTERM and SIGHUP are sent to every process of a training at once, as clusters, service managers and closed terminals
  do; each saves its last whole epoch. A worker that was stopped (SIGSTOP) is continued to hear of it.
- Kills come as -9 at any moment of one process or of several, also to a rule whose state learns; numbers of checkpoints
  are compared too, not only logs.
- A full disk is once a limit on the size of a file and once a file system too small for the sweep.
- Memory runs out because the address space of the process is limited; the fleet is halved, and the halves fit. On a
  GPU the same error comes from torch and takes the same way; that is tested with a simulated error only. A process
  that the system itself kills for its memory is the killed worker: after `--retries` deaths its fleet is halved too.
- Wall clocks jump through a library that is loaded before the system's own; all durations come from the monotonic
  clock.
- Recovery times were taken on two cores that other work kept busy, and are upper bounds.

Not injected: a disk that says it wrote and did not, a clock that stands still, two faults at once.
"""

SCALE = """
## Many fleets

{fleets:,} fleets of one run each (no epochs: the work is building, measuring and writing) on a simulated cluster of
{nodes} nodes with one core each, on one machine of {cores} cores that they share with the driver.

- A fleet takes {here:.0f} ms in one process. On Ray, with {nodes} workers, one ends every {away:.0f} ms: that is what
  the work, Ray and the driver together cost this machine, which other work kept busy (load {load:g}).
- Of that the driver's own process takes {driver:.1f} ms of CPU time a fleet: to submit it, to take its files and to
  write them.
- The driver's memory: {first:.0f} MiB after a tenth of the fleets, {last:.0f} MiB at the end: {growth:.1f} KiB a fleet.
  It holds no fleet that has ended: what there is to grow is Ray's own.

## At 10,000 GPUs

This is arithmetic from the numbers above, not a measurement.

- The driver only writes the files of each fleet. At {driver:.1f} ms a fleet it keeps up with {rate:.0f} tiny
  fleets a second; 10,000 GPUs with fleets of 10 minutes end {need:.0f} a second. {verdict}
- It holds twice as many tasks as the cluster has room for, and one fleet's files at a time.
- Checkpoints must not pass through it: `--store`.
- A lost machine costs the fleets that were on it, from their beginning: at most one fleet's time on each of its GPUs.
  With `--scratch` on a file system that all machines share they go on elsewhere from their last checkpoint, which is
  written every half minute.
- One driver is one point of failure. It is restarted with `--resume` and does not repeat what has been written; while
  it is away Ray ends its tasks.
"""


def build() -> str:
    """The page."""
    lines = [json.loads(line) for line in (HERE / "faults.jsonl").read_text().splitlines()]
    rows = []
    for fault in dict.fromkeys(line["fault"] for line in lines):
        each = [line for line in lines if line["fault"] == fault]
        rows.append(
            (
                fault,
                str(len(each)),
                f"{sum(line['runs_lost'] for line in each)} of {sum(line['runs'] for line in each)}",
                f"{sum(line['rows_lost'] for line in each)} of {sum(line['rows'] for line in each)}",
                f"{median(line['seconds'] for line in each):.1f} s",
            )
        )
    columns = ("fault", "times injected", "runs lost", "rows lost", "recovery (median)")
    text = INTRO + "\n" + Table(columns, tuple(rows), ("left", *["right"] * 4)).to_markdown() + "\n"
    text += NOT_INJECTED
    scale = json.loads((HERE / "sweep_scale.json").read_text())
    driver = scale["driver_cpu_seconds_a_fleet"]
    need = 10_000 / 600
    text += SCALE.format(
        fleets=scale["fleets"],
        nodes=scale["nodes"],
        cores=scale["cores"],
        here=1000 * scale["seconds_a_fleet_here"],
        away=1000 * scale["seconds_a_fleet_on_ray"],
        driver=1000 * driver,
        load=scale["load"],
        first=scale["driver_mib_after_a_tenth"],
        last=scale["driver_mib_at_the_end"],
        growth=1024 * (scale["driver_mib_at_the_end"] - scale["driver_mib_after_a_tenth"]) / (0.9 * scale["fleets"]),
        rate=1 / driver,
        need=need,
        verdict="It would keep up." if 1 / driver > need else "It would not keep up: use fewer, larger fleets.",
    )
    return text


if __name__ == "__main__":
    (HERE / "reliability.md").write_text(build(), encoding="utf-8")
