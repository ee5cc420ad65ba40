"""Provenance: versions and device, and nothing that names a person or a machine."""

import getpass
import json
import platform
import socket
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

from creditscope.records.provenance import now, provenance, version


def test_versions_are_those_installed():
    facts = provenance()
    for package in ("creditscope", "torch", "numpy"):
        assert facts[package] == metadata.version(package)
    assert facts["python"] == platform.python_version()
    assert facts["device"] == "cpu"
    assert "device_name" not in facts


def test_an_accelerator_is_named():
    facts = provenance("cuda", "Some GPU")
    assert (facts["device"], facts["device_name"]) == ("cuda", "Some GPU")


def test_no_host_no_user_no_path(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "secret-host")
    facts = provenance()
    values = set(facts.values())
    assert not values & {socket.gethostname(), getpass.getuser(), "secret-host", str(Path.home())}
    assert "/" not in json.dumps(facts)
    assert "\\" not in json.dumps(facts)


def test_a_package_that_is_not_installed_is_unknown():
    assert version("no-such-package-here") == "unknown"


def test_now_is_utc_to_the_second():
    moment = datetime.fromisoformat(now())
    assert moment.utcoffset() == timedelta(0)
    assert moment.microsecond == 0
    assert abs(datetime.now(UTC) - moment) < timedelta(days=1)
