"""What the tests of the command line share."""

import sys

import pytest

from creditscope import cli


@pytest.fixture
def creditscope(monkeypatch, capsys):
    """The command line in this process: (exit code, stdout, stderr)."""
    monkeypatch.setattr(cli.signal, "signal", lambda number, handler: None)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["creditscope", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as left:
            code = left.code
        out, err = capsys.readouterr()
        return code, out, err

    return call
