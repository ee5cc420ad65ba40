"""Specs and rows: complete examples, and hypothesis strategies that follow the fields of the rows themselves."""

import types
import typing
from typing import Any, Literal

import annotated_types
from hypothesis import strategies as st
from pydantic import BaseModel

from creditscope.records import (
    DataSpec,
    EndRow,
    EpochRow,
    FeedbackSpec,
    HeaderRow,
    OptimiserSpec,
    ProbeRow,
    ProbeSpec,
    RunSpec,
    engine_spec,
)
from creditscope.records.measured import Cosines, Norms

# Names as they are written, that of a former rule among them.
RULES = ("bp", "fa", "fa-exact-head", "fa-block", "dfa")

FIELDS: dict[str, Any] = {
    "model": "resmlp",
    "width": 8,
    "depth": 4,
    "terminal_ln": True,
    "view": "flat",
    "data": DataSpec(
        name="synthetic", hash_train="a1", hash_test="b2", shape=(5,), n_train=64, n_test=32, class_counts=(16, 16)
    ),
    "classes": 2,
    "targets": "labels",
    "seed": 42,
    "epochs": 3,
    "batch": 16,
    "optimiser": OptimiserSpec(),
    "schedule": "cosine",
    "augment": "none",
    "dtype": "float32",
    "matmul": "float32",
    "probe": ProbeSpec(),
}


def spec(method: str = "dfa", **changes: Any) -> RunSpec:
    """A complete spec of an engine run."""
    return engine_spec(method, **(FIELDS | changes))


def header(method: str = "dfa", **changes: Any) -> HeaderRow:
    return HeaderRow(spec=spec(method, **changes), exact=[False] * 5, blocks=["b.0", "b.1", "b.2", "b.3"])


def epoch(number: int, accuracy: float = 0.5, hidden: float = 9.0) -> EpochRow:
    return EpochRow(epoch=number, test_accuracy=accuracy, hidden=Norms(median=[hidden] * 5, n=32))


def probe(number: int) -> ProbeRow:
    return ProbeRow(epoch=number, participation=[1.5] * 5)


def end(number: int) -> EndRow:
    return EndRow(status="finished", epoch=number, test_accuracy=0.5)


# Strategies

finite = st.floats(allow_nan=False, allow_infinity=False)
maybe = st.none() | finite
words = st.text(max_size=8)
small = st.integers(0, 2**31)


def annotation_strategy(annotation: Any, numbers: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    """Values of a field's annotation; ``numbers`` gives its floats."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([annotation_strategy(arg, numbers) for arg in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(annotation_strategy(args[0], numbers), max_size=3).map(tuple)
    if origin is typing.Annotated:
        return annotation_strategy(args[0], numbers)
    if origin is list:
        return st.lists(annotation_strategy(args[0], numbers), max_size=3)
    if origin is dict:
        return st.dictionaries(words, annotation_strategy(args[1], numbers), max_size=2)
    plain = {type(None): st.none(), float: numbers, int: small, bool: st.booleans(), str: words}
    if annotation in plain:
        return plain[annotation]
    if annotation is RunSpec:
        return specs()
    return rows_of(annotation, numbers)


def rows_of(model: type[BaseModel], numbers: st.SearchStrategy[float] = finite) -> st.SearchStrategy[Any]:
    """Instances of a row or of a part of one."""
    if model is Norms:
        numbers = numbers.map(abs)
    if model is Cosines:
        numbers = numbers.map(lambda v: v % 1.0)  # of what is not finite: NaN
    fields = {}
    for name, field in model.model_fields.items():
        if name in ("kind", "schema_version"):
            continue
        most = next((m.le for m in field.metadata if isinstance(m, annotated_types.Le)), None)
        if most == 1:
            fields[name] = st.none() | st.floats(0, 1)
        elif most is not None:
            known = st.integers(1, min(most, 2**31))
            fields[name] = known if field.is_required() else st.none() | known
        else:
            fields[name] = annotation_strategy(field.annotation, numbers)
    return st.builds(model, **fields)


def specs() -> st.SearchStrategy[RunSpec]:
    """Specs of engine runs, and of foreign runs that know little."""
    return engine_specs() | foreign_specs()


@st.composite
def engine_specs(draw: st.DrawFn) -> RunSpec:
    return spec(
        draw(methods()),
        seed=draw(small),
        depth=draw(st.integers(4, 9)),
        epochs=draw(st.integers(0, 300)),
        optimiser=OptimiserSpec(lr=draw(st.floats(1e-6, 1)), weight_decay=draw(st.floats(0, 1))),
        feedback=draw(st.none() | st.builds(FeedbackSpec, dist=st.none() | words, seed=st.none() | small)),
        probe=ProbeSpec(epochs=draw(st.none() | st.lists(st.integers(0, 99), max_size=3).map(tuple))),
    )


def foreign_specs() -> st.SearchStrategy[RunSpec]:
    return st.builds(
        RunSpec,
        rule=st.sampled_from(["pepita", "dfa", "forward-forward"]),
        origin=st.sampled_from(["import", "watch"]),
        depth=st.none() | st.integers(1, 9),
        penalty=st.none() | st.floats(0, 10),
        train_last=st.none() | st.just("all") | st.integers(0, 3),
        seed=st.none() | small,
        data=st.none()
        | st.builds(DataSpec, name=words, shape=st.none() | st.lists(st.integers(1, 9), max_size=5).map(tuple)),
    )


@st.composite
def methods(draw: st.DrawFn) -> str:
    """Method names, every one of the grammar."""
    name = draw(st.sampled_from([*RULES, "dfa-rms"]))
    if draw(st.booleans()):
        name += f"+pen{draw(st.floats(1e-300, 1e300))!r}"
    return name + draw(st.sampled_from(["", "@frozen", "@readout", "@last0", "@last1", "@last4"]))
