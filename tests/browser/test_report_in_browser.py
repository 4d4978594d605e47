"""report.html in a browser: from a file, in light and dark, on a phone, on paper, by keyboard."""

import pytest
from clocked import clustered_rows
from fabricated import OTHER, USUAL, client, counted, make_run, row, searched, split_of

from fedloom.records.auto import AutoResult, Gap, LeaderboardRow, OnTest, Spent
from fedloom.records.comparison import MethodRow
from fedloom.report.groups import Versus
from fedloom.report.page import page, write_report
from fedloom.report.palette import DARK, LIGHT
from fedloom.report.sections.leaderboard import LINKS, sections_of_auto
from result_files import method

pytestmark = pytest.mark.browser
NASTY = "<img src=x onerror=\"document.title='hit'\">"
GROUND = "getComputedStyle(document.body).backgroundColor"
PHONE = {"viewport": {"width": 390, "height": 844}}


def rgb(colour):
    return "rgb({}, {}, {})".format(*(int(colour[k : k + 2], 16) for k in (1, 3, 5)))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """120 clients, ten of them named by somebody with bad intentions."""
    clients = []
    for k in range(120):
        architecture = searched(USUAL)
        if k % 4 == 1:
            architecture = searched(OTHER)
        clients.append(client(k, k / 120, architecture, params=1000 + k))
    classes = {**counted(60, [NASTY, "dog"]), "names": [f"{NASTY} {k}" for k in range(10)]}
    confusion = {"labels": [NASTY, "dog"], "clients": 120, "counts": [[9, 1], [2, 8]]}
    rows = [row(k, k / 20, k / 30, phase="search") for k in range(1, 5)]
    rows += [row(k, k / 20, k / 30, phase="final") for k in range(5, 13)]
    folder = make_run(
        tmp_path_factory.mktemp("a") / "run", rows, clients, classes=classes, confusion=confusion
    )
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
    page.locator("#clients .pages button", has_text="Next").click()
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
        "[...document.querySelectorAll('#curve-figure text')]"
        ".map(t => t.getBoundingClientRect().height)"
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
    assert (
        page.evaluate("fetch('https://127.0.0.1:1/').then(() => 'sent', () => 'refused')")
        == "refused"
    )
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img id=i src=x onerror=\"window.hit=1\">')"
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.hit") is None
    page.close()


@pytest.mark.parametrize("size", [{}, PHONE], ids=["screen", "phone"])
def test_the_timeline_scrolls_inside_its_frame(visit, tmp_path, size):
    """With clusters, one of which loses its aggregator, the page stays as wide as the screen."""
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


@pytest.fixture
def leaderboard(tmp_path):
    """A page of `fedloom auto` with three contestants, as its section alone."""
    names = ["half", "local-adaptation", "ditto"]
    rows = []
    for place, name in enumerate(names):
        test = OnTest(
            mean=0.7 - 0.1 * place,
            std=0.1,
            worst=0.2 + 0.1 * place,
            pooled=0.5,
            interval=[0.25, 0.75],
        )
        gap = None if name == "local-adaptation" else Gap(mean=0.1 - 0.1 * place, interval=None)
        rows.append(
            LeaderboardRow(
                name=name,
                validation=0.7,
                test=test,
                to_control=gap,
                params=7e3,
                macs=9e4,
                training_macs=2 * 10**9,
                bytes=3 * 10**6,
                chosen=place == 0,
            )
        )
    methods = [MethodRow.from_json(method(name)) for name in names]
    auto_result = AutoResult(
        runs=[f"{name}-seed0" for name in names],
        methods=methods,
        verdict="Use it",
        leaderboard=rows,
        decisions=[],
        spent=Spent(macs=1, bytes=1, rounds=1, share={}),
        clients=[],
    )
    versus = Versus(
        path=tmp_path,
        standing="finished",
        groups=[],
        rows=methods,
        command="",
        seeds=1,
        auto_result=auto_result,
    )
    (tmp_path / "report.html").write_text(page("auto", sections_of_auto(versus), LINKS))
    return (tmp_path / "report.html").as_uri()


def test_a_leaderboard_is_sorted_and_filtered(visit, leaderboard):
    page = visit(leaderboard, viewport={"width": 1280, "height": 900})
    rows = page.locator("#leaderboard tbody tr:visible th")

    def shown():
        return [row.inner_text().split("\n")[0] for row in rows.all()]

    assert shown() == ["half", "local-adaptation", "ditto"]
    worst = page.locator("#leaderboard th", has_text="worst")
    worst.locator("button").click()
    assert (
        shown() == ["ditto", "local-adaptation", "half"]
        and worst.get_attribute("aria-sort") == "descending"
    )
    worst.locator("button").press("Enter")
    assert (
        shown() == ["half", "local-adaptation", "ditto"]
        and worst.get_attribute("aria-sort") == "ascending"
    )
    page.locator("#leaderboard th", has_text="vs control").locator("button").click()
    assert shown() == [
        "half",
        "ditto",
        "local-adaptation",
    ]  # the control has no difference, and is the last
    page.locator("#leaderboard input").fill("LOCAL")
    assert shown() == ["local-adaptation"]
    assert (
        page.locator("#leaderboard tr.best").evaluate(
            "row => getComputedStyle(row.cells[1]).fontWeight"
        )
        == "700"
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_a_leaderboard_is_not_clipped(visit, leaderboard, width):
    page = visit(leaderboard, viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width == 1280:
        box = page.locator("#leaderboard .scroll").first
        assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
