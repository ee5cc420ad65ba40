"""Run logs made in memory, with numbers of the size that real runs give."""

from dataclasses import dataclass

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
    RunSpec,
    engine_spec,
)
from creditscope.records.measured import Cosines, Gamma, Norms, NullTest, Rho

DEPTH = 4
SEEDS = (42, 123, 456)
EXPENSIVE = (0, 1, 2, 3, 5, 10, 20, 30, 50)


@dataclass(frozen=True)
class Shape:
    """How a kind of run behaves: final stream, final reference, accuracy, cosines where they act and as published."""

    stream: float
    reference: float
    accuracy: float
    acting: tuple[float, ...]
    published: tuple[float, ...]
    rho: float
    exact: bool = False


COLLAPSED = Shape(1.1e9, 1.3e-7, 0.304, (0.41, 0.43, 0.01, -0.01, 0.0), (0.41, 0.02, -0.01, 0.01, 0.0), 0.01)
HEALTHY = Shape(260.0, 0.05, 0.618, (1.0,) * 5, (1.0,) * 5, 0.997, exact=True)
SHAPES = {
    "bp": HEALTHY,
    "bp+pen0.01": Shape(120.0, 0.08, 0.565, (1.0,) * 5, (1.0,) * 5, 0.996, exact=True),
    "fa-block": Shape(4e3, 4e-3, 0.401, (0.05, 0.2, 0.12, 0.3, 1.0), (0.016, 0.072, -0.085, 0.4, 1.0), 0.2),
    "dfa": Shape(6e4, 9e-5, 0.405, (0.4, 0.4, 0.09, 0.08, 0.07), (0.4, 0.08, 0.09, 0.07, 0.07), 0.06),
    "dfa-rms": COLLAPSED,
    "dfa-rms+pen0.0001": Shape(2.4e4, 5e-4, 0.372, (0.4, 0.4, 0.12, 0.1, 0.09), (0.4, 0.12, 0.1, 0.1, 0.09), 0.05),
    "dfa-rms+pen0.01": Shape(1.9e4, 6e-4, 0.364, (0.4, 0.4, 0.16, 0.15, 0.14), (0.4, 0.15, 0.15, 0.14, 0.14), 0.08),
    "dfa-rms+pen0.1": Shape(1.8e4, 7e-4, 0.354, (0.4, 0.4, 0.13, 0.12, 0.13), (0.4, 0.13, 0.12, 0.12, 0.13), 0.07),
    "dfa-rms@frozen": Shape(2.2e4, 6e-4, 0.353, (0.4, 0.4, 0.0, 0.01, 0.0), (0.4, 0.01, 0.0, 0.01, 0.0), 0.01),
}


def run(
    method: str,
    seed: int = 42,
    epochs: int = 30,
    shape: Shape | None = None,
    stop: int | None = None,
    probes: bool = True,
    **fields: object,
) -> RunLog:
    """One run of our engine.

    Args:
        method: Its method name.
        seed: Its seed, which moves the numbers a little.
        epochs: Epochs planned.
        shape: How it behaves; that of the method by default.
        stop: Epoch at which it was killed.
        probes: Whether it has expensive probes.
        fields: Other fields of the spec.
    """
    shape = shape or SHAPES[method]
    known: dict[str, object] = {
        "model": "resmlp",
        "width": 256,
        "depth": DEPTH,
        "terminal_ln": True,
        "view": "flat",
        "data": DataSpec(name="cifar10"),
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
    last = epochs if stop is None else stop
    rows = tuple(_row(shape, epoch, epochs, seed) for epoch in range(last + 1))
    probed_at = sorted({epoch for epoch in (*EXPENSIVE, epochs) if epoch <= last}) if probes else []
    end = EndRow(status="finished", epoch=last, test_accuracy=rows[-1].test_accuracy) if stop is None else None
    probed = tuple(_probe(shape, epoch, seed) for epoch in probed_at)
    return RunLog(f"{spec.run_id}.jsonl", HeaderRow(spec=spec), rows, probed, end)


def runs(method: str, seeds: tuple[int, ...] = SEEDS, **fields: object) -> list[RunLog]:
    """The same run with several seeds."""
    return [run(method, seed, **fields) for seed in seeds]  # type: ignore[arg-type]


def foreign(method: str, seed: int, epochs: int = 30, full: bool = False) -> RunLog:
    """A run from a published layout: ‖h_L‖, ‖g_2‖ and accuracy only, or full lists and Γ.

    Args:
        method: For the numbers, and the rule and λ.
        seed: Its seed.
        epochs: Epochs logged.
        full: The layout with all states.
    """
    ours = run(method, seed, epochs)
    spec = RunSpec(
        rule=ours.spec.rule,
        origin="import",
        penalty=ours.spec.penalty or None,
        seed=seed,
        depth=DEPTH if full else None,
        epochs=epochs if full else None,
        probe=ProbeSpec(
            n=128 if full else None, batch=128 if full else None, reduction="sum" if full else None, mode=None
        ),
    )
    rows = []
    for row in ours.epochs:
        assert row.hidden is not None
        assert row.reference is not None
        assert row.gamma is not None
        stream, reference = list(row.hidden.median), list(row.reference.median)
        if not full:
            stream = [*[None] * DEPTH, stream[-1]]
            reference = [None, None, reference[2], None, None]
        rows.append(
            EpochRow(
                epoch=row.epoch,
                test_accuracy=row.test_accuracy,
                hidden=Norms(median=stream),
                reference=Norms(median=reference),
                gamma=Gamma(published=row.gamma.published) if full else None,
            )
        )
    end = EndRow(status="finished", epoch=epochs)
    name = f"evolution_s{seed}.json#{ours.spec.rule}_log" if full else f"{method}_s{seed}.json"
    source = {"reference_units": "sum-reduced, as stated" if full else "not stated; multiplied by 128"}
    return RunLog(name, HeaderRow(spec=spec, source=source), tuple(rows), (), end)


def audit_suite(epochs: int = 100) -> list[RunLog]:
    """What the hero figure is drawn from."""
    return [log for method in ("bp", "fa-block", "dfa-rms", "dfa-rms@frozen") for log in runs(method, epochs=epochs)]


def penalty_suite() -> list[RunLog]:
    """What the penalty figures are drawn from."""
    methods = (
        *("bp", "bp+pen0.01", "dfa-rms", "dfa-rms@frozen"),
        *("dfa-rms+pen0.0001", "dfa-rms+pen0.01", "dfa-rms+pen0.1"),
    )
    return [log for method in methods for log in runs(method, epochs=30)]


def snapshot_suite() -> list[RunLog]:
    """What the snapshot figure of ResMLP is drawn from."""
    calm = Shape(1.7e5, 4e-5, 0.347, COLLAPSED.acting, COLLAPSED.published, 0.01)
    return [
        *runs("bp", epochs=100),
        *runs("dfa-rms", epochs=100),
        *runs("bp", epochs=100, terminal_ln=False),
        *runs("dfa-rms", epochs=100, terminal_ln=False, shape=calm),
    ]


def vit_suite() -> list[RunLog]:
    """What the snapshot figure of ViT-Mini is drawn from."""
    return [log for method in ("bp", "dfa-rms") for log in runs(method, epochs=50, model="vit-mini", view="cls")]


def _row(shape: Shape, epoch: int, epochs: int, seed: int) -> EpochRow:
    noise = np.random.default_rng([seed, epoch])
    own = np.random.default_rng(seed).normal(size=3)
    progress = float(np.clip(1 - np.exp(-5 * epoch / max(epochs, 1)), 0, 1))
    jitter = 1 + 0.1 * own[0] + 0.02 * noise.normal()
    stream = 9.0 * (shape.stream / 9.0) ** progress * (jitter if epoch else 1.0)
    reference = (shape.reference) ** progress * (jitter if epoch else 1.0)
    rise = (stream / 9.0) ** (np.arange(DEPTH + 1) / DEPTH) if shape is COLLAPSED else np.linspace(0.9, 1, DEPTH + 1)
    hidden = 9.0 * rise if shape is COLLAPSED else stream * rise
    accuracy = 0.1 + (shape.accuracy - 0.1) * float(np.clip(progress * 1.007, 0, 1)) + 0.004 * own[1]
    acting = _cosines(shape, shape.acting, progress, noise)
    published = _cosines(shape, shape.published, progress, noise)
    return EpochRow(
        epoch=epoch,
        step=390 * epoch,
        test_accuracy=float(np.clip(accuracy + 0.002 * noise.normal(), 0, 1)),
        hidden=Norms(median=[float(value) for value in hidden], n=1024),
        reference=Norms(median=[float(reference * (1 + 0.1 * (DEPTH - state))) for state in range(DEPTH + 1)], n=1024),
        cosine=acting,
        cosine_published=published,
        gamma=Gamma(
            acting=float(np.mean([v for v in acting.mean if v is not None])),
            deep=None if shape.exact else float(np.mean([v for v in acting.mean[2:] if v is not None])),
            published=float(np.mean([v for v in published.mean[:DEPTH] if v is not None])),
        ),
    )


def _cosines(shape: Shape, final: tuple[float, ...], progress: float, noise: np.random.Generator) -> Cosines:
    values = [v if v == 1.0 else float(np.clip(v * progress + 0.01 * noise.normal(), -1, 1)) for v in final]
    status = ["exact-by-construction" if v == 1.0 else "ok" for v in final]
    return Cosines(mean=values, status=status)  # type: ignore[arg-type]


def _probe(shape: Shape, epoch: int, seed: int) -> ProbeRow:
    noise = np.random.default_rng([seed, epoch, 7])
    draws = noise.normal(0.002, 0.022, size=(DEPTH + 1, 19))
    states = range(DEPTH + 1)
    return ProbeRow(
        epoch=epoch,
        null=NullTest(
            observed=list(shape.acting),
            p=[0.5] * (DEPTH + 1),
            mean=[float(draws[s].mean()) for s in states],
            sd=[float(draws[s].std(ddof=1)) for s in states],
            redraws=19,
            draws=[[float(value) for value in draws[s]] for s in states],
        ),
        rho=Rho(
            credit=[float(np.clip(shape.rho + 0.003 * noise.normal(), -1, 1)) for _ in states],
            control=[float(0.996 + 0.001 * noise.normal()) for _ in states],
            random=[float(0.006 * noise.normal()) for _ in states],
            directions=32,
            epsilon=[1e-3] * (DEPTH + 1),
        ),
    )
