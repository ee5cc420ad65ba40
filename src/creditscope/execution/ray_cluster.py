"""Fleets on a Ray cluster: each is one task that asks for its cores and GPUs. The only file that imports Ray."""

import os
import signal
import socket
from dataclasses import dataclass, field
from types import ModuleType, TracebackType
from typing import Any, Self

from creditscope.errors import BadInput, NotMeasured
from creditscope.execution.job import FleetJob, Outcome, train_away

# Ray asks nobody before it reports usage; a node that falls silent is noticed only when somebody pings.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_grpc_client_keepalive_time_ms": "10000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
}
_STORE_BYTES = 256 * 2**20


@dataclass
class RayFleets:
    """Trains fleets as Ray tasks; a task whose worker or node dies is run again by Ray.

    Args:
        address: A running cluster, as ``ray.init`` takes it; None: a Ray of our own on this machine.
        cpus: Cores a fleet asks for.
        gpus: GPUs a fleet asks for; None: one where the cluster has any and the device allows it.
        device: ``auto``, ``cpu`` or ``cuda``.
        retries: How often Ray runs a fleet again whose worker died.
    """

    address: str | None = None
    cpus: float = 1
    gpus: float | None = None
    device: str = "auto"
    retries: int = 3
    keeps_files: bool = False
    _ray: ModuleType | None = None
    _task: Any = None
    _jobs: dict[Any, FleetJob] = field(default_factory=dict)

    def __enter__(self) -> Self:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        ray = _import_ray()
        _require_listener(self.address)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        local = {"include_dashboard": False, "object_store_memory": _STORE_BYTES} if self.address is None else {}
        try:
            ray.init(self.address or "local", log_to_driver=False, logging_level="ERROR", **local)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            cause = (str(error).splitlines() or [type(error).__name__])[0][:160]
            raise BadInput(
                f"--address {self.address or 'local'}: no Ray there that lets us in ({cause}); see docs/slurm.md"
            ) from None
        for number, handler in handlers.items():
            signal.signal(number, handler)  # Ray puts its own on SIGTERM; ours leaves by the same door as Ctrl-C
        self._ray = ray
        there = ray.cluster_resources()
        if self.gpus is None:
            self.gpus = 1 if self.device != "cpu" and there.get("GPU", 0) >= 1 else 0
        if self.device == "cuda" and not self.gpus:
            raise BadInput("--device cuda: this Ray cluster has no GPU; use --device cpu or auto")
        if there.get("CPU", 0) < self.cpus:
            raise BadInput(f"--cpus {self.cpus:g}: this Ray cluster has {there.get('CPU', 0):g} cores; ask for fewer")
        # Once for all fleets: Ray keeps a copy of every function it is given, and makes a class for every options().
        self._task = ray.remote(train_away).options(
            name="creditscope fleet",
            num_cpus=self.cpus,
            num_gpus=self.gpus,
            max_retries=self.retries,
            retry_exceptions=False,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._ray is None:
            return
        # Ray ends the tasks of a driver that leaves. They are not cancelled one by one: a task that ends while it is
        # being cancelled takes the driver down with it, with a trace of Ray's own.
        self._jobs.clear()
        self._ray.shutdown()

    @property
    def window(self) -> int:
        """How many jobs to hand over at once: enough that no core waits for the driver, also when machines join."""
        return max(1, 2 * self.slots)

    @property
    def slots(self) -> int:
        """How many fleets the cluster holds at once now."""
        if self._ray is None:
            raise NotMeasured("the cluster is not known before Ray is started")
        there = self._ray.cluster_resources()
        by_cores = there.get("CPU", 0) // self.cpus
        return int(min(by_cores, there.get("GPU", 0) // self.gpus) if self.gpus else by_cores)

    def submit(self, job: FleetJob) -> None:
        """Hand a job to Ray."""
        self._jobs[self._task.remote(job)] = job

    def result(self) -> tuple[FleetJob, Outcome]:
        """Wait until one fleet ends."""
        ray = self._ray
        assert ray is not None
        ready, _ = ray.wait(list(self._jobs), num_returns=1)
        ref = ready[0]
        job = self._jobs.pop(ref)
        try:
            return job, ray.get(ref)
        except ray.exceptions.OutOfMemoryError:
            return job, Outcome(out_of_memory=True)
        except ray.exceptions.WorkerCrashedError:
            # The system ends a process that takes too much memory without a word; a smaller fleet may live.
            died = f"the worker of fleet {job.number} died {self.retries + 1} times"
            if len(job.specs) == 1:
                return job, Outcome(error=f"{died} on {job.run_ids[0]}; see Ray's logs on that machine")
            return job, Outcome(out_of_memory=True, notes=(died,))
        except ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            why = lines[-1] if isinstance(error, ray.exceptions.RayTaskError) else lines[0]
            return job, Outcome(error=f"fleet {job.number} ({job.run_ids[0]}, …) failed on its worker: {why[:200]}")


def _require_listener(address: str | None) -> None:
    """Ray itself tries for minutes before it says that nobody answers."""
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdecimal() or "//" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        cause = getattr(error, "strerror", None) or error
        raise BadInput(f"--address {address}: no Ray there ({cause}); see docs/slurm.md") from None


def _import_ray() -> ModuleType:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise BadInput("--on ray: Ray is not installed; pip install 'creditscope[ray]'") from None
    module: ModuleType = ray
    return module
