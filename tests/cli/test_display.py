"""What training shows: a plan, a bar on a terminal only, alerts, and a summary."""

import io

import pytest
from cases import specs as cases
from cases.specs import spec
from protocol.cases import healthy
from rich.console import Console

from creditscope.cli import progress
from creditscope.cli.display import painted, plan_text, say_verdicts, summary_text
from creditscope.cli.progress import TrainDisplay, Work, clock_text
from creditscope.errors import BadInput, argument
from creditscope.execution.job import Ended, FleetJob, Outcome
from creditscope.execution.plan import Plan
from creditscope.protocol.audit import audit
from creditscope.protocol.brief import brief_sections
from creditscope.records import EndRow, EpochRow, LogWriter, ProbeSpec, RunLog
from creditscope.records.measured import Gamma, Norms


@pytest.fixture
def screen(monkeypatch):
    """A display that believes to be on a terminal or not, and what it wrote."""

    def make(terminal):
        text = io.StringIO()
        monkeypatch.setattr(
            progress,
            "Console",
            lambda stderr: Console(file=text, force_terminal=terminal, width=160, color_system=None),
        )
        return TrainDisplay(), text

    return make


def fleet_of(method):
    return [spec(method)]


def plan_of(*fleets):
    jobs = tuple(FleetJob(number, tuple(members)) for number, members in enumerate(fleets, 1))
    return Plan(tuple(run for members in fleets for run in members), frozenset(), jobs)


def test_each_of_several_fleets_says_how_it_ended(screen):
    shown, text = screen(terminal=False)
    plan = plan_of(fleet_of("bp"), [spec("dfa"), spec("fa")], fleet_of("fa"))
    with shown:
        shown.plan(plan)
        shown.ended(Ended(plan.jobs[0], Outcome(notes=("a note",))))
        shown.ended(Ended(plan.jobs[1], Outcome(out_of_memory=True)))
        shown.ended(Ended(plan.jobs[2], Outcome(error=BadInput("no; ", argument("out")))))
    assert text.getvalue().splitlines() == [
        "a note",
        "1 of 3 fleets ended: fleet 1, 1 runs finished",
        "fleet 2 of 2 runs did not fit into the memory; it is halved",
        "fleet 3 failed: no; --out",
    ]


def test_a_single_fleet_ends_without_a_word_and_steps_made_elsewhere_move_the_bar(screen):
    shown, text = screen(terminal=False)
    plan = plan_of(fleet_of("bp"))
    with shown:
        shown.plan(plan)
        shown.ended(Ended(plan.jobs[0], Outcome()))
    assert text.getvalue() == ""
    assert shown._progress.tasks[0].completed == shown._progress.tasks[0].total == 1


def test_a_bar_on_a_terminal_names_fleet_and_epoch(screen):
    shown, text = screen(terminal=True)
    first, second = fleet_of("bp"), fleet_of("dfa")
    with shown:
        shown.plan(plan_of(first, second))
        shown.stage(first, 1, "train")
        shown.step(first)
        shown.stage(second, 2, "probe")
        shown.stage(second, 3, "measure")
    assert "fleet 2/2, epoch 3/3, measuring" in text.getvalue()


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_each_kind_of_work_counts_at_the_price_it_turned_out_to_have():
    """Three epochs of four steps at 1 s, four measurements at 2 s, probes at 10 s; the first of each takes longer."""
    clock, run = Clock(), spec("dfa", probe=ProbeSpec(n=12, batch=8, epochs=(0, 1), redraws=9, directions=4))
    work = Work(clock)
    work.plan([[run]])

    def piece(doing, seconds, epoch):
        work.begin([run], epoch, doing)
        clock.now += seconds

    piece("measure", 20, 0)
    piece("probe", 100, 0)
    work.begin([run], 1, "train")
    for seconds in (30, 1, 1, 1):
        clock.now += seconds
        work.step([run])
    piece("measure", 2, 1)
    piece("probe", 10, 1)
    work.begin([run], 2, "train")
    assert work.share == pytest.approx((4 * 1 + 2 * 2 + 2 * 10) / (12 * 1 + 4 * 2 + 3 * 10))
    work.fleet([run]).finish()
    assert work.share == 1


def test_a_resumed_fleet_has_less_to_do():
    work, run = Work(Clock()), spec("bp")
    work.plan([[run]])
    work.begin([run], 3, "train")
    assert work.fleet([run]).planned["train"] == 4


def test_the_time_goes_on_while_nothing_is_heard(screen, monkeypatch):
    """A probe of ten seconds says nothing: the bar still counts them, and counts the rest down."""
    shown, _ = screen(terminal=True)
    shown.plan(plan_of(fleet_of("bp")))
    task = shown._progress.tasks[0]
    task.fields.update(left=60.0, at=0.0)
    now = task.start_time
    monkeypatch.setattr(task, "get_time", lambda: now + 7)
    column = shown._progress.columns[-1]
    assert column.render(task).plain == "0:07, 0:53 left"
    monkeypatch.setattr(task, "get_time", lambda: now + 17)
    assert column.render(task).plain == "0:17, 0:43 left"


@pytest.mark.parametrize(("seconds", "text"), [(7.4, "0:07"), (723, "12:03"), (3723, "1:02:03")])
def test_a_clock(seconds, text):
    assert clock_text(seconds) == text


def test_verdicts_are_coloured_and_nothing_else():
    text = "bp  trustworthy\ndfa  walked back\n  depth fires: it fires\n\n1 trustworthy · 1 walked back · 0 incomplete"
    green, red = "\x1b[32m\x1b[1m", "\x1b[31m"
    assert painted(text).splitlines()[0] == f"bp  {green}trustworthy\x1b[0m"
    assert painted(text).splitlines()[2] == f"  depth {red}fires\x1b[0m: it fires"


@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [
        (True, {"TERM": "xterm"}, True),
        (False, {"TERM": "xterm"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_is_for_terminals_whose_user_wants_it(monkeypatch, terminal, environment, coloured):
    audited = audit(healthy("dfa"))
    written = io.StringIO()
    written.isatty = lambda: terminal
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", written)
    say_verdicts(audited, brief_sections(audited), 100)
    assert ("\x1b[" in written.getvalue()) == coloured
    assert written.getvalue().rstrip().endswith("incomplete\x1b[0m" if coloured else "0 incomplete")


def test_no_bar_in_a_file(screen):
    shown, text = screen(terminal=False)
    with shown:
        shown.plan(plan_of(fleet_of("bp")))
        shown.stage(fleet_of("bp"), 1, "train")
    assert text.getvalue() == ""


def test_alerts_are_shown_without_a_terminal_too(screen):
    shown, text = screen(terminal=False)
    on_row = shown.watch("stop")
    header = cases.header("dfa-rms")
    row = EpochRow(epoch=1, hidden=Norms(median=[1.0, 1.0, 1e4, 1e4, 1e4], n=32), growth=[1.0, 1e4, 1.0, 1.0])
    reason = on_row(header, row)
    assert reason
    assert "\n" not in reason
    assert " ".join(text.getvalue().split()).startswith(" ".join(reason.split())[:40])


def test_an_unknown_way_to_watch(screen):
    with pytest.raises(BadInput, match="--monitor shout: wanted alert or stop"):
        screen(terminal=False)[0].watch("shout")


def test_the_plan_counts_fleets_runs_and_steps():
    fleets = [[spec("bp"), spec("dfa")], [spec("bp", terminal_ln=False)]]
    text = plan_text(fleets)
    assert "3 runs in 2 fleet(s)" in text
    assert "bp, dfa" in text
    assert text.count("no terminal LN") == 1
    assert " 12 " in text, "3 epochs of 4 steps"
    assert "no terminal LN" not in plan_text([[spec("bp", model="mine", terminal_ln=None)]])


def test_the_summary_has_means_over_seeds(tmp_path):
    logs = []
    for seed, accuracy in ((1, 0.25), (2, 0.5)):
        writer = LogWriter(tmp_path / f"{seed}.jsonl")
        writer.create(cases.header("dfa", seed=seed))
        gamma = Gamma(published=accuracy, deep=None)
        writer.append(EpochRow(epoch=3, test_accuracy=accuracy, gamma=gamma, growth=[1.0, 2.0, None]))
        writer.append(EndRow(status="finished" if seed == 1 else "diverged", epoch=3))
        logs.append(RunLog.read(writer.path))
    line = next(line.split() for line in summary_text(logs).splitlines() if line.startswith("dfa"))
    assert line[:6] == ["dfa", "2", "0.375", "+0.375", "–", "2"]
    assert line[-2:] == ["diverged,", "finished"]
