"""Each misleading case: what the usual pair says, what we say, and its numbers computed another way."""

import gzip
import json
from pathlib import Path
from statistics import fmean

import make_misleading
import misleading_cases
import pytest
import torch

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "cifar10-h200"


@pytest.fixture(scope="module")
def cases():
    return {case.stem: case for case in misleading_cases.cases()}


def plain(pattern, kind="epoch"):
    """The rows of the one log that a pattern names, without the library."""
    (path,) = RESULTS.glob(pattern)
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return [row for row in rows if row["kind"] == kind]


def seeds(method):
    """The rows of every run of a method over 100 epochs, under a terminal LayerNorm."""
    found = []
    for path in sorted(RESULTS.glob(f"{method}-s*")):
        header = json.loads(gzip.decompress(path.read_bytes()).splitlines()[0])["spec"]
        if (header["epochs"], header["terminal_ln"]) == (100, True):
            found.append(plain(path.name))
    assert len(found) == 3
    return found


WORDS = {
    "both-zero": ("looks like learning", "**direction fires**"),
    "layer-zero": ("looks like learning", "**direction fires**"),
    "last-block": ("does not learn", "**direction fires**"),
    "clamp": ("learns, but not by its credit", "The cosine is 1, without a clamp"),
    "mismatched-baseline": ("looks like learning", "depth is *not measured*"),
    "dead-blocks": ("looks like learning", "**movement fires**"),
    "leaked-gradients": ("looks like learning", "finds a **leak**"),
}


@pytest.mark.parametrize("stem", WORDS)
def test_what_the_usual_pair_says_and_what_we_say(cases, stem):
    usual, ours = WORDS[stem]
    assert cases[stem].usual == usual
    assert ours in cases[stem].ours


def test_every_case_has_words_and_a_picture_of_todays_values(cases):
    assert list(cases) == list(WORDS)
    pictures = ROOT / "docs" / "figures" / "gallery"
    assert {path.stem for path in pictures.glob("*.png")} == set(WORDS)
    assert (pictures / "values.csv").read_text(encoding="utf-8") == make_misleading.values(), "run make_misleading.py"


def test_the_words_of_the_pair_can_say_no(cases):
    from dataclasses import replace

    assert replace(cases["clamp"], accuracy=0.09).usual == "does not learn"


def test_both_zero_by_counting_fitted_samples(cases):
    """A sample has no gradient exactly where its hinge loss is 0; the rest follows by hand."""
    fitted = []
    for seed in range(3):
        model, _ = misleading_cases._net(seed)
        misleading_cases._train(model, lambda net, x, y: misleading_cases._hinge(net(x), y).mean().backward(), epochs=2)
        x, y = (tensor[:256] for tensor in misleading_cases._images()[1])  # the samples of an epoch's cosines
        fitted.append(float((misleading_cases._hinge(model(x), y) == 0).double().mean()))
    share = fmean(fitted)
    case = cases["both-zero"]
    assert f"{100 * share:.0f} % of the samples are `zero-vector`" in case.ours
    true = case.beneath.values["where it is defined"]
    # The shares of the nets hardly differ, so that the mean of products is nearly the product of means.
    assert max(fitted) - min(fitted) < 0.06
    assert case.cosine == pytest.approx(share + (1 - share) * true, abs=0.005)
    assert case.cosine > 0.4
    assert abs(true) < 0.1


def test_the_layers_of_the_two_means_against_plain_json(cases):
    trained, untrained = (
        [fmean(rows[row]["cosine_published"]["mean"][layer] for rows in seeds(method)) for layer in range(4)]
        for method, row in (("dfa-rms", -1), ("fa-block", 0))
    )
    for stem, cosines in (("layer-zero", trained), ("last-block", untrained)):
        assert list(cases[stem].beneath.values.values()) == pytest.approx(cosines)
        assert cases[stem].cosine == pytest.approx(fmean(cosines))
    assert trained[0] > 10 * max(map(abs, trained[1:]))
    assert untrained[3] > 10 * max(map(abs, untrained[:3]))


def test_the_clamp_by_its_formula(cases):
    norm = fmean(rows[-1]["reference"]["median"][-1] for rows in seeds("dfa-rms"))
    for label, value in cases["clamp"].beneath.values.items():
        n = int(label.removeprefix("N = "))
        assert value == pytest.approx(min(1.0, norm / n / 1e-8), rel=1e-9)


def test_the_margins_against_plain_json(cases):
    def mean(method):
        return fmean(rows[-1]["test_accuracy"] for rows in seeds(method))

    case = cases["mismatched-baseline"]
    ours, twin, other = (mean(method) for method in ("dfa", "dfa@frozen", "bp@frozen"))
    assert list(case.beneath.values.values()) == pytest.approx([ours, twin, other])
    assert f"over dfa@frozen {100 * (ours - twin):+.2f} pp" in case.ours
    assert case.also.startswith(f"but {100 * (other - ours):.1f} pp worse")


def test_the_movement_of_dead_blocks_is_decay_alone(cases):
    steps = 3 * (len(misleading_cases._images()[0][0]) // 64)
    shrunk = 1 - (1 - 3e-3 * 0.1) ** steps
    *naive, apart = cases["dead-blocks"].beneath.values.values()
    assert naive == pytest.approx([shrunk] * 3, rel=1e-9)
    assert apart == misleading_cases.ROUNDING
    assert cases["dead-blocks"].cosine == pytest.approx(1.0)


def test_the_leak_is_named_and_the_careful_rule_is_not_accused(cases):
    case = cases["leaked-gradients"]
    careful, leaky = case.beneath.values.values()
    assert leaky > careful + 0.2
    assert "As meant, the rule is local" in case.ours


def test_the_computation_leaves_torch_as_it_found_it():
    threads, dtype, state = torch.get_num_threads(), torch.get_default_dtype(), torch.get_rng_state()
    misleading_cases._net()
    misleading_cases.cases()
    assert (torch.get_num_threads(), torch.get_default_dtype()) == (threads, dtype)
    assert torch.equal(torch.get_rng_state(), state)
