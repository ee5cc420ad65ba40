"""How a model is called: with one tensor, or with several by name; and where its logits are in what it returns."""

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_map_only, tree_unflatten

from creditscope.errors import BadInput, CreditscopeError

Forward = Callable[[nn.Module, Any], Any]


@dataclass(frozen=True)
class Table:
    """Samples of several named tensors. A probe holds their numbers in the place of inputs.

    Args:
        columns: Tensors by the name under which the model takes them, first axis samples.
        forward: The user's own call of the model on a batch as the loader yields it; None: the names are keywords.
        spec: How such a batch is put together from the columns.
    """

    columns: Mapping[str, Tensor]
    forward: Forward | None = None
    spec: TreeSpec | None = None

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        """The samples of these numbers; what is no index takes the dtype.

        Args:
            numbers: Which samples.
            dtype: Of the arithmetic.
        """
        taken = {name: column[numbers] for name, column in self.columns.items()}
        return {name: t.to(dtype) if t.is_floating_point() else t for name, t in taken.items()}


@dataclass(frozen=True)
class OwnCall:
    """A batch as the loader yields it, and the user's own call of the model on it.

    Args:
        forward: Of the model and the batch.
        batch: The batch.
    """

    forward: Forward
    batch: Any


Inputs = Tensor | dict[str, Tensor] | OwnCall


def inputs_of(table: Table | None, x: Tensor, dtype: torch.dtype) -> Inputs:
    """What the model is given for these samples.

    Args:
        table: Named inputs; None: x is the input itself.
        x: Inputs, or numbers of samples in the table.
        dtype: Of the arithmetic.
    """
    if table is None:
        return x
    rows = table.rows(x, dtype)
    if table.forward is None or table.spec is None:
        return rows
    return OwnCall(table.forward, tree_unflatten(list(rows.values()), table.spec))


def logits_of(output: Any) -> Any:
    """The logits in what a model returns: itself, its field or entry ``logits``, or the first of several outputs.

    Args:
        output: Whatever the model returned.
    """
    if isinstance(output, Mapping):
        return output.get("logits", output)
    # A named tuple with logits in it has the field; of another it is the first that counts.
    plain = isinstance(output, (tuple, list)) and output and not hasattr(output, "logits")
    return output[0] if plain else getattr(output, "logits", output)


def with_logits(output: Any, logits: Tensor) -> Any:
    """What a model returned, with other logits in it; the object of before is not changed.

    Args:
        output: Whatever the model returned.
        logits: In the place of its own.
    """
    if isinstance(output, Tensor):
        return logits
    if isinstance(output, (tuple, list)) and not hasattr(output, "logits"):
        return type(output)([logits, *output[1:]])
    changed = copy.copy(output)
    if isinstance(changed, MutableMapping):
        changed["logits"] = logits
    else:
        changed.logits = logits
    return changed


def call(model: nn.Module, inputs: Inputs) -> Any:
    """The model's logits on these inputs.

    Args:
        model: The model.
        inputs: One tensor, several by name, or a batch with the user's own call.
    """
    # A model may work in place on what it is given.
    with told("the model failed while it was measured", "it is called in evaluation mode, also in float64"):
        if isinstance(inputs, OwnCall):
            return logits_of(inputs.forward(model, tree_map_only(Tensor, Tensor.clone, inputs.batch)))
        given = {name: t.clone() for name, t in inputs.items()} if isinstance(inputs, Mapping) else inputs.clone()
        return logits_of(model(**given) if isinstance(given, Mapping) else model(given))


@contextmanager
def told(what: str, advice: str) -> Iterator[None]:
    """An exception of the user's own code, in one line.

    Args:
        what: Whose code failed.
        advice: What to know or do.
    """
    try:
        yield
    except (CreditscopeError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        raise BadInput(f"{what} ({type(error).__name__}: {said}); {advice}") from error


def as_given(inputs: Inputs) -> Any:
    """What a user's own pass is given: the tensor, the named tensors, or the batch.

    Args:
        inputs: As ``call`` takes them.
    """
    return inputs.batch if isinstance(inputs, OwnCall) else inputs
