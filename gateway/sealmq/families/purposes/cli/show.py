"""`sealmq purposes show`: purposes, reservations and presubscriptions, and who made them."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sealmq.cli.errors import OK

if TYPE_CHECKING:
    from .view import Made, Presub, PurposesView, Setting

_EXAMPLES = """\
examples:
  sealmq purposes show factory
  sealmq purposes show factory 'machine/1/#'      only what reaches these topics
  sealmq purposes show factory --json | jq -r '.reservations[] | select(.by == "") | .filter'

BY says which client made it, or sealmq.toml. A reservation that does not count any more, because
its topic has got another label than that of the client that made it, says so.
"""

MODES = {
    "hybrid": "what no topic of a filter can allow is refused at SUBSCRIBE, each message is judged",
    "fos": "filter on subscribe: a filter is allowed as a whole, or paused",
    "fop": "filter on publish: each message is judged when it is delivered",
}


def add(verbs: argparse._SubParsersAction[Any]) -> None:
    """sealmq purposes show SITE [FILTER]"""
    parser = verbs.add_parser(
        "show",
        help="what is reserved for which purposes, and by whom",
        description="Show settings, purposes, reservations, presubscriptions and grants.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument(
        "filter", metavar="FILTER", nargs="?", help="only what shares a topic with this filter"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Show it."""
    from sealmq.site.layout import Layout

    from .view import PurposesView, checked_filter

    if args.filter is not None:
        checked_filter(args.filter)
    view = PurposesView(Layout.open(args.site))
    if args.json:
        print(json.dumps(_as_json(view, args.filter)))
        return OK
    for line in _lines(view, args.filter):
        print(line)
    return OK


def _lines(view: PurposesView, filt: str | None) -> list[str]:
    from sealmq.cli.tables import table
    from sealmq.plain import plain

    mode, strict = view.setting("mode"), view.setting("strict")
    nobody = "what nobody has reserved is " + ("for nobody" if view.state.strict else "for all")
    lines = [
        f"mode      {mode.value}{_said(mode)}: {MODES[mode.value]}",
        f"strict    {strict.value}{_said(strict)}: {nobody}",
        f"stewards  {plain(', '.join(sorted(view.state.settings.stewards)) or 'none')}",
    ]
    if filt is None:
        lines += _tree(view)
    where = "" if filt is None else f" that reach {plain(filt)}"
    made = view.reservations(filt)
    lines += ["", f"reservations{where}" + ("" if made else ": none")]
    if made:
        lines += table(RESERVED, [reserved(m) for m in made], "  ")
    presubs = view.presubscriptions(filt)
    lines += ["", f"presubscriptions{where}" + ("" if presubs else ": none")]
    if presubs:
        lines += table(("CLIENT", "FILTER", "FOR", "BY", "SINCE"), map(_presub, presubs), "  ")
    grants = view.state.settings.grants if filt is None else ()
    if grants:
        lines += ["", "who may reserve besides stewards and a topic's own label"]
        rows = [(g.filter, ", ".join(g.clients), ", ".join(g.labels)) for g in grants]
        lines += table(("FILTER", "CLIENTS", "LABELS"), rows, "  ")
    return lines


def _tree(view: PurposesView) -> list[str]:
    from sealmq.plain import plain

    branches = list(view.branches())
    if not branches:
        return ["", f"purposes: any name, {_MISSPELT}"]
    shown = [f"  {'  ' * depth}{p}{' (as above)' if again else ''}" for depth, p, again in branches]
    return ["", "purposes", *map(plain, shown)]


_MISSPELT = "a misspelt one too, until [families.purposes.tree] lists them; a/b is below a"
RESERVED = ("FILTER", "FOR", "NOT FOR", "BY", "SINCE", "")


def reserved(m: Made) -> tuple[str, ...]:
    """A reservation as a row of RESERVED."""
    from sealmq.cli.tables import moment

    r = m.reservation
    note = "" if m.counts else f"not counted: the topic is not {r.label}'s any more"
    allowed = ", ".join(sorted(r.aip)) or "(nothing)"
    return r.filter, allowed, ", ".join(sorted(r.pip)), m.by or TOML, moment(m.at_ms), note


TOML = "sealmq.toml"


def _presub(p: Presub) -> tuple[str, ...]:
    from sealmq.cli.tables import moment

    return p.client, p.filter, p.purpose, p.by or TOML, moment(p.at_ms)


def _said(setting: Setting) -> str:
    from sealmq.cli.tables import moment
    from sealmq.plain import plain

    return plain(f" (by {setting.by}, {moment(setting.at_ms)})") if setting.by else ""


def _as_json(view: PurposesView, filt: str | None) -> dict[str, Any]:
    settings = view.state.settings
    return {
        "mode": _setting_json(view.setting("mode")),
        "strict": _setting_json(view.setting("strict")),
        "stewards": sorted(settings.stewards),
        "purposes": view.purposes(),
        "tree": {parent: list(children) for parent, children in settings.tree.items()},
        "reservations": [made_json(m) for m in view.reservations(filt)],
        "presubscriptions": [asdict(p) for p in view.presubscriptions(filt)],
        "grants": [g._asdict() for g in settings.grants],
    }


def made_json(m: Made) -> dict[str, Any]:
    """A reservation for scripts; `by` "" is sealmq.toml."""
    r = m.reservation
    return {
        "filter": r.filter,
        "aip": sorted(r.aip),
        "pip": sorted(r.pip),
        "by": m.by,
        "at_ms": m.at_ms,
        "counts": m.counts,
    }


def _setting_json(setting: Setting) -> dict[str, Any]:
    value: str | bool = setting.value
    if setting.value in ("true", "false"):
        value = setting.value == "true"
    return {"value": value, "by": setting.by, "at_ms": setting.at_ms}
