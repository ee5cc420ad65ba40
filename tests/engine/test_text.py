"""Text in a fleet: scores and rows by hand, alone = in company, resume, and every rule on it."""

import json

import numpy as np
import pytest
import torch
from cases.fleets import CPU, spec

from creditscope.data.order import random_targets
from creditscope.data.text import text_dataset
from creditscope.engine.fleet import Fleet
from creditscope.engine.loop import FleetLoop
from creditscope.engine.start import default_model
from creditscope.errors import BadInput
from creditscope.execution.context import Quiet
from creditscope.plans.presets import PRESETS, build_specs
from creditscope.protocol.accuracies import judged_chance, side_of
from creditscope.protocol.audit import audit
from creditscope.records import ProbeSpec, RunLog

WORDS = "and the earth was without form, and void; and darkness was upon the face of the deep. "
TEXT = text_dataset("words", WORDS * 40, "words.txt")
METHODS = ("bp", "dfa", "dfa-rms", "fa", "usf", "kp", "drtp", "bp@frozen", "dfa@readout")


def text_spec(method, **changes):
    fields = {
        "model": "gpt-mini",
        "width": 4,
        "depth": 2,
        "view": "all",
        "batch": 6,
        "epochs": 2,
        "architecture": {"heads": 2, "ratio": 1},
        "probe": ProbeSpec(n=3, batch=2, epochs=(), redraws=19, directions=2),
    }
    return spec(method, TEXT, **(fields | changes))


def fleet(specs):
    return Fleet(specs, TEXT, default_model, CPU)


def params(made, run):
    return {name: p[run] for name, p in made.params.items()}


@pytest.fixture(scope="module")
def company():
    made = fleet([text_spec(method) for method in METHODS])
    for epoch in (1, 2):
        made.train_epoch(epoch)
    return made


@pytest.mark.parametrize("method", ["bp", "dfa-rms", "kp"])
def test_a_run_alone_and_in_company_agree(company, method):
    (run,) = [at for at, each in enumerate(company.specs) if each.method == method]
    alone = fleet([text_spec(method)])
    for epoch in (1, 2):
        alone.train_epoch(epoch)
    for name, p in params(company, run).items():
        torch.testing.assert_close(p, alone.params[name][0], rtol=1e-9, atol=1e-12)


def test_frozen_blocks_stay_and_readout_trains_nothing_else(company):
    for run, each in enumerate(company.specs):
        moved = {n for n, p in params(company, run).items() if not torch.equal(p, company.init[n][run])}
        if each.train_last == 0:
            assert not any(name.startswith("blocks.") for name in moved)
            assert ("embed.weight" in moved) == (each.train_embedding is not False)
        else:
            assert moved == set(company.params)


def test_scores_are_token_by_token_those_of_the_plain_model(company):
    scores = company.evaluate()
    for run in (0, len(METHODS) - 1):
        model = default_model(company.specs[run], TEXT).double()
        model.load_state_dict(params(company, run))
        logits = model(TEXT.x_test).detach()
        right = logits.argmax(-1) == TEXT.y_test
        assert scores.correct[run].tolist() == right.sum(1).tolist()
        assert float(scores.accuracy[run]) == float(right.double().mean())
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), TEXT.y_test.flatten())
        assert float(scores.loss[run]) == pytest.approx(float(loss), rel=1e-12)
        each = [right[TEXT.y_test == c].double().mean() for c in TEXT.y_test.unique()]
        assert float(scores.balanced[run]) == pytest.approx(float(sum(each) / len(each)), rel=1e-12)


def loop(folder, specs, resume=False, on_row=lambda header, row: None):
    FleetLoop(fleet(specs), folder, on_row, Quiet()).run(resume)
    return [RunLog.read(folder / f"{one.run_id}.jsonl") for one in specs]


def rows(path):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.startswith("time_")} for row in found]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, loop(folder, [text_spec(method) for method in ("bp", "dfa", "kp")])


def test_the_log_says_how_many_tokens_of_each_sequence_are_right(whole):
    log = whole[1][1]
    assert log.spec.data.tokens == 64
    right = np.frombuffer(bytes.fromhex(log.end.right), dtype=">u2")
    assert len(right) == log.end.n_test == len(TEXT.x_test)
    assert log.end.correct is None
    assert right.sum() / (64 * len(right)) == pytest.approx(log.end.test_accuracy, abs=1e-12)


def test_the_judge_clusters_by_sequence_and_takes_the_most_frequent_character_for_chance(whole):
    log = whole[1][0]
    runs, side = side_of([log])
    right = np.frombuffer(bytes.fromhex(log.end.right), dtype=">u2")
    assert runs == (log,)
    np.testing.assert_array_equal(side.score, [right / 64])
    assert side.images == len(right)
    assert side.accuracy == (log.end.test_accuracy,)
    assert judged_chance(log.spec) == max(TEXT.spec.class_counts) / sum(TEXT.spec.class_counts)


def test_learning_says_the_nats_beside_those_of_the_unigram(whole):
    (claim,) = audit([whole[1][0]]).claims
    (learning,) = [outcome for outcome in claim.outcomes if outcome.name == "learning"]
    loss, chance = whole[1][0].last.test_loss, judged_chance(whole[1][0].spec)
    assert f"from chance ({chance:.4f})" in learning.reason
    assert f"{loss:.3f} nats per token, the unigram {TEXT.spec.unigram:.3f}" in learning.reason
    assert "balanced" not in learning.reason


def test_the_expensive_set_is_measured_on_text(whole):
    probe = whole[1][1].probes[-1]
    assert probe.not_measured == {}
    assert probe.null.redraws == 19
    assert len(probe.idle.change) == 2
    assert probe.ladder.n == len(TEXT.x_test) == 5
    assert probe.probe_accuracy is not None


def test_interrupted_and_resumed_gives_the_same_log(tmp_path, whole):
    specs = [text_spec(method) for method in ("bp", "dfa", "kp")]

    def stop(header, row):
        if row.kind == "epoch" and row.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path, specs, on_row=stop)
    loop(tmp_path, specs, resume=True)
    for each in specs:
        assert rows(tmp_path / f"{each.run_id}.jsonl") == rows(whole[0] / f"{each.run_id}.jsonl")


def test_random_targets_are_one_for_each_token():
    made = fleet([text_spec("bp", targets="random", seed=4)])
    assert torch.equal(made.draws.targets[0].flatten(), random_targets(4, TEXT.y_train.numel(), TEXT.classes))
    assert made.draws.next_batch().y.shape == (1, 6, 64)


@pytest.mark.parametrize(
    "name", ["bp", "fa", "fa-block", "dfa", "usf", "brsf", "frsf", "kp", "wm", "drtp", "sdfa", "dkp"]
)
def test_every_one_of_these_rules_trains_it(name):
    made = fleet([text_spec(name, epochs=1)])
    loss = made.train_epoch(1, steps=1)
    assert bool(loss.isfinite().all())
    assert any(not torch.equal(p, made.init[n]) for n, p in made.params.items() if n.startswith("blocks."))


@pytest.mark.parametrize(
    ("changes", "data", "message"),
    [
        ({}, TEXT.spec, "model=resmlp: resmlp reads images or vectors, and 'words' is text; choose gpt-mini"),
        (
            {"model": "gpt-mini"},
            TEXT.spec.model_copy(update={"tokens": None}),
            "gpt-mini reads text, and 'words' is none; choose king-james or a .txt file of your own",
        ),
    ],
)
def test_a_model_that_cannot_read_the_data_is_refused(changes, data, message):
    with pytest.raises(BadInput) as caught:
        build_specs(PRESETS["demo"], data, TEXT.classes, ["bp"], (1,), changes)
    assert message in str(caught.value).replace("changes['model']='", "model=").replace("': ", ": ")
