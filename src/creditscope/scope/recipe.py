"""How a user's model was trained, in the user's words: what a baseline must have in common with it."""

from collections.abc import Mapping
from typing import Any

from creditscope.errors import BadInput, did_you_mean
from creditscope.records import DataSpec

Recipe = Mapping[str, str | int]
NUMBERS = ("epochs", "batch")
TEXTS = ("optimiser", "schedule", "augment", "data")


def recipe_fields(recipe: Recipe | None, data: DataSpec) -> dict[str, Any]:
    """Fields of a spec that a recipe fills.

    Args:
        recipe: ``epochs`` and ``batch`` as numbers; ``optimiser``, ``schedule``, ``augment`` and ``data`` in words.
        data: The samples that are measured on.
    """
    given = dict(recipe or {})
    for key, value in given.items():
        if key not in (*NUMBERS, *TEXTS):
            raise BadInput(f"a recipe has no {key!r}; {did_you_mean(str(key), (*NUMBERS, *TEXTS))}")
        number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if key in NUMBERS and not number:
            raise BadInput(f"wanted {key} of the recipe as a whole number of at least 1, got {value!r}; write {key}=20")
        if key in TEXTS and not (isinstance(value, str) and value.strip()):
            raise BadInput(
                f"wanted {key} of the recipe in words, got {value!r}; e.g. optimiser='SGD lr=0.1 momentum=0.9', "
                "schedule='constant'"
            )
    name = given.pop("data", None)
    texts = {key: str(given.pop(key)) for key in TEXTS if key in given}
    return {
        **given,
        "recipe": texts or None,
        "data": data if name is None else data.model_copy(update={"name": name}),
    }
