"""A model of several named inputs that returns its logits by name: measured as one of a single tensor is."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scope.nets import Block, same, samples, state_of_model
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import creditscope as cs
from creditscope.scope import backward_credit, rule_credit
from creditscope.scope.inputs import Table, inputs_of, logits_of, with_logits

FAST = {"redraws": 19, "directions": 2, "probes": "full"}


class Named(nn.Module):
    """Takes words and a mask; the mask is read again after the blocks."""

    def __init__(self, how="attribute") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head, self.how = nn.Embedding(9, 8), nn.Linear(8, 4), how
        self.blocks = nn.ModuleList(Block(8) for _ in range(3))

    def forward(self, ids, mask):
        h = self.embed(ids)
        for block in self.blocks:
            h = block(h)
        z = self.head((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        return {"attribute": SimpleNamespace(logits=z), "entry": {"logits": z}, "itself": z}[self.how]


def sentences(n=40):
    generator = torch.Generator().manual_seed(3)
    mask = (torch.arange(5) < (2 + torch.arange(n) % 4)[:, None]).float()
    return {
        "ids": torch.randint(9, (n, 5), generator=generator),
        "mask": mask,
        "labels": torch.randint(4, (n,), generator=generator),
    }


def run_of(audit):
    return audit.claims[0].cell.runs[0]


def by_autograd(model, data):
    model = copy.deepcopy(model).double().eval()
    states = [model.embed(data["ids"])]
    states[0].retain_grad()
    for block in model.blocks:
        states.append(block(states[-1]))
        states[-1].retain_grad()
    mask = data["mask"].double()
    logits = model.head((states[-1] * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
    functional.cross_entropy(logits, data["labels"], reduction="sum").backward()
    return [
        [np.median(np.linalg.norm(t.detach().flatten(1), axis=1)) for t in part]
        for part in (states, [h.grad for h in states])
    ]


@pytest.mark.parametrize("how", ["attribute", "entry", "itself"])
def test_the_numbers_are_those_of_plain_autograd(how):
    model, data = Named(how), sentences()
    before = state_of_model(model)
    log = run_of(cs.audit_model(model, loader=data, credit=rule_credit("bp"), **FAST))
    assert same(before, state_of_model(model))
    hidden, reference = by_autograd(model, data)
    np.testing.assert_allclose(log.epochs[0].hidden.median, hidden, rtol=1e-5)
    np.testing.assert_allclose(log.epochs[0].reference.median, reference, rtol=1e-4)
    np.testing.assert_allclose(log.probes[0].gradient_cosine, 1, atol=1e-6)
    # The rest of the network is run with each sample's own mask.
    assert min(log.probes[0].rho.control) > 0.99
    assert log.spec.data.shape == (5,)
    assert log.end.n_test == 40


def test_batches_of_dicts_are_one_dict():
    model, data = Named(), sentences()
    rows = [{name: t[i] for name, t in data.items()} for i in range(40)]
    one, two = (run_of(cs.audit_model(model, loader=x, **FAST)) for x in (data, DataLoader(rows, batch_size=9)))
    assert one.epochs == two.epochs
    assert one.spec == two.spec


def test_a_rule_that_asks_for_the_rest_of_the_network_gets_each_samples_mask():
    """fa-block's last credit is the gradient at h_L, taken through the readout and the mask."""
    model, data = Named(), sentences()
    feedback = {f"M.{level}": torch.randn(8, 8, generator=torch.Generator().manual_seed(level)) for level in range(3)}
    log = run_of(cs.audit_model(model, loader=data, credit=rule_credit("fa-block", feedback), **FAST))
    assert log.epochs[0].cosine.status[-1] == "exact-by-construction"
    assert log.epochs[0].cosine.mean[-1] == pytest.approx(1, abs=1e-6)
    read = run_of(cs.audit_model(model, loader=data, credit=backward_credit(model), **FAST))
    np.testing.assert_allclose(read.epochs[0].cosine.mean, 1, atol=1e-6)


def test_a_backward_of_ones_own_gets_the_dict():
    seen = []

    def backward(model, inputs, y):
        seen.append(sorted(inputs))
        (-functional.cross_entropy(model(**inputs).logits, y)).backward()

    row = run_of(cs.audit_model(Named(), loader=sentences(), backward=backward, **FAST)).probes[0]
    np.testing.assert_allclose(row.gradient_cosine, -1, atol=1e-6)
    assert seen[0] == ["ids", "mask"]


def test_it_can_be_watched():
    model, data = Named(), sentences()
    with cs.watch(model, probe=data, budget=1.0, **FAST) as scope:
        scope.epoch()
    assert scope.log.epochs[0].reference is not None


@pytest.mark.parametrize("how", ["attribute", "entry", "itself"])
def test_locality_of_a_model_of_named_inputs(how):
    model, data = Named(how), sentences()
    found = cs.check_locality(model, batch=data, hold="output")
    assert not found.local
    assert found.leaks[0].source in ("blocks.1", "blocks.2", "readout")

    def last_only(model, inputs, y):
        functional.cross_entropy(logits_of(model(**inputs)), y).backward()
        for name, p in model.named_parameters():
            if not name.startswith("head"):
                p.grad = torch.ones_like(p)

    assert cs.check_locality(model, batch=data, update_fn=last_only, hold="output").local


def test_a_table_hands_out_rows():
    table = Table({"ids": torch.arange(6).reshape(3, 2), "weight": torch.ones(3)})
    rows = inputs_of(table, torch.tensor([2, 0]), torch.float64)
    assert rows["ids"].tolist() == [[4, 5], [0, 1]]
    assert rows["ids"].dtype == torch.int64
    assert rows["weight"].dtype == torch.float64
    x = samples()[0]
    assert inputs_of(None, x, torch.float64) is x


def test_other_logits_are_put_into_a_copy():
    z, other = torch.ones(2), torch.zeros(2)
    for output in (z, {"logits": z, "loss": 1}, SimpleNamespace(logits=z, loss=1)):
        assert logits_of(with_logits(output, other)) is other
        assert logits_of(output) is z


def test_where_logits_are():
    z = torch.ones(2)
    assert all(logits_of(output) is z for output in (z, {"logits": z}, SimpleNamespace(logits=z)))
    assert logits_of({"scores": z}) == {"scores": z}
