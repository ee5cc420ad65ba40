"""Models that people use, built from configs and never downloaded: measured as plain autograd would, and left alone."""

import contextlib
import copy
import io
import logging

import numpy as np
import pytest
import torch
from cases.peers import with_torchvision
from scope.nets import same, state_of_model
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.scope import backward_credit, rule_credit

pytestmark = pytest.mark.peers
FAST = {"redraws": 0, "directions": 2, "probes": "full"}
N, CLASSES = 24, 3


def images():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(N, 3, 16, 16, generator=generator), torch.randint(CLASSES, (N,), generator=generator)


def sentences():
    """Sentences of unlike length: masks and the place of the last word differ from sample to sample."""
    generator = torch.Generator().manual_seed(1)
    lengths = 10 - torch.arange(N) % 4
    mask = (torch.arange(10) < lengths[:, None]).long()
    ids = torch.randint(1, 50, (N, 10), generator=generator) * mask
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.randint(CLASSES, (N,), generator=generator)}


def timm_vit():
    with_torchvision()
    import timm

    given = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 3, "num_heads": 2, "num_classes": CLASSES}
    return timm.create_model("vit_tiny_patch16_224", pretrained=False, **given), images()


def timm_resnet():
    with_torchvision()
    from timm.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, (2, 1, 2, 1), channels=(8, 8, 16, 16), num_classes=CLASSES), images()


def gpt2():
    from transformers import GPT2Config, GPT2ForSequenceClassification

    sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 3, "n_head": 2}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return GPT2ForSequenceClassification(GPT2Config(**sizes, **tokens, num_labels=CLASSES)), sentences()


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "intermediate_size": 32}
    config = BertConfig(**sizes, num_attention_heads=2, num_labels=CLASSES)
    return BertForSequenceClassification(config), sentences()


def hf_vit():
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"image_size": 16, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 3, "intermediate_size": 32}
    x, y = images()
    config = ViTConfig(**sizes, num_attention_heads=2, num_labels=CLASSES)
    return ViTForImageClassification(config), {"pixel_values": x, "labels": y}


class Flat(nn.Module):
    """Residual blocks on vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(768, 12), nn.Linear(12, CLASSES)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 12)) for _ in range(3))

    def forward(self, x):
        h = self.embed(x.flatten(1))
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def lightning_module():
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Flat()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, index):
            return functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return Lit(), images()


CASES = {
    "timm ViT": (timm_vit, [f"blocks.{i}" for i in range(3)], "all"),
    "timm ResNet": (
        timm_resnet,
        ["layer1.0", "layer1.1", "layer2.0", "layer3.0", "layer3.1", "layer4.0"],
        "all",
    ),
    "GPT-2": (gpt2, [f"transformer.h.{i}" for i in range(3)], "all"),
    "BERT": (bert, [f"bert.encoder.layer.{i}" for i in range(3)], "all"),
    "Hugging Face ViT": (hf_vit, None, "all"),
    "Lightning": (lightning_module, [f"net.blocks.{i}" for i in range(3)], "flat"),
}


@pytest.fixture(params=list(CASES))
def case(request):
    build, blocks, view = CASES[request.param]
    torch.manual_seed(0)
    model, data = build()
    return model, data, blocks, view


def inputs_and_targets(data):
    if isinstance(data, dict):
        return {name: t for name, t in data.items() if name != "labels"}, data["labels"]
    return data


def logits_of(model, inputs):
    return model(**inputs).logits if isinstance(inputs, dict) else model(inputs)


def by_plain_hooks(model, names, data):
    """States and gradients in float64 by retain_grad on a copy, one backward pass."""
    model = copy.deepcopy(model).double().eval()
    inputs, y = inputs_and_targets(data)
    wide = (
        {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
        if isinstance(inputs, dict)
        else inputs.double()
    )
    modules, states = dict(model.named_modules()), []

    def keep(h):
        h = h[0] if isinstance(h, tuple) else h
        h.retain_grad()
        states.append(h)

    modules[names[0]].register_forward_pre_hook(lambda m, args: keep(args[0]))
    for name in names:
        modules[name].register_forward_hook(lambda m, args, out: keep(out))
    logits = logits_of(model, wide)
    functional.cross_entropy(logits, y, reduction="sum").backward()
    sizes = [
        [np.median(np.linalg.norm(t.detach().flatten(1), axis=1)) for t in part]
        for part in (states, [h.grad for h in states])
    ]
    return *sizes, logits.detach()


def run_of(audit):
    return audit.claims[0].cell.runs[0]


def test_the_numbers_are_those_of_plain_autograd(case):
    model, data, blocks, view = case
    model.train()
    before = state_of_model(model)
    audit = cs.audit_model(model, loader=data, credit=rule_credit("bp"), init=copy.deepcopy(model.state_dict()), **FAST)
    assert same(before, state_of_model(model))
    log = run_of(audit)
    if blocks is not None:
        assert log.header.blocks == blocks
    assert log.spec.view == view
    assert f"blocks found: {', '.join(log.header.blocks)}" in audit.to_text(width=None)
    hidden, reference, logits = by_plain_hooks(model, log.header.blocks, data)
    np.testing.assert_allclose(log.epochs[0].hidden.median, hidden, rtol=1e-4)
    np.testing.assert_allclose(log.epochs[0].reference.median, reference, rtol=1e-3, atol=1e-9)
    y = inputs_and_targets(data)[1]
    assert log.epochs[0].test_accuracy == pytest.approx(float((logits.argmax(1) == y).double().mean()))
    np.testing.assert_allclose(log.probes[0].gradient_cosine, 1, atol=1e-6)
    assert {"rho", "nudge", "fidelity"}.isdisjoint(log.probes[0].not_measured)


def test_after_an_exception_it_is_as_before(case):
    model, data, _, _ = case
    model.train()
    before = state_of_model(model)

    class Breaks:
        def deliver(self, task, params, batch):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cs.audit_model(model, loader=data, credit=Breaks(), **FAST)
    assert same(before, state_of_model(model))


def test_compiled_and_under_autocast_it_is_measured_as_written(case):
    model, data, _, _ = case
    plain = run_of(cs.audit_model(model, loader=data, **FAST)).epochs[0]
    compiled = torch.compile(model, backend="eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log = run_of(cs.audit_model(compiled, loader=data, **FAST))
    assert log.epochs[0].hidden == plain.hidden
    assert log.epochs[0].reference == plain.reference
    assert any("autocast bfloat16 was on" in note for note in log.problems)


def test_a_bfloat16_model_shows_its_rounding(case):
    model, data, _, _ = case
    log = run_of(cs.audit_model(model.bfloat16(), loader=data, **FAST))
    assert log.spec.dtype == "bfloat16"
    assert min(log.probes[0].fidelity.median) < 1 - 1e-7


def test_it_can_be_watched(case):
    model, data, _, _ = case
    inputs, y = inputs_and_targets(data)
    optimiser = torch.optim.SGD(model.parameters(), 0.002)
    model.eval()
    with cs.watch(model, probe=data, budget=1.0, on_alert=lambda alert: None, **FAST) as scope:
        for _ in range(2):
            optimiser.zero_grad()
            functional.cross_entropy(logits_of(model, inputs), y).backward()
            optimiser.step()
            scope.step()
        scope.epoch()
    assert [row.epoch for row in scope.log.epochs] == [0, 1]
    assert all(value < 0 for value in scope.log.probes[-1].step_descent)
    assert scope.log.end.status == "finished"
    assert min(max(scope.log.last.movement.weights[n] for n in names) for names in scope.log.last.movement.blocks) > 0


def test_a_loader_that_yields_dicts():
    torch.manual_seed(0)
    model, data = bert()
    rows = [{name: t[i] for name, t in data.items()} for i in range(N)]
    whole, batches = (
        run_of(cs.audit_model(model, loader=loader, **FAST)) for loader in (data, DataLoader(rows, batch_size=7))
    )
    assert whole.epochs == batches.epochs
    assert whole.spec.data.hash_test == batches.spec.data.hash_test
    moved = {**data, "attention_mask": torch.ones_like(data["attention_mask"])}
    assert run_of(cs.audit_model(model, loader=moved, **FAST)).spec.data.hash_test != whole.spec.data.hash_test


def test_a_rule_on_a_model_of_named_inputs():
    """DFA's credit at every token and the last gradient, which is taken through the rest of the network."""
    torch.manual_seed(0)
    model, data = bert()
    generator = torch.Generator().manual_seed(2)
    feedback = {f"B.{level}": torch.randn(CLASSES, 16, generator=generator) for level in range(3)}
    log = run_of(cs.audit_model(model, loader=data, credit=rule_credit("dfa", feedback), **FAST))
    assert log.epochs[0].cosine.status == ["ok"] * 4
    own = run_of(cs.audit_model(model, loader=data, credit=backward_credit(model), **FAST)).epochs[0]
    np.testing.assert_allclose(own.cosine.mean, 1, atol=1e-5)


def test_backprop_in_a_hugging_face_model_leaks():
    torch.manual_seed(0)
    model, data = bert()
    before = state_of_model(model)
    found = cs.check_locality(model, batch=data, hold="output")
    assert same(before, state_of_model(model))
    assert not found.local
    assert found.sources[-1] == "readout"


def test_a_user_backward_gets_the_named_inputs():
    torch.manual_seed(0)
    model, data = gpt2()
    seen = []

    def backward(model, inputs, y):
        seen.append(sorted(inputs))
        (-functional.cross_entropy(model(**inputs).logits, y)).backward()

    row = run_of(cs.audit_model(model, loader=data, backward=backward, **FAST)).probes[0]
    np.testing.assert_allclose(row.gradient_cosine, -1, atol=1e-6)
    assert seen[0] == ["attention_mask", "input_ids"]


def test_a_language_model_with_one_label_a_sequence_is_refused_in_one_line():
    from transformers import GPT2Config, GPT2LMHeadModel

    logging.getLogger("transformers").setLevel(logging.ERROR)
    sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))
    with pytest.raises(BadInput, match=r"targets of shape \(2,\) .* are no class labels of outputs \(2, 10, 50\)"):
        cs.audit_model(model, loader=sentences(), **FAST)


def test_inputs_that_the_model_does_not_take_are_refused_in_one_line():
    (model, (x, y)) = timm_vit()
    with pytest.raises(BadInput) as error:
        cs.audit_model(model, loader={"pixels": x, "labels": y}, **FAST)
    said = str(error.value)
    assert said.startswith("the model failed on inputs pixels (24, 3, 16, 16) torch.float32: TypeError: ")
    assert said.endswith("; it is called as model(pixels=...)")
    assert "\n" not in said


def test_a_lightning_module_after_fit():
    import lightning

    torch.manual_seed(0)
    module, (x, y) = lightning_module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        trainer = lightning.Trainer(max_epochs=1, enable_model_summary=False, **quiet)
        trainer.fit(module, DataLoader(list(zip(x, y, strict=True)), batch_size=8))
    before = state_of_model(module)
    log = run_of(cs.audit_model(module, loader=(x, y), **FAST))
    assert same(before, state_of_model(module))
    assert log.header.blocks == [f"net.blocks.{i}" for i in range(3)]
