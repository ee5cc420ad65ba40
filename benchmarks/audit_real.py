"""Audits of real models: time and peak memory beside one eager float32 forward and backward pass.

    python benchmarks/audit_real.py [--samples 256] [--only resnet50,gpt2] [--probes quick,standard] [--memory "16 GiB"]

Every model has random weights and random data: time and memory do not depend on them. The step that all is compared
with is a forward and backward pass over the same samples in batches of 32, in float32 with TF32 off. One JSON line a
model and set of probes goes to standard output, and to --out.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import creditscope as cs

BATCH, TOKENS = 32, 256
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Case:
    """One model with what an audit of it is told.

    Args:
        model: The model.
        x: Inputs.
        y: Targets.
        given: Further arguments of ``audit_model``.
        probes: Sets of probes that fit the time of this script.
    """

    model: nn.Module
    x: Tensor
    y: Tensor
    given: dict[str, Any]
    probes: tuple[str, ...] = ("quick", "standard")


def images(build: Callable[[], nn.Module], samples: int, blocks: Callable[[str, nn.Module], bool]) -> Case:
    """A model of torchvision on images of 224 pixels.

    Args:
        build: Makes it.
        samples: How many images.
        blocks: Which modules are its blocks.
    """
    x, y = torch.randn(samples, 3, 224, 224), torch.randint(1000, (samples,))
    return Case(build().to(DEVICE), x, y, {"blocks": blocks})


def text(model: nn.Module, samples: int, symbols: int, blocks: str, probes: tuple[str, ...]) -> Case:
    """A language model of transformers.

    Args:
        model: The model.
        samples: How many sequences.
        symbols: Size of its vocabulary.
        blocks: What the names of its blocks begin with.
        probes: Sets of probes to run.
    """
    tokens = torch.randint(symbols, (samples, TOKENS + 1))
    given = {
        "forward": lambda model, batch: model(input_ids=batch[0], use_cache=False).logits,
        "blocks": lambda name, _: name.rpartition(".")[0] == blocks and name.rpartition(".")[2].isdigit(),
    }
    return Case(model.to(DEVICE), tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), given, probes)


def resnet18(samples: int) -> Case:
    """ResNet-18."""
    from torchvision.models import resnet18 as build
    from torchvision.models.resnet import BasicBlock

    return images(build, samples, lambda _, module: isinstance(module, BasicBlock))


def resnet50(samples: int) -> Case:
    """ResNet-50."""
    from torchvision.models import resnet50 as build
    from torchvision.models.resnet import Bottleneck

    return images(build, samples, lambda _, module: isinstance(module, Bottleneck))


def vit(samples: int) -> Case:
    """ViT-B/16."""
    from torchvision.models import vit_b_16 as build
    from torchvision.models.vision_transformer import EncoderBlock

    return images(build, samples, lambda _, module: isinstance(module, EncoderBlock))


def gpt2(samples: int) -> Case:
    """GPT-2 of 124 million parameters."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config()
    sets = ("quick", "standard")
    return text(GPT2LMHeadModel(config), max(8, samples // 4), config.vocab_size, "transformer.h", sets)


def llama(samples: int) -> Case:
    """A net of 1.1 billion parameters in the shape of Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=2048,
    )
    return text(LlamaForCausalLM(config), max(8, samples // 16), config.vocab_size, "model.layers", ("quick",))


CASES = {"resnet18": resnet18, "resnet50": resnet50, "vit_b_16": vit, "gpt2": gpt2, "llama": llama}


def step(case: Case) -> None:
    """One forward and backward pass over all samples, eagerly, in batches."""
    for x, y in zip(case.x.split(BATCH), case.y.split(BATCH), strict=True):
        x, y = x.to(DEVICE), y.to(DEVICE)
        forward = case.given.get("forward")
        logits = case.model(x) if forward is None else forward(case.model, (x, y))
        functional.cross_entropy(logits.flatten(0, -2), y.flatten()).backward()
        case.model.zero_grad(set_to_none=True)


def measured(work: Callable[[], Any]) -> tuple[float, int, Any]:
    """Seconds, peak bytes beside what was there before, and what came of it."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if DEVICE.type == "cuda" else 0
    began = time.perf_counter()
    found = work()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before if DEVICE.type == "cuda" else 0
    return time.perf_counter() - began, peak, found


def rows(name: str, samples: int, probes: tuple[str, ...] | None, memory: str | None) -> Iterator[dict[str, Any]]:
    """What one model takes."""
    torch.manual_seed(0)
    case = CASES[name](samples)
    case.model.eval()
    step(case)
    seconds, peak, _ = measured(lambda: step(case))
    base = {"model": name, "samples": len(case.x), "step_seconds": seconds, "step_peak_gib": peak / 2**30}
    for chosen in probes or case.probes:
        audit = lambda chosen=chosen: cs.audit_model(  # noqa: E731
            case.model, loader=(case.x, case.y), probes=chosen, memory=memory, redraws=99, **case.given
        )
        try:
            spent, highest, found = measured(audit)
        except Exception as error:  # one model's failure must not cost the others
            yield {**base, "probes": chosen, "memory": memory, "error": f"{type(error).__name__}: {error}"}
            continue
        log = found.logs[0]
        yield {
            **base,
            "probes": chosen,
            "memory": memory,
            "seconds": spent,
            "times_a_step": spent / seconds,
            "peak_gib": highest / 2**30,
            "times_its_peak": highest / peak if peak else None,
            "n": log.header.spec.probe.n,
            "batch": log.header.spec.probe.batch,
            "reference": log.epochs[0].reference.median if log.epochs[0].reference else None,
            "notes": list(log.problems),
            "not_measured": log.probes[0].not_measured,
        }


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--probes", default=None)
    parser.add_argument("--memory", default=None)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    probes = tuple(asked.probes.split(",")) if asked.probes else None
    for name in asked.only.split(","):
        for row in rows(name, asked.samples, probes, asked.memory):
            line = json.dumps({"device": torch.cuda.get_device_name() if DEVICE.type == "cuda" else "cpu", **row})
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            if asked.out is not None:
                with asked.out.open("a") as file:
                    file.write(line + "\n")
        if DEVICE.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
