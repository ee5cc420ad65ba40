"""Checkpoints: one safetensors file a run, replaced atomically, with a checksum; no pickle anywhere.

A fleet resumes from one epoch, so neither a crash between two replacements nor a damaged file may lose it: the file
that is being replaced is kept beside the new one until the fleet's last epoch.
"""

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from creditscope.engine.fleet import Fleet
from creditscope.engine.optim import Stack
from creditscope.engine.state import State
from creditscope.engine.step import dtype_of
from creditscope.errors import BadFile, CannotWrite
from creditscope.records import RunSpec, write_atomic
from creditscope.records.log import explain

_PREVIOUS = ".previous"
_CHECKSUM = "sha256"
_EPOCH_DIGITS = 12
# Files that are written side by side: checksums and disks both take their time.
_WRITERS = 4
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def checkpoint_path(folder: Path, run_id: str) -> Path:
    """Where a run's checkpoint lies."""
    return folder / f"{run_id}.safetensors"


class Ending(NamedTuple):
    """How a run ended, where its end row follows its checkpoint.

    Args:
        status: As in the end row.
        reason: In words, when it did not simply finish.
    """

    status: Literal["finished", "diverged", "stopped"]
    reason: str | None = None


_ENDING: TypeAdapter[Ending] = TypeAdapter(Ending)


class Restored(NamedTuple):
    """Where a fleet goes on.

    Args:
        epoch: Epochs done.
        endings: How runs had ended at that epoch.
    """

    epoch: int
    endings: dict[int, Ending]


class FleetState:
    """A copy of a fleet's state at an epoch boundary: what a checkpoint holds.

    Args:
        fleet: The fleet.
        epoch: Epochs done.
    """

    def __init__(self, fleet: Fleet, epoch: int) -> None:
        self.epoch = epoch
        self.endings: dict[int, Ending] = {}
        self._fleet = fleet
        self.state = fleet.state.map(Tensor.clone)
        self._init = fleet.init  # it never changes
        self._threads = torch.get_num_threads()  # asked from another thread the answer is another

    def fetch(self) -> None:
        """Bring all of it to the host: from then on ``save`` asks nothing of the device, and any thread may do it."""
        self.state = self.state.map(Tensor.cpu)
        self._init = _on_host(self._init)

    def save(self, folder: Path) -> None:
        """Write every run's file, each whole or not at all.

        Args:
            folder: Where the logs lie.
        """
        files = [checkpoint_path(folder, spec.run_id) for spec in self._fleet.specs]

        def replace(run: int) -> None:
            data = self._encode(run)
            if files[run].exists():
                files[run].replace(_previous(files[run]))
            write_atomic(files[run], data, resume=True)

        try:
            with ThreadPoolExecutor(_WRITERS) as pool:
                list(pool.map(replace, range(len(files))))
            if self.epoch >= (self._fleet.spec.epochs or 0):
                for path in files:
                    _previous(path).unlink(missing_ok=True)
        except OSError as error:
            raise CannotWrite(
                f"the checkpoints cannot be replaced: {error.strerror}; what was saved before is kept"
            ) from None

    def _encode(self, run: int) -> bytes:
        fleet = self._fleet
        spec = fleet.specs[run]
        tensors = _places(fleet, run, self.state, self._init)
        metadata = {
            "spec": spec.model_dump_json(),
            "epoch": str(self.epoch),
            "step": str(self.epoch * fleet.steps_per_epoch),
            "rng": json.dumps({"seed": spec.seed, "streams": "sha256(seed/name/epoch)", "next_epoch": self.epoch + 1}),
            "fleet": json.dumps([s.run_id for s in fleet.specs]),
            "threads": str(self._threads),
        }
        if run in self.endings:
            metadata["ending"] = json.dumps(self.endings[run])
        return encode_checkpoint({name: t.contiguous() for name, t in _on_host(tensors).items()}, metadata)


def _places(fleet: Fleet, run: int, state: State, init: Stack) -> dict[str, Tensor]:
    """One run's tensors by the names they have in a checkpoint; views of the stacks."""
    stacks = {"param": state.params, "first": state.first, "second": state.second, "init": init}
    stacks["buffer"] = state.buffers
    places = {f"{kind}/{name}": t[run] for kind, stack in stacks.items() for name, t in stack.items()}
    at = next(i for i, group in enumerate(fleet.groups) if group.start <= run < group.stop)
    row = run - fleet.groups[at].start
    for kind, stack in zip(("state", "state_first", "state_second"), state.rules[at], strict=True):
        places |= {f"{kind}/{name}": t[row] for name, t in stack.items()}
    return places


def _on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}


def encode_checkpoint(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a checkpoint: safetensors, with a checksum of everything in it among the metadata.

    Written here, not by the package: that one ends the process where memory is short, and this raises MemoryError.

    Args:
        tensors: Contiguous tensors on the CPU.
        metadata: Texts.
    """
    header: dict[str, Any] = {"__metadata__": {**metadata, _CHECKSUM: _checksum(tensors, metadata)}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *map(_raw, tensors.values())])


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of one checkpoint, whose checksum must be that of its content.

    Args:
        path: The file.
    """
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata() or {})
    wanted = metadata.pop(_CHECKSUM, None)
    if wanted is None:
        raise _unfit(path, "a checkpoint without a checksum, not of ours")
    if wanted != _checksum(tensors, metadata):
        raise _unfit(path, "damaged, its checksum is not that of its content")
    return tensors, metadata


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _unfit(path, "not a regular file")
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError) as error:
        raise _unfit(path, f"not a readable checkpoint ({_short(error)})") from None


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 over the metadata, and over name, kind, shape and bytes of each tensor, in order of name."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(_raw(tensor))
    return digest.hexdigest()


def _raw(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor, not copied."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def restore(fleet: Fleet, folder: Path) -> Restored:
    """Load the newest epoch that every run of the fleet has.

    Args:
        fleet: The fleet, freshly built.
        folder: Where the checkpoints lie.

    Returns:
        Where to go on; at epoch 0 when there is no checkpoint, the fleet then being as built.
    """
    saved: list[dict[int, Path]] = []
    for spec in fleet.specs:
        path = checkpoint_path(folder, spec.run_id)
        found = {}
        for file in (_previous(path), path):
            if file.exists():
                with _opened(file) as opened:
                    found[saved_epoch(file, dict(opened.metadata() or {}))] = file
        saved.append(found)
    common = set.intersection(*(set(found) for found in saved))
    if not common:
        return Restored(0, {})
    epoch = max(common)
    endings: dict[int, Ending] = {}
    for run, found in enumerate(saved):
        file = found[epoch]
        tensors, metadata = read_checkpoint(file)
        load_run(fleet, run, tensors)
        check_owner(file, metadata, fleet.specs[run])
        if "ending" in metadata:
            endings[run] = _ending(file, metadata["ending"])
        path = checkpoint_path(folder, fleet.specs[run].run_id)
        if file == path:
            _previous(path).unlink(missing_ok=True)
        else:
            file.replace(path)
    fleet.set_steps(epoch * fleet.steps_per_epoch)
    return Restored(epoch, endings)


def _ending(path: Path, text: str) -> Ending:
    try:
        return _ENDING.validate_json(text)
    except ValidationError as error:
        raise _unfit(path, f"its metadata says in no known way how the run ended ({explain(error)})") from None


def reached(folder: Path, run_id: str) -> int | None:
    """The epoch of a run's checkpoint, from its header alone; None where there is none that can be read.

    Args:
        folder: Where it lies.
        run_id: The run.
    """
    path = checkpoint_path(folder, run_id)
    try:
        with _opened(path) as file:
            return saved_epoch(path, dict(file.metadata() or {}))
    except BadFile:
        return None


def load_run(fleet: Fleet, run: int, tensors: dict[str, Tensor]) -> None:
    """Put one run's saved tensors into its place in a fleet.

    Args:
        fleet: The fleet.
        run: Index in the fleet.
        tensors: As ``read_checkpoint`` gave them.
    """
    for name, place in _places(fleet, run, fleet.state, fleet.init).items():
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != place.shape:
            raise BadFile(
                f"{fleet.specs[run].run_id}.safetensors: {name} is missing or misshapen; delete it to start again"
            )
        place.copy_(tensor)


def saved_epoch(path: Path, metadata: dict[str, str]) -> int:
    """The epoch that a checkpoint's metadata names."""
    text = metadata.get("epoch", "")
    if not text.isdecimal() or len(text) > _EPOCH_DIGITS:
        raise _unfit(path, "its metadata names no epoch")
    return int(text)


def saved_spec(path: Path, metadata: dict[str, str]) -> RunSpec:
    """The run that a checkpoint's metadata names."""
    try:
        return RunSpec.model_validate_json(metadata.get("spec", ""))
    except ValidationError as error:
        why = f"{path.name}: its metadata holds no run spec ({explain(error)})"
        raise BadFile(f"{why}; is it of creditscope?", why=why) from None


def check_owner(path: Path, metadata: dict[str, str], spec: RunSpec) -> int:
    """The epoch of a checkpoint, which must be of this run, at an epoch of its plan.

    Args:
        path: The file.
        metadata: As ``read_checkpoint`` gave it.
        spec: The run that is wanted.
    """
    saved = saved_spec(path, metadata)
    if (saved.seed, saved.cell_key) != (spec.seed, spec.cell_key):
        raise _unfit(path, f"it is of another run ({saved.run_id}) than its name says")
    epoch, planned = saved_epoch(path, metadata), spec.epochs or 0
    if epoch > planned:
        raise _unfit(path, f"it is of epoch {epoch}, and the run has {planned}")
    trained = spec.data.n_train if spec.data is not None else None
    step = epoch * ((trained or 0) // (spec.batch or 1))
    if trained is not None and metadata.get("step") != str(step):
        raise _unfit(path, f"it is of epoch {epoch}, which is step {step}, and names another step")
    return epoch


def check_values(path: Path, tensors: Mapping[str, Tensor], spec: RunSpec, went_on: bool) -> None:
    """Refuse a checkpoint whose parameters are of another dtype than the run's, or not finite without a reason.

    Args:
        path: The file.
        tensors: As ``read_checkpoint`` gave them.
        spec: The run.
        went_on: Whether the run ended early, as diverged or stopped, and its fleet went on.
    """
    for name, tensor in tensors.items():
        kind, _, of = name.partition("/")
        if kind not in ("param", "init") or not tensor.is_floating_point():
            continue
        if tensor.dtype != dtype_of(spec):
            raise _unfit(path, f"{name} is of {tensor.dtype}, and the run trains in {spec.dtype}")
        # A model may begin with an infinite mask.
        began = tensors.get(f"init/{of}", tensor)
        if not went_on and kind == "param" and bool((began.isfinite() & ~tensor.isfinite()).any()):
            raise _unfit(path, f"{name} is not finite, and the run did not diverge")


def _unfit(path: Path, why: str) -> BadFile:
    """What cannot be gone on from; whoever resumes sets it aside, and says ``why`` alone."""
    return BadFile(f"{path.name}: {why}; delete it to start the run again", why=f"{path.name}: {why}")


def _previous(path: Path) -> Path:
    return path.with_name(path.name + _PREVIOUS)


def _short(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
