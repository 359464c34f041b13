"""A hostile neighbour on a real line: a site that is up, whose three neighbours this test speaks.
`h` is honest, `m` is not, `e` gets what goes on. b1, whose client's token it is about, is behind
both.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.crossing_world import m1
from bridge.joined import Joined
from bridge.test_bridge_parts import own
from free_ports import free_port
from run.sites import command
from sealmq.bridge import crossing
from sealmq.bridge.crossing import Crossing
from sealmq.bridge.line import (
    ANSWER,
    KEYS,
    MESSAGE,
    PING,
    PONG,
    RECORD,
    TAKEN,
    Line,
    LineLost,
    call,
)
from sealmq.families import signatures
from sealmq.families.trust.gossip import Said, signed_ratings
from sealmq.families.trust.sites import Introduction, signed_introduction
from sealmq.families.trust.tokens import Token, announcement, read_announcement, signed_text
from sealmq.site.model import Peer

SITES = {name: own(seed, name) for seed, name in enumerate(("b1", "h", "m", "e", "x"), 1)}
NOW = time.time_ns() // 1_000_000
END = NOW + 3_600_000
BOILER = Token("b1", "boiler", ("boiler/#",), (), 1, END)
RULES = "base = 0.7\nsigners = 2\n"


def sign_as(site: str, text: bytes) -> bytes:
    return signatures.sign(SITES[site][0].key, text)


def announced(token: Token, *signers: str, **forged: bytes) -> bytes:
    made = {name: sign_as(name, signed_text(name, token.raw)) for name in signers}
    return announcement(token, {**made, **forged})


def rates(site: str, serial: int, **ratings: int) -> bytes:
    said = Said(site, serial, END, dict(sorted(ratings.items())))
    return signed_ratings(said, lambda text: sign_as(site, text))


def introduces(by: str, site: str) -> bytes:
    made = Introduction(by, site, SITES[site][1].public, 1)
    return signed_introduction(made, lambda text: sign_as(by, text))


class Spoken:
    """A neighbour of the site, at its own end of the line."""

    def __init__(self, name: str, line: Line) -> None:
        self.name, self._line = name, line
        self.records: list[bytes] = []
        self.messages: list[Crossing] = []
        self._answers: asyncio.Queue[tuple[int, int, str]] = asyncio.Queue()
        self._pongs: asyncio.Queue[None] = asyncio.Queue()
        self.news = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(LineLost):
            while True:
                kind, body = await self._line.receive()
                if kind == KEYS:
                    self._line.send(TAKEN)
                elif kind == PING:
                    self._line.send(PONG)
                elif kind == PONG:
                    self._pongs.put_nowait(None)
                elif kind == RECORD:
                    self.records.append(body)
                elif kind == ANSWER:
                    self._answers.put_nowait(crossing.read_answer(body))
                elif kind == MESSAGE:
                    self.messages.append(crossing.unpack(body))
                    self._line.send(ANSWER, crossing.answer(self.messages[-1].seq, crossing.OK))
                    self.news.set()

    async def says(self, *records: bytes) -> None:
        """And waits until all of it has been read."""
        for record in records:
            self._line.send(RECORD, record)
        self._line.send(PING)
        await self._pongs.get()

    async def hands_over(self, ctr: int) -> tuple[int, str]:
        """A message of b1's; the answer."""
        site = SITES["b1"][1].site
        one = Crossing(ctr, 2, 1, site, 16, BOILER.id, "boiler/1", m1(ctr))
        self._line.send(MESSAGE, one.pack())
        _, code, why = await self._answers.get()
        return code, why

    async def heard(self, count: int) -> None:
        while len(self.messages) < count:
            self.news.clear()
            await self.news.wait()

    async def end(self) -> None:
        self._task.cancel()
        await self._line.close()


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Joined, Mapping[str, int]]]:
    with tempfile.TemporaryDirectory(prefix="sealmq-") as name:
        root, key = Path(name, "mid"), Path(name, "mid.key")
        words = ("--key-file", str(key), "--listen", f"127.0.0.1:{free_port()}")
        command("init", str(root), "--policy", "trust", *words)
        with (root / "sealmq.toml").open("a") as toml:
            toml.write(f"\n[families.trust]\n{RULES}")
        ports = {who: free_port() for who in ("h", "m", "e")}
        for who, port in ports.items():
            at = ("--fingerprint", SITES[who][1].fingerprint, "--listen", f"127.0.0.1:{port}")
            give = "@b1/#" if who == "e" else "nothing"
            command("peer", "add", str(root), who, *at, "--give", give)
        made = Joined(root, key)
        try:
            made.up().ready()
            yield made, ports
        finally:
            for up in made.ups:
                up.end()


@asynccontextmanager
async def spoken(site: tuple[Joined, Mapping[str, int]]) -> AsyncIterator[dict[str, Spoken]]:
    made, ports = site
    mid = command("peer", "fingerprint", str(made.root)).strip().removeprefix("SHA256:").lower()
    async with asyncio.timeout(120), AsyncExitStack() as stack:
        found = {}
        for name, port in ports.items():
            line = await call(SITES[name][0], Peer("mid", mid, address=("127.0.0.1", port)))
            found[name] = Spoken(name, line)
            stack.push_async_callback(found[name].end)
        yield found


async def asked(site: tuple[Joined, Any], op: str, **fields: Any) -> dict[str, Any]:
    return await asyncio.to_thread(site[0].asked, op, **fields)


async def until(site: tuple[Joined, Any], true: Callable[[dict[str, Any]], bool]) -> None:
    while not true(await asked(site, "show")):  # noqa: ASYNC110 - it is looked for
        await asyncio.sleep(0.1)


async def judged(site: tuple[Joined, Any], by: str) -> tuple[bool, dict[str, Any]]:
    """Whether a message is taken of `by`, and how those are rated who have signed its token."""
    fields = {"from": by, "token": BOILER.id.hex(), "topic": "boiler/1"}
    said = await asked(site, "explain", **fields)
    return said["accept"], {row["signer"]: row["rating"] for row in said.get("signers", ())}


def test_a_neighbour_neither_strips_signatures_nor_invents_a_way(
    site: tuple[Joined, Mapping[str, int]],
) -> None:
    async def scene() -> None:
        async with spoken(site) as by:
            h, m, e = by["h"], by["m"], by["e"]
            for one in (h, m):
                here = Token(one.name, "@mid", (), ("@b1/#",), 1, END)
                await one.says(
                    introduces(one.name, "b1"),
                    rates("b1", 1, h=7000, m=7000),
                    rates(one.name, 1, b1=8000, mid=7000),
                    announced(here, one.name),
                )
            await until(site, lambda said: len(said["edges"]) == 8)
            # Two have to have signed it. What m leaves out nobody has; what h brings nobody takes.
            await m.says(announced(BOILER, "b1"))
            taken, ratings = await judged(site, "m")
            assert (taken, list(ratings)) == (False, ["b1"])
            await h.says(announced(BOILER, "b1", "h"))
            await m.says(announced(BOILER, "b1"), announced(BOILER))
            code, why = await h.hands_over(3)
            assert (code, why) == (crossing.OK, "")
            await e.heard(1)
            assert e.messages[0].m1 == m1(3)
            [told] = [r for r in e.records if BOILER.raw in r]
            _, signers = read_announcement(told)
            assert {"b1", "h", "mid"} <= signers.keys()
            before = await judged(site, "h")
            assert before == (True, {"b1": 0.75, "h": 0.7})

            # A hop between b1 and m that all think the world of, and that b1 has never heard of.
            await m.says(
                introduces("m", "x"),
                rates("x", 1, b1=10_000, m=10_000),
                rates("m", 2, b1=10_000, x=10_000, mid=10_000),
            )
            assert await judged(site, "h") == before
            await h.says(rates("h", 2, b1=2000, mid=7000))
            taken, ratings = await judged(site, "m")
            assert (taken, ratings["b1"]) == (False, 0.45), "the least way is h's, as it was"
            await h.says(rates("h", 3, b1=8000, mid=7000))
            assert await judged(site, "h") == before

            # It signs in e's name: this costs it its edges, and nobody else anything.
            await m.says(announced(BOILER, "b1", e=bytes(64)))
            await until(site, lambda said: said["blocked"] == ["m"])
            assert (await h.hands_over(4))[0] == crossing.OK
            code, why = await m.hands_over(5)
            assert (code, "m is blocked" in why) == (crossing.DROPPED, True)
            late = Token("m", "late", ("a",), (), 1, END)
            await m.says(announced(late, "m"))
            shown = await asked(site, "show")
            assert "late" not in {row["client"] for row in shown["tokens"]}
            await e.heard(2)

    asyncio.run(scene())
    made, _ = site
    assert {row["peer"] for row in made.events("peer-blocked")} == {"m"}
    refused = {(row["peer"], row["rule"]) for row in made.events("token-refused")}
    assert ("m", "trust.token.forged") in refused
    assert {peer for peer, _ in refused} == {"m"}
