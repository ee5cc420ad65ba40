"""Logs, the page made from them, and a headless browser that may load nothing but that page."""

import shutil

import pytest
from report.cases import Page, suite, write

from creditscope.report import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def logs():
    return suite()


@pytest.fixture(scope="session")
def folder(logs, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    write(logs, path)
    return path


@pytest.fixture(scope="session")
def html(logs, tmp_path_factory):
    return write_report(logs, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="session")
def page(html):
    return Page(html.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def chromium():
    """A system browser, driven headless."""
    sync_api = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: wanted one of {', '.join(BROWSERS)} on the path")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS, headless=True)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Open a file and return its page; at the end nothing was asked for but that file, and no error was logged."""
    opened, asked, errors = [], [], []

    def open_page(path, view="", **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        opened.append(context)
        tab = context.new_page()
        uri = path.as_uri()

        def answer(route):
            if route.request.url.split("#")[0] == uri:
                route.continue_()
            else:
                asked.append(route.request.url)
                route.abort()

        tab.route("**/*", answer)
        tab.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(uri + view)
        if options.get("java_script_enabled", True):
            tab.wait_for_selector("html[data-drawn=all]")
        return tab

    open_page.errors = errors
    yield open_page
    for context in opened:
        context.close()
    assert asked == []
    assert errors == []
