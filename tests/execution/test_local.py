"""Training from a script: several fleets, a user's own model, resume, and every refusal."""

import fcntl

import pytest
import torch
from cases.fleets import features, images, spec
from torch import nn

import creditscope as cs
from creditscope.engine import fleet as fleet_module
from creditscope.errors import BadInput, CannotWrite
from creditscope.execution import local
from creditscope.execution.context import Quiet
from creditscope.records import ProbeSpec

FEW = {"epochs": 1, "probe": ProbeSpec(n=8, batch=8, epochs=(), redraws=3, directions=2)}
OWN = {"model": "mine", "epochs": 2, "batch": 12, "probe.n": 12, "probe.redraws": 9, "probe.directions": 4}


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_unlike_shapes_train_in_one_call(tmp_path):
    runs = [spec("bp", **FEW), spec("bp", width=4, **FEW), spec("dfa", **FEW)]
    logs = cs.train(runs, tmp_path, data=features(), device="cpu")
    assert [log.spec.width for log in logs] == [6, 4, 6]
    assert all(log.finished for log in logs)
    assert [len(log.header.fleet) for log in logs] == [2, 1, 2]


def test_data_by_name(tmp_path):
    run = cs.specs(["bp"], data="synthetic", seeds=[1], changes={"width": 4, "depth": 2, "epochs": 0, "probe.n": 8})
    log = cs.train(run, tmp_path, device="cpu")[0]
    assert log.spec.data.hash_train == cs.load_data("synthetic").spec.hash_train
    assert [row.epoch for row in log.epochs] == [0]
    assert log.finished


def test_a_finished_folder_is_left_as_it_is(tmp_path):
    runs = [spec("bp", **FEW), spec("dfa", **FEW)]
    cs.train(runs, tmp_path, data=features(), device="cpu")
    before = files(tmp_path)
    with pytest.raises(CannotWrite, match=r"already holds 2 of these 2 runs .* pass resume=True"):
        cs.train(runs, tmp_path, data=features(), device="cpu")
    logs = cs.train(runs, tmp_path, data=features(), device="cpu", resume=True)
    assert files(tmp_path) == before
    assert all(log.finished for log in logs)


def test_more_runs_can_join_a_finished_folder(tmp_path):
    cs.train([spec("bp", **FEW)], tmp_path, data=features(), device="cpu")
    before = files(tmp_path)
    logs = cs.train([spec("bp", **FEW), spec("fa", **FEW)], tmp_path, data=features(), device="cpu", resume=True)
    assert all(log.finished for log in logs)
    assert before.items() <= files(tmp_path).items()


def test_on_row_and_progress_hear_of_it(tmp_path):
    heard = []

    class Progress(Quiet):
        def plan(self, plan):
            heard.append(("plan", len(plan.jobs), len(plan.runs)))

        def ended(self, ended):
            heard.append(("ended", ended.job.run_ids, ended.outcome.error))

        def step(self, fleet):
            heard.append("step")

    rows = []
    cs.train(
        [spec("bp", **FEW)],
        tmp_path,
        data=features(),
        device="cpu",
        on_row=lambda header, row: rows.append(row.kind),
        progress=Progress(),
    )
    assert heard == [("plan", 1, 1), *["step"] * 5, ("ended", [spec("bp", **FEW).run_id], None)]
    assert rows == ["epoch", "epoch", "probe", "end"]


def test_a_second_writer_is_refused(tmp_path):
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(CannotWrite, match="another creditscope is training there"):
            cs.train([spec("bp", **FEW)], tmp_path, data=features(), device="cpu")
    assert list(files(tmp_path)) == [".lock"]
    cs.train([spec("bp", **FEW)], tmp_path, data=features(), device="cpu")


def test_the_thread_count_of_the_beginning_is_used_again(tmp_path, monkeypatch):
    runs = [spec("bp", **FEW | {"epochs": 2})]

    def interrupt(header, row):
        if row.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cs.train(runs, tmp_path, data=features(), device="cpu", on_row=interrupt)
    path = tmp_path / f"{runs[0].run_id}.jsonl"
    path.write_text(path.read_text().replace('"threads": 1', '"threads": 2'))
    used = []
    cs.train(
        runs,
        tmp_path,
        data=features(),
        device="cpu",
        resume=True,
        on_row=lambda header, row: used.append(torch.get_num_threads()),
    )
    assert set(used) == {2}
    assert torch.get_num_threads() == 1


def test_a_run_begun_on_another_device_is_not_gone_on_with(tmp_path, monkeypatch):
    runs = [spec("bp", **FEW)]

    def interrupt(header, row):
        raise KeyboardInterrupt

    monkeypatch.setattr(fleet_module.Fleet, "path", "graph")
    with pytest.raises(KeyboardInterrupt):
        cs.train(runs, tmp_path, data=features(), device="cpu", on_row=interrupt)
    monkeypatch.undo()
    with pytest.raises(BadInput, match=r"was begun on .* resume it with device='cpu', or choose another out="):
        cs.train(runs, tmp_path, data=features(), device="cpu", resume=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda out: cs.train([], out), "no run to train"),
        (lambda out: cs.train([spec("bp")], out, data=images()), "is not the data this run was specified on"),
        (lambda out: cs.train([spec("bp")], out, device="tpu"), "device='tpu': wanted auto, cpu or cuda"),
        (
            lambda out: cs.train([spec("bp")], out, data=features(), model=local.default_model),
            "needs a name of its own, the spec says 'resmlp'",
        ),
        (
            lambda out: cs.train([spec("bp").model_copy(update={"data": None})], out, device="cpu"),
            "a run without data cannot be trained",
        ),
        (
            lambda out: cs.train([spec("bp", model="resnett")], out, data=features(), device="cpu"),
            "unknown model 'resnett'; did you mean 'resnet'",
        ),
        (lambda out: cs.train([spec("bp", view="cls")], out, data=features(), device="cpu"), "view 'cls' wants states"),
    ],
)
def test_refusals(tmp_path, call, message):
    with pytest.raises(BadInput, match=message):
        call(tmp_path)
    assert set(files(tmp_path)) <= {".lock"}


def test_a_file_is_not_known_by_its_name(tmp_path):
    run = spec("bp", images())
    with pytest.raises(BadInput, match="data 'pictures' is not known by its name alone; pass the data set as data="):
        cs.train([run], tmp_path, device="cpu")


def test_another_test_set_is_another_data_set(tmp_path):
    other = spec("bp").data.model_copy(update={"hash_test": "0" * 64})
    with pytest.raises(BadInput, match="content hash differs"):
        cs.train([spec("bp").model_copy(update={"data": other})], tmp_path, data=features(), device="cpu")


def test_cuda_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput, match="sees no CUDA device; use device='cpu' or auto"):
        cs.train([spec("bp")], tmp_path, data=features(), device="cuda")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CannotWrite, match=r"out='deep': cannot be made \(Not a directory\)"):
        cs.train([spec("bp")], tmp_path / "file" / "deep", data=features(), device="cpu")
    with pytest.raises(CannotWrite, match="out='file'"):
        cs.train([spec("bp")], tmp_path / "file", data=features(), device="cpu")
    assert (tmp_path / "file").read_text() == "mine"


# A user's own model


class ConvNet(nn.Module):
    """Feature maps of one shape, then of another: states of unequal widths."""

    def __init__(self, norm=nn.Identity):
        super().__init__()
        self.stem = nn.Conv2d(1, 3, 3, padding=1)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.GroupNorm(1, 3), nn.Tanh()),
                nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), norm(), nn.Tanh()),
            ]
        )
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.flatten(1))


def own(methods, **changes):
    return cs.specs(methods, data=images(), seeds=[1, 2], changes={**OWN, "depth": 2, **changes})


@pytest.fixture(scope="module")
def conv_logs(tmp_path_factory):
    runs = own(["bp", "fa", "dfa-rms", "dfa-rms@frozen", "dfa-rms+pen0.1"])
    return cs.train(
        runs, tmp_path_factory.mktemp("own"), data=images(), model=lambda run, data: ConvNet(), device="cpu"
    )


def test_a_users_own_conv_net_trains_under_every_rule_it_can(conv_logs):
    assert all(log.finished for log in conv_logs)
    for log in conv_logs:
        assert log.spec.model == "mine"
        assert log.spec.width is None
        assert log.header.blocks == ["blocks.0", "blocks.1"]
        row = log.last
        assert len(row.hidden.median) == 3
        assert row.nonfinite == {}
        assert row.movement.trainable == [log.spec.train_last != 0] * 2


def test_what_the_published_index_cannot_pair_is_not_measured(conv_logs):
    """It pairs the credit of the second block's output with the gradient at its input: other shapes."""
    row = next(log for log in conv_logs if log.spec.method == "dfa-rms").last
    assert row.cosine.status == ["ok", "ok", "ok"]
    assert row.cosine_published.status == ["ok", "not measured", "ok"]
    assert row.cosine_published.mean[1] is None
    assert row.gamma.published is None
    assert row.gamma.clamped is None
    assert row.gamma.acting is not None
    exact = next(log for log in conv_logs if log.spec.method == "bp").last
    assert exact.cosine_published.status == ["exact-by-construction"] * 3
    assert exact.gamma.published == pytest.approx(1)


def test_expensive_probes_of_a_users_own_model(conv_logs):
    probe = next(log for log in conv_logs if log.spec.method == "dfa-rms").probes[-1]
    assert probe.rho is not None
    assert probe.gradient_cosine is not None
    assert probe.null is not None


@pytest.mark.parametrize(
    ("method", "net", "message"),
    [
        ("bp", lambda: ConvNet(lambda: nn.Dropout(0.5)), "'blocks.1.1' drops out units"),
        ("fa-block", ConvNet, "fa-block wants vectors or tokens of one shape"),
    ],
)
def test_a_model_that_cannot_be_trained_so_is_refused(tmp_path, method, net, message):
    with pytest.raises(BadInput, match=message):
        cs.train(own([method]), tmp_path, data=images(), model=lambda run, data: net(), device="cpu")
    assert set(files(tmp_path)) == {".lock"}


def test_a_damaged_checkpoint_is_set_aside_with_a_warning_and_the_fleet_recomputed(tmp_path, caplog):
    runs = [spec("bp", **FEW), spec("dfa", **FEW)]
    wanted = cs.train(runs, tmp_path, data=features(), device="cpu")
    for run in runs:  # killed before its last rows
        log = tmp_path / f"{run.run_id}.jsonl"
        log.write_text("".join(line + "\n" for line in log.read_text().splitlines()[:2]))
        (tmp_path / f"{run.run_id}.safetensors").write_bytes(b"junk")
    found = cs.train(runs, tmp_path, data=features(), device="cpu", resume=True)
    assert [record.getMessage().split(";")[1] for record in caplog.records] == [
        f" kept as {run.run_id}.safetensors.damaged, the fleet goes on from an earlier epoch" for run in runs
    ]
    assert [log.end.correct for log in found] == [log.end.correct for log in wanted]
