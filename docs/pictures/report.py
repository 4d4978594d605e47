"""Takes the pictures of docs/report.md: `python docs/pictures/report.py RUN COMPARISON`.

It needs fedloom[browser]. RUN is best a search with a network for each client, after
`fedloom gain`; COMPARISON is one of several seeds.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
OPEN = "document.querySelectorAll('details.printed').forEach((d, k) => d.open = k === 0)"


def take(
    browser: Browser,
    name: str,
    report: Path,
    width: int,
    height: int,
    scheme: str,
    *,
    at: str = "body",
) -> None:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(report.resolve().as_uri())
    page.evaluate(OPEN)
    page.evaluate(f"document.querySelector('{at}').scrollIntoView()")
    page.screenshot(path=HERE / f"{name}.png")
    context.close()


def main(run: Path, comparison: Path) -> None:
    for folder in (run, comparison):
        subprocess.run([sys.executable, "-m", "fedloom", "report", str(folder)], check=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        take(browser, "report", run / "report.html", 1080, 1060, "light")
        take(browser, "report-phone", run / "report.html", 390, 844, "dark", at="#cells")
        take(browser, "report-compare", comparison / "report.html", 1080, 900, "light")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
