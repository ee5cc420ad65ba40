"""How a model is called: with one tensor, or with several by name; and where its logits are in what it returns."""

import copy
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Table:
    """Samples of several named tensors. A probe holds their numbers in the place of inputs.

    Args:
        columns: Tensors by the name under which the model takes them, first axis samples.
    """

    columns: Mapping[str, Tensor]

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        """The samples of these numbers; what is no index takes the dtype.

        Args:
            numbers: Which samples.
            dtype: Of the arithmetic.
        """
        taken = {name: column[numbers] for name, column in self.columns.items()}
        return {name: t.to(dtype) if t.is_floating_point() else t for name, t in taken.items()}


def inputs_of(table: Table | None, x: Tensor, dtype: torch.dtype) -> Tensor | dict[str, Tensor]:
    """What the model is given for these samples.

    Args:
        table: Named inputs; None: x is the input itself.
        x: Inputs, or numbers of samples in the table.
        dtype: Of the arithmetic.
    """
    return x if table is None else table.rows(x, dtype)


def logits_of(output: Any) -> Any:
    """The logits in what a model returns: itself, its field ``logits`` or its entry ``logits``.

    Args:
        output: Whatever the model returned.
    """
    if isinstance(output, Mapping):
        return output.get("logits", output)
    return getattr(output, "logits", output)


def with_logits(output: Any, logits: Tensor) -> Any:
    """What a model returned, with other logits in it; the object of before is not changed.

    Args:
        output: Whatever the model returned.
        logits: In the place of its own.
    """
    if isinstance(output, Tensor):
        return logits
    changed = copy.copy(output)
    if isinstance(changed, MutableMapping):
        changed["logits"] = logits
    else:
        changed.logits = logits
    return changed


def call(model: nn.Module, inputs: Tensor | Mapping[str, Tensor]) -> Any:
    """The model's logits on these inputs.

    Args:
        model: The model.
        inputs: One tensor, or several by name.
    """
    # A model may work in place on what it is given.
    given = {name: t.clone() for name, t in inputs.items()} if isinstance(inputs, Mapping) else inputs.clone()
    return logits_of(model(**given) if isinstance(given, Mapping) else model(given))
