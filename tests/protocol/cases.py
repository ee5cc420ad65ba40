"""Run logs with numbers of the size that real runs give, and the ways to sabotage them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from creditscope.records import (
    DataSpec,
    EndRow,
    EpochRow,
    HeaderRow,
    OptimiserSpec,
    ProbeRow,
    ProbeSpec,
    RunLog,
    engine_spec,
)
from creditscope.records.measured import Cosines, Drift, Fidelity, Gamma, Movement, Norms, NullTest

L = 4
SEEDS = (42, 123, 456)
K = 999
NULL_SD = 0.02
N_TEST = 10_000
EXPENSIVE = (0, 1, 2, 3, 5)


@dataclass(frozen=True)
class Shape:
    """How a run ends: accuracy, growth per block, gain and cosine per state, movement per block, φ per state."""

    accuracy: float
    growth: tuple[float, ...] = (1.3, 1.1, 1.1, 1.05)
    gain: tuple[float, ...] = (0.05,) * (L + 1)
    error: float = 0.6
    cosine: tuple[float, ...] = (0.4, 0.4, 0.2, 0.18, 0.16)
    exact: tuple[bool, ...] = (False,) * (L + 1)
    movement: tuple[float, ...] = (0.5,) * L
    fidelity: tuple[float, ...] = (1 - 1e-14,) * (L + 1)
    branch: float = 0.1
    probe_accuracy: tuple[float, ...] = field(default=(0.30, 0.33, 0.36, 0.38, 0.40))


BP = Shape(accuracy=0.616, growth=(0.93, 0.94, 0.95, 0.97), cosine=(1.0,) * (L + 1), exact=(True,) * (L + 1))
ALIGNED = Shape(accuracy=0.45)
COLLAPSED = Shape(
    accuracy=0.306,
    growth=(5600.0, 4.0, 1.2, 1.3),
    gain=(6e-5, 2e-7, 2e-7, 2e-7, 2e-7),
    cosine=(0.4, 0.4, 0.0, 0.0, 0.0),
)
FROZEN = Shape(accuracy=0.353, movement=(0.0,) * L, branch=1e-5)
READOUT = replace(FROZEN, accuracy=0.345)


def run(method: str = "dfa", seed: int = 42, shape: Shape = ALIGNED, epochs: int = 5, **fields: object) -> RunLog:
    """One finished run of the engine."""
    known: dict[str, object] = {
        "model": "resmlp",
        "width": 256,
        "depth": L,
        "terminal_ln": True,
        "view": "flat",
        "data": DataSpec(name="cifar10", hash_train="a", hash_test="b", class_counts=(1000,) * 10, n_test=N_TEST),
        "classes": 10,
        "targets": "labels",
        "seed": seed,
        "epochs": epochs,
        "batch": 128,
        "optimiser": OptimiserSpec(),
        "schedule": "cosine",
        "augment": "crop4+flip",
        "dtype": "float32",
        "matmul": "float32",
        "probe": ProbeSpec(),
    }
    spec = engine_spec(method, **(known | fields))
    if spec.is_baseline:
        shape = replace(shape, movement=(0.0,) * L)
    rows = tuple(epoch_row(shape, epoch, epochs) for epoch in range(epochs + 1))
    probed_at = sorted({epoch for epoch in (*EXPENSIVE, epochs) if epoch <= epochs})
    rng = np.random.default_rng([seed, epochs])
    probes = [probe_row(shape, epoch, rng, keep_draws=epoch == epochs) for epoch in probed_at]
    if spec.rule == "bp":
        probes = [row.model_copy(update={"gradient_cosine": [1.0] * L}) for row in probes]
    end = EndRow(status="finished", epoch=epochs, test_accuracy=shape.accuracy, correct=bits(shape.accuracy, rng))
    end = end.model_copy(update={"n_test": N_TEST})
    return RunLog(f"{spec.run_id}.jsonl", HeaderRow(spec=spec, exact=list(shape.exact)), rows, tuple(probes), end)


def cell(
    method: str, shape: Shape, seeds: Sequence[int] = SEEDS, spread: float = 0.002, **fields: object
) -> list[RunLog]:
    """The same run over seeds; accuracies lie symmetrically around the shape's."""
    offsets = np.linspace(-spread, spread, len(seeds)) if len(seeds) > 1 else [0.0]
    return [
        run(method, seed, replace(shape, accuracy=shape.accuracy + float(offset)), **fields)  # type: ignore[arg-type]
        for seed, offset in zip(seeds, offsets, strict=True)
    ]


def healthy(method: str = "dfa", **fields: object) -> list[RunLog]:
    """A method that aligns, with its matched opponents: every check passes, and there is one claim."""
    shape = BP if method.startswith("bp") else ALIGNED
    return [*cell(method, shape, **fields), *opponents(method, **fields)]  # type: ignore[arg-type]


def opponents(method: str = "dfa", shape: Shape = FROZEN, **fields: object) -> list[RunLog]:
    """What a method must beat: its frozen twin, and the readout alone."""
    readout = replace(READOUT, accuracy=min(READOUT.accuracy, shape.accuracy))
    return [*cell(f"{method}@frozen", shape, **fields), *cell("bp@readout", readout, **fields)]  # type: ignore[arg-type]


def control(**fields: object) -> list[RunLog]:
    """The positive control: backprop, which gains from depth, and its frozen twin."""
    return [*cell("bp", BP, **fields), *cell("bp@frozen", FROZEN, **fields)]  # type: ignore[arg-type]


def epoch_row(shape: Shape, epoch: int, epochs: int) -> EpochRow:
    """One epoch, part of the way from an untrained net to the shape, geometrically."""
    t = epoch / epochs if epochs else 1.0
    growth = [value**t for value in shape.growth]
    states = [9.0]
    for ratio in growth:
        states.append(states[-1] * ratio)
    gain = [0.9 ** (1 - t) * value**t for value in shape.gain]
    return EpochRow(
        epoch=epoch,
        step=epoch * 390,
        test_accuracy=0.1 + (shape.accuracy - 0.1) * t,
        balanced_accuracy=0.1 + (shape.accuracy - 0.1) * t,
        hidden=Norms(median=list(states), n=1024),
        reference=Norms(median=[value * shape.error for value in gain], n=1024),
        error=shape.error,
        gain=list(gain),
        branch=[shape.branch] * L,
        growth=list(growth),
        cosine=cosines(shape),
        gamma=Gamma(acting=float(np.mean(shape.cosine)), published=float(np.mean(shape.cosine[:-1]))),
        movement=movement([value * t for value in shape.movement]),
        time_epoch=2.0,
    )


def cosines(shape: Shape) -> Cosines:
    status = ["exact-by-construction" if exact else "ok" for exact in shape.exact]
    return Cosines(mean=list(shape.cosine), status=status)  # type: ignore[arg-type]


def movement(values: Sequence[float]) -> Movement:
    """Two weight matrices a block; the second moves half as far."""
    names = [[f"blocks.{block}.up.weight", f"blocks.{block}.down.weight"] for block in range(len(values))]
    weights = {
        name: value * (1.0, 0.5)[i] for value, pair in zip(values, names, strict=True) for i, name in enumerate(pair)
    }
    return Movement(weights=weights, blocks=names, trainable=[True] * len(values))


def probe_row(shape: Shape, epoch: int, rng: np.random.Generator, keep_draws: bool) -> ProbeRow:
    draws = rng.normal(0, NULL_SD, (L + 1, K))
    observed = [None if exact else value for exact, value in zip(shape.exact, shape.cosine, strict=True)]
    return ProbeRow(
        epoch=epoch,
        fidelity=Fidelity(median=list(shape.fidelity), dtype="float32"),
        null=null(observed, draws, keep_draws),
        drift=Drift(s=0.001, at_128=0.001 / (0.001 + 1 / 128), state=L // 2),
        probe_accuracy=list(shape.probe_accuracy),
    )


def null(observed: Sequence[float | None], draws: np.ndarray, keep_draws: bool = True) -> NullTest:
    """A null test with p by plain counting."""
    p = [
        None if seen is None else (1 + sum(1 for value in values if value >= seen)) / (len(values) + 1)
        for seen, values in zip(observed, draws, strict=True)
    ]
    skip = [seen is None for seen in observed]
    return NullTest(
        observed=list(observed),
        p=p,
        mean=[None if s else float(values.mean()) for s, values in zip(skip, draws, strict=True)],
        sd=[None if s else float(values.std(ddof=1)) for s, values in zip(skip, draws, strict=True)],
        redraws=draws.shape[1],
        draws=[[] if s else values.tolist() for s, values in zip(skip, draws, strict=True)] if keep_draws else None,
    )


def bits(accuracy: float, rng: np.random.Generator) -> str:
    """Per-image correctness, packed: exactly this accuracy, images at random."""
    correct = np.zeros(N_TEST, dtype=bool)
    correct[rng.permutation(N_TEST)[: round(accuracy * N_TEST)]] = True
    return np.packbits(correct).tobytes().hex()


def edit(log: RunLog, epoch: Callable[[EpochRow], dict[str, object]] | None = None, **probe: object) -> RunLog:
    """A log with every epoch row changed by a function, and fields of every probe row replaced."""
    rows = tuple(row.model_copy(update=epoch(row)) for row in log.epochs) if epoch else log.epochs
    probes = tuple(row.model_copy(update=probe) for row in log.probes) if probe else log.probes
    return replace(log, epochs=rows, probes=probes)


def zero_credit(log: RunLog) -> RunLog:
    """No credit reaches any block: cosines are undefined and nothing moves."""
    dead = Cosines(mean=[None] * (L + 1), status=["zero-vector"] * (L + 1))
    blank = NullTest(observed=[None] * 5, p=[None] * 5, mean=[None] * 5, sd=[None] * 5, redraws=K)
    return edit(log, lambda _: {"cosine": dead, "movement": movement([0.0] * L)}, null=blank)


def with_credit(log: RunLog, change: Callable[[np.ndarray], np.ndarray]) -> RunLog:
    """The cosines of a log replaced; its null is what it was."""
    observed = change(np.array(log.probes[-1].null.observed, dtype=float))
    rng = np.random.default_rng(log.spec.seed)
    probes = tuple(
        row.model_copy(
            update={"null": null(observed.tolist(), rng.normal(0, NULL_SD, (L + 1, K)), row is log.probes[-1])}
        )
        for row in log.probes
    )
    rows = edit(log, lambda row: {"cosine": row.cosine.model_copy(update={"mean": observed.tolist()})})
    return replace(rows, probes=probes)


def flipped_sign(log: RunLog) -> RunLog:
    return with_credit(log, lambda cosine: -cosine)


def wrong_feedback_saved(log: RunLog) -> RunLog:
    rng = np.random.default_rng(log.spec.seed + 1)
    return with_credit(log, lambda cosine: rng.normal(0, NULL_SD, cosine.shape))


def dead_block(log: RunLog) -> RunLog:
    return edit(log, lambda row: {"movement": movement([0.5, 0.5, 1e-6, 0.5] if row.epoch else [0.0] * L)})


def exploded_stream(log: RunLog) -> RunLog:
    """Each block multiplies the stream by 1e3; behind a terminal LayerNorm every g falls by the product."""
    factor = 1e3**L

    def explode(row: EpochRow) -> dict[str, object]:
        hidden = [value * 1e3**state for state, value in enumerate(row.hidden.median)]
        shrunk = [value / factor for value in row.reference.median]
        return {
            "hidden": Norms(median=hidden),
            "growth": [value * 1e3 for value in row.growth],
            "reference": Norms(median=shrunk),
            "gain": [value / factor for value in row.gain],
        }

    return edit(log, explode)


def fp16_overflow(log: RunLog) -> RunLog:
    return edit(log, fidelity=Fidelity(median=[0.0] * (L + 1), n_zero=[1024] * (L + 1), dtype="float16"))


SABOTAGE: dict[str, tuple[Callable[[RunLog], RunLog], set[str]]] = {
    "zero credit": (zero_credit, {"direction", "movement"}),
    "flipped sign": (flipped_sign, {"direction"}),
    "one dead block": (dead_block, {"movement"}),
    "stream x 1e3 per block": (exploded_stream, {"scale", "reference"}),
    "fp16 overflow": (fp16_overflow, {"fidelity"}),
    "wrong feedback saved": (wrong_feedback_saved, {"direction"}),
}
