"""Random numbers that rules want at each step: those of a run come from its own seed, alone or in company."""

import math
from collections.abc import Mapping, Sequence

import torch

from creditscope.data.order import seeded_generator
from creditscope.engine.groups import Group
from creditscope.engine.optim import Stack
from creditscope.records import RunSpec


class FleetNoise:
    """Standard normal numbers at fixed addresses, so that a CUDA graph reads them there; drawn again before each step.

    An epoch's numbers follow from the seed and the epoch alone: a resumed run draws what it would have drawn. They are
    drawn on the fleet's device, so a CPU and a GPU draw different ones.

    Args:
        groups: The fleet's groups.
        specs: Its runs.
        params: Its parameters, which give dtype and device.
    """

    def __init__(self, groups: Sequence[Group], specs: Sequence[RunSpec], params: Stack) -> None:
        like = next(iter(params.values()))
        self._groups = tuple(groups)
        self._sizes = [sum(math.prod(shape) for shape in group.noise.values()) for group in groups]
        self._flat = [
            like.new_zeros(group.stop - group.start, size) for group, size in zip(groups, self._sizes, strict=True)
        ]
        wanted = [run for group, size in zip(groups, self._sizes, strict=True) if size for run in range(*_ends(group))]
        self._generators = {run: torch.Generator(like.device) for run in wanted}
        self._seeds = [spec.seed or 0 for spec in specs]

    def begin(self, epoch: int) -> None:
        """Go to the first numbers of an epoch.

        Args:
            epoch: Which, counted from 1.
        """
        for run, generator in self._generators.items():
            generator.manual_seed(seeded_generator(self._seeds[run], "noise", epoch).initial_seed())

    def draw(self) -> None:
        """The numbers of the next step."""
        for group, flat, size in zip(self._groups, self._flat, self._sizes, strict=True):
            for run in range(*_ends(group)) if size else ():
                flat[run - group.start].normal_(generator=self._generators[run])

    def of(self, at: int) -> Stack:
        """A group's numbers by name, first axis runs.

        Args:
            at: Which group.
        """
        group, flat = self._groups[at], self._flat[at]
        parts = torch.split(flat, [math.prod(shape) for shape in group.noise.values()], dim=1)
        return {
            name: part.view(len(flat), *shape) for (name, shape), part in zip(group.noise.items(), parts, strict=True)
        }


def one_draw(shapes: Mapping[str, tuple[int, ...]], generator: torch.Generator, dtype: torch.dtype) -> Stack:
    """Numbers of the shapes that a rule wants, for one run and one step.

    Args:
        shapes: By name.
        generator: Where they come from.
        dtype: Of the run.
    """
    return {
        name: torch.randn(shape, generator=generator, device=generator.device).to(dtype)
        for name, shape in shapes.items()
    }


def _ends(group: Group) -> tuple[int, int]:
    return group.start, group.stop
