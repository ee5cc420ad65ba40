"""The checks of the published protocol and of ``standard`` version 1, kept as they judged."""

from creditscope.protocol.checks.version1.depth import DepthInterval, DepthPoint
from creditscope.protocol.checks.version1.direction import Direction
from creditscope.protocol.checks.version1.fidelity import FidelityAsLogged

__all__ = ["DepthInterval", "DepthPoint", "Direction", "FidelityAsLogged"]
