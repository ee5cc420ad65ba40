"""The pages name only what exists: verbs, options, fields, files; and their code runs."""

import contextlib
import io
import re
import shlex
import tomllib
from pathlib import Path

import make_reference
import pytest
import typer

import creditscope
from creditscope.cli import app
from creditscope.records.schema import row_schema

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
COMMANDS = typer.main.get_command(app).commands


def text_of(path):
    return path.read_text(encoding="utf-8")


def console(path):
    for block in re.findall(r"```console\n(.*?)```", text_of(path), flags=re.DOTALL):
        yield from (line[2:] for line in block.splitlines() if line.startswith("$ creditscope "))


@pytest.mark.parametrize("path", [*PAGES, ROOT / "results/cifar10-h200/README.md"], ids=lambda path: path.name)
def test_every_command_on_a_page_exists_with_its_options(path):
    for line in console(path):
        _, verb, *words = shlex.split(line)
        assert verb in COMMANDS, line
        known = {name for parameter in COMMANDS[verb].params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_some_commands_were_found():
    assert sum(1 for path in PAGES for _ in console(path)) >= 8


def test_the_command_page_holds_what_help_prints():
    page = make_reference.cli_page()
    assert set(make_reference.help_texts()) == set(COMMANDS)
    for name, command in COMMANDS.items():
        section = page.split(f"## `creditscope {name}`")[1].split("\n## ")[0]
        for parameter in command.params:
            shown = parameter.metavar if parameter.param_type_name == "argument" else None
            assert (shown or parameter.opts[0].lstrip("-")) in section


def test_the_log_page_holds_every_field_of_the_schema():
    page = make_reference.rows_page().replace("\\_", "_")
    definitions = row_schema()["$defs"]
    assert len(definitions) > 10
    for name, definition in definitions.items():
        heading = (
            f"`{name}`" if not name.endswith("Row") else f'`"kind": "{definition["properties"]["kind"]["const"]}"`'
        )
        section = page.split(f"### {heading}\n")[1].split("\n### ")[0]
        for field in definition["properties"]:
            assert field == "kind" or f"\n| {field} | " in section, (name, field)


def test_every_field_of_a_row_says_what_it_means():
    for record in make_reference.ROW_KINDS:
        assert set(make_reference.described(record)) == set(record.model_fields) - {"kind"}


def test_the_api_page_holds_every_public_name():
    page = make_reference.api_page()
    assert re.findall(r"^## `creditscope\.(\w+)`$", page, flags=re.MULTILINE) == sorted(
        set(creditscope.__all__) - {"__version__"}, key=str.lower
    )


def test_every_page_is_in_the_table_of_contents():
    listed = set(re.findall(r"^[a-z_]+$", text_of(DOCS / "index.md"), flags=re.MULTILINE))
    assert listed == {path.stem for path in PAGES} - {"index"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_and_picture_exists(path):
    text = text_of(path)
    links = re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", text)
    links += re.findall(r"```\{image\} (\S+)", text) + re.findall(r"\{download\}`[^<`]*<([^>]+)>`", text)
    for link in links:
        assert (DOCS / link).is_file(), link


def test_the_architecture_page_names_every_room_and_real_files():
    text = text_of(DOCS / "architecture.md")
    rooms = {path.parent.name for path in (ROOT / "src" / "creditscope").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)) == rooms
    for name in re.findall(r"`((?:blocks|probes|engine|records|protocol|figures|rules)/[\w/]+\.py)`", text):
        assert "my_" in name or (ROOT / "src" / "creditscope" / name).is_file(), name


def test_the_thresholds_of_the_concepts_page_are_the_defaults():
    from creditscope.protocol.presets import protocol_named

    rows = dict(
        re.findall(r"^\| (\w+) \| .*? \| ([^|]*[\d.e-]+[^|]*) \|$", text_of(DOCS / "concepts.md"), re.MULTILINE)
    )
    checks = ("scale", "reference", "depth", "fidelity", "direction", "movement")
    for name in checks:
        numbers = [float(part) for part in re.findall(r"\d[\d.]*(?:e-?\d+)?", rows[name])]
        assert numbers[0] == pytest.approx(protocol_named("standard").thresholds[name]), name


def test_the_code_of_the_quickstart_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", text_of(DOCS / "quickstart.md"), flags=re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "quickstart", "exec"), {"__name__": "quickstart"})
    assert len(list((tmp_path / "runs").glob("*.jsonl"))) == 8
    assert re.search(r"^dfa-rms (walked back|incomplete|trustworthy)$", out.getvalue(), flags=re.MULTILINE)


MACHINE = re.compile(r"(?<![\w.])(/home/|/root\b|/work/|/tmp/|/Users/|/mnt/|/opt/)")


def test_no_path_of_a_machine_in_docs_or_results():
    files = [*DOCS.glob("*.*"), *(ROOT / "results").rglob("*.py"), *(ROOT / "results").rglob("*.md")]
    files += [*(ROOT / "results").rglob("*.yaml"), *(DOCS / "figures").glob("*.csv"), *(DOCS / "figures").glob("*.svg")]
    assert [path.name for path in files if path.is_file() and MACHINE.search(text_of(path))] == []


def test_the_packages_of_the_site_are_the_docs_extra():
    extras = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]["docs"]
    assert {re.split(r"[><=]", package)[0] for package in extras} == {"sphinx", "furo", "myst-nb"}
