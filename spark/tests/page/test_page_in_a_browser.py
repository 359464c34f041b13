"""A real browser over the report: nothing complains, nothing is asked for, nothing is cut or empty.

Each check was seen red: `test_the_audit_finds_what_is_broken` breaks a page once for each of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from page_browser import PAPER, Browser, chromium
from page_cases import CASES, case
from sealmq_spark.page import Live, render

WIDTHS = (360, 768, 1440)
_PAGES = re.compile(rb"/Type\s*/Page\b")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser")) as one:
        yield one


def quiet(browser: Browser) -> None:
    """Nothing complained, and nothing but the page was asked for."""
    assert browser.complaints() == []
    assert browser.requests() == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.full)])
def test_all_that_a_report_can_say_fits_any_screen(browser: Browser, scheme: str) -> None:
    browser.load(render(*case("full")))
    for width in WIDTHS:
        browser.show(width, scheme)
        assert browser.audit(colours=True) == [], f"{scheme}, {width} px"
    quiet(browser)


# Where each is tightest; the example above stands at every width in both schemes.
_EDGES = {
    "empty": ((360, "dark"), (1440, "light")),
    "one": ((360, "light"), (768, "dark")),
    "well": ((768, "light"),),
    "huge": ((360, "dark"), (768, "light")),
    "many": ((360, "light"), (1440, "dark")),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("empty", "many") else [pytest.mark.full])
        for name in _EDGES
    ],
)
def test_the_edges_fit_any_screen(browser: Browser, name: str) -> None:
    assert set(_EDGES) | {"full", "hostile"} == set(CASES)
    browser.load(render(*case(name)))
    for width, scheme in _EDGES[name]:
        browser.show(width, scheme)
        assert browser.audit() == [], f"{name}, {scheme}, {width} px"
    quiet(browser)


def test_names_from_devices_are_text_and_stay_in_their_place(browser: Browser) -> None:
    browser.load(render(*case("hostile")))
    for width in (360, 1440):
        browser.show(width, "light")
        assert browser.audit() == [], f"{width} px"
    assert browser.run("return window.hurt === undefined && !document.scripts.length")
    assert browser.run("return document.images.length") == 0
    shown = browser.run("return document.querySelector('main').textContent")
    for text in ("<script>window.hurt = 1</script>", "javascript:window.hurt=1", "&amp;&lt;&#x3c;"):
        assert text in shown
    quiet(browser)


def test_a_live_page_loads_itself_anew_and_says_when_it_is_old(browser: Browser) -> None:
    summary, shown = case("hostile")
    seen = "const p = document.querySelector('#late'); return p.hidden ? '' : p.textContent"
    now = datetime.now(UTC)
    for made, said in ((now - timedelta(minutes=9), "Old: made 9 min ago"), (now, "")):
        summary["made"] = made.strftime("%Y-%m-%dT%H:%M:%SZ")
        browser.load(render(summary, shown, Live(120)))
        assert browser.run(seen).startswith(said)
        assert bool(browser.run(seen)) == bool(said)
        browser.show(360, "dark")
        assert browser.audit() == []
    assert browser.run("return window.hurt === undefined && document.scripts.length === 1")
    quiet(browser)
    browser.load(render(summary, shown, Live(1)))
    browser.run("window.first = true")
    end = time.monotonic() + 60
    while browser.run("return window.first") and time.monotonic() < end:
        time.sleep(0.1)
    assert not browser.run("return window.first"), "it does not load itself anew"


@pytest.mark.parametrize("name", ["full", "hostile"])
def test_printed_it_is_light_and_whole(browser: Browser, name: str) -> None:
    browser.load(render(*case(name)))
    width, height = PAPER
    browser.show(width, "dark", "print")
    assert browser.audit(paper=True) == [], "on paper"
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    ink = browser.run("return getComputedStyle(document.body).color")
    assert paper == "rgb(255, 255, 255)", "dark is printed"
    assert ink == "rgb(22, 25, 29)", "dark is printed"
    # What must not be parted has to fit a page, or the browser cuts it where it likes.
    parted = browser.run(
        "const tall = [];"
        "for (const one of document.querySelectorAll('figure, .plot, tr, .small > div'))"
        " if (getComputedStyle(one).breakInside === 'avoid'"
        "     && one.getBoundingClientRect().height > arguments[0])"
        "   tall.push(one.textContent.slice(0, 60));"
        "return tall;",
        height,
    )
    assert parted == []
    assert browser.run(
        "return [...document.querySelectorAll('svg.plot')].every("
        " one => getComputedStyle(one).breakInside === 'avoid')"
    )
    if name == "full":
        tall = browser.run("return document.documentElement.scrollHeight")
        pages = len(_PAGES.findall(browser.pdf()))
        assert tall / height <= pages <= 2 * tall / height
    quiet(browser)


# What is broken on purpose -> what the audit has to say of it.
_BROKEN = {
    "main.style.minWidth = '2000px'": "the page is",
    "for (const one of svg.querySelectorAll('.mark')) one.remove()": "an empty plot",
    "svg.style.display = 'none'": "a plot without size",
    "mark.setAttribute('transform', 'translate(0 400)')": "drawn outside of its plot",
    "text.setAttribute('x', '-300')": "words outside of the plot",
    "text.setAttribute('x', other.getAttribute('x')); text.setAttribute('y',"
    " other.getAttribute('y')); text.textContent = other.textContent": "words upon one another",
    "name.style.whiteSpace = 'nowrap'; name.textContent = 'x'.repeat(200)": "words wider than",
    "name.style.position = 'relative'; name.style.top = '60px'": "words higher than",
    "cell.style.position = 'relative'; cell.style.left = '-40px'": "cells upon one another",
    "name.style.color = '#bbb'": "hard to read",
    "mark.style.fill = '#eee'": "hard to see",
    "section.replaceChildren()": "an empty section",
    "figure.replaceChildren()": "an empty figure",
}


def test_the_audit_finds_what_is_broken(browser: Browser) -> None:
    summary, shown = case("one")
    browser.load(render(summary, shown))
    browser.show(1440)
    assert browser.audit(colours=True) == []
    browser.run("window.whole = document.querySelector('main').innerHTML")
    for change, said in _BROKEN.items():
        browser.run(
            "const main = document.querySelector('main'); main.removeAttribute('style');"
            "main.innerHTML = window.whole;"
            "const svg = main.querySelector('svg.plot'), mark = svg.querySelector('.mark');"
            "const [text, other] = svg.querySelectorAll('text');"
            "const name = main.querySelector('#regressions .rows tbody .name');"
            "const cell = main.querySelector('.data td:last-child');"
            "const figure = main.querySelector('figure'), section = figure.closest('section');"
            + change
        )
        found = browser.audit(colours=True)
        assert any(text.startswith(said) for text in found), f"{change}: {found}"


def test_the_browser_tells_of_what_is_asked_for_and_of_what_is_refused(browser: Browser) -> None:
    page = render(*case("empty"))
    asks = page.replace("<main>", '<main><img src="http://127.0.0.1:9/x.png" alt="">')
    browser.load(asks)
    assert any("Content Security Policy" in text for text in browser.complaints())
    browser.load(re.sub(r"<meta http-equiv=[^>]*>", "", asks))
    assert browser.requests() == ["http://127.0.0.1:9/x.png"]
