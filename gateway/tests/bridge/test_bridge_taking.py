"""What a bridge makes of what its peer brings: taken, once; or refused, and named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sealmq import peerkeys
from sealmq.bridge.crossing import DROPPED, OK, Crossing
from sealmq.bridge.line import Own
from sealmq.bridge.process import Bridge
from sealmq.client.errors import refusal
from sealmq.site.layout import Layout, prepare_bridges
from sealmq.site.model import Peer
from sealmq_spec.errors import Denied, Unavailable

HOME, AWAY = b"\0\0\0\1", b"\0\0\0\2"


class Audit:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, event: str, **fields: Any) -> None:
        self.rows.append({"event": event, **fields})


class Client:
    """The bridge's client; `errors` are raised first, one a call."""

    error = None

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.published: list[tuple[str, bytes, int, bool]] = []

    async def pass_on(self, topic: str, m1: bytes, qos: int, retain: bool, within: float) -> None:
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        self.published.append((topic, m1, qos, retain))


class Made:
    def __init__(self, folder: Path) -> None:
        layout = Layout.of(folder)
        for path in (layout.state, layout.run, layout.root / "audit"):
            path.mkdir(exist_ok=True)
        prepare_bridges(layout, ["north"], None)
        der = peerkeys.certificate(bytes(32), bytes(32), HOME, "south")
        peer = Peer("north", "ab" * 32, ("h", 1), imports=("heat",))
        self.audit, self.client = Audit(), Client()
        self.bridge = Bridge(layout, peer, [], Own(der, bytes(32)), None, self.audit)  # type: ignore[arg-type]
        self.bridge._in["heat"] = self.client  # type: ignore[assignment]
        self.bridge._theirs, self.bridge._their_site = {40: "heat"}, AWAY

    def take(self, *some: Crossing) -> list[tuple[int, str]]:
        async def all_at_once() -> list[tuple[int, str]]:
            return await asyncio.gather(*(self.bridge._take(one) for one in some))

        return asyncio.run(all_at_once())

    def named(self) -> list[str]:
        return [row["reason"] for row in self.audit.rows if row["event"] == "bridge-dropped"]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    site = Made(tmp_path)
    yield site
    site.bridge._spool.close()


def m1(ctr: int = 3, sender: int = 5, kind: int = 0) -> bytes:
    head = bytes((0x11, 16 + kind)) + (7).to_bytes(3, "big") + sender.to_bytes(3, "big")
    head += (9).to_bytes(3, "big") + b"saltsalt" + ctr.to_bytes(3, "big")
    return head + (1_800_000_000).to_bytes(4, "big") + b"\0" + bytes(16)


def one(**more: Any) -> Crossing:
    said: dict[str, Any] = {
        "seq": 1, "flags": 2, "hops": 1, "site": AWAY, "label": 40, "topic": "a/b", "m1": m1(),
    }  # fmt: skip
    return Crossing(**(said | more))


def test_it_is_published_below_the_mount_as_it_came(made: Made) -> None:
    assert made.take(one(flags=3, m1=m1(kind=1))) == [(OK, "")]
    assert made.client.published == [("@north/a/b", m1(kind=1), 1, True)]


def test_what_comes_again_is_not_published_again(made: Made) -> None:
    assert made.take(one(), one(seq=2)) == [(OK, ""), (OK, "")]
    assert made.take(one(seq=3)) == [(OK, "")]
    assert len(made.client.published) == 1
    assert made.take(one(m1=m1(ctr=4)), one(m1=m1(sender=6))) == [(OK, "")] * 2
    assert len(made.client.published) == 3


def test_what_was_refused_has_used_nothing_up(made: Made) -> None:
    made.client.errors = [refusal("publish", "a/b", Denied.code, "labels.x", "not now")]
    [(code, why)] = made.take(one())
    assert (code, "not now" in why) == (DROPPED, True)
    assert [row["topic"] for row in made.audit.rows] == ["@north/a/b"]
    assert made.take(one()) == [(OK, "")]


def test_what_may_heal_is_waited_for(made: Made) -> None:
    made.client.errors = [refusal("publish", "a/b", Unavailable.code, "r", "the broker is away")]
    assert made.take(one()) == [(OK, "")]
    assert made.named() == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"label": 41}, "not exported"),
        ({"site": b"\0\0\0\3"}, "not exported"),
        ({"site": HOME}, "loop"),
        ({"hops": 9}, "hops"),
        ({"topic": "@west/a"}, "third site"),
        ({"m1": b"x"}, "at least 43"),
        ({"m1": m1(kind=2)}, "do not cross"),
    ],
)
def test_what_is_none_of_the_peers_is_refused_and_named(
    made: Made, more: dict[str, Any], words: str
) -> None:
    [(code, why)] = made.take(one(**more))
    assert (code, words in why) == (DROPPED, True), why
    assert (len(made.named()), made.client.published) == (1, [])


def test_one_that_comes_far_too_late_is_named(made: Made) -> None:
    made.take(one(m1=m1(ctr=100)))
    [(code, why)] = made.take(one())
    assert (code, "late" in why) == (DROPPED, True)
