"""Checkpoints: one safetensors file a run, replaced atomically; no pickle anywhere.

A fleet resumes from one epoch, so a crash between two replacements must not lose it: the file that is being
replaced is kept beside the new one until every run of the fleet has its own.
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from creditscope.engine.fleet import Fleet
from creditscope.errors import BadFile, CannotWrite
from creditscope.records import write_atomic

_PREVIOUS = ".previous"


def checkpoint_path(folder: Path, run_id: str) -> Path:
    """Where a run's checkpoint lies."""
    return folder / f"{run_id}.safetensors"


class FleetState:
    """A copy of a fleet's state at an epoch boundary: what a checkpoint holds.

    Args:
        fleet: The fleet.
        epoch: Epochs done.
    """

    def __init__(self, fleet: Fleet, epoch: int) -> None:
        self.epoch = epoch
        self._fleet = fleet
        stacks = {"param": fleet.params, "first": fleet.optimiser.first, "second": fleet.optimiser.second}
        self._stacks = {kind: {n: t.clone() for n, t in stack.items()} for kind, stack in stacks.items()}

    def save(self, folder: Path) -> None:
        """Write every run's file, each whole or not at all.

        Args:
            folder: Where the logs lie.
        """
        files = [checkpoint_path(folder, spec.run_id) for spec in self._fleet.specs]
        try:
            for run, path in enumerate(files):
                data = self._encode(run)
                if path.exists():
                    path.replace(_previous(path))
                write_atomic(path, data)
            for path in files:
                _previous(path).unlink(missing_ok=True)
        except OSError as error:
            raise CannotWrite(
                f"the checkpoints cannot be replaced: {error.strerror}; what was saved before is kept"
            ) from None

    def _encode(self, run: int) -> bytes:
        fleet = self._fleet
        spec = fleet.specs[run]
        tensors = {f"{kind}/{n}": t[run] for kind, stack in self._stacks.items() for n, t in stack.items()}
        tensors |= {f"init/{n}": t[run] for n, t in fleet.init.items()}
        tensors |= {f"feedback/{n}": t for n, t in fleet.feedback_of(run).items()}
        metadata = {
            "spec": spec.model_dump_json(),
            "epoch": str(self.epoch),
            "step": str(self.epoch * fleet.steps_per_epoch),
            "rng": json.dumps({"seed": spec.seed, "streams": "sha256(seed/name/epoch)", "next_epoch": self.epoch + 1}),
            "fleet": json.dumps([s.run_id for s in fleet.specs]),
            "threads": str(torch.get_num_threads()),
        }
        return save({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, metadata)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of one checkpoint.

    Args:
        path: The file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise BadFile(
            f"{path.name}: not a readable checkpoint ({_short(error)}); delete it to start the run again"
        ) from None


def restore(fleet: Fleet, folder: Path) -> int:
    """Load the newest epoch that every run of the fleet has.

    Args:
        fleet: The fleet, freshly built.
        folder: Where the checkpoints lie.

    Returns:
        The epoch to go on from; 0 when there is none, the fleet then being as built.
    """
    saved: list[dict[int, tuple[Path, dict[str, Tensor]]]] = []
    for spec in fleet.specs:
        path = checkpoint_path(folder, spec.run_id)
        found = {}
        for file in (_previous(path), path):
            if file.exists():
                tensors, metadata = read_checkpoint(file)
                found[saved_epoch(file, metadata)] = file, tensors
        saved.append(found)
    common = set.intersection(*(set(found) for found in saved))
    if not common:
        return 0
    epoch = max(common)
    for run, found in enumerate(saved):
        file, tensors = found[epoch]
        load_run(fleet, run, tensors)
        path = checkpoint_path(folder, fleet.specs[run].run_id)
        if file == path:
            _previous(path).unlink(missing_ok=True)
        else:
            file.replace(path)
    fleet.optimiser.set_steps(epoch * fleet.steps_per_epoch)
    return epoch


def load_run(fleet: Fleet, run: int, tensors: dict[str, Tensor]) -> None:
    """Put one run's saved tensors into its place in a fleet.

    Args:
        fleet: The fleet.
        run: Index in the fleet.
        tensors: As ``read_checkpoint`` gave them.
    """
    stacks = {
        "param": fleet.params,
        "first": fleet.optimiser.first,
        "second": fleet.optimiser.second,
        "init": fleet.init,
    }
    places = {f"{kind}/{name}": stack[name][run] for kind, stack in stacks.items() for name in stack}
    places |= {f"feedback/{name}": own for name, own in fleet.feedback_of(run).items()}
    for name, place in places.items():
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != place.shape:
            raise BadFile(
                f"{fleet.specs[run].run_id}.safetensors: {name} is missing or misshapen; delete it to start again"
            )
        place.copy_(tensor)


def saved_epoch(path: Path, metadata: dict[str, str]) -> int:
    """The epoch that a checkpoint's metadata names."""
    text = metadata.get("epoch", "")
    if not text.isdecimal():
        raise BadFile(f"{path.name}: its metadata names no epoch; delete it to start the run again")
    return int(text)


def _previous(path: Path) -> Path:
    return path.with_name(path.name + _PREVIOUS)


def _short(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
