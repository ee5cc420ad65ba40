"""Audit networks that BioTorch trained by feedback alignment (FA) and direct feedback alignment (DFA).

Needs BioTorch: pip install --no-deps 'biotorch>=0.0.16'
"""

import contextlib
import copy
import io
import warnings

import torch
from biotorch.module.biomodule import BioModule
from biotorch.training.functions import train
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import creditscope as cs
from creditscope.integrations.biotorch import biotorch_credit

EPOCHS, BATCH, LR = 4, 64, 0.02
RECIPE = {"epochs": EPOCHS, "batch": BATCH, "optimiser": f"SGD lr={LR}", "schedule": "constant"}


def build(mode: str, seed: int) -> BioModule:
    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(784, 64)]
    for _ in range(3):
        layers += [nn.ReLU(), nn.Linear(64, 64)]
    with contextlib.redirect_stdout(io.StringIO()):  # BioTorch prints what it converts
        return BioModule(nn.Sequential(*layers, nn.ReLU(), nn.Linear(64, 10)), mode, copy_weights=False, output_dim=10)


def fit(model: BioModule, data: TensorDataset) -> None:
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], LR)
    with contextlib.redirect_stdout(io.StringIO()):
        for epoch in range(EPOCHS):
            train(model, model.mode, nn.CrossEntropyLoss(), optimiser, loader, "cpu", epoch, multi_gpu=False)


def main() -> None:
    warnings.simplefilter("ignore", FutureWarning)  # BioTorch's DFA uses backward hooks of the old kind
    images = cs.load_data("fashion-mini")
    data = TensorDataset(images.x_train[:1600].float() / 255, images.y_train[:1600])
    test, blocks = (images.x_test[::20].float() / 255, images.y_test[::20]), ["module.3", "module.5", "module.7"]
    logs = []
    for mode in ("fa", "dfa"):
        for seed in (0, 1):
            model = build(mode, seed)
            init, twin = copy.deepcopy(model.state_dict()), cs.frozen_copy(model, blocks)
            fit(model, data)
            fit(twin, data)
            known = {"init": init, "baseline": twin, "recipe": RECIPE, "name": mode, "seed": seed, "directions": 4}
            credit = biotorch_credit(model, redraws=249)
            logs += cs.audit_model(model, blocks=blocks, loader=test, credit=credit, **known).logs
    print(cs.audit(logs).to_text())


if __name__ == "__main__":
    main()
