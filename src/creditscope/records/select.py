"""Choose runs by what their specs say: ``--where key=value,…`` and ``--methods A,B``."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel

from creditscope.errors import BadInput, argument, did_you_mean
from creditscope.records.load import Loaded
from creditscope.records.log import RunLog
from creditscope.records.method import FORMER, parse_method, split_methods
from creditscope.records.spec import RunSpec

# What sets two methods apart; runs that agree in all the rest belong to one experiment.
OF_THE_METHOD = frozenset(
    {"rule", "options", "credit_norm", "penalty", "train_last", "train_embedding", "fixed_feedback", "anchors"}
)
_NAMED = {"data": "name", "optimiser": "name"}
_MOST_VALUES = 8


@dataclass(frozen=True)
class Selection:
    """Which runs are wanted. What says nothing of a run keeps it.

    Args:
        where: Field of the spec (``epochs``, ``data``, ``optimiser.lr``, …) and the values that are wanted, as texts.
        methods: Method names; empty: all.
    """

    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    methods: tuple[str, ...] = ()

    @classmethod
    def of(cls, where: Iterable[str] = (), methods: str | None = None) -> "Selection":
        """Read what a user wrote.

        Args:
            where: ``key=value,…`` each; a value without a key is another value of the key before it.
            methods: Method names, separated by commas.
        """
        found: dict[str, tuple[str, ...]] = {}
        for text in where:
            key = ""
            for part in text.split(","):
                name, equals, value = part.partition("=")
                key, value = (name.strip(), value.strip()) if equals else (key, part.strip())
                if not key or not value:
                    raise BadInput(
                        argument("where"), f" wants key=value,…, got {text!r}; write e.g. epochs=100,seed=42"
                    )
                _check_key(key)
                found[key] = (*found.get(key, ()), value)
        named = [name for name in split_methods(methods or "") if name]
        if methods is not None and not named:
            raise BadInput(argument("methods"), f" wants names separated by commas, got {methods!r}")
        return cls(found, tuple(_canonical(name) for name in named))

    def __bool__(self) -> bool:
        return bool(self.where or self.methods)

    def keeps(self, spec: RunSpec) -> bool:
        """Whether a run is wanted.

        Args:
            spec: The run.
        """
        return self.is_of_method(spec) and self.is_in_setting(spec)

    def is_of_method(self, spec: RunSpec) -> bool:
        """Whether a run's method is wanted, whatever its setting.

        Args:
            spec: The run.
        """
        named = not self.methods or spec.method in self.methods
        return named and all(_says(spec, key, values) for key, values in self.where.items() if _is_method(key))

    def is_in_setting(self, spec: RunSpec) -> bool:
        """Whether a run's setting is wanted (seed, epochs, model, data, …), whatever its method.

        Args:
            spec: The run.
        """
        return all(_says(spec, key, values) for key, values in self.where.items() if not _is_method(key))

    def of_loaded(self, loaded: Loaded) -> Loaded:
        """The logs that are wanted; refused where none is.

        Args:
            loaded: What was found.
        """
        return Loaded(self._some(loaded.logs, [log for log in loaded.logs if self.keeps(log.spec)]), loaded.skipped)

    def in_setting(self, loaded: Loaded) -> Loaded:
        """The logs of the settings that are wanted, of any method; refused where none is of a wanted method.

        Args:
            loaded: What was found.
        """
        self.of_loaded(loaded)
        return Loaded(tuple(log for log in loaded.logs if self.is_in_setting(log.spec)), loaded.skipped)

    @property
    def text(self) -> str:
        """In words, as it was written."""
        parts = [f"{key}={','.join(values)}" for key, values in self.where.items()]
        return " and ".join(
            filter(None, [", ".join(parts), f"methods {','.join(self.methods)}" if self.methods else ""])
        )

    def _some(self, logs: Sequence[RunLog], kept: Sequence[RunLog]) -> tuple[RunLog, ...]:
        if kept or not logs or not self:
            return tuple(kept)
        specs = [log.spec for log in logs]
        known = sorted({spec.method for spec in specs})
        for name in self.methods:
            if name not in known:
                raise BadInput(argument("methods"), f": no run here is {name!r}; {did_you_mean(name, known)}")
        for key, values in self.where.items():
            if not any(_says(spec, key, values) for spec in specs):
                there = sorted({_text(_value(spec, key)) for spec in specs})
                more = f" and {len(there) - _MOST_VALUES} more" if len(there) > _MOST_VALUES else ""
                said = f": no run here has {key}={','.join(values)}; {key} is {', '.join(there[:_MOST_VALUES])}{more}"
                raise BadInput(argument("where"), said)
        raise BadInput(f"none of the {len(logs)} runs is all of {self.text}; ask for less at once")


def _canonical(name: str) -> str:
    """The name as a spec gives it; a name of a foreign rule, which follows no grammar, as it is."""
    with suppress(BadInput):
        return str(parse_method(name))
    return name


def _is_method(key: str) -> bool:
    return key.partition(".")[0] in OF_THE_METHOD or key == "method"


def _check_key(key: str) -> None:
    head, _, rest = key.partition(".")
    known = ["method", *RunSpec.model_fields]
    if head not in known:
        raise BadInput(argument("where"), f": a run has no {head!r}; {did_you_mean(head, known)}")
    kinds = [kind for kind in _kinds(head) if isinstance(kind, type) and issubclass(kind, BaseModel)]
    inner = [name for kind in kinds for name in kind.model_fields]
    if rest and inner and rest not in inner:
        raise BadInput(argument("where"), f": {head} has no {rest!r}; {did_you_mean(rest, inner)}")
    if inner and not rest and head not in _NAMED:
        raise BadInput(argument("where"), f": {head} has several parts; write {head}.{inner[0]}=… or another of them")


def _kinds(name: str) -> tuple[Any, ...]:
    return get_args(RunSpec.model_fields[name].annotation) if name != "method" else ()


def _value(spec: RunSpec, key: str) -> Any:
    head, _, rest = key.partition(".")
    value: Any = getattr(spec, head)
    inner = rest or _NAMED.get(head, "")
    if value is None or not inner:
        return value
    return value.get(inner) if isinstance(value, dict) else getattr(value, inner)


def _says(spec: RunSpec, key: str, wanted: Sequence[str]) -> bool:
    value = _value(spec, key)
    return any(_same(value, text) for text in wanted)


def _same(value: Any, text: str) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(ValueError):
            return float(text) == float(value)
    if isinstance(value, str) and text in FORMER:
        return value == FORMER[text][0]
    return _text(value).lower() == text.lower()


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
