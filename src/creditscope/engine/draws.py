"""The batches of a fleet: order, crops and targets of every run, each drawn from the run's own streams."""

from collections.abc import Sequence

import torch
from torch import Tensor

from creditscope.blocks import Batch
from creditscope.data.batches import augment, pad_images
from creditscope.data.dataset import Dataset
from creditscope.data.order import epoch_crops, epoch_order, random_targets
from creditscope.errors import BadInput
from creditscope.records import RunSpec


class Draws:
    """Deals out one batch a step for every run, from buffers at fixed addresses: a CUDA graph reads them there.

    Args:
        specs: The runs of the fleet, in its order.
        data: Their data set, on the fleet's device.
    """

    def __init__(self, specs: Sequence[RunSpec], data: Dataset) -> None:
        self._seeds = [spec.seed or 0 for spec in specs]
        self._batch = specs[0].batch or 1
        self._augments = specs[0].augment == "crop4+flip"
        self._n = len(data.x_train)
        if self._augments and (data.x_train.dtype != torch.uint8 or data.x_train.ndim != 4):
            raise BadInput(
                f"augment crop4+flip wants uint8 images, {data.name!r} holds {data.x_train.dtype} of shape "
                f"{tuple(data.x_train.shape[1:])}; set augment=none"
            )
        self._images = pad_images(data.x_train, data.mean) if self._augments else data.x_train
        self.targets = _targets(specs, data)
        self.at = torch.zeros(1, device=data.x_train.device, dtype=torch.int64)
        self._buffers = tuple(draw.to(data.x_train.device) for draw in self._draw(epoch=1))

    @property
    def steps(self) -> int:
        """Steps in an epoch; the last short batch is dropped."""
        return self._n // self._batch

    def begin(self, epoch: int) -> None:
        """Draw an epoch and go to its first batch.

        Args:
            epoch: Which, counted from 1.
        """
        for buffer, draw in zip(self._buffers, self._draw(epoch), strict=True):
            buffer.copy_(draw)
        self.at.zero_()

    def deal(self) -> Batch:
        """The next batch of every run: samples as stored, cropped and flipped where asked for; first axis runs."""
        index, *crops = (buffer.index_select(1, self.at)[:, 0] for buffer in self._buffers)
        x = self._images[index]
        if self._augments:
            down, right, flip = crops
            x = augment(x, down, right, flip)
        self.at += 1
        return Batch(x, self.targets.gather(1, index))

    def _draw(self, epoch: int) -> list[Tensor]:
        """Order and crops of an epoch, stacked over runs; runs of one seed share a draw."""
        draws = {}
        for seed in set(self._seeds):
            draws[seed] = [epoch_order(seed, epoch, self._n, self._batch)]
            if self._augments:
                draws[seed] += epoch_crops(seed, epoch, self.steps, self._batch)
        return [torch.stack(column) for column in zip(*(draws[seed] for seed in self._seeds), strict=True)]


def _targets(specs: Sequence[RunSpec], data: Dataset) -> Tensor:
    """What each run trains towards, one row a run: the labels, or its own random ones."""
    labels = data.y_train
    rows = [
        random_targets(spec.seed or 0, len(labels), data.classes).to(labels) if spec.targets == "random" else labels
        for spec in specs
    ]
    # Labels alone are not copied for each run.
    return labels.expand(len(rows), -1) if all(row is labels for row in rows) else torch.stack(rows)
