"""Facts that any honest measuring tool must reproduce, each in seconds on a CPU."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.models import assign, batch_of, params_of, resmlp, seeded_generator, task_of, vit
from cases.snapshots import mlp_snapshot, snapshot_of
from torch import Tensor, nn
from torch.nn import functional

from creditscope.blocks import Batch, Blocks, Task, observe
from creditscope.models.resmlp import ResMLP
from creditscope.probes.functional.cosine import cosines, mean_defined
from creditscope.probes.functional.drift import drift_at, drift_ratio
from creditscope.probes.functional.norms import norm_stats, vector_norms
from creditscope.probes.nulls import FeedbackNull
from creditscope.probes.parameters import GradientCosineProbe
from creditscope.probes.perturbation import RhoProbe
from creditscope.rules.backprop import Backprop
from creditscope.rules.block_feedback import BlockFeedback
from creditscope.rules.direct_feedback import DirectFeedback
from creditscope.rules.feedback_alignment import FeedbackAlignment
from creditscope.rules.wrappers import Normalised


def squared_error(out: Tensor, y: Tensor) -> Tensor:
    return (out - y).square().sum(1) / 2


@pytest.mark.parametrize("model", [resmlp(), vit()], ids=["resmlp", "vit-mini"])
@pytest.mark.parametrize("exact_head", [False, True])
def test_feedback_alignment_with_the_weights_as_feedback_is_backprop(model: nn.Module, exact_head: bool) -> None:
    shape, classes = ((5,), 4) if isinstance(model, ResMLP) else ((2, 8, 8), 3)
    rule = FeedbackAlignment(exact_head)
    snapshot = snapshot_of(model, rule, shape, classes, view="flat")
    weights = {name: snapshot.params[f"{name.removeprefix('B.')}.weight"] for name in snapshot.state}
    aligned = replace(snapshot, state=weights)
    for c, g in zip(aligned.delivered, aligned.observation.references, strict=True):
        assert torch.allclose(c, g, rtol=1e-12, atol=1e-14)
    for name, grad in aligned.rule_grads.items():
        assert torch.allclose(grad, aligned.bp_grads[name], rtol=1e-10, atol=1e-14), name
    assert GradientCosineProbe().measure(aligned).values["gradient_cosine"] == pytest.approx([1] * aligned.depth)


class DeepLinear(nn.Module):
    def __init__(self, width: int, depth: int, outputs: int) -> None:
        super().__init__()
        self.embed = nn.Linear(7, width, bias=False)
        self.blocks = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.head = nn.Linear(width, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def outside(matrix: Tensor, rows: Tensor) -> float:
    """Share of a matrix's rows that lies outside the span of other rows."""
    basis = torch.linalg.qr(rows.T).Q
    return float((matrix - matrix @ basis @ basis.T).norm() / matrix.norm())


def test_dfa_from_zero_keeps_every_weight_in_the_span_of_its_feedback() -> None:
    model = DeepLinear(width=12, depth=3, outputs=3).double()
    params = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    x, target = (torch.randn(40, k, generator=seeded_generator(k), dtype=torch.float64) for k in (7, 3))
    task = Task.of(Blocks.of(model), squared_error, x[:2])
    feedback = DirectFeedback().init(task, params, seeded_generator())
    for _ in range(60):
        grads = assign(DirectFeedback(), task, params, feedback, Batch(x, target), None).grads
        params = {name: p - 0.05 * grads[name] for name, p in params.items()}
    for level in range(3):
        weight = params[f"blocks.{level}.weight"]
        assert float(weight.norm()) > 1e-3
        # What comes out lies in the span of B_l, what is read in that of B_{l−1} (block 0 reads the embedding: B_0).
        assert outside(weight.T, feedback[f"B.{level}"]) < 1e-12
        assert outside(weight, feedback[f"B.{max(level - 1, 0)}"]) < 1e-12
    assert outside(params["embed.weight"].T, feedback["B.0"]) < 1e-12
    assert outside(params["head.weight"], feedback["B.2"]) < 1e-12


def test_kolen_pollack_weights_and_feedback_meet_at_the_rate_of_decay() -> None:
    rng = np.random.default_rng(0)
    lr, decay = 0.05, 0.3
    weight, feedback = rng.normal(size=(2, 6, 4))
    start = np.linalg.norm(weight - feedback)
    for step in range(1, 101):
        update = rng.normal(size=(6, 4))  # whatever it is, both get the same
        weight = weight - lr * (update + decay * weight)
        feedback = feedback - lr * (update + decay * feedback)
        assert np.linalg.norm(weight - feedback) == pytest.approx(start * (1 - lr * decay) ** step, rel=1e-10)


class TwoLayers(nn.Module):
    """30-20-10, linear; the block hands its state on so that there is one to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(30, 20, bias=False)
        self.middle = nn.Identity()
        self.head = nn.Linear(20, 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.middle(self.embed(x)))


def train_linear_map(seed: int) -> tuple[list[float], tuple[Tensor, Tensor]]:
    """Angles in degrees before and after 100 steps, and the cosines once the targets are the outputs."""
    generator = seeded_generator(seed)
    model = TwoLayers().double()

    def uniform(like: Tensor, bound: float) -> Tensor:
        return torch.empty_like(like).uniform_(-bound, bound, generator=generator)

    params = {name: uniform(p.detach(), 0.1) for name, p in model.named_parameters()}
    teacher = uniform(torch.empty(10, 30, dtype=torch.float64), 1.0)
    feedback = {"B.head": uniform(params["head.weight"], 0.5)}
    x = torch.randn(1000, 30, generator=generator, dtype=torch.float64)
    task = Task.of(Blocks.of(model, ["middle"]), squared_error, x[:2])
    rule, batch = FeedbackAlignment(), Batch(x, x @ teacher.T)

    def look(batch: Batch) -> tuple[Tensor, Tensor]:
        seen = observe(task, params, rule, feedback, batch)
        assert seen.delivered is not None
        return cosines(seen.delivered[0], seen.references[0])

    angles = [math.degrees(math.acos(mean_defined(*look(batch))[0]))]
    for _ in range(100):
        grads = assign(rule, task, params, feedback, batch, None).grads
        params = {name: p - 0.05 * grads[name] for name, p in params.items()}
    angles.append(math.degrees(math.acos(mean_defined(*look(batch))[0])))
    fitted = task.blocks.forward(params, x).logits
    return angles, look(Batch(x, fitted))


def test_feedback_alignment_aligns_a_linear_map_until_there_is_no_error() -> None:
    runs = [train_linear_map(seed) for seed in range(10, 18)]
    angles = np.array([angles for angles, _ in runs])
    assert np.all((angles[:, 0] > 60) & (angles[:, 0] < 110))
    assert np.all((angles[:, 1] > 22) & (angles[:, 1] < 42))
    assert angles[:, 1].mean() == pytest.approx(32, abs=3)
    # A random start lies at 90° on average; one of these begins near 80°.
    near = angles[np.abs(angles[:, 0] - 80).argmin()]
    assert near[0] == pytest.approx(80, abs=5)
    assert near[1] == pytest.approx(32, abs=6)
    # No error, no credit, no gradient: a zero vector, not an angle of 0.
    for _, (value, defined) in runs:
        assert not bool(defined.any())
        assert bool(value.isnan().all())


def test_behind_a_terminal_layer_norm_the_gradient_shrinks_as_the_stream_grows() -> None:
    model = resmlp(width=16)
    model.out_ln.eps = 0.0
    batch = batch_of((5,), 4, n=20)
    task, params = task_of(model, batch.x), params_of(model)
    top = observe(task, params, None, {}, batch).states[-1]

    def gradient(h: Tensor) -> Tensor:
        h = h.clone().requires_grad_()
        loss = functional.cross_entropy(task.blocks.tail(params, 3, h, batch.x), batch.y, reduction="sum")
        return torch.autograd.grad(loss, h)[0]

    once = gradient(top)
    for factor in (1e-3, 7.0, 1e9):
        larger = gradient(factor * top)
        np.testing.assert_allclose(larger.norm(dim=1) * factor, once.norm(dim=1), rtol=1e-9)
        np.testing.assert_allclose(cosines(larger, once)[0], 1, rtol=1e-12)
    assert float(cosines(once, top)[0].abs().max()) < 1e-12


def test_the_spread_of_the_fresh_feedback_null_follows_from_error_and_gradient() -> None:
    snapshot = mlp_snapshot("dfa", n=200, width=64, inputs=5)
    got = FeedbackNull(999).measure(snapshot).values["null"]
    e = snapshot.observation.error / snapshot.observation.error.norm(dim=1, keepdim=True)
    for level, reference in enumerate(snapshot.observation.references):
        g = reference / reference.norm(dim=1, keepdim=True)
        common = torch.einsum("nc,nd->cd", e, g) / len(e)
        assert got.sd[level] == pytest.approx(float(common.norm()) / 8, rel=0.1)  # √64
        assert abs(got.mean[level]) < 4 * got.sd[level] / math.sqrt(999)


@pytest.mark.parametrize("rule", [DirectFeedback(), Normalised(DirectFeedback()), BlockFeedback(), Backprop()])
def test_rho_tends_to_the_norm_weighted_cosine(rule) -> None:
    snapshot = snapshot_of(resmlp(width=12), rule, (5,), 4, n=100)
    rho = RhoProbe(100).measure(snapshot).values["rho"]
    for level, (c, g) in enumerate(zip(snapshot.delivered, snapshot.observation.references, strict=True)):
        limit = float((c * g).sum() / (c.square().sum() * g.square().sum()).sqrt())
        assert rho.credit[level] == pytest.approx(limit, abs=0.03)


@pytest.mark.parametrize("batch", [8, 128, 1000])
def test_the_drift_law(batch: int) -> None:
    """‖μ‖²/E‖mean of N‖² is s/(s + 1/N): counted on many batches against s from single samples."""
    rng = np.random.default_rng(batch)
    d, mu = 50, np.full(50, 0.08)
    means = mu + rng.normal(size=(4000, d)) / math.sqrt(batch)  # the mean of N unit Gaussians, drawn as such
    counted = (mu @ mu) / (means**2).sum(1).mean()
    s = drift_ratio(torch.tensor(mu + rng.normal(size=(20_000, d)))).s
    assert float(drift_at(s, batch)) == pytest.approx(counted, rel=0.06)


def test_torchs_self_cosine_of_tiny_vectors_is_one_hundredth() -> None:
    vectors = torch.randn(20, 256, generator=seeded_generator(), dtype=torch.float64)
    vectors = vectors / vectors.norm(dim=1, keepdim=True) * 1e-9
    np.testing.assert_allclose(functional.cosine_similarity(vectors, vectors), 0.01, rtol=1e-9)
    np.testing.assert_allclose(cosines(vectors, vectors)[0], 1, rtol=1e-14)


def test_the_reference_net_starts_where_the_recipe_says() -> None:
    """Unit-variance inputs stand in for the images: at initialisation only their mean square enters these values."""
    values = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = ResMLP((3, 32, 32), 10, width=256, depth=4)
        # Another seed than the weights': one seed for both would correlate them (‖h_0‖ reads 14).
        x = torch.randn(256, 3, 32, 32, generator=seeded_generator(1000 + seed))
        y = torch.randint(10, (256,), generator=seeded_generator(2000 + seed))
        snapshot = snapshot_of(model, Backprop(), (3, 32, 32), 10)
        seen = replace(snapshot, probe=Batch(x, y)).observation
        hidden = norm_stats(torch.stack([vector_norms(h) for h in seen.states])).median
        ratios = [
            float((vector_norms(f) / vector_norms(h)).median())
            for f, h in zip(seen.branches, seen.states[:-1], strict=True)
        ]
        kept = float(cosines(seen.states[4], seen.states[0])[0].median())
        top = float(vector_norms(seen.references[4]).median()) / 128
        values.append([float(hidden[0]), ratios[0], kept, top])
    first, branch, kept, top = np.mean(values, axis=0)
    assert first == pytest.approx(9, abs=0.5)
    assert branch == pytest.approx(0.095, abs=0.01)
    assert kept == pytest.approx(0.98, abs=0.01)
    assert top == pytest.approx(8e-3, rel=0.15)
