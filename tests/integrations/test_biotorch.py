"""BioTorch models as released, trained by BioTorch's own code, audited; numbers against a computation by hand."""

import contextlib
import copy
import importlib
import io

import numpy as np
import pytest
import torch
from cases.peers import with_torchvision
from integrations.lenet_by_hand import BLOCKS, block_gradients, by_hand, flat, mean_cosines
from scope.nets import same, state_of_model
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.integrations.biotorch import biotorch_credit
from creditscope.scope import backward_credit

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning")]
MODES = ("fa", "dfa", "usf", "brsf", "frsf")
SHUFFLES = 119


def released(mode, model="le_net_mnist", file="le_net", seed=0):
    with_torchvision()
    torch.manual_seed(seed)
    with contextlib.redirect_stdout(io.StringIO()):
        return getattr(importlib.import_module(f"biotorch.models.{mode}.{file}"), model)()


def images():
    """Fashion-MNIST, the bundled part, in LeNet's 32 × 32."""
    data = cs.load_data("fashion-mini")
    x, x_test = (functional.pad(t.float() / 255 - 0.5, (2, 2, 2, 2)) for t in (data.x_train, data.x_test))
    return (x[:640], data.y_train[:640]), (x_test[::25], data.y_test[::25])


def train(model, mode, epochs=4):
    from biotorch.training.functions import train as their_epoch

    torch.manual_seed(7)
    loader = DataLoader(TensorDataset(*images()[0]), batch_size=64, shuffle=True)
    # A convolution told the error at every place of its output takes large steps: with momentum DFA runs away.
    given = {"lr": 0.01} if mode == "dfa" else {"lr": 0.05, "momentum": 0.9}
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], **given)
    with contextlib.redirect_stdout(io.StringIO()):
        for epoch in range(epochs):
            their_epoch(model, mode, nn.CrossEntropyLoss(), optimiser, loader, "cpu", epoch, False)
    return model


@pytest.fixture(scope="module", params=["fa", "dfa"])
def audited(request):
    model = released(request.param)
    init = copy.deepcopy(model.state_dict())
    twin = cs.frozen_copy(model, BLOCKS)
    train(model, request.param)
    train(twin, request.param)
    before = state_of_model(model)
    audit = cs.audit_model(
        model,
        blocks=BLOCKS,
        loader=images()[1],
        credit=biotorch_credit(model, redraws=SHUFFLES),
        init=init,
        baseline=twin,
        name=request.param,
        directions=2,
    )
    assert same(before, state_of_model(model))
    return model, init, twin, audit


def run_of(audit):
    return audit.claims[0].cell.runs[0]


def test_the_numbers_agree_with_a_computation_by_hand(audited):
    model, init, _, audit = audited
    (x, y), log = images()[1], run_of(audit)
    row, probe = log.epochs[0], log.probes[0]
    states, gradients, signals, error = by_hand(model, x, y)
    sizes, slopes = ([np.linalg.norm(h, axis=1) for h in flat(part)] for part in (states, gradients))
    np.testing.assert_allclose(row.hidden.median, [np.median(size) for size in sizes], rtol=1e-5)
    np.testing.assert_allclose(row.reference.median, [np.median(size) for size in slopes], rtol=1e-4)
    rms = [np.median(size) / np.sqrt(h[0].numel()) for size, h in zip(sizes, states, strict=True)]
    np.testing.assert_allclose(row.growth, np.divide(rms[1:], rms[:-1]), rtol=1e-5)
    wanted = mean_cosines(signals, gradients)
    np.testing.assert_allclose(row.cosine.mean, wanted, atol=2e-5)
    assert max(wanted) < 0.9
    assert row.gain[-1] == pytest.approx(np.median(slopes[-1] / np.linalg.norm(error.numpy(), axis=1)), rel=1e-4)
    few = [t[:64] for t in states]
    ours, true = (block_gradients(few, [c[:64] for c in part], error[:64]) for part in (signals, gradients))
    by_block = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(ours, true, strict=True)]
    np.testing.assert_allclose(probe.gradient_cosine, by_block, atol=2e-5)
    name = "module.conv3.weight"
    a, b = (t.double().flatten().numpy() for t in (model.state_dict()[name], init[name]))
    assert row.movement.weights[name] == pytest.approx(
        np.linalg.norm(a - (a @ b) / (b @ b) * b) / np.linalg.norm(b), rel=1e-6
    )
    assert sorted(row.movement.weights) == sorted(f"{block}.weight" for block in BLOCKS)


def test_accuracy_and_depth_are_biotorchs_own(audited):
    from biotorch.training.functions import test as their_accuracy

    model, _, twin, audit = audited
    loader = DataLoader(TensorDataset(*images()[1]), batch_size=250)
    with contextlib.redirect_stdout(io.StringIO()):
        model_accuracy, twin_accuracy = (
            float(their_accuracy(m.eval(), nn.CrossEntropyLoss(), loader, "cpu")[0]) / 100 for m in (model, twin)
        )
    assert run_of(audit).epochs[0].test_accuracy == pytest.approx(model_accuracy)
    # The classes of these images differ in size, so depth is judged by the mean over classes.
    balanced = [by_class(m, *images()[1]) for m in (model, twin)]
    assert [round(plain, 6) for plain, _ in balanced] == [round(a, 6) for a in (model_accuracy, twin_accuracy)]
    depth = next(o for o in audit.claims[0].outcomes if o.name == "depth")
    assert depth.evidence.value == pytest.approx(100 * (balanced[0][1] - balanced[1][1]), abs=1e-4)


def by_class(model, x, y):
    """Accuracy, and its mean over the classes."""
    with torch.no_grad():
        right = (model(x).argmax(1) == y).double()
    return float(right.mean()), float(torch.stack([right[y == c].mean() for c in y.unique()]).mean())


def test_the_null_is_that_of_other_feedback(audited):
    """Shuffled by hand, in float64: the share of shuffles that do as well lies where the audit says."""
    model, _, _, audit = audited
    (x, y), null = images()[1], run_of(audit).probes[0].null
    assert null.redraws == SHUFFLES
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(3)
    rows = []
    for _ in range(SHUFFLES // 5):
        for layer in other.modules():
            if hasattr(layer, "weight_backward"):
                matrix = layer.weight_backward.data
                order = torch.randperm(matrix.numel(), generator=generator)
                matrix.copy_(matrix.flatten()[order].reshape(matrix.shape))
        _, gradients, signals, _ = by_hand(other, x[:64], y[:64])
        rows.append(mean_cosines(signals, gradients))
    drawn = np.array(rows)
    # Two independent sets of shuffles of the same spread.
    np.testing.assert_allclose(null.mean, drawn.mean(0), atol=5 * np.max(drawn.std(0)) / np.sqrt(len(drawn)))
    np.testing.assert_allclose(null.sd, drawn.std(0), rtol=0.5)


def test_the_audit_reads_as_a_whole(audited):
    _, _, _, audit = audited
    outcomes = {o.name: str(o.ruling) for o in audit.claims[0].outcomes}
    assert set(outcomes.values()) <= {"passes", "fires", "undecided", "not measured", "not applicable"}
    assert {name: outcomes[name] for name in ("scale", "reference", "fidelity", "movement")} == dict.fromkeys(
        ("scale", "reference", "fidelity", "movement"), "passes"
    )
    assert outcomes["direction"] != "not measured"
    assert "states differ in shape: growth is taken on the RMS per element" in audit.to_text(width=None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("broken", [False, True])
def test_every_rule_is_read_and_left_as_found(mode, broken):
    """Also where the forward pass replaces its own backward weights (uSF, brSF), and after an exception."""
    model = released(mode)
    x, y = (t[:40] for t in images()[1])
    model.train()
    before = state_of_model(model)
    credit = biotorch_credit(model, redraws=19)
    given = {"directions": 0, "redraws": 0, "credit": credit, "blocks": BLOCKS}
    if broken:
        with pytest.raises(ZeroDivisionError):
            cs.audit_model(model, loader=(x, y), loss_fn=fails_later(), **given)
    else:
        log = run_of(cs.audit_model(model, loader=(x, y), **given))
        assert log.epochs[0].cosine.status == ["ok"] * 4
        assert min(log.epochs[0].cosine.mean) > (0.2 if mode.endswith("sf") else -0.2)
        assert log.probes[0].null.redraws == 19
        if mode.endswith("sf"):
            # The sign of the weights is in the feedback, and the null shuffles it away.
            assert log.probes[0].null.p == [0.05] * 4
            assert max(map(abs, log.probes[0].null.mean)) < 0.2
    assert same(before, state_of_model(model))


def fails_later():
    calls = []

    def loss(z, y):
        calls.append(1)
        if len(calls) > 6:
            raise ZeroDivisionError
        return functional.cross_entropy(z, y, reduction="none")

    return loss


@pytest.mark.parametrize("mode", ["usf", "frsf"])
def test_the_held_feedback_is_the_one_in_use(mode):
    """What is delivered with the signed weights held is what BioTorch's backward delivers by itself."""
    model = released(mode).eval()
    x, y = (t[:40] for t in images()[1])
    cosines = [
        run_of(cs.audit_model(model, loader=(x, y), blocks=BLOCKS, credit=credit, directions=0, redraws=0))
        .epochs[0]
        .cosine.mean
        for credit in (biotorch_credit(model, redraws=2), backward_credit(model))
    ]
    np.testing.assert_allclose(*cosines, rtol=1e-6)


def test_a_resnet_as_released():
    """Its nine blocks are found; FA through batch norm and skips agrees with carriers built on plain layers."""
    model = released("fa", "resnet20", "resnet").eval()
    torch.manual_seed(1)
    x, y = torch.randn(16, 3, 16, 16), torch.randint(10, (16,))
    before = state_of_model(model)
    audit = cs.audit_model(model, loader=(x, y), credit=biotorch_credit(model, redraws=2), directions=0)
    assert same(before, state_of_model(model))
    log = run_of(audit)
    names = [f"module.layer{stage}.{block}" for stage in (1, 2, 3) for block in range(3)]
    assert log.header.blocks == names
    assert f"blocks found: {', '.join(names)}" in audit.to_text(width=None)
    np.testing.assert_allclose(log.epochs[0].cosine.mean, resnet_cosines(model, x, y), atol=1e-4)


def test_a_dfa_resnet_as_released_and_watched_through_biotorchs_own_epochs():
    from biotorch.training.functions import train as their_epoch

    model = released("dfa", "resnet20", "resnet")
    torch.manual_seed(1)
    x, y = torch.randn(12, 3, 8, 8), torch.randint(10, (12,))
    loader = DataLoader(TensorDataset(x, y), batch_size=12)
    optimiser = torch.optim.SGD(model.parameters(), 0.001)
    names = ["module.layer1.0", "module.layer2.0", "module.layer3.2"]
    given = {"blocks": names, "credit": biotorch_credit(model, redraws=2), "directions": 0}
    with cs.watch(model, probe=(x, y), budget=1.0, on_alert=lambda alert: None, **given) as scope:
        with contextlib.redirect_stdout(io.StringIO()):
            their_epoch(model, "dfa", nn.CrossEntropyLoss(), optimiser, loader, "cpu", 0, False)
        scope.epoch()
    # Every layer inside a block gets its own projection of the error: what arrives at the end is not its credit.
    assert [row.cosine.status for row in scope.log.epochs] == [["ok", *["not measured"] * 3]] * 2
    assert [f"substituted inside block {name}:" in " ".join(scope.log.problems) for name in names] == [True] * 3
    assert min(max(scope.log.last.movement.weights[n] for n in part) for part in scope.log.last.movement.blocks) > 0
    assert scope.log.probes[-1].null.redraws == 2


def resnet_cosines(model, x, y):
    """Plain layers in float64; FA by swapping the weight for the feedback on the way back, by a carrier."""

    def maps(use_feedback):
        def conv(layer, h):
            if not use_feedback:
                return functional.conv2d(h, layer.weight, None, layer.stride, layer.padding)
            stopped = h.detach()
            there = functional.conv2d(stopped, layer.weight, None, layer.stride, layer.padding)
            return there + functional.conv2d(h - stopped, layer.weight_backward, None, layer.stride, layer.padding)

        return conv

    def signals(conv, head):
        net = copy.deepcopy(model).double().module
        h = functional.relu(net.bn1(conv(net.conv1, x.double())))
        states = [h.detach().requires_grad_()]
        h = states[0]
        for stage in (net.layer1, net.layer2, net.layer3):
            for block in stage:
                inner = functional.relu(block.bn1(conv(block.conv1, h)))
                h = functional.relu(block.bn2(conv(block.conv2, inner)) + block.shortcut(h))
                h.retain_grad()
                states.append(h)
        pooled = functional.avg_pool2d(h, h.shape[3]).flatten(1)
        stopped = pooled.detach()
        logits = stopped @ net.fc.weight.T + net.fc.bias + (pooled - stopped) @ getattr(net.fc, head)[:].T
        functional.cross_entropy(logits, y, reduction="sum").backward()
        return [h.grad for h in states]

    true = signals(maps(False), "weight")
    return mean_cosines(signals(maps(True), "weight_backward"), true)


def test_locality_of_fa_and_dfa():
    """FA is free of weight transport; DFA needs only the output error; uSF carries signs of weights and leaks."""
    x, y = (t[:32] for t in images()[1])
    for mode, hold, local in (("fa", "activations", True), ("dfa", "output", True), ("usf", "activations", False)):
        model = released(mode)
        before = state_of_model(model)
        found = cs.check_locality(model, BLOCKS, (x, y), update_fn=biotorch_credit(model).backward, hold=hold)
        assert found.local is local, (mode, str(found))
        assert same(before, state_of_model(model))
    model = released("dfa")
    with pytest.raises(BadInput, match=r"module\.conv1 has a backward hook of the old kind, .* pass hold='output'"):
        cs.check_locality(model, BLOCKS, (x, y), update_fn=biotorch_credit(model).backward, hold="activations")


def test_a_dfa_model_without_its_adapter_is_refused():
    x, y = (t[:32] for t in images()[1])
    with pytest.raises(
        BadInput, match=r"loss\.backward\(\) fails on this model \(AttributeError: .*\); pass backward="
    ):
        cs.audit_model(released("dfa"), loader=(x, y), blocks=BLOCKS, redraws=0, directions=0)


def test_what_is_no_biotorch_model_is_refused():
    with pytest.raises(
        BadInput, match=r"wanted a BioTorch model with feedback \(fa, dfa, usf, brsf, frsf\), Linear has"
    ):
        biotorch_credit(nn.Linear(2, 2))
    with pytest.raises(
        BadInput, match=r"wanted the BioModule, got the LeNetMNIST with the DFA layer conv1; only the Bio"
    ):
        biotorch_credit(released("dfa").module)
    constrained = released("fa")
    constrained.module.fc1.options = {"constrain_weights": True}
    with pytest.raises(
        BadInput, match=r"module\.fc1 has constrain_weights=True, which puts another weight in its place"
    ):
        biotorch_credit(constrained)


def test_without_biotorch_the_install_line_is_given(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "biotorch.layers", None)
    with pytest.raises(BadInput, match=r"BioTorch is not installed; run: pip install --no-deps 'biotorch>=0\.0\.16'"):
        biotorch_credit(nn.Linear(2, 2))
