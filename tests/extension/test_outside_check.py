"""A check from outside the package gets everything that the built-in ones get. Both checks live in this file."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from protocol import cases
from report.cases import Page, richer, write
from scope.nets import Net, samples
from typer.testing import CliRunner

import creditscope as cs
from creditscope import cli
from creditscope.errors import BadInput
from creditscope.protocol.check import Check, CheckPlot
from creditscope.protocol.checks.point import EpochCheck
from creditscope.protocol.checks.scale import Scale
from creditscope.protocol.evidence import Evidence, Grade, Ruling
from creditscope.protocol.presets import Protocol, protocol_named
from creditscope.report import write_report
from creditscope.report.form import reporting_form


class Climb(Check):
    """Did the accuracy climb at all?"""

    name = "climb"
    side = "below"
    threshold = 0.2

    def judge(self, cell):
        climbs = [run.epochs[-1].test_accuracy - run.epochs[0].test_accuracy for run in cell.runs]
        return self.outcome(Evidence.point(min(climbs), Grade.EXACT), f"the accuracy climbs by {min(climbs):.2f}")


class Share(EpochCheck):
    """Fires when a branch outweighs the stream."""

    name = "share"
    label = "largest share"
    side = "above"
    threshold = 0.5
    allowed = (0.0, 1.0)
    unit = "parts"
    title = "Share of the branch"
    healthy = "No branch outweighs the stream."
    advice = "Scale the branches down."
    settled_by = "log the ratio of branch and stream"
    plot = CheckPlot(("branch", "hidden"), lines=("branch",))

    def measure(self, facts, row):
        return Evidence.point(max(row.branch), Grade.EXACT) if row.branch else Evidence.missing("no branch is logged")


class Broken(Share):
    """Never gets anywhere."""

    name = "broken"

    def measure(self, facts, row):
        raise ZeroDivisionError("float division by zero\nand more")

    def extra(self, judged):
        raise KeyError("blocks")


def heavy(log, since=3):
    """The log of a run whose branches outweigh the stream from some epoch on."""
    return cases.edit(log, lambda row: {"branch": [0.2, 0.9 if row.epoch >= since else 0.3]})


@pytest.fixture(scope="module")
def logs():
    made = [
        *cases.healthy("bp"),
        *map(heavy, cases.cell("dfa", cases.ALIGNED)),
        *cases.cell("dfa@frozen", cases.FROZEN),
    ]
    return [richer(log) for log in made]


@pytest.fixture(scope="module")
def protocol():
    return protocol_named("standard").with_checks(required=[Share()], advisory=[Climb])


@pytest.fixture(scope="module")
def audit(logs, protocol):
    return cs.audit(logs, protocol=protocol)


@pytest.fixture(scope="module")
def folder(logs, tmp_path_factory):
    made = tmp_path_factory.mktemp("runs")
    write(logs, made)
    return made


@pytest.fixture
def module(tmp_path, monkeypatch):
    """``mychecks``, a module with both checks, on the path."""
    head = [
        "from creditscope import Check, EpochCheck, Evidence, Grade",
        "from creditscope.protocol.check import CheckPlot",
    ]
    (tmp_path / "mychecks.py").write_text("\n\n\n".join(["\n".join(head), *map(inspect.getsource, (Climb, Share))]))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("mychecks", None)


def call(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


# --- what an audit says ---------------------------------------------------------------------------------------------


def test_it_decides(audit):
    assert {cell.cell.method: str(cell.verdict.kind) for cell in audit.claims} == {
        "bp": "trustworthy",
        "dfa": "walked back",
    }
    dfa = next(cell for cell in audit.claims if cell.cell.method == "dfa")
    assert dfa.verdict.reasons == (
        "share fires: largest share 0.9 parts > 0.5 parts on 3 of 3 seeds; first fired at epoch 3; near threshold",
    )


def test_it_has_a_column_a_line_and_a_place_in_every_table(audit):
    text = audit.to_text(width=None)
    head = next(line for line in text.splitlines() if line.startswith("method"))
    checks = ["learning", "scale", "reference", "fidelity", "direction", "depth", "movement", "share"]
    assert head.split()[:10] == ["method", "accuracy", *checks]
    assert "  share passes, exact: largest share 0.1 parts ≤ 0.5 parts on 3 of 3 seeds" in text
    assert "  climb (advisory) passes, exact: the accuracy climbs by 0.35" in text
    assert "share 3" in text  # over time
    assert "alert at 3: 2 epochs (40%)" in text
    assert "| share |" in audit.to_markdown()
    assert "& share &" in audit.to_latex()


def test_decisions_and_sensitivity(audit):
    from creditscope.protocol.present import decisions_table, gaps_table, stays_table

    decisions = decisions_table(audit)
    rows = {row[0]: dict(zip(decisions.columns, row, strict=True)) for row in decisions.rows}
    assert {method: row["share"] for method, row in rows.items()} == {"bp": "passes", "dfa": "fires"}
    stays = {(row[0], row[1]): row[2:] for row in stays_table(audit).rows}
    assert stays["dfa", "share"] == ("0.5", "≤ 0.9", "≤ 0.9")
    assert stays["bp", "share"] == ("0.5", "≥ 0.1", "≥ 0.1")
    gaps = {row[0]: row[1:] for row in gaps_table(audit).rows}
    assert gaps["share"][2] == "×9"


def test_json(audit):
    made = json.loads(json.dumps(audit.to_dict(), allow_nan=False))
    assert (made["protocol"], made["version"]) == ("standard", protocol_named("standard").version)
    assert made["added_checks"] == [
        {"name": "share", "required": True, "class": f"{__name__}:Share"},
        {"name": "climb", "required": False, "class": f"{__name__}:Climb"},
    ]
    assert made["dropped_checks"] == []
    assert made["thresholds"]["share"] == 0.5
    dfa = next(cell for cell in made["cells"] if cell["method"] == "dfa")
    share, climb = (next(c for c in dfa["checks"] if c["name"] == name) for name in ("share", "climb"))
    assert (share["outcome"], share["value"], share["unit"], share["first_epoch"]) == ("fires", 0.9, "parts", 3)
    assert (share["required"], climb["required"]) == (True, False)
    assert [line["firings"]["share"]["first"] for line in dfa["timeline"]] == [3, 3, 3]
    assert {line["alert_check"] for line in dfa["timeline"]} == {"share"}


# --- the report and the form ----------------------------------------------------------------------------------------


def test_the_page_has_its_section(logs, protocol, tmp_path):
    page = Page(write_report(logs, tmp_path / "report.html", protocol=protocol).read_text(encoding="utf-8"))
    ids = [
        value
        for tag, name, value in page.attributes
        if tag == "section" and name == "id" and value.startswith("check-")
    ]
    applies = [check.name for check in protocol.checks if check.name != "ladder"]  # neither rule has local losses
    assert ids == [f"check-{name}" for name in applies]
    assert "Share of the branch" in page.text
    assert "Fires when a branch outweighs the stream." in page.text  # its docstring is its question
    assert "Scale the branches down." in page.text
    assert "Did the accuracy climb at all?" in page.text
    assert "The check fires below 0.2." in page.text
    rows = [
        row
        for table in page.tables
        if table[0][:4] == ["method", "outcome", "seeds", "value"]
        for row in table
        if row[3] == "0.9 parts"
    ]
    assert [row[:2] for row in rows] == [["dfa", "✕ fires"]]
    plot = next(plot for plot in page.data["plots"] if plot["id"] == "plot-share")
    assert (plot["quantities"], plot["marks"]) == (["branch", "hidden"], ["share"])
    assert plot["lines"]["branch"] == [{"value": 0.5, "label": "threshold 0.5"}]
    drawn = {value for tag, name, value in page.attributes if name == "id" and value.startswith("plot-")}
    assert "plot-share" in drawn
    assert "plot-climb" not in drawn  # it has none
    assert f"--check={__name__}:Share --advisory-check={__name__}:Climb" in page.text  # how to make the page again


@pytest.mark.parametrize(("suffix", "share"), [(".md", "| Check: share |"), (".tex", "Check: share &")])
def test_the_appendix_has_its_entry(logs, protocol, tmp_path, suffix, share):
    assert share in write_report(logs, tmp_path / f"report{suffix}", protocol=protocol).read_text(encoding="utf-8")


def test_the_form_has_its_entry(audit):
    form = dict(reporting_form(next(cell for cell in audit.claims if cell.cell.method == "dfa"), audit).rows)
    assert form["Check: share"].startswith("fires (exact; threshold 0.5 parts): largest share 0.9 parts")
    assert form["Check: climb"].startswith("passes (exact; threshold 0.2)")
    assert form["Protocol"] == "standard, version 2, with share and climb (advisory) added"


# --- nobody mistakes it for the plain standard ----------------------------------------------------------------------


def test_every_verdict_says_under_what(audit, logs, protocol, tmp_path):
    under = "under standard with share and climb (advisory) added"
    text = audit.to_text(width=None)
    assert text.startswith("Protocol standard, version 2, with share and climb (advisory) added; 2 cells judged")
    assert f"dfa (seeds 42, 123 and 456): walked back {under}" in text
    assert f"verdict {under}" in audit.to_latex()
    assert f"verdict {under}" in audit._repr_html_()
    page = Page(write_report(logs, tmp_path / "report.html", protocol=protocol).read_text(encoding="utf-8"))
    assert f"2 claims judged {under}: 1 trustworthy and 1 walked back." in page.text


def test_so_does_one_that_was_put_together_by_hand(logs):
    less = Protocol("standard", "1", (Scale(), Share()))
    assert less.label == (
        "standard with share added without reference, depth, fidelity, direction, movement, drift and representation"
    )
    assert cs.audit(logs, less).to_dict()["dropped_checks"][0] == "reference"
    own = Protocol("mine", "7", (Scale(), Share(0.6)))
    assert (
        cs.audit(logs, own)
        .to_text(None)
        .startswith("Protocol mine, version 7; 2 cells judged; thresholds set: share=0.6")
    )
    assert protocol_named("standard").label == "standard"


def test_the_example_of_the_documents_runs(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(example, "concepts", "exec"), {"__name__": "concepts"})
    printed = capsys.readouterr().out
    assert "bp (seeds 42, 123 and 456): trustworthy under standard with branch-share added" in printed
    assert "branch-share passes, exact: largest ‖f‖/‖h‖ 0.9 ≤ 1 on 3 of 3 seeds" in " ".join(printed.split())


# --- what is refused ------------------------------------------------------------------------------------------------


class Twice(Climb):
    """A second one of that name."""


class NoThreshold(Check):
    """Forgot it."""

    name = "bare"

    def judge(self, cell):
        raise AssertionError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.with_checks([Climb, Twice]), "two checks are called 'climb'; give one of them another name"),
        (lambda p: p.with_checks([Scale]), "two checks are called 'scale'; give one of them another name"),
        (lambda p: p.with_thresholds({"sclae": 1.0}), "no check 'sclae' to set; did you mean 'scale'"),
        (lambda p: p.with_checks([Share(1.5)]), r"threshold share must be a finite number in \[0, 1\], got 1.5"),
        (lambda p: p.with_checks([Climb(float("nan"))]), "threshold climb must be a finite number"),
        (lambda p: p.with_checks([NoThreshold]), "check 'bare' has no threshold"),
        (lambda p: p.with_checks([Check]), "check Check cannot be made without arguments"),
        (lambda p: p.with_checks([type("Odd", (Climb,), {"name": "a=b"})]), "letters, digits, - and _, got 'a=b'"),
        (lambda p: p.with_checks([3]), "3 is no check; give a subclass of creditscope.Check"),
        (lambda p: p.with_checks(["drft"]), "unknown check 'drft'; did you mean 'drift'"),
        (lambda p: p.with_checks(["json:loads"]), "'json:loads' is no check"),
        (lambda p: Protocol("mine", "1", ()), "protocol 'mine' requires no check"),
    ],
)
def test_refused_in_one_line(make, message):
    with pytest.raises(BadInput, match=message) as refused:
        make(protocol_named("standard"))
    assert "\n" not in str(refused.value)


def test_a_known_check_can_be_added_by_name():
    made = protocol_named("published").with_checks(required=["direction"])
    assert made.label == "published with direction added"
    assert made.thresholds["direction"] == 0.05


def test_thresholds_of_ones_own_reach_it(logs, protocol):
    audit = cs.audit(logs, protocol, thresholds={"share": 0.95, "scale": 40})
    assert audit.protocol.overrides == (("scale", 40), ("share", 0.95))
    assert [str(cell.verdict.kind) for cell in audit.claims] == ["trustworthy", "trustworthy"]
    assert protocol.thresholds["share"] == Share.threshold == 0.5  # nothing was changed in place


# --- a check that fails ---------------------------------------------------------------------------------------------


def test_a_check_that_raises_is_not_measured_and_the_others_go_on(logs, tmp_path):
    audit = cs.audit(logs, protocol_named("standard").with_checks([Broken, Share]))
    undisturbed = cs.audit(logs, protocol_named("standard").with_checks([Share]))
    for cell, other in zip(audit.claims, undisturbed.claims, strict=True):
        outcomes = {outcome.name: outcome for outcome in cell.outcomes}
        assert outcomes["broken"].ruling is Ruling.NOT_MEASURED
        assert outcomes["broken"].reason == "the check failed: ZeroDivisionError: float division by zero"
        rest = [(o.name, o.ruling, o.reason) for o in cell.outcomes if o.name != "broken"]
        assert rest == [(o.name, o.ruling, o.reason) for o in other.outcomes]
    assert {str(cell.verdict.kind) for cell in audit.claims} == {"incomplete", "walked back"}
    page = Page(write_report(logs, tmp_path / "r.html", audit.protocol).read_text(encoding="utf-8"))
    assert "the check's own table failed: KeyError: 'blocks'" in page.text


def test_a_check_that_answers_nothing_is_not_measured(logs):
    silent = type("Silent", (Climb,), {"name": "silent", "judge": lambda self, cell: None})
    (outcome,) = (
        o
        for o in cs.audit(logs, protocol_named("standard").with_checks([silent])).claims[0].outcomes
        if o.name == "silent"
    )
    assert outcome.reason == "the check failed: TypeError: judge gave NoneType, wanted what self.outcome(...) gives"


# --- live -----------------------------------------------------------------------------------------------------------


def feed(monitor, log):
    return [alert for row in log.rows() for alert in monitor.on_row(log.header, row)]


def test_the_monitor_raises_its_alert(protocol):
    alerts = feed(cs.Monitor(protocol, mode="stop"), heavy(cases.run()))
    assert [(alert.check, alert.epoch, alert.stop) for alert in alerts] == [("share", 3, True)]
    assert "share fires on" in alerts[0].message
    assert alerts[0].message.endswith("largest share 0.9 parts > 0.5 parts; stopping it")


def test_live_and_afterwards_agree_on_how_many_rows_it_takes():
    patient = type("Patient", (Share,), {"name": "patient", "in_a_row": 2})
    log = heavy(cases.run())
    protocol = protocol_named("published").with_checks([patient])
    assert [(alert.check, alert.epoch) for alert in feed(cs.Monitor(protocol), log)] == [("patient", 4)]
    (claim,) = cs.audit([log], protocol, baseline=0.3).claims
    assert next(o.first_epoch for o in claim.outcomes if o.name == "patient") == 4


def test_a_check_of_whole_runs_is_never_watched():
    monitor = cs.Monitor(protocol_named("standard").with_checks([Climb]))
    assert "climb" not in [check.name for check in monitor.checks]
    assert "share" in [check.name for check in cs.Monitor(protocol_named("standard").with_checks([Share])).checks]


def test_a_check_that_fails_never_ends_the_training():
    heard = []
    monitor = cs.Monitor(protocol_named("standard").with_checks([Broken]), on_problem=heard.append)
    log = cases.run()
    assert feed(monitor, log) == []
    # Once is enough.
    said = [f"{log.spec.run_id}: broken failed at epoch 0: ZeroDivisionError: float division by zero"]
    assert heard == monitor.problems == said


def test_watching_a_model_raises_its_alert():
    x, y = samples()
    protocol = protocol_named("standard").with_checks([Share(0.0)])
    heard = []
    with cs.watch(
        Net(), probe=(x, y), budget=1.0, on_alert=heard.append, protocol=protocol, redraws=19, directions=1
    ) as scope:
        scope.epoch()
    assert "share" in {alert.check for alert in heard}
    assert scope.audit().protocol == protocol
    assert scope.audit(protocol="published").protocol.label == "published"


# --- the command line -----------------------------------------------------------------------------------------------


def test_audit_takes_a_check_by_its_place(folder, module):
    done = call("audit", folder, "--check", "mychecks:Share", "--advisory-check", "mychecks:Climb", "--format", "json")
    assert done.exit_code == 0, done.stderr
    made = json.loads(done.stdout)
    assert [check["name"] for check in made["added_checks"]] == ["share", "climb"]
    assert {cell["method"]: cell["verdict"] for cell in made["cells"] if cell["verdict"]} == {
        "bp": "trustworthy",
        "dfa": "walked back",
    }
    # This one looks at the first epoch, which an audit of built-in checks lets go.
    climbs = [c for cell in made["cells"] for c in cell["checks"] if c["name"] == "climb"]
    assert {c["outcome"] for c in climbs} == {"passes"}


def test_set_reaches_it(folder, module):
    words = ("audit", folder, "--check", "mychecks:Share", "--fail-on-walkback")
    assert call(*words).exit_code == 1
    assert call(*words, "--set", "share=0.95").exit_code == 0
    refused = call(*words, "--set", "share=2")
    assert str(refused.exception) == "threshold share must be a finite number in [0, 1], got 2.0"


def test_report_takes_it_and_says_so(folder, module, tmp_path):
    done = call(
        "report",
        folder,
        "--out",
        tmp_path / "r.html",
        "--check",
        "mychecks:Share",
        "--advisory-check",
        "mychecks:Climb",
    )
    assert done.exit_code == 0, done.exception
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "Share of the branch" in page.text
    assert "--check mychecks:Share --advisory-check mychecks:Climb" in page.text


def test_what_cannot_be_found_is_said_in_one_line(folder, module):
    for place, message in (
        ("mychecks:Shar", "mychecks has no Shar; did you mean 'Share'"),
        ("nowhere:X", "cannot be imported"),
        ("mychecks", "unknown check 'mychecks'"),
    ):
        refused = call("audit", folder, "--check", place)
        assert isinstance(refused.exception, BadInput)
        assert message in str(refused.exception)


def test_train_watches_by_it(module, tmp_path):
    tiny = "--data synthetic --device cpu --rules dfa --seeds 1 --epochs 2 --set width=4 --set depth=2 --set batch=512"
    words = ("train", *tiny.split(), "--set", "probe.n=16", "--out", tmp_path / "out", "--check", "mychecks:Share")
    with (module / "mychecks.py").open("a") as file:
        file.write("\n\nShare.threshold = 0.0\n")
    refused = call(*words)
    assert str(refused.exception) == "--check judges while training: add --monitor alert or --monitor stop"
    done = call(*words, "--monitor", "alert")
    assert done.exit_code == 0, done.exception
    assert "share fires on" in done.stderr


HELP = """
import sys
from creditscope.cli import main
sys.argv = ["creditscope", "audit", "--help"]
try:
    main()
finally:
    sys.stderr.write(" ".join(sorted({"torch", "numpy", "mychecks"} & set(sys.modules))))
"""


def test_an_installed_check_is_known_by_its_name(folder, module):
    info = module / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[creditscope.checks]\nbranch-share = mychecks:Share\n")
    done = call("audit", folder, "--check", "branch-share", "--format", "json")
    assert [check["class"] for check in json.loads(done.stdout)["added_checks"]] == ["mychecks:Share"]
    said = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(module)!r})\n{HELP}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "branch-share" in " ".join(said.stdout.split())
    assert said.stderr == ""  # neither the check nor anything heavy was imported
