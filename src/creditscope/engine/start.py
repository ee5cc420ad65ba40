"""Runs at initialisation: each run's model from its own seed, refused where a fleet cannot train it."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from creditscope.blocks import Task
from creditscope.data.dataset import Dataset
from creditscope.data.order import seeded_generator
from creditscope.engine.optim import Stack
from creditscope.errors import BadInput
from creditscope.models import MODELS, build_model, refuse_data
from creditscope.records import RunSpec

Factory = Callable[[RunSpec, Dataset], nn.Module]


def seeded_model(factory: Factory, spec: RunSpec, data: Dataset) -> nn.Module:
    """A run's model at initialisation; the global generator is left as it was.

    Args:
        factory: Builds the model.
        spec: The run; its ``init`` seed draws the model.
        data: Its data set.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeded_generator(spec.seed or 0, "init").initial_seed())
        model = factory(spec, data)
    _refuse_stateful(model)
    return model


def stack_models(factory: Factory, specs: Sequence[RunSpec], data: Dataset, like: nn.Module) -> tuple[Stack, Stack]:
    """Every run's parameters and buffers at initialisation, stacked, as the first run's are kept.

    Args:
        factory: Builds the models.
        specs: The runs.
        data: Their data set.
        like: The first run's model, in the fleet's dtype and on its device.
    """
    # Our own models depend on a run's seed and on shapes, which a fleet shares: one for each seed.
    names = [str(spec.seed) if factory is default_model else spec.run_id for spec in specs]
    models = {name: seeded_model(factory, spec, data) for name, spec in dict(zip(names, specs, strict=True)).items()}

    def stacked(kind: Callable[[nn.Module], Iterable[tuple[str, Tensor]]]) -> Stack:
        own = {name: dict(kind(model)) for name, model in models.items()}
        return {name: torch.stack([own[each][name].detach() for each in names]).to(first) for name, first in kind(like)}

    return stacked(nn.Module.named_parameters), stacked(nn.Module.named_buffers)


def refuse_other_depth(task: Task, spec: RunSpec) -> None:
    """A log must not say another number of blocks than the model has.

    Args:
        task: The partitioned model.
        spec: The run.
    """
    if task.blocks.depth != spec.depth:
        raise BadInput(
            f"the model has {task.blocks.depth} blocks ({', '.join(task.blocks.names)}), its spec says depth "
            f"{spec.depth}; set depth={task.blocks.depth}"
        )


def _refuse_stateful(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and not module.track_running_stats:
            raise BadInput(f"{name!r} keeps no running statistics, so no sample is measured alone; let it keep them")
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise BadInput(f"{name!r} drops out units: not supported in a fleet; set its p to 0")


def default_model(spec: RunSpec, data: Dataset) -> nn.Module:
    """The model that a spec names.

    Args:
        spec: The run.
        data: Its data set, which gives the input shape and the number of classes.
    """
    assert data.spec.shape is not None
    return _built(spec.model or "", spec, data)


def _built(model: str | Callable[..., nn.Module], spec: RunSpec, data: Dataset) -> nn.Module:
    refuse_data(model, data.spec)
    return build_model(
        model,
        data.spec.shape or (),
        data.classes,
        spec.width or 1,
        spec.depth or 1,
        spec.terminal_ln is not False,
        spec.architecture,
    )


def own_model(place: str) -> tuple[str, Factory | None]:
    """A model by name: what a spec calls it, and what builds it where its name alone does not say.

    Args:
        place: A name of ``MODELS``, or ``package.module:Name`` of a user's own: called as ours are.
    """
    if ":" not in place:
        MODELS.find(place)
        return place, None
    build = MODELS.find(place)

    return place.replace(":", "."), partial(_built, build)
