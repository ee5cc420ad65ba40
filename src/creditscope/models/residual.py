"""The residual block that models share."""

from torch import Tensor, nn


class Residual(nn.Module):
    """h + branch(h).

    Args:
        branch: The branch f.
    """

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, h: Tensor) -> Tensor:
        """Add the branch to the residual stream."""
        return h + self.branch(h)  # type: ignore[no-any-return]
