"""Small data, small specs, and the fleet's oracle: one run at a time, batch by batch, gradients by hand."""

from functools import cache

import numpy as np
import torch
from cases import by_hand, mlp_by_hand

from creditscope.data import Dataset, synthetic
from creditscope.data.dataset import Splits, make_dataset
from creditscope.data.order import epoch_crops, epoch_order, random_targets, seeded_generator
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.execution.context import Quiet, TrainContext
from creditscope.execution.in_process import InProcess
from creditscope.execution.job import FleetJob
from creditscope.models.mlp import MLP
from creditscope.models.resmlp import ResMLP
from creditscope.records import OptimiserSpec, ProbeSpec, RunSpec, engine_spec
from creditscope.rules.build import given_rules

CPU = torch.device("cpu")
EPOCHS = 4
BATCH = 12
METHODS = (
    *("bp", "bp+pen0.1", "bp@frozen", "bp@readout", "bp@last1", "bp+pen0.1@frozen"),
    *("fa", "fa+pen0.1", "fa@last2", "fa-exact-head", "fa-block", "fa-block+pen0.1@last1", "fa-block@frozen"),
    *("dfa", "dfa-rms", "dfa-rms+pen0.01", "dfa-rms+pen0.1", "dfa-rms@frozen", "dfa-rms@readout", "dfa-rms@last2"),
)


@cache
def features() -> Dataset:
    """60 training vectors: 5 steps an epoch, 20 in all."""
    return synthetic(n_train=60, n_test=40, dim=5, classes=3)


@cache
def images() -> Dataset:
    """Grey pictures of 4 by 4; the last training batch is short and dropped."""
    draw = np.random.default_rng(0)
    x = [draw.integers(0, 256, (n, 1, 4, 4), dtype=np.uint8) for n in (64, 40)]
    y = [draw.integers(0, 3, n) for n in (64, 40)]
    return make_dataset("pictures", Splits(x[0], y[0], x[1], y[1]), 3)


def spec(method: str, data: Dataset | None = None, seed: int = 1, lr: float = 0.01, **changes) -> RunSpec:
    data = data or features()
    fields = {
        "model": "resmlp",
        "width": 6,
        "depth": 3,
        "terminal_ln": True,
        "view": "flat",
        "targets": "labels",
        "epochs": EPOCHS,
        "batch": BATCH,
        "optimiser": OptimiserSpec(lr=lr, weight_decay=0.1),
        "schedule": "cosine",
        "augment": "none",
        "dtype": "float64",
        "matmul": "float32",
        "probe": ProbeSpec(n=16, batch=6, epochs=(0,), redraws=19, directions=4),
    }
    return engine_spec(method, data=data.spec, classes=data.classes, seed=seed, **(fields | changes))


def context(folder, heard=None, **changes) -> TrainContext:
    """Where fleets are trained on a CPU; ``heard`` is told of every row."""
    fields = {
        "folder": folder,
        "load": lambda spec: features(),
        "device": CPU,
        "on_row": lambda header, row: None if heard is None else heard.append((header.spec.width, row.kind, row.epoch)),
        "progress": Quiet(),
        "resume": False,
    }
    return TrainContext(**(fields | changes))


def jobs(fleets) -> list[FleetJob]:
    return [FleetJob(number, tuple(members)) for number, members in enumerate(fleets, 1)]


def train_fleets(where: TrainContext, fleets) -> None:
    """Train fleets one after another in this process; what goes wrong is raised."""
    with InProcess(where) as executor:
        for job in jobs(fleets):
            executor.submit(job)
            outcome = executor.next_end().outcome
            assert not outcome.out_of_memory
            if outcome.error is not None:
                raise outcome.error


def fleet(specs, data: Dataset | None = None, factory=default_model, rules=()) -> Fleet:
    return Fleet(specs, data or features(), factory, CPU, rules=given_rules(rules))


def trained(specs, epochs: int = EPOCHS, data: Dataset | None = None, rules=()) -> tuple[Fleet, list[torch.Tensor]]:
    """A fleet after some epochs, and the mean training losses of each."""
    made = fleet(specs, data, rules=rules)
    return made, [made.train_epoch(epoch) for epoch in range(1, epochs + 1)]


def initial(run: RunSpec, data: Dataset) -> dict[str, torch.Tensor]:
    """The run's parameters before training, from its seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seeded_generator(run.seed, "init").initial_seed())
        kind = {"resmlp": ResMLP, "mlp": MLP}[run.model]
        model = kind(data.spec.shape, data.classes, run.width, run.depth, run.terminal_ln, **(run.architecture or {}))
    return {name: p.detach().to(getattr(torch, run.dtype)) for name, p in model.named_parameters()}


def trains(name: str, run: RunSpec) -> bool:
    """Whether a parameter of a ResMLP or an MLP trains, from its name."""
    if name.startswith("blocks."):
        wanted = run.depth if run.train_last == "all" else run.train_last
        return int(name.split(".")[1]) >= run.depth - wanted
    return run.train_embedding or not name.startswith("embed")


def rule_name(run: RunSpec) -> str:
    return ("fa-exact-head" if run.options else run.rule) + ("-rms" if run.credit_norm == "rms" else "")


def alone(run: RunSpec, data: Dataset, feedback: dict[str, torch.Tensor], epochs: int = EPOCHS):
    """Train one run, of a ResMLP or an MLP, by a plain loop: (parameters, mean loss of each epoch)."""
    params = initial(run, data)
    matrices = {name: b.double().numpy() for name, b in feedback.items()}
    leaves = {name: p for name, p in params.items() if trains(name, run)}
    optimiser = torchs_own(run.optimiser, list(leaves.values()))
    labels = random_targets(run.seed, len(data.y_train), data.classes) if run.targets == "random" else data.y_train
    losses = []
    for epoch in range(1, epochs + 1):
        factor = 0.5 * (1 + np.cos(np.pi * (epoch - 1) / run.epochs)) if run.schedule == "cosine" else 1.0
        optimiser.param_groups[0]["lr"] = run.optimiser.lr * factor
        total = 0.0
        order = epoch_order(run.seed, epoch, len(labels), run.batch)
        for step, index in enumerate(order):
            x, y = inputs(run, data, epoch, step, index), labels[index].numpy()
            now = {name: p.double().numpy() for name, p in params.items()}
            written = (mlp_by_hand if run.model == "mlp" else by_hand).backward
            grads, _, logits = written(
                rule_name(run), now, matrices, x, y, run.penalty, run.terminal_ln, **(run.architecture or {})
            )
            top = logits.max(1)
            total += np.mean(np.log(np.exp(logits - top[:, None]).sum(1)) + top - logits[np.arange(len(y)), y])
            for name, p in leaves.items():
                p.grad = torch.from_numpy(grads[name]).to(p)
            if run.optimiser.name == "sgd":
                for p in leaves.values():
                    p.mul_(1 - run.optimiser.lr * factor * run.optimiser.weight_decay)
            optimiser.step()
        losses.append(total / len(order))
    return params, losses


def torchs_own(told: OptimiserSpec, leaves: list[torch.Tensor]) -> torch.optim.Optimizer:
    """torch's optimiser on one run; the decay of SGD is left to the caller, as torch's would enter the momentum."""
    if told.name == "sgd":
        return torch.optim.SGD(leaves, lr=told.lr, momentum=told.momentum, foreach=False)
    constants = {"betas": told.betas, "eps": told.eps, "weight_decay": told.weight_decay}
    return torch.optim.AdamW(leaves, lr=told.lr, foreach=False, fused=False, **constants)


def inputs(run: RunSpec, data: Dataset, epoch: int, step: int, index: torch.Tensor) -> np.ndarray:
    """One batch as the network sees it, pictures cropped one by one."""
    raw = data.x_train[index].numpy()
    if raw.dtype != np.uint8:
        return raw.astype(np.float64)
    mean, std = float(data.mean), float(data.std)
    if run.augment == "crop4+flip":
        down, right, flip = (draw[step].tolist() for draw in epoch_crops(run.seed, epoch, len(data.x_train) // 12, 12))
        padded = np.pad(raw, ((0, 0), (0, 0), (4, 4), (4, 4)), constant_values=round(255 * mean))
        crops = [padded[i, :, a : a + 4, b : b + 4] for i, (a, b) in enumerate(zip(down, right, strict=True))]
        raw = np.stack([crop[:, :, ::-1] if mirrored else crop for crop, mirrored in zip(crops, flip, strict=True)])
    return ((raw / 255 - mean) / std).reshape(len(raw), -1)
