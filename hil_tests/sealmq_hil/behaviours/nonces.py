"""Whatever happened to it: no nonce came twice with other content, on its path or at the broker."""

from __future__ import annotations

from .. import nonces
from ..behaviour import Behaviour
from ..bench import Bench, Stage
from ..errors import Failed
from ..processes import until


def _run(bench: Bench) -> None:
    book = bench.site.book
    me = str(bench.client)
    with bench.stage("link") as stage:
        _count(bench, stage, [k for k in book.keys() if k[0] in nonces.OF_LINK and k[1] == me])
    envelopes = bench.site.envelopes
    if envelopes is None:
        return
    until("the records that open what is at the broker", lambda: not envelopes.waiting())
    with bench.stage("inner") as stage:
        _count(bench, stage, [k for k in book.keys() if k[0] == nonces.INNER and k[1] == me])
    with bench.stage("outer") as stage:
        _count(bench, stage, [k for k in book.keys() if k[0] in nonces.OF_SITE])


def _count(bench: Bench, stage: Stage, keys: list[nonces.Key]) -> None:
    book = bench.site.book
    stage.count(len(keys))
    if not keys:
        raise Failed("no nonce was collected")
    twice = set(keys) & set(book.twice)
    if twice:
        raise Failed(f"sealed twice with other content: {' '.join(sorted(twice)[0])}")
    if book.unread:
        raise Failed(f"{len(book.unread)} envelopes were not read: {book.unread[0]}")


BEHAVIOUR = Behaviour(
    "nonces", "no (key, nonce) twice with other content", _run, begins=None, leaves=None
)
