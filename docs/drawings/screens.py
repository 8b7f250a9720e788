"""Screenshots of the report and of the live page, of the recorded run, with the digests of the pages that they show.

The report's picture has numbers next to the parts that docs/reading-the-report.md explains.
"""

import base64
import hashlib
import json
import tempfile
from pathlib import Path

from choral import __version__
from choral.record import read_run
from choral.report import charts, live, report_page

RUN = Path(__file__).parents[1] / "pictures/run"
DIGESTS = "screens.json"
# The headings of the report that get a number, in the order of docs/reading-the-report.md.
NUMBERED = (
    "statement", "signature", "uncovered", "claims", "merit", "budgets", "by-colluders", "sight", "releases", "check",
    "published",
)  # fmt: skip
_WIDTH = 760
_NUMBER = (
    "font: 700 15px/26px system-ui, sans-serif; display: inline-block; width: 26px; border-radius: 13px;"
    "text-align: center; background: #b34a00; color: #fff; margin-right: 8px"
)
_MARK = """
arguments[0].forEach((id, place) => {
  const mark = document.createElement('span');
  mark.textContent = place + 1;
  mark.style.cssText = arguments[1];  // an attribute would be refused by the page's own policy
  document.getElementById(id).prepend(mark);
});
"""

_TOP = "return document.getElementById('uncovered').closest('section').getBoundingClientRect().top"


def digests() -> dict[str, str]:
    """What the pictures show, as today's code makes it of the recorded run."""
    record = read_run(RUN)
    static = "".join(report_page.static(name) for name in ("theme.css", "live.css", "live.html")) + charts.STYLE
    pages = {"report": report_page.page(record), "live": static + "".join(live.live_page(record).values())}
    # A new version of choral alone changes nothing that can be seen.
    unversioned = {name: text.replace(f"choral {__version__}", "choral") for name, text in pages.items()}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in unversioned.items()}


def take(pictures: Path) -> None:
    """The six pictures, light and dark, and the digests of the pages; needs Chromium, as the tests of pages do."""
    from tests.browser import chromium, show

    with tempfile.TemporaryDirectory() as folder, live.serve(RUN) as served:
        report = Path(folder) / "report.html"
        report.write_text(report_page.page(read_run(RUN)))
        with chromium(f"{folder}/profile") as browser:
            for scheme in ("light", "dark"):
                show(browser, report.as_uri(), width=_WIDTH, scheme=scheme)
                top = browser.execute_script(_TOP)
                _keep(browser, pictures / f"report-top-{scheme}.webp", top)
                browser.execute_script(_MARK, NUMBERED, _NUMBER)
                _keep(browser, pictures / f"report-{scheme}.webp")
                show(browser, served.url, width=_WIDTH, scheme=scheme)
                browser.execute_async_script("setTimeout(arguments[0], 1500)")  # until the run is shown
                _keep(browser, pictures / f"live-{scheme}.webp")
    (pictures / DIGESTS).write_text(json.dumps(digests(), indent=1) + "\n")


def _keep(browser, target: Path, most: int = 10_000) -> None:  # noqa: ANN001 - selenium's, which only the tests need
    height = min(browser.execute_script("return document.documentElement.scrollHeight"), most)
    clip = {"x": 0, "y": 0, "width": _WIDTH, "height": height, "scale": 1}
    asked = {"format": "webp", "quality": 60, "captureBeyondViewport": True, "clip": clip}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", asked)
    target.write_bytes(base64.b64decode(shot["data"]))
