"""Many tiny fleets on a simulated cluster: what Ray adds to each, and whether the driver's memory stays flat.

Run: python benchmarks/sweep_scale.py [FLEETS] > docs/sweep_scale.json
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

NODES = 2
TINY = """\
data: synthetic
methods: [bp]
seeds: [SEEDS]
set: {width: 4, depth: 1, epochs: 0, batch: 512, probe.n: 8, probe.batch: 8, probe.epochs: [], probe.redraws: 0,
      probe.directions: 1}
"""


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(fleets: int) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    from ray.cluster_utils import Cluster

    from creditscope.data import load_data
    from creditscope.execution.context import Quiet, TrainContext, pick_device
    from creditscope.execution.in_process import InProcess
    from creditscope.execution.job import Ended
    from creditscope.execution.plan import Limits, Plan, survey
    from creditscope.execution.ray_cluster import RayFleets, RaySettings
    from creditscope.execution.remote import RemoteContext
    from creditscope.execution.run import run
    from creditscope.plans.grid import expand
    from creditscope.plans.spec_file import parse_spec
    from creditscope.records import RunSpec

    data = load_data("synthetic")
    text = TINY.replace("SEEDS", ", ".join(map(str, range(fleets))))
    specs = expand(parse_spec("tiny", text), {"synthetic": (data.spec, data.classes)})
    remote = RemoteContext({"synthetic": "synthetic"}, device="cpu")

    def planned(runs: list[RunSpec], folder: Path) -> Plan:
        return survey(folder, runs, True, Limits(runs=1)).plan(threads=1)

    def train_here(plan: Plan, folder: Path) -> None:
        context = TrainContext(folder, remote.load, pick_device("cpu"), Quiet(), resume=True)
        run(plan, InProcess(context), folder, Quiet())

    with tempfile.TemporaryDirectory() as scratch:
        here, away = Path(scratch) / "here", Path(scratch) / "away"
        here.mkdir()
        away.mkdir()
        train_here(planned(specs[-1:], here), here)
        few = planned(specs[: fleets // 10], here)
        began = time.monotonic()
        train_here(few, here)
        seconds_here = (time.monotonic() - began) / len(few.jobs)

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 80 * 2**20})
        for _ in range(NODES):
            cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
        plan = planned(specs, away)
        memory: list[float] = []
        ends: list[float] = []
        spent: list[float] = []

        class Watch(Quiet):
            def ended(self, ended: Ended) -> None:
                memory.append(resident_mib())
                ends.append(time.monotonic())
                spent.append(time.process_time())

        logs = run(plan, RayFleets(RaySettings(cluster.address), remote), away, Watch())
        cluster.shutdown()
        assert all(log.finished for log in logs)
    tenth = fleets // 10  # the first tenth pays for starting the workers
    seconds_away, seconds_driver = ((clock[-1] - clock[tenth]) / (fleets - tenth - 1) for clock in (ends, spent))
    result = {
        "fleets": fleets,
        "nodes": NODES,
        "cores": os.cpu_count(),
        "seconds_a_fleet_here": round(seconds_here, 4),
        "seconds_a_fleet_on_ray": round(seconds_away, 4),
        "driver_cpu_seconds_a_fleet": round(seconds_driver, 5),
        "load": round(os.getloadavg()[0], 1),
        "driver_mib_after_a_tenth": round(memory[tenth], 1),
        "driver_mib_at_the_end": round(memory[-1], 1),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
