"""What measuring costs: per-epoch probes against the epoch, and one observation of a user's model against one step.

The probe set of an epoch is what the engine does for every run after it: norms, gains, cosines and movement on the
probe samples, and the rows they become; the evaluation of accuracy is separate. An observation is what
``creditscope.watch`` does to a plain model when it is due; a step is that model's own forward, backward and AdamW on
one batch. Where Cockpit is installed (cockpit-for-pytorch), a step with SGD that it tracks is compared with the same
step without it.

Each round times both sides in turn. On a CPU it is CPU seconds, so that other programs on the machine do not count; on
a GPU seconds between two moments at which it is idle. Compare the ratios.

    python benchmarks/probes.py [--device cpu|cuda] [--rounds 5] [--out benchmarks/results/probes-cpu.json]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from plain import noise, seconds
from torch import Tensor, nn
from torch.nn import functional

from creditscope.data import load_data
from creditscope.data.dataset import Dataset
from creditscope.engine.fleet import Fleet
from creditscope.engine.start import default_model
from creditscope.models import build_model
from creditscope.plans.presets import SEEDS, build_specs, preset
from creditscope.probes.per_epoch import epoch_fields
from creditscope.records import EpochRow
from creditscope.records.provenance import provenance, version
from creditscope.records.table import Table
from creditscope.scope import rule_credit
from creditscope.scope.credit import CreditAdapter
from creditscope.scope.measure import accuracy_fields, epoch_row, observe_model
from creditscope.scope.probe_data import PROBE_SAMPLES
from creditscope.scope.restore import restoring
from creditscope.scope.subject import Subject

BATCH = 128
COCKPIT = "cockpit-for-pytorch"
LEVELS = ("economy", "business", "full")


def spent(work: Callable[[], object], device: torch.device) -> float:
    """CPU seconds of some work; on a GPU the seconds until it is done."""
    if device.type == "cuda":
        return seconds(work, device)
    began = time.process_time()
    work()
    return time.process_time() - began


def in_turn(works: dict[str, Callable[[], object]], device: torch.device, rounds: int) -> dict[str, float]:
    """Median seconds of each work, all timed in turn in every round; the first round is thrown away."""
    taken = [{name: spent(work, device) for name, work in works.items()} for _ in range(rounds + 1)][1:]
    return {name: statistics.median(each[name] for each in taken) for name in works}


def rows(fleet: Fleet) -> list[EpochRow]:
    """What the engine measures and writes after an epoch, but for the accuracy."""
    look = fleet.observe()
    summaries, moved = fleet.summaries(look), fleet.movements(look)
    return [
        EpochRow(epoch=1, movement=moved[run], **epoch_fields(summaries[run], fleet.group_of(run).exact))
        for run in range(len(fleet.specs))
    ]


def epoch_share(name: str, data: Dataset, seeds: tuple[int, ...], device: torch.device, rounds: int) -> dict[str, Any]:
    """Seconds of an epoch's steps, probes and evaluation, of every method of a preset stacked as one fleet."""
    specs = build_specs(preset(name), data.spec, data.classes, seeds=seeds)
    fleet = Fleet(specs, data, default_model, device)
    # A GPU does whole epochs; a CPU a part, which is scaled up.
    steps = fleet.steps_per_epoch if device.type == "cuda" else min(10, fleet.steps_per_epoch)
    works = {"steps": lambda: fleet.train_epoch(1, steps=steps), "probes": lambda: rows(fleet), "test": fleet.evaluate}
    with fleet.streams.turn():
        taken = in_turn(works, device, rounds)
    epoch = taken["steps"] * fleet.steps_per_epoch / steps
    probes = {"share": taken["probes"] / epoch, "probes": taken["probes"], "epoch": epoch, "test": taken["test"]}
    sizes = {"samples": len(data.x_train), "probe_n": fleet.spec.probe.n, "timed_steps": steps}
    return {"preset": name, "data": data.name, "runs": len(specs), **sizes, **probes}


class ConvNet(nn.Module):
    """A small residual convolutional net, as a user might write it."""

    def __init__(self, channels: int = 16, depth: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(self._block(channels) for _ in range(depth))
        self.head = nn.Linear(channels, classes)

    @staticmethod
    def _block(channels: int) -> nn.Module:
        pair = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
        return nn.Sequential(nn.BatchNorm2d(channels), pair[0], nn.ReLU(), pair[1])

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h.mean((2, 3)))


def chain(inputs: int = 64, width: int = 32, depth: int = 4, classes: int = 10) -> nn.Module:
    """A tiny net of modules that Cockpit knows too."""
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(nn.Linear(inputs, width), *blocks, nn.Linear(width, classes))


def users_models(device: torch.device) -> dict[str, tuple[nn.Module, tuple[int, ...], list[str] | None, Any]]:
    """By name: a model, the shape of a sample, its blocks and its credit."""
    torch.manual_seed(0)
    picture = (3, 32, 32)
    feedback = {f"B.{level}": torch.randn(10, 256, device=device) for level in range(4)}
    mlp = build_model("resmlp", picture, 10, 256, 4, True)
    return {
        "ResMLP 256, 4 blocks": (mlp, picture, None, None),
        "the same, with DFA's credit": (mlp, picture, None, rule_credit("dfa", feedback)),
        "convolutions, 3 blocks": (ConvNet(), picture, [f"blocks.{n}" for n in range(3)], None),
        "chain of linear maps, 64→32": (chain(), (64,), ["1", "2", "3", "4"], None),
    }


def plain_step(
    model: nn.Module, x: Tensor, y: Tensor, kind: type[torch.optim.Optimizer] = torch.optim.AdamW
) -> Callable[[], None]:
    """Forward, backward and the optimiser on one batch."""
    optimiser = kind(model.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def one_look(
    model: nn.Module, x: Tensor, y: Tensor, blocks: list[str] | None, credit: CreditAdapter | None
) -> Callable[[], EpochRow]:
    """What a watch does at a per-epoch observation after its first; what it is about was settled then."""
    init = {name: p.detach().clone() for name, p in model.named_parameters()}
    with restoring(model):
        subject = Subject.of(model, blocks, (x, y), None, credit, None, 0)

    def work() -> EpochRow:
        with restoring(model):
            snapshot = subject.snapshot(init, 1, expensive=False)
            observed = observe_model(subject, snapshot, independent=True)
            fields = accuracy_fields(subject, subject.correct(observed.answers))
            return epoch_row(subject, observed, init, 1, **fields)

    return work


def observations(device: torch.device, rounds: int) -> list[dict[str, Any]]:
    """One observation of each model over one plain step, at the batch's size and at the default number of samples."""
    found = []
    for name, (model, shape, blocks, credit) in users_models(device).items():
        model.to(device)
        x, y = torch.randn(PROBE_SAMPLES, *shape, device=device), torch.randint(10, (PROBE_SAMPLES,), device=device)
        step = plain_step(model, x[:BATCH], y[:BATCH])
        for n in (BATCH, PROBE_SAMPLES):
            taken = in_turn({"step": step, "look": one_look(model, x[:n], y[:n], blocks, credit)}, device, rounds)
            found.append({"model": name, "batch": BATCH, "probe_n": n, **taken, "ratio": taken["look"] / taken["step"]})
    return found


def cockpits(device: torch.device, rounds: int) -> list[dict[str, Any]] | None:
    """Steps of the tiny chain that Cockpit tracks, over the same step without it; None where it is not installed."""
    with suppress(ImportError):
        from backpack import extend
        from cockpit import Cockpit
        from cockpit.utils.configuration import configuration

        found = []
        x, y = torch.randn(BATCH, 64, device=device), torch.randint(10, (BATCH,), device=device)
        for level in LEVELS:
            torch.manual_seed(0)
            model, loss_of = extend(chain().to(device)), extend(nn.CrossEntropyLoss())
            each = extend(nn.CrossEntropyLoss(reduction="none"))
            optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
            tracks = Cockpit(model.parameters(), quantities=configuration(level))
            at = iter(range(10**9))

            def tracked(model=model, loss_of=loss_of, each=each, optimiser=optimiser, tracks=tracks, at=at) -> None:
                number = next(at)
                optimiser.zero_grad()
                out = model(x)
                loss, losses = loss_of(out, y), each(out, y)
                info = {"batch_size": BATCH, "individual_losses": losses, "loss": loss, "optimizer": optimiser}
                with tracks(number, info=info):
                    loss.backward(create_graph=tracks.create_graph(number))
                optimiser.step()

            step = plain_step(chain().to(device), x, y, torch.optim.SGD)
            taken = in_turn({"step": step, "tracked": tracked}, device, rounds)
            found.append({"level": level, "batch": BATCH, **taken, "ratio": taken["tracked"] / taken["step"]})
        return found
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    few = SEEDS if device.type == "cuda" else SEEDS[:1]
    shares = [
        epoch_share("demo", load_data("fashion-mini"), SEEDS, device, options.rounds),
        epoch_share("audit", replace(noise(), name="random, of CIFAR-10's shape"), few, device, options.rounds),
    ]
    table = [
        (row["preset"], row["data"], str(row["runs"]), f"{row['samples']:,}", str(row["probe_n"]),
         f"{row['share']:.1%}", f"{row['test'] / row['epoch']:.1%}")
        for row in shares
    ]  # fmt: skip
    heads = ("preset", "data", "runs", "training samples", "probe samples", "probes/epoch", "evaluation/epoch")
    print(Table(heads, tuple(table)).to_text(), flush=True)
    seen = observations(device, options.rounds)
    lines = [
        (row["model"], str(row["batch"]), str(row["probe_n"]), f"{1e3 * row['step']:.2f}", f"{row['ratio']:.2f}x")
        for row in seen
    ]
    tracked = cockpits(device, options.rounds)
    for row in tracked or ():
        lines.append(
            (f"chain, Cockpit {row['level']}", str(row["batch"]), str(row["batch"]), f"{1e3 * row['step']:.2f}",
             f"{row['ratio']:.2f}x")
        )  # fmt: skip
    if tracked is None:
        lines.append(("chain, Cockpit", str(BATCH), str(BATCH), "", f"not installed ({COCKPIT})"))
    print(Table(("model", "batch", "samples observed at", "plain step ms", "look/step"), tuple(lines)).to_text())
    name = torch.cuda.get_device_name() if device.type == "cuda" else None
    facts = provenance(options.device, name) | {"threads": str(torch.get_num_threads()), "rounds": str(options.rounds)}
    facts["cockpit"] = "not installed" if tracked is None else version(COCKPIT)
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    if options.out:
        record = {"provenance": facts, "epochs": shares, "looks": seen, "cockpit": tracked}
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
