"""Debian's Chromium over a page: what it complains of, what it asks for, and where things stand."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

CHROMIUM = Path("/usr/bin/chromium")
DRIVER = Path("/usr/bin/chromedriver")
# A4 without the margins of style.css, in the pixels of CSS.
PAPER = (703, 1009)
_SENT = "Network.requestWillBeSent"
_AUDIT = (Path(__file__).parent / "page" / "audit.js").read_text("utf-8")


class Browser:
    """One Chromium, one page at a time."""

    def __init__(self, driver: webdriver.Chrome, folder: Path) -> None:
        self._driver = driver
        self._page = folder / "page.html"

    def load(self, html: str) -> None:
        """Shows `html`; what was logged before is forgotten."""
        self._page.write_text(html, "utf-8")
        for kind in ("browser", "performance"):
            self._driver.get_log(kind)  # type: ignore[no-untyped-call]
        self._driver.get(self._page.as_uri())

    def complaints(self) -> list[str]:
        """What stands in the console."""
        return [entry["message"] for entry in self._log("browser")]

    def requests(self) -> list[str]:
        """What was asked for, the page itself left out."""
        events = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        sent = [event["params"] for event in events if event["method"] == _SENT]
        # What the browser's own first page asks for is not ours.
        asked = [one["request"]["url"] for one in sent if one["documentURL"] == self._page.as_uri()]
        return [url for url in asked if url != self._page.as_uri()]

    def _log(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._driver.get_log(kind)  # type: ignore[no-untyped-call]
        return found

    def show(self, width: int, scheme: str = "light", media: str = "screen") -> None:
        """As wide as this, light or dark, on a screen or as for print."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._tell("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._tell("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def audit(self, colours: bool = False, paper: bool = False) -> list[str]:
        """What stands where it should not; colours: and what cannot be read."""
        found: list[str] = self.run(f"return ({_AUDIT})(...arguments)", colours, paper)
        return found

    def run(self, script: str, *arguments: object) -> Any:
        """The page itself may run no script; whoever drives the browser may."""
        return self._driver.execute_script(script, *arguments)

    def pdf(self) -> bytes:
        """As it is printed."""
        said = self._tell("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": False})
        return base64.b64decode(said["data"])

    def _tell(self, command: str, said: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._driver.execute_cdp_cmd(command, said)
        return answer


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Started and ended; all that it writes lies in `folder`."""
    options = Options()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "--headless=new",
        # Chromium's own sandbox does not work for root, as which containers run tests.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-extensions",
        "--no-first-run",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield Browser(driver, folder)
    finally:
        driver.quit()
