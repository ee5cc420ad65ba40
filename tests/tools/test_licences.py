"""The licence check: it passes here, and it can fail."""

import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["creditscope"]["licences"]


@pytest.fixture(scope="module")
def licences():
    spec = spec_from_file_location("licences", ROOT / "tools" / "licences.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0", False),
        ("UNKNOWN", False),
        ("", False),
        ("MIT AND BSD", True),
        ("MIT AND GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("GPL-3.0 OR MIT AND GPL-2.0", False),
        ("MIT; GPL-3.0", False),
        ("MIT; BSD", True),
        ("MITX", False),
    ],
)
def test_alternatives_and_parts(licences, expression, allowed):
    assert licences.is_allowed(expression, {"MIT", "BSD"}) == allowed


def package(name, licence):
    return {"Name": name, "Version": "1.0", "License": licence}


def test_what_is_refused_is_named(licences):
    packages = [package("good", "MIT"), package("bad", "AGPL-3.0"), package("nvidia-x", "Proprietary")]
    assert licences.refused(packages, ["MIT"], {"nvidia-*": "why"}) == [
        "bad 1.0: 'AGPL-3.0' is not on the list in pyproject.toml"
    ]


@pytest.mark.parametrize("more", [[], [package("bad", "AGPL-3.0")]])
def test_this_environment_and_one_package_more(licences, monkeypatch, capsys, more):
    packages = licences.installed()
    assert {"torch", "numpy", "pydantic"} <= {each["Name"] for each in packages}
    monkeypatch.setattr(licences, "installed", lambda: [*packages, *more])
    assert licences.main() == len(more)
    assert f"{len(packages) + len(more)} packages, {len(more)} with a licence" in capsys.readouterr().out


def test_no_licence_that_binds_its_users_is_on_the_list():
    assert not [name for name in SETTINGS["allow"] if "GPL" in name or "General Public" in name or name == "UNKNOWN"]
