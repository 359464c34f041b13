"""What the page is made of, without a browser: escaped, without script, as the contract has it."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from page_cases import CASES, HOSTILE, case
from sealmq_spark import page
from sealmq_spark.page import words
from sealmq_spark.page.markup import Markup, cut, escape, named, plain, rule, tag
from sealmq_spark.page.scales import Span, linear, logarithmic, of_time

SPEC = Path(__file__).resolve().parents[3] / "shared_spec"
STYLE = Path(page.__file__).with_name("style.css").read_text("utf-8")
_TAGS = set(
    "html head meta title style body a nav ul li main header h1 h2 p strong section div span bdi"
    " small figure figcaption svg g rect circle path line text table thead tbody tr th td details"
    " summary code dl dt dd wbr".split()
)


class Reader(HTMLParser):
    """Elements opened and closed in order, and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        said = dict(attrs)
        self.attributes |= set(said)
        if "href" in said:
            self.links.append(said["href"] or "")
        if "id" in said:
            self.ids.append(said["id"] or "")
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [], "an element was not closed"
    return reader


@pytest.mark.parametrize("name", list(CASES))
def test_the_page_holds_only_what_it_may(name: str) -> None:
    html = page.render(*case(name))
    html.encode("utf-8")
    found = read(html)
    assert found.tags <= _TAGS
    assert not [one for one in found.attributes if one.startswith("on") or one in ("src", "srcdoc")]
    assert all(link.startswith("#") for link in found.links)
    assert {link[1:] for link in found.links} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    assert "default-src &#x27;none&#x27;; style-src &#x27;unsafe-inline&#x27;" in html
    assert "@import" not in html
    assert not re.search(r"url\(", STYLE)
    assert "UTC" in html


def test_the_example_is_a_summary_of_the_contract() -> None:
    schema = json.loads((SPEC / "report.schema.json").read_bytes())
    for name in ("full", "empty", "one", "well"):
        jsonschema.validate(case(name)[0], schema)


def test_every_figure_of_the_example_is_on_the_page() -> None:
    summary, shown = case("full")
    html = page.render(summary, shown)
    for row in shown["decisions_client"] + shown["decisions_denied"]:
        assert words.count(row["denied"]) in html
    for row in shown["quarantine"]:
        assert escape(row["reason"]) in html
    for name in ("forged", "replayed", "changed", "flaky", "regressions"):
        assert f">{words.short(summary['headline'][name])}<" in html
    for text in summary["why"]:
        assert escape(text) in html


def test_of_what_there_is_nothing_nothing_stands_there() -> None:
    html = page.render(*case("empty"))
    assert "There was nothing to read." in html
    assert re.findall(r'<section id="(\w+)"', html) == ["overview", "about"]
    assert 'class="tile' not in html
    assert "<svg" not in html.replace('<svg class="key"', "")
    summary, shown = case("full")
    for name in ("unenforced", "changed", "flaky"):
        shown[name] = []
        summary["headline"][name] = 0
    html = page.render(summary, shown)
    assert not re.search('id="(unenforced|changed|flaky)"|#(unenforced|changed|flaky)', html)
    assert "not enforced" in html, "that there was none is said in a tile"


def test_a_rule_s_name_breaks_at_its_dots() -> None:
    assert rule("a.b<c") == '<bdi class="name">a.<wbr>b&lt;c</bdi>'
    assert rule("", empty="no rule") == '<span class="none">no rule</span>'
    long = rule("mediator." + "x" * 90)
    assert 'title="mediator.x' in long
    assert ">mediator.<wbr>x" in long


def test_what_a_wrong_clock_dated_is_shown_without_its_time() -> None:
    summary, shown = case("full")
    for name in ("decisions_time", "refusals_time", "labelling_time"):
        shown[name] = []
    html = page.render(summary, shown)
    assert html.count("None of these records has a plausible time.") == 2
    assert "Denied, by rule" in html
    assert "Who sent them" in html
    assert "No decision in these logs" not in html


def test_gaps_stand_near_the_top_and_only_where_there_are_any() -> None:
    summary, shown = case("full")
    html = page.render(summary, shown)
    places = [html.index(f'<section id="{name}"') for name in ("disclosures", "gaps", "unenforced")]
    assert places == sorted(places)
    for text in ("4,096", "message bytes", "journal-dropped", "log-recovered", "disk was full"):
        assert text in html[places[1] : places[2]]
    assert html.count('href="#gaps"') == 2, "of the menu and of a tile"
    # The rest may be of records and of bytes: it has no sum.
    shown["gaps"].append({**shown["gaps"][0], "event": "", "count": 987_654, "others": 7})
    html = page.render(summary, shown)
    assert "and 7 more" in html
    assert "987,654" not in html
    for name in ("well", "empty"):
        assert not re.search("#gaps|id=.gaps|gaps in", page.render(*case(name)))
    summary, shown = case("well")
    summary["tables"]["gaps"], shown["gaps"] = 1, case("full")[1]["gaps"][:1]
    assert "Worth a look: gaps in the logs." in page.render(summary, shown)


def test_the_officer_s_the_operator_s_and_the_builder_s_part_stand_in_this_order() -> None:
    html = page.render(*case("full"))
    first = (
        "disclosures", "refusals", "labelling", "decisions", "changed", "gaps", "behaviours",
        "regressions", "nonces", "costs",
    )  # fmt: skip
    places = [html.index(f'<section id="{name}"') for name in first]
    said = ("disclosed", "forged", "denied", "changed", "failed", "regressions", "nonces")
    tiles = [html.index(f'<span class="what">{name}') for name in said]
    assert places == sorted(places)
    assert tiles == sorted(tiles)


def test_the_page_says_which_sites_and_how_old_its_newest_line_was() -> None:
    summary, shown = case("full")
    summary["sites"] = {"000000aa": "factory", "000000bb": "<hall>"}
    summary["ended"], summary["made"] = "2026-11-21T05:58:00Z", "2026-11-21T07:28:00Z"
    head = page.render(summary, shown).partition("</header>")[0]
    assert "factory" in head
    assert "&lt;hall&gt;" in head
    assert re.search(r"the newest line 1\.5\sh old", head)
    summary["ended"] = None
    assert "newest line" not in page.render(summary, shown)


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        (None, None, ""),
        ("2026-11-18", None, "Only 2026-11-18 and later. "),
        (None, "2026-11-20", "Only up to 2026-11-20. "),
        ("2026-11-18", "2026-11-20", "Only 2026-11-18 to 2026-11-20. "),
        ("2026-11-18", "2026-11-18", "Only 2026-11-18. "),
    ],
)
def test_the_head_says_which_days_are_reported(since: str, until: str, said: str) -> None:
    summary, shown = case("full")
    summary |= {name: day for name, day in (("since", since), ("until", until)) if day}
    head = re.sub("<[^>]*>", "", page.render(summary, shown).partition("</header>")[0])
    assert (f"factory{said}Logs from" if said else "factoryLogs from") in head


def test_a_live_page_has_one_script_which_its_policy_names() -> None:
    plain = page.render(*case("full"))
    assert "<script" not in plain
    assert "script-src" not in plain
    assert 'http-equiv="refresh"' not in plain
    html = page.render(*case("hostile"), page.Live(60))
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"; script-src &#x27;sha256-{digest}&#x27;" in html
    assert '<meta http-equiv="refresh" content="60">' in html
    assert "Live: made anew every 1\u00a0min." in html
    assert f'data-made="{case("full")[0]["made"]}" data-late="180"' in html
    ended = page.render(*case("full"), page.Live(60, "2026-11-21T07:30:00Z"))
    assert "Not live: sealmq report --watch ended at 2026-11-21 07:30:00 UTC." in ended
    assert "<script" not in ended
    assert '<meta http-equiv="refresh" content="60">' in ended, "somebody may start it again"


def test_all_well_is_said() -> None:
    summary, shown = case("well")
    assert "Nothing here needs you." in page.render(summary, shown)
    summary["headline"]["nonces_repeated"] = 2
    summary["exit"] = 1
    assert "Act on this: 2 nonces used twice." in page.render(summary, shown)


def test_of_days_of_which_there_is_no_line_nothing_is_said_to_be_well() -> None:
    summary, shown = case("empty")
    summary |= {"lines": 254_334, "since": "2026-11-25"}
    html = page.render(summary, shown)
    assert "Nothing here needs you." not in html
    assert "Nothing here is of these days." in html


def test_a_list_that_is_cut_says_so() -> None:
    summary, shown = case("full")
    lists = ("changed", "flaky", "regressions", "nonces", "reused", "stages", "cuts")
    shown["reused"] = case("many")[1]["reused"]
    summary["tables"] |= {name: len(shown[name]) for name in lists}
    assert "has all" not in page.render(summary, shown)
    summary["tables"] |= {name: 5000 + len(shown[name]) for name in lists}
    summary["headline"]["regressions"] = summary["tables"]["regressions"]
    html = page.render(summary, shown)
    for name in lists:
        listed, number = words.count(len(shown[name])), words.count(5000 + len(shown[name]))
        assert f"; {listed} of {number}: tables/{name} has all" in html
    assert f"{words.count(summary['headline']['regressions'])}\u00a0regressions</strong>" in html
    summary["why"] = [f"the rig: {number}" for number in range(7)]
    html = page.render(summary, shown)
    assert "the rig: 5" in html
    assert "the rig: 6" not in html
    assert "<li>and more: see below</li>" in html


def test_what_is_said_of_the_most_is_so() -> None:
    """The most frequent may be few."""
    summary, shown = case("full")
    shown["decisions_denied"] = [
        {"rule": "a.denies", "denied": 500},
        {"rule": "a.allows", "denied": 1},
        {"rule": "", "denied": 600, "others": 7},
    ]
    html = re.sub("<[^>]*>", "", page.render(summary, shown))
    assert "The rule that denied most is a.denies" in html
    assert html.index("and 7 more") > html.index("a.allows") > html.index("a.denies")
    assert "most of them with" not in html
    assert re.search(r"the most frequent purpose is \S+ \([\d.]+\s%\)", html)


def test_text_is_escaped_and_what_nobody_sees_is_shown() -> None:
    assert tag("p", "<b>&\"'", title='">') == (
        '<p title="&quot;&gt;">&lt;b&gt;&amp;&quot;&#x27;</p>'
    )
    assert tag("p", Markup("<b>"), None, [1, "x"]) == "<p><b>1x</p>"
    assert plain("a\u202eb") == "a\u2039U+202E\u203ab"
    assert plain("a\ud800\x00\u2028") == "a\u2039U+D800\u203a\u2039U+0000\u203a\u2039U+2028\u203a"
    assert plain("a\u200db") == "a\u2039U+200D\u203ab", "a joiner hides between Latin letters"
    family = "\U0001f468\u200d\U0001f469"
    assert plain(family) == family
    assert plain("z" + "\u0301" * 9).count("\u0301") == 3 + 0
    with pytest.raises(TypeError):
        tag("p", object())
    for text in HOSTILE:
        named(text).encode("utf-8")
        assert words.width(cut(plain(text), 40)) <= 40


def test_a_long_name_is_cut_in_its_middle_and_whole_in_its_title() -> None:
    text = "machine/" + "x" * 300 + "/temperature"
    made = named(text, 40)
    assert f'title="{text}"' in made
    assert re.search(r">machine/<wbr>x+…x*/<wbr>temperature<", made)
    assert named("a_b/c") == '<bdi class="name">a_<wbr>b/<wbr>c</bdi>', "it breaks between words"


def test_numbers_are_written_for_people() -> None:
    assert words.count(1234567) == "1,234,567"
    assert words.short(999_960) == "1\u00a0M"
    assert words.short(2**63 - 1) == "9.22\u00a0E"
    assert [words.part(n, 1000) for n in (0, 0.1, 70, 300, 999.9, 1000)] == [
        "0.0\u00a0%", "< 0.1\u00a0%", "7.0\u00a0%", "30.0\u00a0%", "> 99.9\u00a0%", "100.0\u00a0%",
    ]  # fmt: skip
    assert words.share(1, 10**9) == "< 0.01\u00a0%"
    assert words.share(10**9 - 1, 10**9) == "> 99.99\u00a0%"
    assert words.ratio(138.8) == "139×"
    assert words.ratio(0.0072) == "0.0072×"
    assert words.duration(0.25) == "250\u00a0µs"
    assert words.duration(90_000) == "1.5\u00a0min"
    assert words.size(180 * 1024) == "180\u00a0KiB"
    assert words.measured(210, "us of CPU") == "210\u00a0µs"
    assert words.count(None) == words.ratio(math.inf) == words.DASH
    assert words.when("2026-11-18T06:00:00+02:00") == "2026-11-18 04:00"
    assert words.when("2026-11-18T06:00:00Z") == "2026-11-18 06:00"


def test_scales_hold_their_values_and_have_few_ticks() -> None:
    for top in (1, 3, 4, 7, 99, 1234, 1e9, 2.0**63):
        scale = linear(top)
        assert scale.ticks[0].place == 0
        assert scale.ticks[-1].place == 1
        assert 2 <= len(scale.ticks) <= 6
        assert 0.5 < scale.of(top) <= 1
    for values in ([1], [3, 9], [0.001, 1e6], [1, 2**63], [0, 0], [5, 5]):
        scale = logarithmic(values, zero=True)
        assert all(0 <= scale.of(value) <= 1.0001 for value in values)
        assert scale.of(0) == 0 < scale.of(max([*values, 1])), "0 has a place of its own"
        assert len(scale.ticks) <= 9


@pytest.mark.parametrize("hours", [3, 20, 24, 72, 24 * 9, 24 * 40, 24 * 400, 24 * 365 * 20])
def test_time_has_a_few_ticks_at_round_times(hours: int) -> None:
    began = words.instant("2026-11-18T05:00:00Z")
    assert began is not None
    ended = words.instant("2026-11-18T05:00:00Z") or began
    from sealmq_spark.page.scales import later

    scale = of_time(Span(began, later(ended, hours)))
    assert 2 <= len(scale.ticks) <= 9
    places = [tick.place for tick in scale.ticks]
    assert places == sorted(places)
    assert sum(not tick.minor for tick in scale.ticks) <= 5
    assert len({(tick.text, tick.below) for tick in scale.ticks if tick.below}) >= 1


def test_the_page_needs_no_spark() -> None:
    code = "import sys, sealmq_spark.page; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Machado, Oliveira and Fernandes (2009): how much of a colour is left to whom.
_EYES = {
    "normal": ((1.0, 0, 0), (0, 1.0, 0), (0, 0, 1.0)),
    "protan": ((0.1521, 1.0526, -0.2047), (0.1146, 0.7863, 0.0991), (-0.0039, -0.0481, 1.0520)),
    "deutan": ((0.3673, 0.8606, -0.2279), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0430, 0.9689)),
    "tritan": ((1.2555, -0.0767, -0.1789), (-0.0785, 0.9308, 0.1477), (0.0047, 0.6914, 0.3039)),
}
# What stands side by side in one plot.
_TOGETHER = (
    ("blue", "orange", "pink"),
    ("orange", "pink", "amber", "grey"),
    ("grey", "orange", "amber", "blue", "teal"),
)
_APART = 15


def _lab(colour: str, eyes: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    rgb = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    flat = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in rgb]
    seen = [min(1, max(0, sum(a * b for a, b in zip(row, flat, strict=True)))) for row in eyes]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    x, y, z = (
        sum(a * b for a, b in zip(row, seen, strict=True)) / of
        for row, of in zip(to_xyz, white, strict=True)
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("eyes", list(_EYES))
@pytest.mark.parametrize("scheme", [0, 1])
def test_colours_that_stand_together_are_told_apart(eyes: str, scheme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", blocks[scheme]))
    for names in _TOGETHER:
        for one, other in itertools.combinations(names, 2):
            apart = math.dist(_lab(colours[one], _EYES[eyes]), _lab(colours[other], _EYES[eyes]))
            assert apart >= _APART, f"{one} and {other}: {apart:.1f}"
