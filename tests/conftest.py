"""Shared test set-up: helpers in ``cases`` are importable, and a skip on CI is a failure."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

ON_CI = os.environ.get("CI", "").lower() == "true"

# A busy machine is not a bug; and on CI the same examples run every time.
settings.register_profile("house", deadline=None, derandomize=ON_CI, print_blob=True)
settings.load_profile("house")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """On CI a test that did not run has failed; only a missing CUDA device is an excuse."""
    outcome = yield
    report = outcome.get_result()
    if ON_CI and report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("gpu") is None:
        report.outcome = "failed"
        report.longrepr = f"skipped on CI: {_reason(report)}"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """The same for a whole module that skips itself."""
    outcome = yield
    report = outcome.get_result()
    if ON_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped on CI: {_reason(report)}"


def _reason(report):
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.fixture
def ahead(monkeypatch):
    """Every fleet is asked for the next epoch before the last is written down, as on a GPU."""
    from creditscope.engine.cuda_streams import Streams

    begin = Streams.__init__

    def began(streams, device):
        begin(streams, device)
        streams.ahead = True

    monkeypatch.setattr(Streams, "__init__", began)
