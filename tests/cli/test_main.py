"""The front door: help without torch, one line for a mistake, and how it leaves."""

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import creditscope
from creditscope import cli
from creditscope.errors import BadFile

HELP = """
import sys
from creditscope.cli import main
sys.argv = ["creditscope", *{arguments!r}]
try:
    main()
except SystemExit as done:
    heavy = sorted({{"torch", "numpy", "matplotlib", "scipy", "safetensors", "yaml"}} & set(sys.modules))
    sys.stderr.write(" ".join(heavy))
    raise
"""
VERBS = [command.callback.__name__ for command in cli.app.registered_commands]


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_help_loads_nothing_heavy(arguments):
    done = subprocess.run(
        [sys.executable, "-c", HELP.format(arguments=arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert "Usage: creditscope" in done.stdout


def test_the_summaries_fit_a_terminal_of_80_columns():
    text = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "80"}, terminal_width=80).stdout
    lines = text.partition("Commands:")[2].splitlines()
    told = {line.split()[0]: line for line in lines if line.startswith("  ") and line.split()[0] in VERBS}
    assert set(told) == set(VERBS)
    assert all(line.endswith((".", "?")) and "..." not in line and "…" not in line for line in told.values())
    assert max(map(len, text.splitlines())) <= 80


def test_the_version():
    result = CliRunner().invoke(cli.app, ["--version"])
    assert result.stdout == f"creditscope {creditscope.__version__}\n"


def test_completion_names_the_figures():
    shell = {"_CREDITSCOPE_COMPLETE": "complete_bash", "COMP_WORDS": "creditscope figure h", "COMP_CWORD": "2"}
    result = CliRunner().invoke(cli.app, [], env=shell, prog_name="creditscope")
    assert result.stdout.split() == ["hero"]


def test_there_is_a_verb_for_each_file():
    assert {"train", "audit", "figure", "ls", "show", "probe", "lint"} <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_every_option_has_help(verb):
    result = CliRunner().invoke(cli.app, [verb, "--help"])
    assert result.exit_code == 0
    command = typer.main.get_command(cli.app).commands[verb]
    assert len(command.help.split()) > 3
    for option in command.params:
        assert option.help or option.name == "help", f"{verb} {option.name}"


def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "creditscope", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "train" in done.stdout


@pytest.fixture
def front(monkeypatch, capsys):
    """Call the front door with a verb that does as told."""
    monkeypatch.setattr(cli.signal, "signal", lambda number, handler: None)

    def call(verb):
        made = typer.Typer(pretty_exceptions_enable=False)
        made.command()(verb)
        monkeypatch.setattr(cli, "app", lambda: made(args=[]))
        with pytest.raises(SystemExit) as left:
            cli.main()
        return left.value.code, capsys.readouterr().err

    return call


def test_a_mistake_is_one_line_and_exit_2(front):
    def verb():
        raise BadFile("x.jsonl: not a log; give another")

    assert front(verb) == (2, "creditscope: x.jsonl: not a log; give another\n")


def test_so_is_what_the_system_refuses(front):
    def verb():
        raise PermissionError(13, "Permission denied", "/some/where/secret.jsonl")

    code, error = front(verb)
    assert (code, error) == (2, "creditscope: secret.jsonl: Permission denied; check the path and its permissions\n")

    def nameless():
        raise OSError(28, "No space left on device")

    assert front(nameless)[1].startswith("creditscope: the output cannot be written: No space left on device")


def test_a_stop_says_how_to_go_on(front):
    def verb():
        raise KeyboardInterrupt

    code, error = front(verb)
    assert code == 130
    assert error.strip() == "creditscope: stopped; what was logged is kept, and --resume goes on with it"


def test_a_plain_exit_is_passed_on(front):
    def verb():
        raise typer.Exit(1)

    assert front(verb) == (1, "")


def test_our_own_mistakes_are_not_hidden(front):
    def verb():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        front(verb)


def test_a_reader_that_leaves_is_no_error(tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m creditscope lint --help | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
