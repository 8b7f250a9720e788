"""A real Chromium for tests that look at pages: found on the machine, never downloaded by a test.

Where there is none, these tests are skipped with a reason. CHORAL_REQUIRE_BROWSER=1 makes that a failure: .ci/run sets
it, because a page that nobody has looked at must not pass for a tested one.
"""

import base64
import os
import re
import shutil
from contextlib import contextmanager

import pytest

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


def _program(variable, *names):
    found = os.environ.get(variable) or next(filter(None, map(shutil.which, names)), None)
    if not found:
        reason = f"no {names[0]} on this machine: run `make browser` as root, or set {variable}"
        if os.environ.get("CHORAL_REQUIRE_BROWSER") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


@contextmanager
def chromium(folder):
    """A browser with its profile in this folder; ends with the block."""
    from selenium import webdriver

    binary = _program("CHORAL_CHROMIUM", "chromium", "chromium-browser", "google-chrome")
    driver = _program("CHORAL_CHROMEDRIVER", "chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        yield browser
    finally:
        browser.quit()


def show(browser, address, *, width=1280, scheme="light"):
    """Open a page as a screen of this width and colour scheme shows it."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)


def widest(browser):
    """How wide the page is, in pixels; more than the screen means that it scrolls sideways."""
    return browser.execute_script("return document.documentElement.scrollWidth")


def printed_pages(browser):
    """The page as Chromium prints it on its own paper size: how many sheets, and their size in millimetres."""
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    sizes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    sheets = len(re.findall(rb"/Type\s*/Page\b", pdf))
    return sheets, {tuple(round(float(points) / 72 * 25.4) for points in size) for size in sizes}


def complaints(browser):
    """What the browser wrote to its console since it was last asked: refused resources, errors of scripts."""
    return [line["message"] for line in browser.get_log("browser")]


def requested(browser):
    """Every address that the browser asked for since it was last asked, but for its own built-in pages."""
    log = "\n".join(line["message"] for line in browser.get_log("performance"))
    found = re.findall(r'"Network\.requestWillBeSent".*?"request":\{.*?"url":"([^"]*)"', log)
    return [address for address in found if not address.startswith("chrome:")]
