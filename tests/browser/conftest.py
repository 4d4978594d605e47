"""A real browser. Debian's Chromium, or whatever FEDLOOM_CHROMIUM names, driven by Playwright."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(
    str(Path(__file__).parents[1] / "unit" / "report")
)  # where run folders are made by hand

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MISSING = (
    "browser tests must find Chromium: `apt-get install chromium`, "
    "or set FEDLOOM_CHROMIUM to its path"
)


def chromium():
    return (
        os.environ.get("FEDLOOM_CHROMIUM")
        or shutil.which("chromium")
        or shutil.which("chromium-browser")
    )


@pytest.fixture(scope="session")
def browser():
    path = chromium()
    if path is None:
        pytest.fail(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def visit(browser):
    """Opens an address; the browser's console must have no errors at the end of the test."""
    contexts = []
    complaints = []

    def open_page(address, **settings):
        contexts.append(
            browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **settings})
        )
        page = contexts[-1].new_page()
        page.on(
            "console",
            lambda message: complaints.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
