"""Packing: equal shapes together, a begun fleet as it was, nothing twice."""

import json

import pytest
from cases import specs as records
from cases.fleets import spec as small
from cases.specs import spec

from creditscope.engine.checkpoint import checkpoint_path, encode_checkpoint
from creditscope.engine.memory import fleet_bytes
from creditscope.errors import BadFile, CannotWrite
from creditscope.execution.folder import existing_logs
from creditscope.execution.plan import PLAN_FILE, Limits, Plan, Survey, pack, read_plan, survey
from creditscope.records import EndRow, HeaderRow, LogWriter, OptimiserSpec

A, B, C = spec("bp"), spec("dfa", seed=7, optimiser=OptimiserSpec(lr=0.5)), spec("fa+pen0.1@frozen", targets="random")
WIDE = spec("bp", width=16)


def plan_fleets(folder, specs, resume):
    """The fleets still to be trained, each as a list of runs."""
    return [list(job.specs) for job in survey(folder, specs, resume).plan(threads=1).jobs]


def begin(folder, *runs, company=None, end=None):
    company = [run.run_id for run in company or runs]
    for run in runs:
        writer = LogWriter(folder / f"{run.run_id}.jsonl")
        writer.create(HeaderRow(spec=run, fleet=company))
        writer.append(records.epoch(0))
        if end:
            saved = {"epoch": "3", "spec": run.model_dump_json()}
            checkpoint_path(folder, run.run_id).write_bytes(encode_checkpoint({}, saved))
            writer.append(EndRow(status=end, epoch=3))


def test_rules_penalties_rates_seeds_masks_and_targets_share_a_fleet():
    assert pack([A, B, C]) == [[A, B, C]]


@pytest.mark.parametrize(
    "change",
    [
        {"width": 16},
        {"depth": 5},
        {"terminal_ln": False},
        {"batch": 8},
        {"epochs": 9},
        {"schedule": "constant"},
        {"dtype": "float64"},
        {"augment": "crop4+flip"},
        {"optimiser": OptimiserSpec(weight_decay=0.5)},
    ],
)
def test_unlike_runs_become_several_fleets(change):
    other = spec("bp", **change)
    assert pack([A, other, B]) == [[A, B], [other]]


def test_nothing_begun_is_packed_whole(tmp_path):
    assert plan_fleets(tmp_path, [A, WIDE, B], resume=False) == [[A, B], [WIDE]]
    assert plan_fleets(tmp_path, [A, WIDE, B], resume=True) == [[A, B], [WIDE]]


def test_what_is_there_needs_resume(tmp_path):
    begin(tmp_path, B)
    with pytest.raises(CannotWrite, match=rf"already holds 1 of these 2 runs \(such as {B.run_id}\); pass resume=True"):
        plan_fleets(tmp_path, [A, B], resume=False)
    with pytest.raises(CannotWrite) as caught:
        plan_fleets(tmp_path, [A, B], resume=False)
    assert caught.value.with_flags.endswith("pass --resume to go on with them, or choose another --out")


@pytest.mark.parametrize("status", ["finished", "diverged", "stopped", "failed"])
def test_an_ended_run_is_left_out(tmp_path, status):
    begin(tmp_path, A, B, end=status)
    assert plan_fleets(tmp_path, [A, B], resume=True) == []
    assert plan_fleets(tmp_path, [A, B, C], resume=True) == [[C]]


def test_an_unfinished_run_keeps_its_company_in_order(tmp_path):
    begin(tmp_path, C, A, B)
    assert plan_fleets(tmp_path, [A, B, C], resume=True) == [[C, A, B]]


def test_company_that_has_ended_or_was_not_asked_for_comes_along(tmp_path):
    begin(tmp_path, A, company=[A, B, C])
    begin(tmp_path, B, C, company=[A, B, C], end="diverged")
    assert plan_fleets(tmp_path, [A], resume=True) == [[A, B, C]]
    assert plan_fleets(tmp_path, [A, WIDE], resume=True) == [[A, B, C], [WIDE]]


def test_company_that_had_no_time_to_begin_is_taken_from_what_was_asked(tmp_path):
    begin(tmp_path, A, company=[A, B])
    assert plan_fleets(tmp_path, [A, B], resume=True) == [[A, B]]


def test_company_that_is_gone_is_named(tmp_path):
    begin(tmp_path, A, company=[A, B])
    with pytest.raises(BadFile, match=rf"{B.run_id}.jsonl is missing, and a resume needs the whole fleet"):
        plan_fleets(tmp_path, [A], resume=True)


def test_a_header_cannot_name_a_file_elsewhere(tmp_path):
    inner = tmp_path / "runs"
    inner.mkdir()
    begin(tmp_path, B)
    LogWriter(inner / f"{A.run_id}.jsonl").create(HeaderRow(spec=A, fleet=[A.run_id, f"../{B.run_id}"]))
    with pytest.raises(BadFile, match="is missing"):
        plan_fleets(inner, [A], resume=True)


def test_existing_logs_by_id(tmp_path):
    begin(tmp_path, A)
    (tmp_path / "other.jsonl").write_text("junk")
    assert list(existing_logs(tmp_path, [A, B])) == [A.run_id]


# Dealing out


def test_dealt_parts_are_alike_and_a_begun_fleet_stays_whole(tmp_path):
    members = [spec(method, seed=seed) for method in ("bp", "dfa") for seed in (1, 2, 3)]
    parts = [job.specs for job in survey(tmp_path, members, resume=True).plan(threads=1, processes=2).jobs]
    assert [len(part) for part in parts] == [3, 3]
    assert sorted(run.run_id for part in parts for run in part) == sorted(run.run_id for run in members)
    begin(tmp_path, *members)
    assert [job.specs for job in survey(tmp_path, members, resume=True).plan(1, 2).jobs] == [tuple(members)]


def test_halves_stand_where_the_whole_stood():
    plan = Survey((), frozenset(), (), ((A, B), (WIDE,), (C,)), None, ()).plan(threads=1)
    halved = plan.halved(plan.jobs[0])
    assert [job.specs for job in halved.jobs] == [(A,), (B,), (WIDE,), (C,)]


# The file


def written(folder, *fleets, threads=1, processes=1):
    jobs = Survey((), frozenset(), (), fleets, None, ()).plan(threads).jobs
    Plan((), frozenset(), jobs, processes).write(folder)
    return folder / PLAN_FILE


def test_what_is_written_is_read(tmp_path):
    written(tmp_path, (A, B), (WIDE,), threads=3, processes=2)
    found = read_plan(tmp_path)
    assert found.processes == 2
    assert [[found.specs[run_id] for run_id in fleet.runs] for fleet in found.fleets] == [[A, B], [WIDE]]
    assert [fleet.threads for fleet in found.fleets] == [3, 3]
    assert read_plan(tmp_path / "elsewhere") is None


def test_planned_fleets_that_never_began_keep_company_and_threads(tmp_path):
    written(tmp_path, (C, A), (B,), threads=3)
    assert plan_fleets(tmp_path, [A, B, C], resume=False) == [[A, B, C]], "without resume the plan is made anew"
    kept = survey(tmp_path, [A, B, C, WIDE], resume=True).plan(threads=1)
    assert [(job.specs, job.threads, job.begun) for job in kept.jobs] == [
        ((C, A), 3, False),
        ((B,), 3, False),
        ((WIDE,), 1, False),
    ]


def test_a_header_without_rows_keeps_company_and_can_still_be_halved(tmp_path):
    LogWriter(tmp_path / f"{A.run_id}.jsonl").create(HeaderRow(spec=A, fleet=[A.run_id, B.run_id], threads=2))
    (job,) = survey(tmp_path, [A, B], resume=True).plan(threads=1).jobs
    assert (job.specs, job.threads, job.begun) == ((A, B), 2, False)
    begin(tmp_path, C)
    assert [job.begun for job in survey(tmp_path, [A, B, C], resume=True).kept] == [False, True]


def test_finished_fleets_of_a_plan_are_dropped_and_others_are_kept_in_it(tmp_path):
    written(tmp_path, (A,), (B,), (WIDE,))
    begin(tmp_path, A, end="finished")
    found = survey(tmp_path, [A, B], resume=True)
    assert [job.specs for job in found.kept] == [(B,)]
    assert [job.specs for job in found.others] == [(WIDE,)]
    found.plan(threads=1).write(tmp_path)
    assert [fleet.runs for fleet in read_plan(tmp_path).fleets] == [(B.run_id,), (WIDE.run_id,)]
    found.plan(threads=1).forget(tmp_path)
    assert [fleet.runs for fleet in read_plan(tmp_path).fleets] == [(WIDE.run_id,)]


def test_a_run_whose_log_was_lost_does_not_drag_its_finished_company_along(tmp_path):
    written(tmp_path, (A, B))
    begin(tmp_path, A, company=[A, B], end="finished")
    assert plan_fleets(tmp_path, [A, B], resume=True) == [[B]]


def test_a_header_counts_more_than_the_plan(tmp_path):
    written(tmp_path, (A, B, C))
    begin(tmp_path, A, B)
    assert plan_fleets(tmp_path, [A, B, C], resume=True) == [[A, B], [C]]


@pytest.mark.parametrize("company", [["x"], ["twice", "twice"], ["self", "wide"]])
def test_a_header_cannot_name_a_fleet_that_it_cannot_be_in(tmp_path, company):
    begin(tmp_path, B)
    ids = {"x": B.run_id, "twice": A.run_id, "self": A.run_id, "wide": WIDE.run_id}
    LogWriter(tmp_path / f"{A.run_id}.jsonl").create(HeaderRow(spec=A, fleet=[ids[name] for name in company]))
    with pytest.raises(BadFile, match="its header names a fleet that it cannot be in"):
        survey(tmp_path, [A, WIDE], resume=True)


HOSTILE = {
    "empty": lambda plan: b"",
    "junk": lambda plan: b"\xff\x00",
    "no object": lambda plan: b"[]",
    "deep": lambda plan: b"[" * 100_000,
    "other version": lambda plan: changed(plan, version=2),
    "no process": lambda plan: changed(plan, processes=0),
    "many processes": lambda plan: changed(plan, processes=10**9),
    "no fleet of its runs": lambda plan: changed(plan, fleets=[]),
    "empty fleet": lambda plan: changed(plan, fleets=[{"runs": []}, *plan["fleets"]]),
    "twice": lambda plan: changed(plan, fleets=plan["fleets"] * 2),
    "unknown run": lambda plan: changed(plan, fleets=[*plan["fleets"], {"runs": ["x"]}]),
    "unlike shapes": lambda plan: changed(plan, fleets=[{"runs": list(plan["specs"])}]),
    "threads": lambda plan: changed(plan, fleets=[{**fleet, "threads": 0} for fleet in plan["fleets"]]),
    "more keys": lambda plan: changed(plan, folder="/etc"),
    "another run's spec": lambda plan: changed(
        plan, specs=dict(zip(plan["specs"], reversed(plan["specs"].values()), strict=True))
    ),
    "a path": lambda plan: renamed(plan, "../outside"),
    "an absolute path": lambda plan: renamed(plan, "/etc/passwd"),
    "control characters": lambda plan: renamed(plan, "x\x00\n\x1b[2J"),
    "long": lambda plan: renamed(plan, "a" * 10_000),
    "no run of the engine": lambda plan: foreign(plan),
}


def changed(plan, **fields):
    return json.dumps(plan | fields).encode()


def renamed(plan, name):
    first, *_ = plan["specs"]
    return json.dumps(plan).replace(first, json.dumps(name)[1:-1]).encode()


def foreign(plan):
    """A rule of any name makes an id of any name, so only runs of the engine are taken."""
    run = A.model_copy(update={"origin": "import", "rule": "../../x"})
    specs = {run.run_id: run.model_dump(mode="json")}
    return json.dumps(plan | {"specs": specs, "fleets": [{"runs": [run.run_id]}]}).encode()


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_plan_is_one_line(tmp_path, content):
    path = written(tmp_path, (A, B), (WIDE,))
    path.write_bytes(content(json.loads(path.read_text())))
    with pytest.raises(BadFile, match=r"\.plan\.json is not a plan of ours") as caught:
        survey(tmp_path, [A, B], resume=True)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    assert "remove it: fleets that have begun go on all the same" in str(caught.value)


def test_a_plan_without_end_is_not_read(tmp_path, monkeypatch):
    path = written(tmp_path, (A, B))
    monkeypatch.setattr("creditscope.execution.plan.MAX_PLAN_BYTES", path.stat().st_size - 1)
    with pytest.raises(BadFile, match="longer than"):
        survey(tmp_path, [A, B], resume=True)
    path.unlink()
    path.mkdir()
    with pytest.raises(BadFile, match="not a regular file"):
        survey(tmp_path, [A, B], resume=True)


# Memory


def test_a_fleet_larger_than_the_memory_of_a_gpu_is_cut_and_the_largest_comes_first():
    members = [small(method, seed=seed) for method in ("bp", "dfa") for seed in (1, 2)]
    assert Limits("cuda", 10**12).cut(members) == [members]
    half = max(fleet_bytes(members[:2]), fleet_bytes(members[2:]))
    parts = Limits("cuda", half).cut(members)
    assert [run for part in parts for run in part] == members
    assert len(parts) == 2
    own = [run.model_copy(update={"model": "mine"}) for run in members]
    assert Limits("cuda", half).cut(own) == [own], "what a user's own model takes is not known"
    fleets = [[small("bp", width=4)], [small("bp", seed=s, width=5) for s in range(3)], [small("bp"), small("fa")]]
    assert Limits("cuda").order(fleets) == sorted(fleets, key=fleet_bytes, reverse=True)
    assert Limits("cpu").order(fleets) == sorted(fleets, key=len, reverse=True)
