"""Hugging Face: a callback that watches ``Trainer.train``."""

from typing import Any, final

from creditscope.integrations.sink import missing
from creditscope.integrations.watched import Watch, Watched
from creditscope.protocol.audit import Audit, Logs
from creditscope.protocol.presets import Protocol
from creditscope.scope.watch import Scope

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise missing("hf", error) from None


@final
class CreditScopeCallback(TrainerCallback):  # type: ignore[misc]
    """Watch a model while the ``Trainer`` trains it; an alert with ``stop=True`` sets ``control.should_training_stop``.

    The Trainer tells its callbacks nothing of an error: the log of a training that raised has no end row. With several
    processes the first one watches.

    Args:
        watch: Makes the scope from the model: ``lambda model: cs.watch(model, probe=..., out="runs")``.
        accuracy: Name of your evaluation accuracy, such as ``eval_accuracy``; None: that on the probe samples is taken.
        train_loss: Name of the training loss in the Trainer's own log; ``logging_strategy="epoch"`` makes it the
            epoch's mean.
    """

    def __init__(self, watch: Watch, accuracy: str | None = None, train_loss: str | None = "loss") -> None:
        self._watched = Watched(watch)
        self._accuracy, self._train_loss = accuracy, train_loss
        self._awaited: str | None = None
        self._metrics: dict[str, Any] = {}

    @property
    def scope(self) -> Scope:
        """The scope: its log, alerts and overhead."""
        return self._watched.scope

    def audit(self, baseline: float | Logs | None = None, protocol: str | Protocol | None = None) -> Audit:
        """Judge the log so far, as ``Scope.audit``."""
        return self.scope.audit(baseline, protocol)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the first observation."""
        self._awaited, self._metrics = None, {}
        if state.is_world_process_zero:
            self._watched.start(kwargs["model"], int(state.epoch or 0))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count an optimiser step; the scheduler comes after it."""
        self._watched.stepping(kwargs["optimizer"])
        self._watched.step()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take an observation, unless the Trainer is about to log or evaluate: then after that."""
        self._awaited = "evaluate" if control.should_evaluate else "log" if control.should_log else None
        if self._awaited is None:
            self._epoch(control)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep what the Trainer logs."""
        self._metrics |= kwargs["logs"]
        if self._awaited == "log":
            self._epoch(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep what was evaluated."""
        self._metrics |= kwargs["metrics"]
        if self._awaited == "evaluate":
            self._epoch(control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the last observation."""
        self._watched.finish()

    def _epoch(self, control: Any) -> None:
        # Only what came since the epoch before: older metrics are not this epoch's.
        metrics, self._metrics, self._awaited = self._metrics, {}, None
        number = self._watched.number
        if self._watched.epoch(number(self._accuracy, metrics), number(self._train_loss, metrics)):
            control.should_training_stop = True
