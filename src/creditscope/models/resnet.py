"""ResNet for small images: 6n + 2 layers in three stages, with batch norm or group norm."""

import math

from torch import Tensor, nn
from torch.nn import functional

from creditscope.errors import BadInput, did_you_mean, setting

STAGES = 3
NORMS = ("batch", "group")
GROUPS = 8


class ResNet(nn.Module):
    """conv → norm → ReLU → 3 stages of n basic blocks of width d, 2d, 4d → mean over positions → head (He et al. 2016).

    The first block of the second and third stage halves the side. Its skip then takes every other position and adds
    channels of zeros, so no skip has parameters. Convolutions start at He's normal distribution.

    Args:
        shape: Shape (channels, height, width) of one image.
        classes: Number of outputs.
        width: Channels d of the first stage.
        depth: Number of blocks L = 3n; 9 make ResNet-20.
        terminal_ln: False: no LayerNorm stands before the head.
        norm: ``batch`` or ``group``, of at most 8 groups.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        width: int = 16,
        depth: int = 9,
        terminal_ln: bool = False,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        if len(shape) != 3:
            raise BadInput(f"resnet wants images, got shape {shape}; use ", setting("model", "resmlp"))
        if depth % STAGES:
            raise BadInput(f"resnet has {STAGES} stages and wants a depth that is a multiple of it, got {depth}")
        if terminal_ln:
            raise BadInput("resnet has no LayerNorm before its head; set ", setting("terminal_ln", "false"))
        if norm not in NORMS:
            raise BadInput(setting("model.norm", norm), f": {did_you_mean(norm, NORMS)}")
        widths = [width * 2**stage for stage in range(STAGES) for _ in range(depth // STAGES)]
        self.embed = nn.Sequential(_conv(shape[0], width), _norm(norm, width), nn.ReLU())
        self.blocks = nn.ModuleList(
            BasicBlock(before, after, norm) for before, after in zip([width, *widths], widths, strict=False)
        )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch."""
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean((2, 3)))  # type: ignore[no-any-return]


class BasicBlock(nn.Module):
    """ReLU(skip(h) + branch(h)).

    Args:
        before: Channels that come in.
        after: Channels that go out; where they are more, the side is halved.
        norm: One of ``NORMS``.
    """

    def __init__(self, before: int, after: int, norm: str) -> None:
        super().__init__()
        self.stride = 1 if before == after else 2
        self.more = after - before
        self.branch = nn.Sequential(
            _conv(before, after, self.stride), _norm(norm, after), nn.ReLU(), _conv(after, after), _norm(norm, after)
        )

    def forward(self, h: Tensor) -> Tensor:
        """What leaves the block."""
        skip = functional.pad(h[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        return functional.relu(skip + self.branch(h))


def _conv(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _norm(kind: str, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.GroupNorm(math.gcd(GROUPS, channels), channels)
