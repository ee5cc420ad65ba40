"""A method judged in one call: its controls against the same trainings by hand, refusals, and a kill in the middle."""

import json
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scope.nets import FeedbackNet, Net, samples, train
from torch import nn

import creditscope as cs
from creditscope.errors import BadInput, CannotWrite
from creditscope.scope.fingerprint import fingerprint

DATA = (samples(96), samples(200, seed=2))
FAST = {"redraws": 19, "directions": 2, "seeds": 2}
BLOCKS = [f"blocks.{i}" for i in range(3)]


def build(seed):
    return Net(seed=seed)


def fit(model, data, seed):
    train(model, *data[0], steps=20)


def verdicts(audit):
    return {cell.cell.method: str(cell.verdict.kind) for cell in audit.claims}


def accuracy(model, x, y):
    with torch.no_grad():
        return float((model.eval()(x).argmax(1) == y).double().mean())


def by_hand(seed, frozen):
    torch.manual_seed(seed)
    model = build(seed)
    for name, p in model.named_parameters():
        p.requires_grad_(not name.startswith(frozen))
    torch.manual_seed(seed)
    return accuracy(train(model, *DATA[0], steps=20), *DATA[1])


def test_every_control_is_what_the_same_training_gives_by_hand():
    audit = cs.judge(build, fit, DATA, rule="bp", **FAST)
    frozen = {"bp": (), "bp@frozen": ("blocks",), "bp@readout": ("blocks", "embed")}
    found = {(log.spec.method, log.spec.seed): log.end.test_accuracy for log in audit.logs}
    assert found == {(name, seed): by_hand(seed, parts) for name, parts in frozen.items() for seed in (0, 1)}
    # Backprop is its own positive control, and the twins are known to match.
    assert audit.claims[0].cell.related.control == audit.claims[0].cell.runs
    depth = next(o for o in audit.claims[0].outcomes if o.name == "depth")
    assert [o["method"] for o in depth.baseline["opponents"]] == ["bp@frozen", "bp@readout"]
    assert all(o["matched"] for o in depth.baseline["opponents"])


def test_without_fit_backprop_there_is_no_positive_control_and_with_it_there_is():
    data = (samples(96), samples(200, seed=2))
    credit = partial(cs.backward_credit, feedback=FeedbackNet().feedback_names, redraws=19)

    def made(seed):
        return FeedbackNet(seed=seed)

    def exact(model, data, seed):
        for module in model.modules():
            if hasattr(module, "feedback"):
                module.forward = partial(nn.Linear.forward, module)
        fit(model, data, seed)

    alone = cs.judge(made, fit, data, BLOCKS, credit, name="my-fa", **FAST)
    assert [cell.cell.method for cell in alone.cells] == ["my-fa", "my-fa@frozen", "my-fa@readout"]
    related = alone.claims[0].cell.related
    assert (related.control, related.control_frozen) == ((), ())
    assert alone.logs[0].probes[0].null.redraws == 19
    both = cs.judge(made, fit, data, BLOCKS, credit, exact, name="my-fa", **FAST)
    assert [cell.cell.method for cell in both.claims] == ["my-fa", "bp"]
    assert [str(o.ruling) for o in both.claims[1].outcomes if o.name == "direction"] == ["not applicable"]
    related = both.claims[0].cell.related
    assert [log.name for log in related.control] == ["bp-s0.jsonl", "bp-s1.jsonl"]
    assert [log.name for log in related.control_frozen] == ["bp@frozen-s0.jsonl", "bp@frozen-s1.jsonl"]
    # The claim's own numbers do not depend on whether a control is trained beside it.
    assert both.logs[0].epochs == alone.logs[0].epochs


def test_randomness_of_the_process_is_as_before():
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()

    def noisy(model, data, seed):
        torch.rand(1), np.random.rand(), random.random()
        fit(model, data, seed)

    cs.judge(build, noisy, DATA, rule="bp", seeds=[0], redraws=19, directions=2)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])
    assert before[2] == random.getstate()


def trains_all(model, data, seed):
    model.requires_grad_(True)
    fit(model, data, seed)


def writes_by_hand(model, data, seed):
    with torch.no_grad():
        model.blocks[1].linear.weight[0, 0] += 1e-7
    fit(model, data, seed)


def returns_another(model, data, seed):
    return build(seed + 1)


def unseeded(seed):
    return Net(seed=random.SystemRandom().randrange(2**30))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fit": trains_all}, r"fit trained blocks\.0\.\S+ in trains_all@frozen-s0.*requires_grad is False"),
        ({"fit": writes_by_hand}, r"fit trained blocks\.1\.linear\.weight in writes_by_hand@frozen-s0"),
        ({"fit": returns_another}, "fit returned another model"),
        ({"build": unseeded}, r"build\(0\) gave other weights when called again"),
        ({"build": lambda seed: "net"}, "wanted a torch.nn.Module as the model, got str"),
        ({"rule": "dfa"}, "wanted rule as 'bp' or a function of the model"),
        ({"rule": "bp", "name": "mine"}, "wanted no name beside rule='bp'"),
        ({"name": "bp"}, "a method called bp is taken for backprop"),
        ({"blocks": nn.ModuleList()}, "wanted blocks by name"),
        ({"blocks": ["blocks.7"]}, "the model has no block 'blocks.7'; did you mean"),
        ({"data": DATA[0]}, "wanted data as a pair"),
        ({"data": 3}, "wanted data as a pair .* got a int"),
        ({"seeds": 0}, "wanted seeds as a number of at least 1"),
        ({"seeds": [1, 1]}, "wanted seeds"),
        ({"seeds": [True]}, "wanted seeds"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_name(change, said):
    asked = {"build": build, "fit": fit, "data": DATA, "seeds": [0], "redraws": 0, "directions": 0} | change
    with pytest.raises(BadInput, match=said):
        cs.judge(**asked)


def test_an_error_of_the_users_own_code_says_in_which_run():
    def broken(model, data, seed):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        cs.judge(build, broken, DATA, seeds=[4])
    assert raised.value.__notes__ == ["creditscope: in the run broken-s4"]


def test_data_may_be_an_object_with_its_test_part():
    class Held:
        test = DATA[1]
        train = DATA[0]

    def fitted(model, data, seed):
        train(model, *data.train, steps=2)

    held = cs.judge(build, fitted, Held(), rule="bp", seeds=[0], redraws=0, directions=0)
    assert held.logs[0].end.n_test == len(DATA[1][0])


KILLED = """
import os, signal, sys
from scope.nets import Net, samples, train
import creditscope as cs

def build(seed):
    return Net(seed=seed)

def fit(model, data, seed):
    with open(os.environ["COUNT"], "a") as file:
        file.write("x")
    if os.path.getsize(os.environ["COUNT"]) == int(os.environ["KILL_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    train(model, *data[0], steps=3)

data = (samples(64), samples(64, seed=2))
audit = cs.judge(build, fit, data, rule="bp", seeds=2, redraws=19, directions=2, out=sys.argv[1])
sys.stdout.write(audit.to_text())
"""


def ran(folder, count, kill_at):
    tests = str(Path(__file__).parents[1])
    paths = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    given = os.environ | {"PYTHONPATH": paths, "COUNT": str(count), "KILL_AT": str(kill_at), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(folder)], env=given, capture_output=True, text=True, check=False
    )


def test_a_call_that_is_killed_goes_on_where_it_was(tmp_path):
    whole = ran(tmp_path / "whole", tmp_path / "one", 99)
    killed = ran(tmp_path / "runs", tmp_path / "two", 4)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(p.name for p in (tmp_path / "runs").glob("*.jsonl")) == [
        "bp-s0.jsonl",
        "bp@frozen-s0.jsonl",
        "bp@readout-s0.jsonl",
    ]
    again = ran(tmp_path / "runs", tmp_path / "two", 99)
    assert (again.returncode, again.stderr, again.stdout) == (0, "", whole.stdout)
    assert whole.stdout.startswith("Protocol standard")
    assert ((tmp_path / "one").read_text(), (tmp_path / "two").read_text()) == ("x" * 6, "x" * 7)


def test_logs_of_other_code_are_never_taken_for_these(tmp_path):
    asked = {"rule": "bp", "seeds": [0], "redraws": 0, "directions": 0, "out": tmp_path}
    first = cs.judge(build, fit, DATA, **asked)
    assert cs.judge(build, fit, DATA, **asked).to_dict() == first.to_dict()
    assert {log.name for log in cs.load_logs([tmp_path]).logs} == {log.name for log in first.logs}
    for change in ({"fit": partial(fit)}, {"data": (samples(97), DATA[1])}, {"directions": 1}, {"build": trains_all}):
        with pytest.raises(BadInput, match=r"bp-s0\.jsonl was trained by other code, data or settings.*choose another"):
            cs.judge(**({"build": build, "fit": fit, "data": DATA} | asked | change))
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="cannot be made"):
        cs.judge(build, fit, DATA, **asked | {"out": tmp_path / "file"})


RATE = 0.1


def rated(model):
    return helper(model) * RATE


def helper(model):
    return 2


def test_a_fingerprint_follows_what_a_function_depends_on(monkeypatch):
    one = fingerprint(rated)
    assert fingerprint(rated) == one
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "RATE", 0.2)
        assert fingerprint(rated) != one
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "helper", accuracy)
        assert fingerprint(rated) != one

    def closed(value):
        return lambda: value

    made = [fingerprint(closed(value)) for value in (1, 2, torch.zeros(2), torch.ones(2), torch.zeros(2).double())]
    assert len(set(made)) == len(made)
    assert fingerprint(closed(2)) == made[1]
    assert fingerprint(exec_made("1")) != fingerprint(exec_made("2"))
    assert fingerprint(np.zeros(3)) != fingerprint(np.zeros((3, 1)))
    ring = []
    ring.append(ring)
    assert fingerprint(ring) == fingerprint(ring)


def exec_made(text):
    named = {}
    exec(f"def made(model): return {text}", named)
    return named["made"]


def test_the_logs_say_what_was_not_measured_after_a_resume_too(tmp_path):
    asked = {"seeds": [0], "redraws": 0, "directions": 0, "out": tmp_path, "name": "mine"}
    first = cs.judge(build, fit, DATA, **asked)
    assert any("blocks found" in problem for problem in first.logs[0].problems)
    assert cs.judge(build, fit, DATA, **asked).logs[0].problems == first.logs[0].problems
    header = json.loads((tmp_path / "mine-s0.jsonl").read_text().splitlines()[0])
    assert header["spec"]["recipe"]["optimiser"] == "as fit trains"
