"""``watch`` driven by the events of another trainer, where there is no ``with`` block to put around the loop."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from creditscope.errors import BadInput, did_you_mean
from creditscope.scope.watch import Scope, Stopped

Watch = Callable[[nn.Module], Scope]
logger = logging.getLogger("creditscope")


class Watched:
    """One training run under a scope.

    Args:
        watch: Makes the scope from the model, at the start of training.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._scope: Scope | None = None
        self._open = False
        self._lr: float | None = None
        self._decay = 0.0
        self._asked: set[str] = set()
        self._seen: set[str] = set()

    @property
    def scope(self) -> Scope:
        """The scope of the last training."""
        if self._scope is None:
            raise BadInput("nothing was watched yet: the scope is there once training has begun")
        return self._scope

    def start(self, model: nn.Module, epochs_done: int) -> None:
        """Training begins.

        Args:
            model: The model, where it will be trained.
            epochs_done: Epochs behind it; more than none when a checkpoint is resumed.
        """
        if epochs_done:
            logger.warning("training goes on after epoch %d: epoch 0 of this log is not initialisation", epochs_done)
        self._scope = self._watch(model)
        self._scope.__enter__()
        self._open = True

    def stepping(self, optimizer: Any) -> None:
        """Read the rate and the decay of a step, before a scheduler changes them.

        Args:
            optimizer: The optimiser.
        """
        self._lr, self._decay = float(optimizer.param_groups[0]["lr"]), decay_of(optimizer)

    def step(self) -> None:
        """An optimiser step is done."""
        if self._open:
            self.scope.step(self._decay)

    def epoch(self, accuracy: float | None, train_loss: float | None) -> bool:
        """An epoch is done; True when an alert says that training should stop.

        Args:
            accuracy: The user's accuracy.
            train_loss: The user's training loss.
        """
        if self._open:
            try:
                self.scope.epoch(accuracy, train_loss, self._lr)
            except Stopped:
                return True
        return False

    def number(self, name: str | None, metrics: Mapping[str, Any]) -> float | None:
        """A metric by the name that the user gave; None when it is not asked for or not there now.

        Args:
            name: Its name.
            metrics: What the trainer has.
        """
        if name is None:
            return None
        self._asked.add(name)
        self._seen.update(metrics)
        return float(metrics[name]) if name in metrics else None

    def finish(self, error: BaseException | None = None) -> None:
        """Training has ended.

        Args:
            error: What ended it before its time.
        """
        if not self._open:
            return
        self._open = False
        for name in sorted(self._asked - self._seen):
            logger.warning("the metric %r was never there, the log has none; %s", name, did_you_mean(name, self._seen))
        self.scope.__exit__(type(error) if error else None, error, None)


def decay_of(optimizer: Any) -> float:
    """Share of the weights that a step of an optimiser takes off by decoupled decay: only AdamW has it.

    Args:
        optimizer: The optimiser.
    """
    inner = getattr(optimizer, "optimizer", optimizer)  # trainers wrap it
    if not isinstance(inner, torch.optim.AdamW):
        return 0.0
    return float(max(group["lr"] * group["weight_decay"] for group in inner.param_groups))
