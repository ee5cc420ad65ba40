"""Snapshots of small models, as the engine or a watcher would make them."""

from dataclasses import replace

import torch
from cases.models import CONV_BLOCKS, batch_of, conv_net, params_of, resmlp, seeded_generator, task_of, vit
from torch import nn

from creditscope.blocks import Batch, CreditRule, Snapshot
from creditscope.rules.build import rule_named


def snapshot_of(
    model: nn.Module,
    rule: CreditRule | None,
    shape: tuple[int, ...],
    classes: int,
    where=None,
    view: str = "flat",
    n: int = 24,
    batch: int = 10,
    seed: int = 3,
) -> Snapshot:
    """Everything a probe can ask for, on random samples; the last probe batch is short."""
    params = params_of(model)
    dtype = next(iter(params.values())).dtype
    drawn = [batch_of(shape, classes, size, seed=at) for at, size in enumerate((n, 16, 60, 30))]
    probe, train, fit, test = (Batch(b.x.to(dtype), b.y) for b in drawn)
    task = task_of(model, probe.x[:2], where)
    init = {name: p + 0.1 for name, p in params.items()}
    feedback = rule.init(task, init, seeded_generator()) if rule is not None else {}
    generator = seeded_generator(11)
    update = {name: torch.randn(p.shape, generator=generator).to(p) for name, p in params.items()}
    return Snapshot(
        task=task,
        params=params,
        init=init,
        rule=rule,
        state=feedback,
        probe=probe,
        batch=batch,
        view=view,
        seed=seed,
        train=train,
        update=update,
        fit=fit,
        test=test,
    )


def mlp_snapshot(method: str = "dfa", n: int = 24, **model) -> Snapshot:
    made = rule_named(method)
    return snapshot_of(resmlp(**model), made, (model.get("inputs", 5),), model.get("classes", 4), n=n)


def vit_snapshot(method: str = "dfa", view: str = "cls", n: int = 12) -> Snapshot:
    return snapshot_of(vit(), rule_named(method), (2, 8, 8), 3, view=view, n=n)


def conv_snapshot(method: str = "dfa", n: int = 12) -> Snapshot:
    return snapshot_of(conv_net(), rule_named(method), (1, 4, 4), 3, where=CONV_BLOCKS, n=n)


def in_run_dtype(snapshot: Snapshot, dtype: torch.dtype) -> Snapshot:
    """The same run as if it had been trained in another dtype: everything rounded, nothing shared."""
    there = snapshot.in_dtype(dtype)
    fit, test = (Batch(b.x.to(dtype), b.y) for b in (snapshot.fit, snapshot.test))
    return replace(there, init={name: p.to(dtype) for name, p in (snapshot.init or {}).items()}, fit=fit, test=test)
