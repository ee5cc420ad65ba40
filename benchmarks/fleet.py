"""The fleet against a plain eager loop that trains one run at a time: same work, same process, as a ratio.

The plain loop is what a researcher writes: one nn.Module and one torch.optim.AdamW a run, autograd, a batch at a
time. Both do the same steps on the same samples with augmentation and schedule. Speed is claimed as a ratio only.

    python benchmarks/fleet.py [--device cpu|cuda] [--steps 60] [--width 64] [--out results.json]
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch.nn import functional

from creditscope.data import load_data
from creditscope.data.batches import augment, normalise, pad_images
from creditscope.data.dataset import Dataset
from creditscope.data.order import epoch_crops, epoch_order, stream
from creditscope.engine.fleet import Fleet
from creditscope.records import RunSpec
from creditscope.records.provenance import provenance
from creditscope.records.table import Table
from creditscope.sweeps.presets import build_specs, preset
from creditscope.sweeps.turns import default_model

METHODS = ("bp", "dfa-rms", "dfa-rms+pen0.01", "bp@frozen", "dfa-rms@frozen")


class PlainRun:
    """One run as one would write it by hand: bp, or dfa with local losses and stop-gradients."""

    def __init__(self, spec: RunSpec, data: Dataset, images: torch.Tensor, device: torch.device) -> None:
        torch.manual_seed(stream(spec.seed or 0, "init").initial_seed())
        self.model = default_model(spec, data).to(device)
        self.spec, self.data, self.images = spec, data, images
        if spec.train_last == 0:
            for p in self.model.blocks.parameters():
                p.requires_grad_(False)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(trained, lr=spec.optimiser.lr, weight_decay=spec.optimiser.weight_decay)
        self.order = epoch_order(spec.seed, 1, len(data.x_train), spec.batch).to(device)
        self.crops = [draw.to(device) for draw in epoch_crops(spec.seed, 1, len(self.order), spec.batch)]
        shape = (data.classes, spec.width)
        self.feedback = [torch.randn(shape, device=device) / data.classes**0.5 for _ in range(spec.depth)]

    def step(self, at: int) -> None:
        index = self.order[at]
        x = augment(self.images[index], *(draw[at] for draw in self.crops))
        x, y = normalise(x, self.data.mean, self.data.std), self.data.y_train[index]
        self.optimiser.zero_grad()
        (self._bp(x, y) if self.spec.rule == "bp" else self._dfa(x, y)).backward()
        self.optimiser.step()

    def _bp(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.model(x), y)

    def _dfa(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        states, branches = [self.model.embed(x.flatten(1))], []
        for block in self.model.blocks:
            below = states[-1].detach()
            branches.append(block.branch(below))
            states.append(below + branches[-1])
        logits = self.model.head(self.model.out_ln(states[-1].detach()))
        error = (logits.softmax(-1) - functional.one_hot(y, self.data.classes)).detach()
        loss = functional.cross_entropy(logits, y)
        for state, matrix in zip(states, [self.feedback[0], *self.feedback], strict=True):
            credit = error @ matrix
            credit = credit / (credit.square().mean(1, keepdim=True).sqrt() + 1e-6)
            loss = loss + (state * credit).sum(1).mean()
        return loss + self.spec.penalty * sum(f.square().sum(1).mean() for f in branches)


def seconds(work, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def compare(specs: list[RunSpec], data: Dataset, device: torch.device, steps: int, rounds: int) -> dict[str, float]:
    """Seconds a run-step of the plain loop and of the fleet, interleaved so that noise hits both alike."""
    on_device = data.to(device)
    images = pad_images(on_device.x_train, on_device.mean)
    plain = [PlainRun(spec, on_device, images, device) for spec in specs]
    fleet = Fleet(specs, data, default_model, device)
    fleet.train_epoch(1, steps=3)
    for run in plain:
        run.step(0)

    def plain_loop() -> None:
        for run in plain:
            for at in range(steps):
                run.step(at)

    slow, fast = [], []
    for _ in range(rounds):
        slow.append(seconds(plain_loop, device) / (steps * len(specs)))
        fast.append(seconds(lambda: fleet.train_epoch(1, steps=steps), device) / (steps * len(specs)))
    return {"plain": statistics.median(slow), "fleet": statistics.median(fast)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    data = load_data("fashion-mini")
    widths = {"cpu": (16, 64, 256), "cuda": (256,)}[options.device]
    rows, results = [], []
    for width in widths:
        specs = build_specs(
            preset("demo"), data.spec, data.classes, METHODS, range(options.seeds), {"width": width, "epochs": 1}
        )
        timed = compare(specs, data, device, options.steps, options.rounds)
        ratio = timed["plain"] / timed["fleet"]
        results.append({"width": width, "runs": len(specs), "ratio": ratio, **timed})
        micro = [f"{1e6 * timed[key]:.0f}" for key in ("plain", "fleet")]
        rows.append((str(width), str(len(specs)), *micro, f"{ratio:.2f}x"))
    print(Table(("width", "runs", "plain µs/run-step", "fleet µs/run-step", "plain/fleet"), tuple(rows)).to_text())
    name = torch.cuda.get_device_name() if device.type == "cuda" else None
    facts = provenance(options.device, name) | {"threads": str(torch.get_num_threads())}
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    if options.out:
        options.out.write_text(json.dumps({"provenance": facts, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
