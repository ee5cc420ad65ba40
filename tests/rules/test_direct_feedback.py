"""Direct feedback alignment: what is drawn, and what each state receives."""

import math

import numpy as np
import pytest
import torch
from cases.models import CONV_BLOCKS, batch_of, conv_net, params_of, resmlp, seeded_generator, task_of, vit

from creditscope.errors import BadInput
from creditscope.rules.direct_feedback import DirectFeedback
from creditscope.rules.wrappers import Normalised


def case(model, shape, classes, where=None, n=3):
    batch = batch_of(shape, classes, n)
    return task_of(model, batch.x, where), params_of(model), batch


def error_of(task, params, batch):
    logits = task.blocks.forward(params, batch.x).logits
    return logits.softmax(1) - torch.eye(task.outputs, dtype=torch.float64)[batch.y]


@pytest.mark.parametrize("norm", ["none", "rms"])
def test_the_embedding_gets_the_credit_of_block_0(norm):
    task, params, batch = case(resmlp(), (5,), 4)
    rule = DirectFeedback() if norm == "none" else Normalised(DirectFeedback())
    feedback = rule.init(task, params, seeded_generator())
    credit = rule.deliver(task, params, feedback, batch)
    assert set(feedback) == {"B.0", "B.1", "B.2"}
    assert torch.equal(credit[0], credit[1])
    e = error_of(task, params, batch)
    for level in range(3):
        wanted = e @ feedback[f"B.{level}"]
        if norm == "rms":
            wanted = wanted / (wanted.square().sum(1, keepdim=True) / 6).sqrt()
        np.testing.assert_allclose(credit[level + 1], wanted, rtol=1e-5)


def test_rms_divides_every_sample_by_its_own_size():
    task, params, batch = case(resmlp(width=32), (5,), 4, n=8)
    feedback = Normalised(DirectFeedback()).init(task, params, seeded_generator())
    classic = DirectFeedback().deliver(task, params, feedback, batch)
    normed = Normalised(DirectFeedback()).deliver(task, params, feedback, batch)
    for c, m in zip(classic, normed, strict=True):
        rms = np.sqrt((c.numpy() ** 2).mean(1))
        assert rms.max() / rms.min() > 1.5, "the samples must differ in size for this test to say anything"
        np.testing.assert_allclose(m, c.numpy() / (rms[:, None] + 1e-6), rtol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(m, axis=1), math.sqrt(32), rtol=1e-3)


def test_entries_have_variance_one_over_classes():
    task, params, _ = case(resmlp(width=200, classes=10), (5,), 10)
    drawn = torch.cat([b.flatten() for b in DirectFeedback().init(task, params, seeded_generator()).values()])
    n = drawn.numel()
    # Bounds of about five standard errors of the mean and of the variance.
    assert abs(float(drawn.mean())) < 5 * math.sqrt(0.1 / n)
    assert abs(float(drawn.var()) - 0.1) < 5 * 0.1 * math.sqrt(2 / n)


def test_every_token_receives_the_same_credit():
    task, params, batch = case(vit(), (2, 8, 8), 3)
    rule = DirectFeedback()
    feedback = rule.init(task, params, seeded_generator())
    assert all(tuple(b.shape) == (3, 8) for b in feedback.values())
    wanted = error_of(task, params, batch) @ feedback["B.1"]
    for token in range(5):
        np.testing.assert_allclose(rule.deliver(task, params, feedback, batch)[2][:, token], wanted, rtol=1e-10)


def test_a_feature_map_receives_its_own_entry_everywhere():
    task, params, batch = case(conv_net(), (1, 4, 4), 3, CONV_BLOCKS)
    rule = DirectFeedback()
    feedback = rule.init(task, params, seeded_generator())
    assert {name: tuple(b.shape) for name, b in feedback.items()} == {"B.0": (3, 48), "B.1": (3, 8), "B.2": (3, 5)}
    credit = rule.deliver(task, params, feedback, batch)
    e = error_of(task, params, batch)
    np.testing.assert_allclose(credit[2].flatten(1), e @ feedback["B.1"], rtol=1e-10)


def test_an_embedding_of_another_shape_has_its_own_matrix_drawn_last():
    model = conv_net()
    task, params, batch = case(model, (1, 4, 4), 3, ("down", "flat"))
    rule = DirectFeedback()
    feedback = rule.init(task, params, seeded_generator())
    assert {name: tuple(b.shape) for name, b in feedback.items()} == {
        "B.0": (3, 8),
        "B.1": (3, 5),
        "B.embedding": (3, 48),
    }
    first = torch.randn(3, 8, generator=seeded_generator(), dtype=torch.float64) / math.sqrt(3)
    np.testing.assert_allclose(feedback["B.0"], first, rtol=1e-14)
    credit = rule.deliver(task, params, feedback, batch)
    e = error_of(task, params, batch)
    np.testing.assert_allclose(credit[0].flatten(1), e @ feedback["B.embedding"], rtol=1e-10)
    np.testing.assert_allclose(credit[1].flatten(1), e @ feedback["B.0"], rtol=1e-10)


def test_the_log_says_when_credit_is_normalised():
    assert "divided by its RMS per sample" in Normalised(DirectFeedback()).injection
    assert "RMS" not in DirectFeedback().injection


def test_an_embedding_with_feedback_of_its_own_gets_another_credit():
    task, params, batch = case(resmlp(), (5,), 4)
    rule = DirectFeedback(own_embedding=True)
    feedback = rule.init(task, params, seeded_generator())
    credit, e = rule.deliver(task, params, feedback, batch), error_of(task, params, batch)
    np.testing.assert_allclose(credit[0], e @ feedback["B.embedding"], rtol=1e-5)
    np.testing.assert_allclose(credit[1], e @ feedback["B.0"], rtol=1e-5)
    shared = DirectFeedback().init(task, params, seeded_generator())
    assert torch.equal(feedback["B.0"], shared["B.0"])  # the blocks are served as before
    assert rule.redraw(task, params, feedback)(seeded_generator(), 3)["B.embedding"].shape == (3, 4, 6)


def test_scale_and_distribution_of_the_feedback():
    task, params, _ = case(resmlp(), (5,), 4)
    plain = DirectFeedback().init(task, params, seeded_generator())
    large = DirectFeedback(scale=3.0).init(task, params, seeded_generator())
    assert all(torch.allclose(large[name], 3 * plain[name]) for name in plain)
    even = DirectFeedback(dist="uniform").redraw(task, params, plain)(seeded_generator(), 4000)["B.0"]
    bound = math.sqrt(3 / 4)  # of a uniform distribution of variance 1/4
    assert bound * 0.999 < float(even.abs().max()) <= bound
    assert float(even.var()) == pytest.approx(1 / 4, rel=0.02)
    with pytest.raises(BadInput, match="option dist: did you mean 'uniform'"):
        DirectFeedback(dist="unform")
