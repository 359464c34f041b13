"""The first screen: whether anything needs a person, and where. The last: what it is made of."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import words
from .figures import Column, folded, sentence, strong, table
from .live import Live
from .markup import Markup, named, tag
from .traffic import Shown

_SIGNS = {"bad": "✗", "look": "!", "good": "✓", "none": words.DASH}
_WHY = 6
_SAID = {"bad": "act on this", "look": "look at this", "good": "in order", "none": "no data"}


@dataclass(frozen=True)
class Tile:
    """One figure of the first screen. state: bad, look, good; "" where it is neither."""

    name: str
    value: str
    place: str
    state: str = ""
    note: str = ""


def masthead(summary: Mapping[str, Any], live: Live | None = None) -> Markup:
    """Title, of which sites and days, what the logs span, and how old their newest line was."""
    began, ended, made = summary.get("began"), summary.get("ended"), summary.get("made")
    span = (
        f"Logs from {words.when(began)} to {words.when(ended)} UTC"
        if began
        else "No times in these logs"
    )
    age = words.age(ended, made)
    newest = f", the newest line {age} old" if age else ""
    names = [named(str(name), 64) for name in (summary.get("sites") or {}).values()]
    of = [": ", *(part for name in names for part in (name, ", "))][:-1] if names else []
    said = f"{span}; made {words.when(made, seconds=live is not None)} UTC{newest}. "
    return tag(
        "header",
        tag("h1", "SealMQ report", of),
        tag("p", strong(f"{_days(summary)}. ") if _days(summary) else None, said, _LOCAL),
        live.said(made) if live else None,
    )


def _days(summary: Mapping[str, Any]) -> str:
    """Of which days alone the report is."""
    since, until = summary.get("since"), summary.get("until")
    if since and until:
        return f"Only {since}" if since == until else f"Only {since} to {until}"
    return f"Only {since} and later" if since else f"Only up to {until}" if until else ""


_LOCAL = "All times are UTC."


def verdict(summary: Mapping[str, Any], places: Container[str]) -> Markup:
    """Whether this needs a person, and the figures that say so. places: the page's sections."""
    tiles = _tiles(summary)
    state, text = _verdict(summary, tiles)
    why = [str(one) for one in summary.get("why") or ()]
    return tag(
        "section",
        tag(
            "div",
            tag("span", _SIGNS[state], class_="sign", aria_hidden="true"),
            tag("p", strong(text[0]), " ", text[1]),
            class_=f"verdict {state}",
        ),
        _why(why) if why else None,
        tag("ul", [_tile(tile, tile.place in places) for tile in tiles], class_="tiles")
        if tiles
        else None,
        id="overview",
        aria_label="Overview",
    )


def _why(why: Sequence[str]) -> Markup:
    told = [tag("li", named(one, 160)) for one in why[:_WHY]]
    more = tag("li", "and more: see below") if len(why) > _WHY else None
    return tag("ul", told, more, class_="why")


def _verdict(summary: Mapping[str, Any], tiles: Sequence[Tile]) -> tuple[str, tuple[str, str]]:
    lines = words.plural(summary.get("lines") or 0, "line")
    quarantined = words.count(summary.get("quarantined") or 0)
    read = f"{lines} read, {quarantined} quarantined."
    bad = [tile for tile in tiles if tile.state == "bad"]
    look = [tile for tile in tiles if tile.state == "look"]
    if bad or summary.get("exit"):
        names = " and ".join(f"{tile.value} {tile.name}" for tile in bad)
        return "bad", (f"Act on this: {names or 'see below'}.", read)
    if look:
        names = ", ".join(tile.name for tile in look)
        return "look", (f"Worth a look: {names}.", read)
    if not summary.get("lines"):
        return "none", ("There was nothing to read.", "Closed segments end in .jsonl.")
    if not any(summary["kept"].values()):
        return "none", ("Nothing here is of these days.", read)
    return "good", ("Nothing here needs you.", read)


def _tiles(summary: Mapping[str, Any]) -> list[Tile]:
    headline = summary["headline"]
    quarantined = summary.get("quarantined") or 0
    allowed, denied = headline.get("allowed"), headline.get("denied")
    share = words.share(denied, allowed + denied) if allowed is not None and denied else ""
    passed, failed = headline.get("passed"), headline.get("failed")
    gaps = (summary.get("tables") or {}).get("gaps")
    # What the logs have nothing of has no tile.
    return [tile for tile in (
        _plain("disclosed", headline.get("disclosed"), "disclosures", "messages to readers"),
        _counted("forged", headline.get("forged"), "refusals", "look", "refused"),
        _counted("replayed", headline.get("replayed"), "refusals", "look", "refused"),
        _plain("labelled", headline.get("labelled"), "labelling", "topics"),
        _plain("denied", denied, "decisions", f"{share} of all" if share else ""),
        _counted("changed clients", headline.get("changed"), "changed", "look"),
        _counted("gaps in the logs", gaps or None, "gaps", "look"),
        _counted("not enforced", headline.get("unenforced"), "unenforced", "look", "let pass"),
        _counted("failed", failed, "behaviours", "look", _of(passed, "passed", "")),
        _counted("regressions", headline.get("regressions"), "regressions", "bad"),
        _counted("nonces used twice", headline.get("nonces_repeated"), "nonces", "bad",
                 _of(headline.get("nonces"), "pairs")),
        _counted("flaky", headline.get("flaky"), "flaky", "look"),
        _counted("quarantined", quarantined if summary.get("lines") else None, "quarantine",
                 "look", "not counted"),
    ) if tile is not None]  # fmt: skip


def _of(number: int | None, name: str, of: str = "of ") -> str:
    return "" if number is None else f"{of}{words.short(number)} {name}"


def _counted(name: str, number: int | None, place: str, state: str, note: str = "") -> Tile | None:
    if number is None:
        return None
    return Tile(name, words.short(number), place, state if number else "good", note)


def _plain(name: str, number: int | None, place: str, note: str) -> Tile | None:
    if number is None:
        return None
    return Tile(name, words.short(number), place, "", note)


def _tile(tile: Tile, linked: bool) -> Markup:
    sign = None
    if tile.state:
        sign = tag("span", _SIGNS[tile.state], class_="sign", title=_SAID[tile.state])
    inside = [
        tag("span", tile.name, sign, class_="what"),
        tag("span", tile.value, class_="value"),
        tag("span", tile.note or "\u00a0", class_="note"),
    ]
    kind = f"tile {tile.state}".strip()
    if not linked:
        return tag("li", tag("div", inside, class_=kind))
    return tag("li", tag("a", inside, href=f"#{tile.place}", class_=kind))


def quarantine(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """What was not counted, why, and how such a line looks."""
    rows = shown.get("quarantine", ())
    if not rows:
        return None
    total = summary.get("quarantined") or 0
    each = []
    for row in rows:
        examples = row.get("examples") or ()
        # They are lines of a file: the code points that nobody sees are shown.
        shown_lines = [
            tag(
                "li",
                tag("code", named(str(one.get("raw") or ""), 300, "an empty line")),
                tag("small", named(str(one.get("file") or ""), 90)),
            )
            for one in examples
        ]
        each.append(
            [named(row.get("reason"), 120), words.count(row["count"]), tag("ul", shown_lines)]
        )
    columns = [Column("reason"), Column("lines", True), Column("examples")]
    return tag(
        "div",
        sentence(
            strong(words.plural(total, "line")),
            f" of {words.count(summary.get('lines'))}"
            " (or files, or documents), each for its reason. They are counted here and nowhere"
            " else.",
        ),
        table(columns, each, "Quarantine"),
    )


def about(summary: Mapping[str, Any]) -> Markup:
    """What was read, by what, and how long it took."""
    kept = summary["kept"]
    seconds = summary.get("seconds") or {}
    facts: list[tuple[str, object]] = [
        ("logs", tag("ul", [tag("li", named(str(one), 110)) for one in summary.get("logs") or ()])),
        ("lines", f"{words.count(summary.get('lines'))}, of which {_kept(kept)};"
                  f" {words.count(summary.get('repeated'))} came again and were counted once,"
                  f" {words.count(summary.get('quarantined'))} were quarantined"),
        ("versions", ", ".join(f"{k} {v}" for k, v in (summary.get("versions") or {}).items())),
        ("computed at", named(str(summary.get("master") or ""))),
        ("took", ", ".join(f"{k} {words.duration(v * 1000)}" for k, v in seconds.items())),
    ]  # fmt: skip
    rows = [(tag("dt", name), tag("dd", said)) for name, said in facts if said]
    tables = summary.get("tables") or {}
    listed = [[named(str(name)), words.count(number)] for name, number in tables.items()]
    columns = [Column("table"), Column("rows", True)]
    return tag(
        "div",
        tag("dl", rows),
        folded("Tables beside this page", table(columns, listed, "Tables")) if listed else None,
    )


def _kept(kept: Mapping[str, Any]) -> str:
    names = (("audit", "audit records"), ("hil", "of the rig"), ("nonce", "nonces"))
    parts = [f"{words.count(kept.get(key) or 0)} {name}" for key, name in names]
    parts.append(f"{words.count(kept.get('bench') or 0)} rows of benches")
    if simulated := kept.get("simulation"):
        parts.append(f"{words.count(simulated)} simulated rounds")
    return ", ".join(parts)
