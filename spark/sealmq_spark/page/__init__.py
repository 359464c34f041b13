"""The report as one HTML page: nothing from a network, plots as inline SVG, no script but that of
live.py.

Pure Python over plain rows; knows neither Spark nor where the rows come from. The page is for
people: summary.json and the tables beside it are for programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

from . import alarms, costs, officer, overview, rig, simulations, traffic
from .live import Live
from .markup import Markup, tag
from .traffic import Shown

# None: there is nothing of it, and nothing stands there.
Section = Callable[[Mapping[str, Any], Shown], Markup | None]

__all__ = ["Live", "render"]

# What each reader came for: the officer; the operator; who builds boards and gateways.
_SECTIONS: tuple[tuple[str, str, Section], ...] = (
    ("disclosures", "Disclosures", officer.disclosures),
    ("refusals", "Replays and forgeries", traffic.refusals),
    ("labelling", "Labelling", officer.labelling),
    ("decisions", "Decisions", traffic.decisions),
    ("changed", "Changed clients", traffic.changed),
    ("gaps", "Gaps in the logs", alarms.gaps),
    ("unenforced", "Not enforced", traffic.unenforced),
    ("behaviours", "Boards and behaviours", rig.behaviours),
    ("regressions", "Regressions", alarms.regressions),
    ("nonces", "Nonces", alarms.nonces),
    ("flaky", "Flaky behaviours", rig.flaky),
    ("cuts", "Power cuts", rig.cuts),
    ("stages", "Latency by stage", rig.stages),
    ("costs", "Costs", costs.costs),
    ("simulations", "Simulated sites", simulations.simulations),
    ("quarantine", "Quarantine", overview.quarantine),
)
# Nothing but the styles that stand in the page itself: no image, no font, no request; no script
# either, unless the page is live.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(summary: Mapping[str, Any], shown: Shown, live: Live | None = None) -> str:
    """summary: as shared_spec/report.schema.json has it; shown: bounded rows by name (shown.py).
    live: of a page that is made anew."""
    every = [(name, title, made(summary, shown)) for name, title, made in _SECTIONS]
    every.append(("about", "About", overview.about(summary)))
    there = [(name, title, made) for name, title, made in every if made is not None]
    sections = [tag("section", tag("h2", title), made, id=name) for name, title, made in there]
    page = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag(
                "meta",
                http_equiv="Content-Security-Policy",
                content=_POLICY + (live.policy if live else ""),
            ),
            live.refresh if live else None,
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", _title(summary)),
            tag("style", Markup(_style())),
        ),
        tag(
            "body",
            tag("a", "To the report", href="#overview", class_="skip"),
            _menu([("overview", "Overview"), *((name, title) for name, title, _ in there)]),
            tag(
                "main",
                overview.masthead(summary, live),
                overview.verdict(summary, {name for name, _, _ in there}),
                sections,
            ),
            live.script if live else None,
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _title(summary: Mapping[str, Any]) -> str:
    day = str(summary.get("made") or "")[:10]
    return f"SealMQ report {day}".strip()


def _menu(links: Iterable[tuple[str, str]]) -> Markup:
    items = [tag("li", tag("a", title, href=f"#{name}")) for name, title in links]
    return tag("nav", tag("ul", items), aria_label="Sections")


def _style() -> str:
    return files(__package__).joinpath("style.css").read_text("utf-8")
