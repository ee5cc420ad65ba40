"""Fleets on a Ray cluster: each is one task that asks for its cores and GPUs. The only file that imports Ray."""

import atexit
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from creditscope.errors import BadInput, CreditscopeError, argument
from creditscope.execution.job import Ended, FleetJob, Outcome
from creditscope.execution.remote import RemoteContext, train_away

# Ray asks nobody before it reports usage; a node that falls silent is noticed only when somebody pings.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_grpc_client_keepalive_time_ms": "10000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    # A cluster that was started with Ray's own settings finds these pings too many, and gRPC would print that.
    "GRPC_VERBOSITY": "NONE",
}
# How long the cluster's control store may be silent: longer than a restart of it takes, shorter than Ray's own minute,
# after which Ray ends this process without a word to the user.
SILENT_SECONDS = 30.0
_ASK_SECONDS = 5.0
# What every HTTP/2 client says first, with no settings of its own; a server answers with its settings.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
_STORE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class RaySettings:
    """A Ray cluster, and what a fleet asks of it.

    Args:
        address: A running cluster, as ``ray.init`` takes it; None: a Ray of our own on this machine.
        cpus: Cores a fleet asks for.
        gpus: GPUs a fleet asks for; None: one where the cluster has any and the device allows it.
        retries: How often Ray runs a fleet again whose worker died.
        store: Where finished files are uploaded to, as fsspec names it; None: they are handed back.
        scratch: A folder that every machine sees, where a fleet whose worker was lost goes on; None: it begins again.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float | None = None
    retries: int = 3
    store: str | None = None
    scratch: Path | None = None


class RayFleets:
    """Trains fleets as Ray tasks; a task whose worker or node dies is run again by Ray.

    Args:
        settings: The cluster.
        remote: Where and with what.
        on_slots: Hears how many fleets the cluster holds at once, when it is known.
    """

    keeps_files = False

    def __init__(
        self, settings: RaySettings, remote: RemoteContext, on_slots: Callable[[int], None] = lambda slots: None
    ) -> None:
        self._settings = settings
        self._remote = remote
        self._on_slots = on_slots
        self._gpus: float = 0
        self._ray: ModuleType | None = None
        self._task: Any = None
        self._jobs: dict[Any, FleetJob] = {}
        self._store = ""
        self._lost = False

    def __enter__(self) -> Self:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        settings, device = self._settings, self._remote.device
        if not all(isinstance(rule, str) for rule in self._remote.rules):
            raise BadInput(argument("rules"), ": no other machine can be given a Python object; name it as module:Name")
        ray = _import_ray()
        _require_listener(settings.address)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        local = {"include_dashboard": False, "object_store_memory": _STORE_BYTES} if settings.address is None else {}
        try:
            ray.init(settings.address or "local", log_to_driver=False, logging_level="ERROR", **local)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            cause = (str(error).splitlines() or [type(error).__name__])[0][:160]
            said = f": no Ray there that lets us in ({cause}); see docs/slurm.md"
            raise BadInput(argument("address", settings.address or "local"), said) from None
        for number, handler in handlers.items():
            signal.signal(number, handler)  # Ray puts its own on SIGTERM; ours leaves by the same door as Ctrl-C
        self._ray = ray
        self._store = ray.get_runtime_context().gcs_address
        there = ray.cluster_resources()
        self._gpus = settings.gpus or 0
        if settings.gpus is None and device != "cpu" and there.get("GPU", 0) >= 1:
            self._gpus = 1
        if device == "cuda" and not self._gpus:
            advice = (argument("device", "cpu"), " or auto")
            raise BadInput(argument("device", device), ": this Ray cluster has no GPU; use ", *advice)
        self._refuse_unless_held(ray)
        # Once for all fleets: Ray keeps a copy of every function it is given, and makes a class for every options().
        self._task = ray.remote(train_away).options(
            name="creditscope fleet",
            num_cpus=settings.cpus,
            num_gpus=self._gpus,
            max_retries=settings.retries,
            retry_exceptions=False,
        )
        self._on_slots(self.slots)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._ray is None:
            return
        # Ray ends the tasks of a driver that leaves. They are not cancelled one by one: a task that ends while it is
        # being cancelled takes the driver down with it, with a trace of Ray's own.
        self._jobs.clear()
        if self._lost:  # there is nobody to take leave of, and Ray would wait for an answer
            atexit.unregister(self._ray.shutdown)
            atexit.register(os._exit, 2)
            return
        self._ray.shutdown()

    def _refuse_unless_held(self, ray: ModuleType) -> None:
        """Ray waits for ever for a machine that can hold a fleet, and says nothing."""
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        for wanted, name, what in ((self._settings.cpus, "CPU", "cpus"), (self._gpus, "GPU", "gpus")):
            most = max((machine.get(name, 0) for machine in machines), default=0)
            if wanted > most:
                said = f": no machine of this Ray cluster has more than {most:g}; ask for fewer"
                raise BadInput(argument(what, wanted), said)

    def takes(self, job: FleetJob) -> bool:
        """Whether to hand over one more: enough that no core waits for the driver, also when machines join."""
        return len(self._jobs) < max(1, 2 * self.slots)

    @property
    def slots(self) -> int:
        """How many fleets the cluster holds at once now."""
        assert self._ray is not None
        there = self._ray.cluster_resources()
        by_cores = there.get("CPU", 0) // self._settings.cpus
        return int(min(by_cores, there.get("GPU", 0) // self._gpus) if self._gpus else by_cores)

    def submit(self, job: FleetJob) -> None:
        """Give a job to Ray."""
        self._jobs[self._task.remote(job, self._remote)] = job

    def next_end(self) -> Ended:
        """Wait until one fleet ends."""
        ray = self._ray
        assert ray is not None
        ready = self._wait(ray)
        ref = ready[0]
        job = self._jobs.pop(ref)
        try:
            return Ended(job, ray.get(ref))
        except ray.exceptions.OutOfMemoryError:
            return Ended(job, Outcome(out_of_memory=True))
        except ray.exceptions.WorkerCrashedError:
            # The system ends a process that takes too much memory without a word; a smaller fleet may live.
            died = f"the worker of fleet {job.number} died {self._settings.retries + 1} times"
            if len(job.specs) > 1:
                return Ended(job, Outcome(out_of_memory=True, notes=(died,)))
            return _failed(job, f"{died} on {job.run_ids[0]}; see Ray's logs on that machine")
        except ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            why = lines[-1] if isinstance(error, ray.exceptions.RayTaskError) else lines[0]
            return _failed(job, f"fleet {job.number} ({job.run_ids[0]}, …) failed on its worker: {why[:200]}")

    def _wait(self, ray: ModuleType) -> list[Any]:
        """Wait for a task; a control store that died is said in one line, before Ray ends the process."""
        heard = time.monotonic()
        while True:
            ready, _ = ray.wait(list(self._jobs), num_returns=1, timeout=_ASK_SECONDS)
            if ready:
                return list(ready)
            if _answers(self._store):
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENT_SECONDS:
                self._lost = True
                said = f"the Ray cluster at {self._store} does not answer any more; what ended is kept, go on with "
                raise CreditscopeError(said, argument("resume", True))


def _failed(job: FleetJob, why: str) -> Ended:
    return Ended(job, Outcome(error=CreditscopeError(why)))


def _require_listener(address: str | None) -> None:
    """Ray itself tries for minutes before it says that nobody answers."""
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdecimal() or "//" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        cause = getattr(error, "strerror", None) or error
        raise BadInput(argument("address", address), f": no Ray there ({cause}); see docs/slurm.md") from None
    if not _answers(f"{host}:{port}"):
        raise BadInput(argument("address", address), ": what listens there does not answer as Ray; see docs/slurm.md")


def _answers(address: str) -> bool:
    """Whether a gRPC server answers; one that uses TLS cannot be asked so, and is trusted to."""
    if os.environ.get("RAY_USE_TLS", "0") != "0":
        return True
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10) as connection:
            connection.sendall(_PREFACE)
            return bool(connection.recv(1))
    except (OSError, ValueError):
        return False


def _import_ray() -> ModuleType:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise BadInput(argument("on", "ray"), ": Ray is not installed; pip install 'creditscope[ray]'") from None
    module: ModuleType = ray
    return module
