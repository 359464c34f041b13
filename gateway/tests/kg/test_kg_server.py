"""The socket server and its client against peers that stall, flood, or are not what they seem."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kg.helpers import WAIT_S, MadeSite
from sealmq import kglink
from sealmq.kg import ops as ops_module
from sealmq.kg import server as server_module
from sealmq.kg.core import Kg
from sealmq.kg.ops import MEDIATOR, Ops
from sealmq.kg.server import Server
from sealmq.kglink import KgClient, KgError, KgUnavailable
from sealmq.site.config import loads


@asynccontextmanager
async def serving(site: MadeSite, kg: Kg) -> AsyncIterator[Server]:
    ops = Ops(kg, site.layout.config, lambda *_, **__: None)
    with ThreadPoolExecutor(1) as worker:
        server = Server(site.layout, ops, worker)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()


async def raw(site: MadeSite) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(str(site.layout.kg_socket))


def frame(value: dict[str, Any]) -> bytes:
    body = json.dumps(value).encode()
    return struct.pack(">I", len(body)) + body


def test_a_frame_has_a_deadline(site: MadeSite, kg: Kg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_FRAME_S", 0.1)

    async def run() -> None:
        async with serving(site, kg), asyncio.timeout(WAIT_S):
            for part in (b"", b"\x00", b"\x00\x00\x00", b"\x00\x00\x00\x10{"):
                reader, writer = await raw(site)
                writer.write(part)
                assert await reader.read() == b""
                writer.close()
            # Between two questions it may take its time.
            reader, writer = await raw(site)
            for _ in range(2):
                writer.write(frame({"op": "status", "id": 3}))
                size = int.from_bytes(await reader.readexactly(4), "big")
                assert await reader.readexactly(size)
                await asyncio.sleep(0.3)
            writer.close()

    asyncio.run(run())


def test_a_watcher_that_does_not_read_is_dropped(
    site: MadeSite, kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_MAX_UNREAD", 1 << 16)

    async def run() -> None:
        async with serving(site, kg) as server, asyncio.timeout(WAIT_S):
            deaf, writer = await raw(site)
            writer.write(frame({"op": "watch", "id": 1}))
            await deaf.readexactly(4)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            async with await KgClient.connect(site.layout.kg_socket) as kg_client:
                changes = kg_client.changes()
                first = asyncio.ensure_future(anext(changes))
                await kg_client.status()
                for i in range(20_000):
                    server.changed(i, None)
                    if i % 500 == 0:
                        await asyncio.sleep(0)
                assert (await first).client is None
                await kg_client.status()
                assert len(server._connections) == 1
            writer.transport.abort()

    asyncio.run(run())


def test_a_defect_of_ours_says_nothing_of_what_it_worked_on(
    site: MadeSite, kg: Kg, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("secret-of-the-client")

    monkeypatch.setattr(kg, "enrolments", fails)

    async def run() -> None:
        async with serving(site, kg), await KgClient.connect(site.layout.kg_socket) as link:
            with pytest.raises(KgError, match="internal error") as caught:
                await link.enrol("monitor")
            assert "secret-of" not in str(caught.value)
            assert (await link.status())["ok"] is True

    asyncio.run(run())
    assert "secret-of" not in caplog.text


def test_a_mediator_is_told_the_policy_in_force_in_pieces_of_one_version(
    site: MadeSite, kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the file says by now."""
    before = kg.config
    monkeypatch.setattr(ops_module, "TEXT", len(before.text) // 2)
    after = loads(before.text + "# edited\n")
    site.layout.config.write_text("a mistake")

    async def run() -> None:
        async with serving(site, kg), await KgClient.connect(site.layout.kg_socket) as link:
            assert await link.in_force(before.digest) is None
            assert await link.in_force("") == before.text
            asked: list[int] = []
            part = Ops.in_force

            def taken_over_between(*words: Any) -> dict[str, Any]:
                asked.append(words[2].get("at", 0))
                if len(asked) == 2:
                    kg.apply(after)
                return part(*words)

            monkeypatch.setitem(ops_module._TABLE, "in-force", (MEDIATOR, taken_over_between))
            assert await link.in_force("") == after.text
            half = len(before.text) // 2
            assert asked == [0, half, 0, half, 2 * half]
            assert await link.in_force(after.digest) is None

    asyncio.run(run())


def test_calls_overlap(site: MadeSite, kg: Kg) -> None:
    async def run() -> None:
        async with serving(site, kg), await KgClient.connect(site.layout.kg_socket) as link:
            hellos = await asyncio.gather(*(link.hello(1, bytes(16)) for _ in range(20)))
            assert len({h.inst for h in hellos}) == 20

    asyncio.run(run())


def test_a_snapshot_in_pieces_begins_anew_when_keys_change(
    site: MadeSite, kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealmq.kg.snapshot.PIECE", 10)
    whole = kg.snapshot()
    pieces = 0
    real = kg.snapshot

    def snapshot(at: int = 0, kseq: int | None = None) -> dict[str, Any]:
        nonlocal pieces
        pieces += 1
        if pieces == 3:
            kg.rekey([next(iter(site.config.labels))], 0, False)
        return real(at, kseq)

    monkeypatch.setattr(kg, "snapshot", snapshot)

    async def run() -> dict[str, Any]:
        async with serving(site, kg), await KgClient.connect(site.layout.kg_socket) as link:
            return await link.snapshot()

    got = asyncio.run(run())
    assert len(got["labels"]) == len(got["manifests"]) == 10
    assert len(got["order"]) == 30
    assert len(got["records"]) == 30 + 1
    assert got["kseq"] > whole["kseq"]
    assert got == json.loads(json.dumps(kg._whole))
    assert pieces > 3 + 8
    assert "next" not in got


# --- the client against a key generator that misbehaves -------------------------


@asynccontextmanager
async def pretending(path: Path, answer: bytes | None) -> AsyncIterator[None]:
    """Something that listens there and answers any request with these bytes, or hangs up."""
    held: list[asyncio.StreamWriter] = []  # one that nobody holds closes its connection

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answer is None:
            writer.close()
        else:
            writer.write(answer)
            held.append(writer)

    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield
    finally:
        server.close()
        for writer in held:
            writer.close()


WRONG_ANSWERS = [
    (None, "closed the connection"),
    (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
    (b"\x00\x00\x00\x02[]", "no frame of ours"),
    (b"\x00\x00\x00\x02{x", "no frame of ours"),
    (b'\x00\x00\x00\x13{"event": "changed"}', "no frame of ours"),
]


@pytest.mark.parametrize(("answer", "what"), WRONG_ANSWERS)
def test_the_client_survives_any_answer(answer: bytes | None, what: str, tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "s"
        async with pretending(path, answer), await KgClient.connect(path) as link:
            with pytest.raises(KgUnavailable, match=what):
                await link.status()
            assert link.lost
            with pytest.raises(KgUnavailable):
                await link.status()

    asyncio.run(run())


def test_the_client_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kglink, "RELOAD_S", 0.05)

    async def run() -> None:
        path = tmp_path / "s"
        async with pretending(path, b""), await KgClient.connect(path) as link:
            with pytest.raises(KgUnavailable, match="did not answer reload"):
                await link._call("reload", wait=kglink.RELOAD_S)
            assert not link._calls

    asyncio.run(run())


def test_nobody_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none", tmp_path / "file", tmp_path / "no" / "folder"):
        with pytest.raises(KgUnavailable, match="cannot be reached") as caught:
            asyncio.run(KgClient.connect(path))
        assert caught.value.hint is not None


def test_closing_fails_what_waits(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "s"
        async with pretending(path, b""):
            link = await KgClient.connect(path)
            waiting = asyncio.ensure_future(link.status())
            watching = asyncio.ensure_future(anext(link.changes()))
            await asyncio.sleep(0.05)
            await link.close()
            for task in (waiting, watching):
                with pytest.raises(KgUnavailable):
                    await task

    asyncio.run(run())


# --- who may watch what ---------------------------------------------------------------------------


async def frames(reader: asyncio.StreamReader, count: int) -> list[dict[str, Any]]:
    found = []
    for _ in range(count):
        size = int.from_bytes(await reader.readexactly(4), "big")
        found.append(json.loads(await reader.readexactly(size)))
    return found


@pytest.mark.parametrize("role", ["bridge", "border"])
def test_a_bridge_or_a_border_may_not_watch_what_mediators_watch(
    site: MadeSite, kg: Kg, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """Claim 40. It hears that keys of labels or the policy may be others, and of no client."""
    own = {"bridge": "peer-watch", "border": "border-watch"}[role]
    monkeypatch.setattr(server_module, "roles_of", lambda uid, layout: frozenset({role}))

    async def run() -> None:
        async with serving(site, kg) as server, asyncio.timeout(WAIT_S):
            there: list[list[dict[str, Any]]] = []
            for op in ("watch", own, "peer-watch" if role == "border" else "border-watch"):
                reader, writer = await raw(site)
                writer.write(frame({"op": op, "id": 1}))
                [answer] = await frames(reader, 1)
                assert answer.pop("id") == 1
                assert answer["ok"] is (op == own), answer
                server.changed(7, 3)  # the links of client 3
                server.changed(8, None)
                server.changed(9, None)
                writer.write(frame({"op": "hello", "id": 2}))
                there.append(await frames(reader, 3 if op == own else 1))
                writer.close()
            watched, policy = there[1], kg.config.digest
            assert watched[:2] == [{"event": "now", "kseq": n, "policy": policy} for n in (8, 9)]
            assert [row[-1]["code"] for row in there] == ["denied"] * 3

    asyncio.run(run())


def test_who_watches_versions_hears_the_one_of_now_and_then_each_change(
    site: MadeSite, kg: Kg
) -> None:
    async def run() -> None:
        async with serving(site, kg) as server, asyncio.timeout(WAIT_S):
            async with await KgClient.connect(site.layout.kg_socket) as link:
                watch = link.peer_watch()
                assert await anext(watch) == (kg.kseq(), kg.config.digest)
                server.changed(8, None)
                server.changed(9, None)
                heard = [await anext(watch)]
                while heard[-1][0] != 9:
                    heard.append(await anext(watch))
                later = asyncio.ensure_future(anext(watch))
                await server.stop()
                with pytest.raises(KgUnavailable):
                    await later

    asyncio.run(run())
