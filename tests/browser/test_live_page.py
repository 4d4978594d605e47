"""The live page of a real run.

It opens, its curve grows, what is open stays open, and it ends with the run.
"""

import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from fabricated import client, make_run, row

pytestmark = pytest.mark.browser
POINTS = """() => {const path = document.querySelector("#curve-figure path.curve");
return path ? path.getAttribute("d").split("L").length : 0}"""

SLOW = """
import time
from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions

class Slow(FedAvg):
    def client(self, *given):
        time.sleep(0.08)  # so that somebody can watch
        return super().client(*given)

slow = Recipe(
    "FedAvg, slowly",
    FedAvgOptions,
    lambda task: (Stage("train", Slow(FedAvgOptions(**task.options))),),
)
"""


def started(*words):
    """A command, once it has told its address: (process, address)."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "fedloom", *map(str, words)],
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    for line in process.stdout:
        match = re.search(r"watch it at (http://127\.0\.0\.1:\d+/\S+/)", line)
        if match:
            return process, match.group(1)
    raise AssertionError(f"it ended with {process.wait()} and told no address")


def until(page, holds, seconds=60):
    """Waits; the page's policy forbids the driver's own way of waiting, which evaluates text."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        page.wait_for_timeout(100)


def ended(process):
    """Its exit code; whatever it still says is read, so that it cannot be held up."""
    process.communicate(timeout=60)
    return process.returncode


@pytest.fixture
def images(tmp_path):
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = np.clip(generator.normal(60 + 60 * y[:, None, None], 30, (90, 6, 6)), 0, 255).astype(
        np.uint8
    )
    np.savez(tmp_path / "images.npz", x=x, y=y)
    return tmp_path / "images.npz"


def test_a_run_that_is_watched(visit, images, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    process, address = started(
        "run",
        f"{tmp_path}/slow.py:slow",
        "--data",
        images,
        "--clients",
        3,
        "--partition",
        "iid",
        "--rounds",
        30,
        "--workers",
        0,
        "--width",
        0.25,
        "--set",
        "evaluate.every=1",
        "--out",
        tmp_path / "run",
        "--watch",
    )
    try:
        page = visit(address, color_scheme="dark")
        until(page, lambda: page.evaluate(POINTS) >= 2)
        first = page.evaluate(POINTS)
        page.locator("details[data-key='curve-table'] summary").click()
        page.evaluate("scrollTo(0, 200)")
        until(page, lambda: page.evaluate(POINTS) > first + 5)
        assert page.locator("details[data-key='curve-table']").get_attribute("open") is not None
        assert page.evaluate("scrollY") == 200
        assert page.locator("#standing").inner_text() == "live"
        until(page, lambda: page.locator("#standing").inner_text() == "finished")
        assert (
            page.locator("#intervals-figure").is_visible()
            and page.locator("#confusion-figure").is_visible()
        )
        assert ended(process) == 0
        page.wait_for_timeout(1500)  # it does not ask any more, or the console would complain
    finally:
        process.kill()
    assert (tmp_path / "run" / "report.html").read_text().count("<figure") >= 7


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """`fedloom watch` of a finished run; the last of its tests ends it."""
    folder = make_run(
        tmp_path_factory.mktemp("finished") / "done",
        [row(1), row(2)],
        [client(k) for k in range(3)],
    )
    process, address = started("watch", folder.path)
    yield process, address
    process.kill()
    process.communicate()


def test_a_wrong_token_and_another_origin_get_nothing(browser, finished, tmp_path):
    _, address = finished
    page = browser.new_page()
    wrong = page.goto(address[:-3] + "x" * 2 + "/")
    assert wrong.status == 403 and "token" in page.inner_text("body")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text(f'<iframe src="{address}"></iframe>')
    with other_origin(tmp_path / "other") as elsewhere:
        page.goto(elsewhere)
        asked = f"fetch('{address}state').then(a => a.text(), e => 'refused')"
        assert page.evaluate(asked) == "refused"
        opaque = f"fetch('{address}state', {{mode: 'no-cors'}}).then(a => a.text(), e => 'refused')"
        assert page.evaluate(opaque) in ("refused", "")
        assert not any("FedLoom" in frame.content() for frame in page.frames[1:])
    page.close()


def test_a_finished_run_is_served_until_ctrl_c(visit, finished):
    process, address = finished
    page = visit(address)
    until(page, lambda: page.locator("#standing").inner_text() == "finished")
    time.sleep(1.5)
    assert process.poll() is None and page.locator("#intervals-figure").is_visible()
    page.close()
    process.send_signal(signal.SIGINT)
    assert ended(process) == 0


class other_origin:
    """Another server of this machine, with another page."""

    def __init__(self, folder):
        def handler(*words):
            return Silent(*words, directory=str(folder))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_address[1]}/"

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass
