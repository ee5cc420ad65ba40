"""A model trained by a plain loop, audited: numbers against plain autograd, and the model as it was found."""

import copy

import numpy as np
import pytest
import torch
from scope.nets import FeedbackNet, Net, same, samples, state_of_model, train
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.scope import backward_credit, rule_credit

FAST = {"redraws": 19, "directions": 2}


def states_and_gradients(model, x, y):
    """States and per-sample gradients of the summed loss, by retain_grad and a plain backward."""
    model = copy.deepcopy(model).eval()
    h = model.embed(x)
    states = [h]
    for block in model.blocks:
        h = block(h)
        states.append(h)
    for state in states:
        state.retain_grad()
    functional.cross_entropy(model.head(h), y, reduction="sum").backward()
    return [s.detach().double().numpy() for s in states], [s.grad.double().numpy() for s in states]


def run_of(audit):
    return audit.claims[0].cell.runs[0]


def outcome(audit, name):
    return next(o for o in audit.claims[0].outcomes if o.name == name)


def test_the_numbers_are_those_of_plain_autograd():
    x, y = samples()
    model = Net()
    init = copy.deepcopy(model.state_dict())
    train(model, x, y)
    row = run_of(cs.audit_model(model, loader=(x, y), init=init, **FAST)).epochs[0]
    states, gradients = states_and_gradients(model, x, y)
    hidden = [np.median(np.linalg.norm(h, axis=1)) for h in states]
    np.testing.assert_allclose(row.hidden.median, hidden, rtol=1e-5)
    np.testing.assert_allclose(
        row.reference.median, [np.median(np.linalg.norm(g, axis=1)) for g in gradients], rtol=1e-4
    )
    np.testing.assert_allclose(row.growth, np.divide(hidden[1:], hidden[:-1]), rtol=1e-5)
    with torch.no_grad():
        logits = copy.deepcopy(model).eval()(x)
    assert row.test_accuracy == pytest.approx(float((logits.argmax(1) == y).double().mean()))
    assert row.test_loss == pytest.approx(float(functional.cross_entropy(logits, y)), rel=1e-5)
    error = (logits.softmax(1) - functional.one_hot(y, 4)).norm(dim=1).numpy()
    gain = np.median(np.linalg.norm(gradients[-1], axis=1) / error)
    assert row.gain[-1] == pytest.approx(gain, rel=1e-4)
    name = "blocks.1.linear.weight"
    a, b = (t.double().flatten().numpy() for t in (model.state_dict()[name], init[name]))
    assert row.movement.weights[name] == pytest.approx(
        np.linalg.norm(a - (a @ b) / (b @ b) * b) / np.linalg.norm(b), rel=1e-6
    )
    assert all("norm" not in n and "bias" not in n for n in row.movement.weights)


def test_the_models_own_backward_is_compared_with_backprop():
    x, y = samples()
    honest = run_of(cs.audit_model(Net(), loader=(x, y), **FAST)).probes[0]
    np.testing.assert_allclose(honest.gradient_cosine, 1, atol=1e-6)
    model = FeedbackNet()
    row = run_of(cs.audit_model(model, loader=(x, y), **FAST)).probes[0]
    own, true = copy.deepcopy(model), copy.deepcopy(model)
    functional.cross_entropy(own(x), y).backward()
    functional.cross_entropy(true.true_logits(0, true.embed(x)), y).backward()
    for block, value in enumerate(row.gradient_cosine):
        a, b = (
            np.concatenate([p.grad.flatten().double().numpy() for p in m.blocks[block].parameters()])
            for m in (own, true)
        )
        assert value == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-5)
    assert row.gradient_cosine[0] < 0.99


def test_a_backward_of_ones_own_is_used():
    x, y = samples()

    def backward(model, x, y):
        (-functional.cross_entropy(model(x), y)).backward()

    row = run_of(cs.audit_model(Net(), loader=(x, y), backward=backward, **FAST)).probes[0]
    np.testing.assert_allclose(row.gradient_cosine, -1, atol=1e-6)


@pytest.mark.parametrize("broken", [False, True])
def test_nothing_of_the_model_changes(broken):
    x, y = samples()
    model = train(Net(), x, y)
    model.train()
    model.dropout.eval()
    model.blocks[0].register_forward_hook(lambda *_: None)
    model.embed.weight.requires_grad_(False)
    torch.manual_seed(5)
    before = state_of_model(model)

    class Breaks:
        def deliver(self, task, params, batch):
            raise RuntimeError("a credit of mine")

    if broken:
        with pytest.raises(RuntimeError, match="a credit of mine"):
            cs.audit_model(model, loader=(x, y), credit=Breaks(), **FAST)
    else:
        cs.audit_model(model, loader=(x, y), credit=backward_credit(model), **FAST)
    assert same(before, state_of_model(model))


def test_this_test_can_tell():
    model = Net()
    before = state_of_model(model)
    model(samples()[0])
    assert not same(before, state_of_model(model))


def test_batch_norm_and_images_work_in_eval_mode():
    torch.manual_seed(0)
    block = lambda: nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True))  # noqa: E731
    model = nn.Sequential(nn.Conv2d(1, 3, 3), block(), block(), nn.Flatten(), nn.Linear(3 * 36, 4))
    x, y = torch.randn(40, 1, 8, 8), torch.randint(4, (40,))
    for _ in range(3):
        model(x)
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    log = run_of(cs.audit_model(model, loader=(x, y), blocks=["1", "2"], **FAST))
    assert log.spec.view == "all"
    assert log.epochs[0].reference is not None
    assert "fidelity" not in log.probes[0].not_measured
    assert all(torch.equal(b, buffers[name]) for name, b in model.named_buffers())
    assert model.training


def test_batches_that_talk_to_each_other_have_no_gradient_per_sample():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    model = nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 8), norm), nn.Tanh(), nn.Linear(8, 4))
    log = run_of(cs.audit_model(model, loader=samples(), blocks=["1"], **FAST))
    assert log.epochs[0].reference is None
    assert any("not independent" in note for note in log.problems)


def test_unlike_shapes_grow_by_rms_and_say_so():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 32), nn.Linear(32, 2), nn.Linear(2, 4))
    x, y = samples()
    log = run_of(cs.audit_model(model, loader=(x, y), blocks=["1", "2"], **FAST))
    states = [x]
    with torch.no_grad():
        for layer in list(model)[:3]:
            states.append(layer(states[-1]))
    rms = [np.median(h.double().square().mean(1).sqrt().numpy()) for h in states[1:]]
    np.testing.assert_allclose(log.epochs[0].growth, np.divide(rms[1:], rms[:-1]), rtol=1e-5)
    assert any("RMS per element" in note for note in log.problems)
    assert "RMS per element" in log.header.source["growth"]
    assert log.spec.width is None


def test_blocks_are_found_and_shown():
    audit = cs.audit_model(Net(), loader=samples(), **FAST)
    assert run_of(audit).header.blocks == ["blocks.0", "blocks.1", "blocks.2"]
    assert "blocks found: blocks.0, blocks.1, blocks.2" in audit.to_text(width=None)


@pytest.mark.parametrize(
    "where",
    [
        lambda m: ["blocks.0", "blocks.1", "blocks.2"],
        lambda m: m.blocks,
        lambda m: list(m.blocks),
        lambda m: lambda name, module: name.count(".") == 1 and name.startswith("blocks"),
    ],
)
def test_blocks_can_be_said_in_four_ways(where):
    model = Net()
    log = run_of(cs.audit_model(model, loader=samples(), blocks=where(model), **FAST))
    assert log.header.blocks == ["blocks.0", "blocks.1", "blocks.2"]
    assert not any("blocks found" in note for note in log.problems)


def test_backprop_is_taken_at_its_word_only_where_it_is_true():
    audit = cs.audit_model(Net(), loader=samples(), credit=rule_credit("bp"), **FAST)
    assert str(outcome(audit, "direction").ruling) == "not applicable"
    with pytest.raises(
        BadInput, match=r"credit says backprop, but what the backward pass wrote in blocks\.\d has cosine"
    ):
        cs.audit_model(FeedbackNet(), loader=samples(), credit=rule_credit("bp"), **FAST)


def test_a_name_proves_nothing():
    audit = cs.audit_model(FeedbackNet(), loader=samples(), name="bp", **FAST)
    assert str(outcome(audit, "direction").ruling) == "not measured"


def test_a_frozen_twin_is_the_baseline():
    x, y = samples(200)
    model = Net()
    init = copy.deepcopy(model.state_dict())
    twin = cs.frozen_copy(model)
    train(model, x, y, 40)
    train(twin, x, y, 40)
    assert all(torch.equal(p, init[n]) for n, p in twin.named_parameters() if n.startswith("blocks"))
    assert not torch.equal(twin.embed.weight, init["embed.weight"])
    audit = cs.audit_model(model, loader=(x, y), init=init, baseline=twin, **FAST)
    depth = outcome(audit, "depth")
    accuracies = []  # balanced: the classes differ in size
    for one in (model, twin):
        right = (copy.deepcopy(one).eval()(x).argmax(1) == y).double()
        accuracies.append(float(np.mean([right[y == label].mean() for label in y.unique()])))
    assert depth.evidence.value == pytest.approx(100 * (accuracies[0] - accuracies[1]))
    assert str(depth.evidence.grade) == "proxy"
    assert depth.baseline["accuracy"] == pytest.approx(accuracies[1])


def test_a_number_is_a_baseline_too():
    depth = outcome(cs.audit_model(Net(), loader=samples(), baseline=0.5, **FAST), "depth")
    assert depth.baseline["accuracy"] == 0.5
    assert depth.baseline["matched"] is False


def test_a_compiled_model_is_measured_as_written():
    x, y = samples()
    model = Net()
    plain = run_of(cs.audit_model(model, loader=(x, y), **FAST)).epochs[0]
    wrapped = torch.compile(model, backend="eager")
    log = run_of(cs.audit_model(wrapped, loader=(x, y), blocks=["_orig_mod.blocks.0", "_orig_mod.blocks.1"], **FAST))
    assert log.epochs[0].hidden.median == plain.hidden.median[:3]
    model.compile(backend="eager")
    assert run_of(cs.audit_model(model, loader=(x, y), **FAST)).epochs[0].hidden == plain.hidden
    assert model._compiled_call_impl is not None


def test_under_autocast_it_is_measured_without_and_says_so():
    x, y = samples()
    model = Net()
    plain = run_of(cs.audit_model(model, loader=(x, y), **FAST))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log = run_of(cs.audit_model(model, loader=(x, y), **FAST))
        assert torch.is_autocast_enabled("cpu")
    assert log.epochs[0].reference == plain.epochs[0].reference
    assert any("autocast bfloat16 was on" in note for note in log.problems)


def test_a_bfloat16_model_shows_its_rounding():
    log = run_of(cs.audit_model(Net().bfloat16(), loader=samples(), **FAST))
    assert log.probes[0].fidelity.dtype == "bfloat16"
    assert min(log.probes[0].fidelity.median) < 1 - 1e-7


def test_a_loader_is_read_to_its_end_for_accuracy():
    x, y = samples(1300)
    model = train(Net(), x, y)
    batches = [(x[i : i + 100], y[i : i + 100]) for i in range(0, 1300, 100)]
    log = run_of(cs.audit_model(model, loader=batches, **FAST))
    assert log.epochs[0].hidden.n == 1024
    assert log.spec.data.n_test == 1300
    assert log.end.n_test == 1300
    endless = (batch for batch in batches)
    assert run_of(cs.audit_model(model, loader=endless, **FAST)).spec.data.n_test == 1024


def test_frozen_copy_leaves_the_model_alone():
    model = train(Net(), *samples())
    before = state_of_model(model)
    twin = cs.frozen_copy(model, ["blocks.0"])
    assert same(before, state_of_model(model))
    assert [p.requires_grad for p in twin.blocks[0].parameters()] == [False] * 4
    assert all(p.requires_grad for p in twin.blocks[1].parameters())
    assert all(p.grad is None for p in twin.parameters())


def test_audits_of_several_seeds_are_judged_as_one_cell():
    x, y = samples(100)
    logs = []
    for seed in (1, 2, 3):
        model = Net(seed=seed)
        twin = cs.frozen_copy(model)
        for one in (model, twin):
            train(one, x, y, 10)
        logs += [
            cell.cell.runs[0] for cell in cs.audit_model(model, loader=(x, y), baseline=twin, seed=seed, **FAST).cells
        ]
    audit = cs.audit(logs)
    assert audit.claims[0].cell.seeds == (1, 2, 3)
    assert outcome(audit, "depth").details["estimator"] == "paired"


def test_where_classes_are_unequal_the_log_holds_each_samples_class_and_the_balanced_accuracy():
    x, _ = samples(60)
    y = torch.tensor([0] * 40 + [1] * 14 + [3] * 6)
    model = train(Net(), x, y)
    log = run_of(cs.audit_model(model, loader=(x, y), **FAST))
    right = np.unpackbits(np.frombuffer(bytes.fromhex(log.end.correct), dtype=np.uint8))[:60]
    assert right.tolist() == (model.eval()(x).argmax(1) == y).int().tolist()
    assert np.frombuffer(bytes.fromhex(log.end.labels), dtype=">u2").tolist() == y.tolist()
    wanted = np.mean([right[:40].mean(), right[40:54].mean(), right[54:].mean()])
    assert log.last.balanced_accuracy == pytest.approx(wanted, abs=1e-12)
    assert log.last.test_accuracy == pytest.approx(right.mean(), abs=1e-12)


def test_equal_classes_need_no_labels():
    x, _ = samples(40)
    assert run_of(cs.audit_model(Net(), loader=(x, torch.arange(40) % 4), **FAST)).end.labels is None


def test_who_chose_the_blocks_is_logged():
    found = run_of(cs.audit_model(Net(), loader=samples(), **FAST))
    given = run_of(cs.audit_model(Net(), loader=samples(), blocks=["blocks.0", "blocks.2"], **FAST))
    assert (found.header.partition, given.header.partition) == ("found", "given")
