"""Is a "backprop-free" rule free of backprop? One detach makes the difference, and the check names the leak."""

import torch
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.models.resmlp import ResMLP

WIDTH, BLOCKS = 32, 3
FEEDBACK = [torch.randn(10, WIDTH, generator=torch.Generator().manual_seed(level)) for level in range(BLOCKS)]


def direct_feedback(model: nn.Module, x: torch.Tensor, y: torch.Tensor, *, detach_everywhere: bool) -> None:
    """Each block gets the output error through a random matrix of its own; the head gets its exact gradient."""
    error = (model(x).softmax(1) - functional.one_hot(y, 10)).detach()
    h = model.embed(x.flatten(1))
    surrogate = (h * (error @ FEEDBACK[0])).sum()
    for level, block in enumerate(model.blocks):
        stop = detach_everywhere or level != 1  # the leaky version forgets one detach
        h = block(h.detach() if stop else h)
        surrogate = surrogate + (h * (error @ FEEDBACK[level])).sum()
    logits = model.head(model.out_ln(h.detach()))
    (surrogate + functional.cross_entropy(logits, y, reduction="sum")).backward()


def main() -> None:
    torch.manual_seed(0)
    data = cs.load_data("fashion-mini")
    batch = data.x_test[:64].float() / 255, data.y_test[:64]
    model = ResMLP((1, 28, 28), 10, width=WIDTH, depth=BLOCKS)
    rules = {
        "careful": lambda model, x, y: direct_feedback(model, x, y, detach_everywhere=True),
        "leaky": lambda model, x, y: direct_feedback(model, x, y, detach_everywhere=False),
    }
    for name, rule in rules.items():
        print(f"{name}: {cs.check_locality(model, batch=batch, update_fn=rule)}\n")
    print(f"backprop: {cs.check_locality(model, batch=batch)}")


if __name__ == "__main__":
    main()
