"""The batches of a fleet: order, crops and targets of every run, each drawn from the run's own seed."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from creditscope.blocks import Batch
from creditscope.data.batches import augment, crop_windows, in_dtype, normalise, pad_images
from creditscope.data.dataset import Dataset
from creditscope.data.order import epoch_crops, epoch_order, random_targets
from creditscope.engine.step import dtype_of
from creditscope.engine.traced import Traced
from creditscope.errors import BadInput
from creditscope.records import RunSpec


class Draws:
    """Gives every run one batch a step, from buffers at fixed addresses: a CUDA graph reads them there.

    Runs of one seed see the same samples, so everything is drawn, cropped and normalised once a seed. The next epoch
    is drawn while this one trains.

    Args:
        specs: The runs of the fleet, in its order.
        data: Their data set, on the fleet's device.
        fused: Whether cropping and normalising a batch is compiled.
    """

    def __init__(self, specs: Sequence[RunSpec], data: Dataset, fused: bool = False) -> None:
        self._seeds = list(dict.fromkeys(spec.seed or 0 for spec in specs))
        self._batch = specs[0].batch or 1
        self._augments = specs[0].augment == "crop4+flip"
        self._data = data
        self._dtype = dtype_of(specs[0])
        if self._augments and (data.x_train.dtype != torch.uint8 or data.x_train.ndim != 4):
            raise BadInput(
                f"augment crop4+flip wants uint8 images, {data.name!r} holds {data.x_train.dtype} of shape "
                f"{tuple(data.x_train.shape[1:])}; set augment=none"
            )
        self._images = pad_images(data.x_train, data.mean) if self._augments else data.x_train
        self._inputs = Traced(_inputs, compiled=True) if fused else _inputs
        self.targets = _targets(specs, data)
        device = data.x_train.device
        self._seed_of_run = torch.tensor([self._seeds.index(spec.seed or 0) for spec in specs], device=device)
        self._runs = torch.arange(len(specs), device=device).unsqueeze(1)
        self.at = torch.zeros(1, device=device, dtype=torch.int64)
        self._buffers = tuple(draw.to(device) for draw in self._draw(epoch=1))
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="draws")
        self._next: tuple[int, Future[list[Tensor]]] | None = None

    @property
    def steps(self) -> int:
        """Steps in an epoch; the last short batch is dropped."""
        return len(self._data.x_train) // self._batch

    def begin(self, epoch: int) -> None:
        """Draw an epoch and go to its first batch.

        Args:
            epoch: Which, counted from 1.
        """
        ready = self._next[1].result() if self._next is not None and self._next[0] == epoch else self._draw(epoch)
        for buffer, draw in zip(self._buffers, ready, strict=True):
            buffer.copy_(draw, non_blocking=True)  # the GPU may be busy still: the host does not wait for it
        self.at.zero_()
        self._next = epoch + 1, self._pool.submit(self._draw, epoch + 1)

    def next_batch(self) -> Batch:
        """The next batch of every run as the network sees it; first axis runs."""
        index, *crops = (buffer.index_select(1, self.at)[:, 0] for buffer in self._buffers)
        image = index.long()
        inputs = in_dtype(self._inputs(self._images, image, crops, self._data.mean, self._data.std), self._dtype)
        self.at += 1
        return Batch(self._for_runs(inputs), self.targets[self._runs, self._for_runs(image)])

    def _for_runs(self, per_seed: Tensor) -> Tensor:
        """One entry a run; where every run has its own seed they are in place already."""
        if len(self._seeds) == len(self._seed_of_run):
            return per_seed
        return per_seed.index_select(0, self._seed_of_run)

    def _draw(self, epoch: int) -> list[Tensor]:
        """Order and crops of an epoch, stacked over seeds, in the smallest integers that hold them."""
        drawn = [self._draw_one(seed, epoch) for seed in self._seeds]
        columns = [torch.stack(column) for column in zip(*drawn, strict=True)]
        # From pinned memory a GPU fetches on its own.
        return [column.pin_memory() for column in columns] if self._data.x_train.is_cuda else columns

    def _draw_one(self, seed: int, epoch: int) -> list[Tensor]:
        draws = [epoch_order(seed, epoch, len(self._data.x_train), self._batch).to(torch.int32)]
        if self._augments:
            down, right, flip = epoch_crops(seed, epoch, self.steps, self._batch)
            draws += [down.to(torch.uint8), right.to(torch.uint8), flip]
        return draws


def _inputs(images: Tensor, image: Tensor, crops: Sequence[Tensor], mean: Tensor, std: Tensor) -> Tensor:
    """A batch of every seed as the network sees it: cropped from padded images where there are crops."""
    if not crops:
        return normalise(images[image], mean, std)
    down, right, flip = crops
    return normalise(augment(crop_windows(images), image, down.long(), right.long(), flip), mean, std)


def _targets(specs: Sequence[RunSpec], data: Dataset) -> Tensor:
    """What each run trains towards, one row a run: the labels, or its own random ones."""
    labels = data.y_train

    def row(spec: RunSpec) -> Tensor:
        if spec.targets != "random":
            return labels
        return random_targets(spec.seed or 0, labels.numel(), data.classes).view_as(labels).to(labels)

    rows = [row(spec) for spec in specs]
    # Labels alone are not copied for each run.
    return labels.expand(len(rows), *labels.shape) if all(row is labels for row in rows) else torch.stack(rows)
