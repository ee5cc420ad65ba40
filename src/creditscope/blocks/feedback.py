"""How random feedback is drawn: independent entries with one standard deviation."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Distribution = Literal["normal", "uniform"]


class FeedbackInit(NamedTuple):
    """How one feedback tensor is drawn: independent entries with mean 0.

    Args:
        shape: Its shape.
        sd: Standard deviation of an entry.
        distribution: ``normal``, or ``uniform`` on ±√3·sd.
    """

    shape: tuple[int, ...]
    sd: float
    distribution: Distribution = "normal"

    def standard(
        self, generator: torch.Generator, count: int | None = None, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """The entries over their standard deviation, on the generator's device.

        Args:
            generator: Where the numbers come from.
            count: How many tensors, stacked on a first axis; None: one, without that axis.
            dtype: In which the numbers are drawn.
        """
        shape = self.shape if count is None else (count, *self.shape)
        if self.distribution == "normal":
            return torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)
        drawn = torch.rand(shape, generator=generator, dtype=dtype, device=generator.device)
        return drawn.sub_(0.5).mul_(2 * math.sqrt(3))
