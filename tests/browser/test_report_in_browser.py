"""report.html as a person has it: from a file, in light and dark, on a phone, on paper, by keyboard."""

import pytest
from clocked import clustered_rows
from fabricated import OTHER, USUAL, client, counted, make_run, row, searched, split_of

from fedloom.report.page import write_report
from fedloom.report.palette import DARK, LIGHT

pytestmark = pytest.mark.browser
NASTY = "<img src=x onerror=\"document.title='hit'\">"
GROUND = "getComputedStyle(document.body).backgroundColor"
PHONE = {"viewport": {"width": 390, "height": 844}}


def rgb(colour):
    return "rgb({}, {}, {})".format(*(int(colour[k : k + 2], 16) for k in (1, 3, 5)))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """120 clients, ten of them named by somebody with bad intentions."""
    clients = [client(k, k / 120, searched(OTHER if k % 4 == 1 else USUAL), params=1000 + k) for k in range(120)]
    made = {**counted(60, [NASTY, "dog"]), "names": [f"{NASTY} {k}" for k in range(10)]}
    confusion = {"labels": [NASTY, "dog"], "clients": 120, "counts": [[9, 1], [2, 8]]}
    rows = [row(k, k / 20, k / 30, phase="search" if k < 5 else "final") for k in range(1, 13)]
    folder = make_run(tmp_path_factory.mktemp("a") / "run", rows, clients, classes=made, confusion=confusion)
    return write_report(folder).as_uri()


def test_a_clients_cells_can_be_opened(visit, address):
    page = visit(address)
    cell = page.locator("details[data-key='cell-1']")
    picture = cell.locator("svg.fl-cell")
    assert not picture.is_visible()
    cell.locator("summary").first.click()
    assert picture.is_visible() and "normal cell" in picture.text_content()
    assert cell.locator(".marked").count() == 2
    assert picture.bounding_box()["width"] > 300
    assert page.title() == "fedavg on made, iid, seed 0"  # and nobody's name ran as a program


def test_everything_can_be_reached_by_keyboard(visit, address):
    page = visit(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the report"
    table = page.locator("details[data-key='curve-table']")
    table.locator("summary").focus()
    page.keyboard.press("Enter")
    assert table.locator("table").is_visible()


def test_a_long_table_has_pages(visit, address):
    page = visit(address)
    rows = page.locator("#clients tbody tr:visible")
    assert rows.count() == 50
    page.locator("#clients .pages button", has_text="On").click()
    assert page.locator("#clients .pages span").inner_text() == "51 to 100 of 120"
    assert "client 50" in rows.first.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{}, PHONE], ids=["screen", "phone"])
def test_light_and_dark_on_screen_and_phone(visit, address, scheme, size):
    page = visit(address, color_scheme=scheme, **size)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate(GROUND) == rgb({"light": LIGHT, "dark": DARK}[scheme].ground)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_letters_stay_readable_on_a_phone(visit, address):
    page = visit(address, **PHONE)
    heights = page.evaluate(
        "[...document.querySelectorAll('#curve-figure text')].map(t => t.getBoundingClientRect().height)"
    )
    assert min(heights) > 10


def test_paper_is_light_and_shows_the_cells(visit, address):
    page = visit(address, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(GROUND) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert page.locator("#clients tbody tr:visible").count() == 120
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details[data-key='cell-1'] svg.fl-cell").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.locator("details[data-key='cell-1'] svg.fl-cell").is_visible()


def test_the_policy_really_forbids(browser, address):
    page = browser.new_page()
    page.goto(address)
    assert page.evaluate("fetch('https://127.0.0.1:1/').then(() => 'sent', () => 'refused')") == "refused"
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img id=i src=x onerror=\"window.hit=1\">')")
    page.wait_for_timeout(200)
    assert page.evaluate("window.hit") is None
    page.close()


@pytest.mark.parametrize("size", [{}, PHONE], ids=["screen", "phone"])
def test_the_timeline_scrolls_inside_its_frame(visit, tmp_path, size):
    """Clusters, one of them with an aggregator that is lost: the page itself stays as broad as the screen."""
    config = {"engine": {"topology": "clustered:2x2"}, "topology": {"clusters": "labels"}}
    folder = make_run(tmp_path / "run", clustered_rows(), config=config, split=split_of(4))
    page = visit(write_report(folder).as_uri(), **size)
    for key in ("timeline", "cluster-labels", "attendance", "spent-seconds"):
        assert page.locator(f"#{key}-figure svg").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    drawing = page.locator("#timeline-figure svg.timeline").bounding_box()
    frame = page.locator("#timeline-figure .scroll").first.bounding_box()
    assert drawing["width"] > 900 and frame["width"] < drawing["width"] + 100
    letters = "[...document.querySelectorAll('svg.timeline text')]"
    assert min(page.evaluate(f"{letters}.map(t => t.getBoundingClientRect().height)")) > 10
