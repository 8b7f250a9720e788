"""The report and the live page in a real Chromium: by keyboard, printed, narrow and wide, light and dark."""

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from choral.record import Running, read_run
from choral.report import report_page, serve, write_report
from tests.browser import complaints, printed_pages, requested, show, widest
from tests.report.runs import NASTY, make_run, result, round_line
from tests.report.test_report_page import KINDS

MILLIMETRES_OF_A4 = {(210, 297)}


@pytest.fixture
def live(tmp_path):
    with serve(make_run(tmp_path / "run", finished=False, done=2)) as page:
        yield page


def text(browser, place):
    return browser.find_element(By.ID, place).get_attribute("textContent").replace("\xa0", " ")


def wait(browser, condition):
    return WebDriverWait(browser, 10, 0.05).until(lambda _: condition())


def unnamed(browser):
    """Roles that a screen reader would meet without a name."""
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    spoken = {"image", "slider", "button", "link", "heading", "progressbar", "region", "table", "DisclosureTriangle"}
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    assert {"heading", "image", "region"} <= {role for role, _ in roles}
    return [role for role, name in roles if role in spoken - {"table"} and not name]


def finish(folder):
    about = json.loads((folder / "run.json").read_text())
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    (folder / "result.json").write_text(json.dumps(result(about, lines, [2] * 16)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_prints_on_two_a4_pages_or_three_with_an_attack_and_never_scrolls_sideways(kind, browser, tmp_path):
    report = write_report(make_run(tmp_path / "run", **KINDS[kind])).as_uri()
    for width in (400, 1280):
        show(browser, report, width=width)
        assert widest(browser) == width
    sheets, sizes = printed_pages(browser)
    assert sheets == 2 or (sheets == 3 and "attacked" in KINDS[kind])
    assert sizes == MILLIMETRES_OF_A4
    assert complaints(browser) == []
    assert {urlsplit(address).scheme for address in requested(browser)} <= {"file", "data"}


BOTTOM = "return document.getElementById(arguments[0]).closest('section').getBoundingClientRect().bottom"


@pytest.mark.parametrize(
    "kind", ["16 devices", "hostile names", "endless names", "a simulation", "stopped, above limits"]
)
def test_the_first_screen_has_the_picture_the_statement_and_the_decision(kind, browser, tmp_path):
    page = tmp_path / "report.html"
    if kind in KINDS:
        page = write_report(make_run(tmp_path / "run", **KINDS[kind]))
    else:
        page.write_text(report_page.page(stopped_above_its_limits()))
    show(browser, page.as_uri(), width=1280)
    assert browser.execute_script("return innerHeight") == 900
    picture = browser.find_element(By.CSS_SELECTOR, "figure svg").rect
    assert 0 < picture["y"] + picture["height"] < browser.execute_script(BOTTOM, "statement")
    assert browser.execute_script(BOTTOM, "statement") < browser.execute_script(BOTTOM, "signature") <= 900


def stopped_above_its_limits():
    """A deployment whose statement has every sentence that it can have."""
    record = read_run(Path(__file__).parents[1] / "vectors/present_version/deployment")
    privacy = record.result.privacy
    devices = tuple(msgspec.structs.replace(one, epsilon=1.2 * one.limit, retried=2) for one in privacy.devices)
    running = Running(epsilon=1.23, holds="if nobody chose by the results where to stop")
    stated = msgspec.structs.replace(privacy, devices=devices, running=running)
    return replace(record, result=msgspec.structs.replace(record.result, privacy=stated))


def test_hostile_names_run_nothing_in_a_report(browser, tmp_path):
    show(browser, write_report(make_run(tmp_path / "run", nasty=NASTY)).as_uri())
    assert browser.title == f"Privacy report: {NASTY}"
    assert browser.find_elements(By.CSS_SELECTOR, "script, img, [onerror]") == []


def test_a_report_follows_the_readers_colours_and_names_everything_it_shows(browser, tmp_path):
    report = write_report(make_run(tmp_path / "run")).as_uri()
    papers = []
    for scheme in ("light", "dark"):
        show(browser, report, scheme=scheme)
        style = "getComputedStyle(document.documentElement).backgroundColor"
        papers.append(browser.execute_script(f"return {style}.match(/\\d+/g).map(Number)"))
        assert unnamed(browser) == []
    assert min(papers[0]) > 240
    assert max(papers[1]) < 40


def test_the_live_page_shows_a_round_as_soon_as_it_is_written_and_asks_nobody_else(browser, live, tmp_path):
    requested(browser)
    show(browser, live.url)
    wait(browser, lambda: "round 2 of 20" in text(browser, "progress"))
    assert browser.title == "adult-demo · choral, live"
    assert text(browser, "banner").startswith("REHEARSAL")
    assert browser.find_element(By.ID, "status").get_attribute("aria-live") == "polite"
    counts = [2] * 16
    with (tmp_path / "run/rounds.jsonl").open("a") as file:
        file.write(json.dumps(round_line(3, counts, 10, 8)) + "\n")
    wait(browser, lambda: "round 3 of 20" in text(browser, "progress"))
    assert "Round 3:" in text(browser, "cohort")
    assert "Round 2 of 20" in text(browser, "status")  # spoken at every tenth of the run
    assert browser.execute_script("return document.querySelectorAll('#curve circle').length") == 3
    finish(tmp_path / "run")
    wait(browser, lambda: text(browser, "link") == "the run has ended")
    assert "Against everyone" in text(browser, "claims")
    assert complaints(browser) == []
    addresses = {urlsplit(address)[:2] for address in requested(browser)}
    assert addresses <= {("http", urlsplit(live.url).netloc), ("data", "")}
    assert ("http", urlsplit(live.url).netloc) in addresses
    entries = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert entries
    assert all(entry.startswith((live.url, "data:")) for entry in entries)


def test_the_slider_is_reached_and_moved_by_keyboard_and_changes_the_epsilon(browser, live, tmp_path):
    finish(tmp_path / "run")
    show(browser, live.url)
    wait(browser, lambda: "ε ≤ 0.52" in text(browser, "colluders-out"))  # made-up figures: two rounds, two colluders
    for _ in range(10):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element.get_attribute("id") == "colluders":
            break
    slider = browser.switch_to.active_element
    assert slider.get_attribute("id") == "colluders"
    assert slider.value_of_css_property("outline-style") == "solid"
    slider.send_keys(Keys.ARROW_RIGHT)
    assert "With 3 colluders" in text(browser, "colluders-out")
    assert "ε ≤ 0.58" in text(browser, "colluders-out")
    assert slider.get_attribute("aria-valuetext") == "3 colluders"
    slider.send_keys(Keys.END)
    assert "With 9 colluders" in text(browser, "colluders-out")
    assert "no provable extra protection" in text(browser, "colluders-out")
    slider.send_keys(Keys.HOME)
    assert "ε ≤ 0.39" in text(browser, "colluders-out")


def test_the_slider_tells_an_epsilon_while_the_run_goes_on(browser, live):
    show(browser, live.url)
    wait(browser, lambda: "the plan ends at ε ≤ 1.32" in text(browser, "colluders-out"))
    assert "Spent so far: ε ≤ 0.78 against the server" in text(browser, "colluders-out")  # two rounds, made up
    browser.find_element(By.ID, "colluders").send_keys(Keys.ARROW_RIGHT)
    assert "With 3 colluders" in text(browser, "colluders-out")
    assert "the plan ends at ε ≤ 1.48" in text(browser, "colluders-out")


@pytest.mark.parametrize("side", ["server", "device:device 04"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_of_one_side_shows_that_side_only_at_every_width(side, scheme, browser, tmp_path):
    with serve(make_run(tmp_path / "run", finished=False, done=7), viewpoint=side) as page:
        for width in (400, 1280):
            show(browser, page.url, width=width, scheme=scheme)
            wait(browser, lambda: text(browser, "events"))
            assert widest(browser) == width
        assert unnamed(browser) == []
        assert complaints(browser) == []
        who = side.rpartition(":")[2]
        assert browser.title == f"adult-demo, as {who if who != 'server' else 'the server'} sees it · choral, live"
        budgets = text(browser, "budgets")
        assert ("ledger stays on the device" in budgets) == (side == "server")
        assert ("/ 2.00" in budgets) == (side != "server")
        assert text(browser, "curve-h") == (
            "How good the model is" if side == "server" else "What this device has spent"
        )


def test_without_the_token_a_browser_sees_nothing(browser, live):
    address = urlsplit(live.url)
    show(browser, f"http://{address.netloc}/")
    assert browser.find_element(By.TAG_NAME, "body").text == "403: the address is printed by choral watch"
    complaints(browser)  # the browser notes the 403; that is what was asked for


@pytest.mark.parametrize(
    "kind", ["16 devices", "200 devices", "no secure sum", "hostile names", "endless names", "not begun"]
)
def test_the_live_page_never_scrolls_sideways_and_names_everything_it_shows(kind, browser, tmp_path):
    with serve(make_run(tmp_path / "run", **KINDS[kind])) as page:
        for width, scheme in ((400, "dark"), (1280, "light")):
            show(browser, page.url, width=width, scheme=scheme)
            wait(browser, lambda: text(browser, "events"))
            assert widest(browser) == width
        assert browser.find_elements(By.CSS_SELECTOR, "img, main script, [onerror]") == []
        if KINDS[kind].get("done") != 0:
            assert unnamed(browser) == []
        assert complaints(browser) == []


def test_a_closed_page_says_so(browser, tmp_path):
    page = serve(make_run(tmp_path / "run", finished=False, done=1))
    show(browser, page.url)
    wait(browser, lambda: text(browser, "link") == "following the run")
    page.close()
    wait(browser, lambda: text(browser, "link") == "this page's server was closed")
    assert complaints(browser) == []
