"""The last optimiser step of a watched loop, from the weights before and after it."""

from torch import Tensor, nn

from creditscope.blocks import Blocks


class LastStep:
    """Keeps the blocks' parameters before and after the last step of an epoch, known by the number of steps before.

    Args:
        blocks: The partitioned model.
    """

    def __init__(self, blocks: Blocks) -> None:
        named = list(blocks.model.named_parameters())
        self._names = [n for n, _ in named if blocks.block_of(n) is not None]
        self._model: nn.Module = blocks.model
        self._decay = 0.0
        self._kept: list[dict[str, Tensor]] = []
        self._count = 0
        self._expected: int | None = None

    @property
    def due(self) -> bool:
        """Whether the next call may be one of the last two of this epoch, if it is as long as the one before."""
        return self._expected is None or self._count >= self._expected - 2

    def keep(self, decay: float, copy: bool = True) -> None:
        """Say that a step was taken.

        Args:
            decay: Share of each weight that the optimiser took off besides the gradient's step.
            copy: Whether the weights may be copied.
        """
        self._decay = decay
        self._kept = [*self._kept[-1:], self._now()] if copy and self.due else []
        self._count += 1

    def epoch(self) -> None:
        """Say that an epoch is done, and was looked at."""
        self._expected, self._count = self._count, 0

    def update(self) -> dict[str, Tensor] | None:
        """The last step net of decay; None where it was not seen, or the weights were changed since."""
        if len(self._kept) < 2:
            return None
        before, after = self._kept
        now = dict(self._model.named_parameters())
        if any(not bool((now[name].detach() == after[name]).all()) for name in self._names):
            return None
        return {name: after[name] - (1 - self._decay) * before[name] for name in self._names}

    def _now(self) -> dict[str, Tensor]:
        params = dict(self._model.named_parameters())
        return {name: params[name].detach().clone() for name in self._names}
