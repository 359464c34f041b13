"""Lines that belong into quarantine: what crashes, other programs and defects leave in a log."""

from __future__ import annotations

from collections.abc import Callable

import spark_world as world
from spark_lines import Lines

Maker = Callable[[Lines], str | None]


def bad(of: Lines) -> str | None:
    """One of them, counted; None: another one, please."""
    kind, make = _KINDS[int(of.rnd() * len(_KINDS))]
    made = make(of)
    if made is not None:
        of.tally.bad[kind] += 1
    return made


def _but(
    *,
    first: str = "",
    event: str = '"delivered"',
    label: str = ',"label":"zone-1"',
    count: str = ',"count":3',
    later: int = 0,
) -> Callable[[Lines], str]:
    """A line that would be good but for one thing."""

    def make(of: Lines) -> str:
        of.number += 1
        at = of.at // world.MINUTE_MS * world.MINUTE_MS
        return (
            f'{{{first}{of.start(of.number, at)},"event":{event},"client":"reader-1",'
            f'"topic":"plant/1/line/1/a"{label}{count},"minute_ms":{at + later}}}'
        )

    return make


def _plain(text: str) -> Maker:
    return lambda of: text


def _torn(of: Lines) -> str:
    whole = _but()(of)
    return whole[: 20 + int(of.rnd() * (len(whole) - 20))]


def _twin(of: Lines) -> str | None:
    """The id of another line with other content: one of the two is bad, whichever it is."""
    if of.lonely is None:
        return None
    (number, at), of.lonely = of.lonely, None
    return f'{{{of.start(number, at)},"event":"connect","client":"device-1","peer":"203.0.113.9"}}'


_KINDS: tuple[tuple[str, Maker], ...] = (
    ("torn", _torn),
    ("torn", _torn),
    ("another program's", _plain("Jan  4 03:12:01 gateway kernel: usb 1-1: reset")),
    ("zeros", _plain("\0" * 64)),
    ("no object", _plain('["v",1]')),
    ("another contract's", _plain('{"level":"info","message":"started"}')),
    ("unknown field", _but(first='"severity":"low",')),
    ("field twice", _but(first='"v":1,')),
    ("null", _but(label=',"label":null')),
    ("field missing", _but(label="")),
    ("of another type", _but(count=',"count":"3"')),
    ("below the least", _but(count=',"count":0')),
    ("beyond 64 bits", _but(count=',"count":9223372036854775808')),
    ("no whole minute", _but(later=1)),
    ("unknown event", _but(event='"delivered-twice"')),
    ("id taken", _twin),
)
