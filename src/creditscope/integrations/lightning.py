"""Lightning: a callback that watches ``Trainer.fit``, of ``lightning`` or of ``pytorch_lightning``."""

from typing import Any, final

from creditscope.integrations.sink import missing
from creditscope.integrations.watched import Watch, Watched
from creditscope.protocol.audit import Audit, Logs
from creditscope.protocol.presets import Protocol
from creditscope.scope.watch import Scope

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise missing("lightning", error) from None


@final
class CreditScopeCallback(Callback):  # type: ignore[misc]
    """Watch a LightningModule while it trains; an alert with ``stop=True`` sets ``trainer.should_stop``.

    With several processes the first one watches.

    Args:
        watch: Makes the scope from the module: ``lambda module: cs.watch(module, probe=..., out="runs")``.
        accuracy: Name of the validation accuracy you log; None: the accuracy on the probe samples is taken.
        train_loss: Name of the training loss you log, with ``on_epoch=True``.
    """

    def __init__(self, watch: Watch, accuracy: str | None = None, train_loss: str | None = None) -> None:
        self._watched = Watched(watch)
        self._accuracy, self._train_loss = accuracy, train_loss
        self._validated = False
        self._steps = 0

    @property
    def scope(self) -> Scope:
        """The scope: its log, alerts and overhead."""
        return self._watched.scope

    def audit(self, baseline: float | Logs | None = None, protocol: str | Protocol | None = None) -> Audit:
        """Judge the log so far, as ``Scope.audit``."""
        return self.scope.audit(baseline, protocol)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the first observation."""
        self._validated = False  # the sanity check was no validation
        self._steps = trainer.global_step
        if trainer.is_global_zero:
            self._watched.start(pl_module, trainer.current_epoch)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Read the rate that this step uses."""
        self._watched.stepping(optimizer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the optimiser steps; a batch of accumulated gradients has none."""
        if trainer.global_step > self._steps:
            self._watched.step()
        self._steps = trainer.global_step

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Metrics of this epoch are there."""
        self._validated = True

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Take an observation."""
        metrics = trainer.callback_metrics
        # Metrics of an earlier validation stay there: they are not this epoch's.
        accuracy = self._watched.number(self._accuracy, metrics) if self._validated else None
        self._validated = False
        if self._watched.epoch(accuracy, self._watched.number(self._train_loss, metrics)):
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Take the last observation."""
        self._watched.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Log how it ended."""
        self._watched.finish(exception)
