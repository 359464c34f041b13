"""Where clients of an agent come in, and what one of them may cost it: real sockets, no site."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import websockets
from websockets.exceptions import ConnectionClosed

from free_ports import free_port
from sealmq import loops
from sealmq.agent import doors as module
from sealmq.agent.account import SEATS
from sealmq.agent.config import Config, Door
from sealmq.agent.doors import STRANGERS, Stream, opened
from sealmq.agent.local import Local, Pipe
from sealmq.agent.run import Agent
from sealmq.agent.sessions import Sessions
from sealmq.agent.wire import MAX_CONNECT, Refusal
from sealmq.client import Refused
from sealmq.mqtt import build
from sealmq.mqtt import five as v5
from sealmq_spec.errors import Denied


class Doors:
    """One of each kind. Whoever says CONNECT is in, and is echoed."""

    def __init__(self, folder: Path) -> None:
        self.unix, self.tcp, self.web = folder / "s.sock", free_port(), free_port()
        self.tls: ssl.SSLContext | None = None
        self.ended: asyncio.Queue[None] = asyncio.Queue()

    async def serve(self, pipe: Pipe) -> None:
        while data := await pipe.read():
            if data.startswith(b"\x10"):
                pipe.proved()
            await pipe.send(data)
        await pipe.close()
        self.ended.put_nowait(None)

    @contextlib.asynccontextmanager
    async def open(self, **more: Any) -> AsyncIterator[None]:
        found = [
            Door(self.unix, "", 0, False),
            Door(None, "127.0.0.1", self.tcp, False),
            Door(None, "127.0.0.1", self.web, True),
        ]
        async with opened(Config(found, {}, Path("none"), **more), self.serve):
            yield

    async def at(self, door: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if door == "unix":
            return await asyncio.open_unix_connection(str(self.unix))
        return await asyncio.open_connection("127.0.0.1", getattr(self, door))

    async def lets_in(self, door: str) -> bool:
        """Whether one that says CONNECT promptly is answered."""
        if door == "web":
            async with websockets.connect(
                f"ws://127.0.0.1:{self.web}", subprotocols=[websockets.Subprotocol("mqtt")]
            ) as web:
                await web.send(b"\x10\0")
                return await web.recv() == b"\x10\0"
        reader, writer = await self.at(door)
        writer.write(b"\x10\0")
        answer = await reader.read(2)
        writer.close()
        return answer == b"\x10\0"


def played(story: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(12):
            await story()

    loops.run(bounded())


@pytest.mark.parametrize("full", ["tcp", "web", "unix"])
def test_a_stranger_at_one_door_closes_neither_that_one_nor_another(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds more connections than there are places, says nothing, and keeps opening them."""
    monkeypatch.setattr(module, "_HTTP_S", 600.0)
    monkeypatch.setattr(module, "_SAY_S", 600.0)
    doors = Doors(tmp_path)

    async def story() -> None:
        async with doors.open():
            proved = await doors.at(full)
            if full != "web":
                proved[1].write(b"\x10\0")
                assert await proved[0].read(2) == b"\x10\0"
            held = [await doors.at(full) for _ in range(2 * STRANGERS)]
            for door in ("unix", "tcp", "web"):
                assert await doors.lets_in(door), door
            # Its oldest have gone, and nobody's who has said who it is.
            assert await held[0][0].read(1) == b""
            if full != "web":
                proved[1].write(b"\xc0\0")
                assert await proved[0].read(2) == b"\xc0\0"
            for _, writer in [*held, proved]:
                writer.close()

    played(story)
    # Nor does it fill the log.
    assert len([one for one in caplog.records if "say not who" in one.getMessage()]) == 1


@pytest.mark.parametrize("door", ["tcp", "web"])
def test_who_begins_no_tls_has_a_place_like_others_and_is_pushed_out(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TLS_S", 600.0)
    monkeypatch.setattr(Door, "outside", property(lambda self: self.path is None))
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"]
    subprocess.run(
        ["openssl", "req", "-x509", *words, "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
        timeout=60,
    )
    doors = Doors(tmp_path)

    async def story() -> None:
        async with doors.open(certificate=cert, key=key):
            held = [await doors.at(door) for _ in range(STRANGERS + 10)]
            for reader, _ in held[:10]:
                assert await reader.read(1) == b""
            last = asyncio.ensure_future(held[-1][0].read(1))
            await asyncio.sleep(0.05)
            assert not last.done()
            for _, writer in held:
                writer.close()
            await asyncio.wait({last})

    played(story)


def test_a_web_client_that_has_not_said_who_it_is_sends_no_more_than_a_connect(
    tmp_path: Path,
) -> None:
    doors = Doors(tmp_path)

    async def story() -> None:
        async with doors.open():
            where, mqtt = f"ws://127.0.0.1:{doors.web}", [websockets.Subprotocol("mqtt")]
            big = bytes(200_000)
            async with websockets.connect(where, subprotocols=mqtt, max_size=None) as web:
                await web.send(big)
                with pytest.raises(ConnectionClosed) as found:
                    await web.recv()
                assert found.value.rcvd is not None
                assert found.value.rcvd.code == 1009
            async with websockets.connect(where, subprotocols=mqtt, max_size=None) as web:
                connect = b"\x10" + bytes(MAX_CONNECT)
                await web.send(connect)
                assert await web.recv() == connect
                await web.send(big)
                assert await web.recv() == big

    played(story)


def test_a_place_is_free_again_when_its_stranger_has_gone(tmp_path: Path) -> None:
    doors = Doors(tmp_path)

    async def story() -> None:
        async with doors.open():
            first = await doors.at("tcp")
            first[1].write(b"\xc0\0")
            assert await first[0].read(2) == b"\xc0\0"
            for _ in range(2 * STRANGERS):
                _, writer = await doors.at("tcp")
                writer.close()
                await writer.wait_closed()
                await doors.ended.get()
            first[1].write(b"\xc0\0")
            assert await first[0].read(2) == b"\xc0\0", "it was pushed out by those that had gone"
            first[1].close()

    played(story)


def test_the_socket_file_is_open_to_its_owner_alone(tmp_path: Path) -> None:
    doors = Doors(tmp_path)

    async def story() -> None:
        async with doors.open():
            assert doors.unix.stat().st_mode & 0o777 == 0o600

    played(story)
    assert not doors.unix.exists()


# --- one client ----------------------------------------------------------------------------------


class Wire:
    """A client's end of a pipe: what it says, piece by piece, and what it is sent."""

    def __init__(self) -> None:
        self.says: asyncio.Queue[bytes] = asyncio.Queue()
        self.came = b""
        self.known = self.closed = False

    async def read(self) -> bytes:
        return await self.says.get()

    async def send(self, data: bytes) -> None:
        self.came += data

    async def close(self) -> None:
        self.closed = True

    def proved(self) -> None:
        self.known = True


class Seat:
    """A connection to the site: it grants what does not begin with `no`."""

    present = True

    async def subscribe_each(self, *filters: str, **said: Any) -> list[Any]:
        return [
            Refused(filt, Denied("labels.subscribe.x", "no")) if filt.startswith("no") else 1
            for filt in filters
        ]

    async def receive_some(self, most: int) -> None:
        await asyncio.Event().wait()

    async def ended(self) -> None:
        await asyncio.Event().wait()

    async def disconnect(self, goodbye: bool = True) -> None: ...


class Disk:
    """Stands where a Spool is: all is on disk at once."""

    def keep_session(self, user: str, client: str, said: str | None) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class Account:
    """A site that decides about nothing that is published."""

    name, up, seats = "ha", True, 0
    refusal = None
    sayable: frozenset[str] = frozenset()

    def __init__(self) -> None:
        judge = SimpleNamespace(judge=lambda *words: None)
        self.user = SimpleNamespace(name="ha", discovery=judge, say={}, acknowledge=False)
        self.published = 0
        self.kept: list[bool] = []
        self.expiries: list[int | None] = []
        self.delays: dict[str, Any] = {}
        self.waiting: dict[Any, None] = {}
        self.sessions = Sessions("ha", Disk())  # type: ignore[arg-type]

    async def until_up(self, seconds: float) -> bool:
        return True

    def publish(self, *words: Any) -> asyncio.Future[None]:
        self.published += 1
        return asyncio.get_running_loop().create_future()

    def reader(self, client_id: str, kept: bool, expiry: int | None, *more: Any) -> Seat:
        self.kept.append(kept)
        self.expiries.append(expiry)
        return Seat()

    async def enter(self, seat: Seat) -> None: ...


async def alone(local: Local) -> None:
    """Nobody else has its client identifier."""


@contextlib.asynccontextmanager
async def joined(connect: bytes) -> AsyncIterator[tuple[Local, Wire, Account]]:
    """A client that is in."""
    wire, account = Wire(), Account()
    local = Local(wire, lambda user, password: account, alone)  # type: ignore[arg-type, return-value]
    task = asyncio.ensure_future(local.run())
    wire.says.put_nowait(connect)
    await calm()
    assert wire.came
    assert wire.known
    try:
        yield local, wire, account
    finally:
        wire.says.put_nowait(b"")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def calm() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


def test_one_read_of_many_small_messages_passes_no_bound() -> None:
    async def story() -> None:
        async with joined(build.connect("id")) as (_, wire, account):
            wire.says.put_nowait(build.publish("a", b"") * 10_000)
            await calm()
            assert account.published == 32

    played(story)


def test_keep_alive_ends_a_client_that_neither_reads_nor_says_anything() -> None:
    class Deaf(Wire):
        async def send(self, data: bytes) -> None:
            if self.came:
                await asyncio.Event().wait()
            self.came += data

    async def story() -> None:
        wire, account = Deaf(), Account()
        local = Local(wire, lambda *_: account, alone)  # type: ignore[arg-type]
        task = asyncio.ensure_future(local.run())
        wire.says.put_nowait(build.connect("id", keepalive=1))
        await calm()
        for _ in range(3):
            local._out.send(bytes(300_000))
            await calm()
        # Its last words; nothing is read after them.
        wire.says.put_nowait(build.pingreq())
        async with asyncio.timeout(30):
            await task

    played(story)


def test_keep_alive_lets_a_client_be_that_reads_slowly_or_waits_for_the_site() -> None:
    class Slow(Wire):
        takes: asyncio.Queue[None]

        async def send(self, data: bytes) -> None:
            if self.came:
                await self.takes.get()
            self.came += data

    async def story() -> None:
        wire, account = Slow(), Account()
        wire.takes = asyncio.Queue()
        local = Local(wire, lambda *_: account, alone)  # type: ignore[arg-type]
        task = asyncio.ensure_future(local.run())
        wire.says.put_nowait(build.connect("id", keepalive=60))
        await calm()
        for _ in range(3):
            local._out.send(bytes(300_000))
            await calm()
        wire.says.put_nowait(build.pingreq())
        await calm()
        wire.says.put_nowait(build.publish("a", b"") * 100)
        await calm()
        later = 1e12
        silent = local._there(later)
        assert silent < later, "it does not read, and is not listened to"
        await asyncio.sleep(0.01)
        wire.takes.put_nowait(None)
        await calm()
        assert silent < local._there(later) < later, "it has read something"
        wire.takes.put_nowait(None)
        await calm()
        assert account.published == 32
        assert local._there(later) == later, "the site is slow"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    played(story)


def test_a_client_whose_subscription_the_site_takes_back_is_ended_and_comes_again() -> None:
    async def story() -> None:
        wire, account = Wire(), Account()
        lost: list[Any] = []
        reader = account.reader

        def watched(client_id: str, kept: bool, expiry: int | None, *more: Any) -> Seat:
            lost.append(more[-1])
            return reader(client_id, kept, expiry, *more)

        account.reader = watched  # type: ignore[method-assign]
        local = Local(wire, lambda *_: account, alone)  # type: ignore[arg-type]
        task = asyncio.ensure_future(local.run())
        wire.says.put_nowait(build.connect("id") + build.subscribe(1, [("a", 1)]))
        await calm()
        assert not task.done()
        wire.came = b""
        [tell] = lost
        tell(Refused("a", Denied("labels.subscribe.x", "no")))
        await asyncio.wait_for(task, 30)
        # Without a DISCONNECT, after which some would not.
        assert (wire.came, wire.closed) == (b"", True)

    played(story)


def test_filters_that_the_site_refuses_leave_nothing() -> None:
    async def story() -> None:
        async with joined(build.connect("id")) as (local, wire, _):
            for n in range(50):
                filters = [(f"no/{n}/{m}", 0) for m in range(20)] + [("yes", 0)]
                wire.says.put_nowait(build.subscribe(1, filters))
                await calm()
            assert set(local._asks.said) == {"yes"}

    played(story)


def test_what_comes_after_a_subscribe_is_published_once_that_is_answered() -> None:
    async def story() -> None:
        async with joined(build.connect("id")) as (_, wire, account):
            grants = asyncio.Event()

            async def slow(self: Seat, *filters: str, **said: Any) -> list[Any]:
                await grants.wait()
                return [1]

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Seat, "subscribe_each", slow)
                wire.says.put_nowait(build.subscribe(1, [("a", 0)]) + build.publish("a", b""))
                await calm()
                assert account.published == 0
                grants.set()
                await calm()
                assert account.published == 1

    played(story)


def five(expiry: int) -> bytes:
    body = b"\0\4MQTT\5\2\0\0" + v5.put_properties({v5.SESSION_EXPIRY: expiry}) + b"\0\2id"
    return build.packet(0x10, body)


def left(expiry: int | None) -> bytes:
    return b"\xe0\0" if expiry is None else v5.disconnect(0, {v5.SESSION_EXPIRY: expiry})


@pytest.mark.parametrize(
    ("expiry", "sites", "told"),
    [
        (None, [True], [60]),
        (60, [True], [60]),
        (0, [True, False], [60, None]),
        (3600, [True, True], [60, 3600]),
        (0xFFFFFFFF, [True, True], [60, None]),
    ],
)
def test_a_disconnect_says_anew_for_how_long_the_site_keeps_the_session(
    expiry: int | None, sites: list[bool], told: list[int | None]
) -> None:
    async def story() -> None:
        connect = five(60).replace(b"MQTT\5\2", b"MQTT\5\0")
        async with joined(connect) as (_, wire, account):
            wire.says.put_nowait(left(expiry))
            await calm()
            assert account.kept == sites
            assert account.expiries == told

    played(story)


@pytest.mark.parametrize(
    ("expiry", "sites"), [(60, [None, 60]), (0xFFFFFFFF, [None, None]), (0, [])]
)
def test_how_long_a_session_is_kept_is_what_the_site_is_told(
    expiry: int, sites: list[int | None]
) -> None:
    async def story() -> None:
        # Clean Start: what there is of it ends first.
        async with joined(five(expiry)) as (_, _wire, account):
            assert account.expiries == sites

    played(story)


def test_who_comes_back_at_once_has_the_session_and_not_its_end() -> None:
    async def story() -> None:
        closing, closed = asyncio.Event(), asyncio.Event()

        async def slow(self: Seat, goodbye: bool = True) -> None:
            closing.set()
            await closed.wait()

        connect = five(60).replace(b"MQTT\5\2", b"MQTT\5\0")
        async with joined(connect) as (local, wire, account):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Seat, "disconnect", slow)
                wire.says.put_nowait(left(0))
                await closing.wait()
                local.end(Refusal("taken over", "", "another one"))
                closed.set()
                await calm()
                assert account.kept == [True]

    played(story)


@contextlib.asynccontextmanager
async def house(account: Account) -> AsyncIterator[Callable[[bytes], Awaitable[Wire]]]:
    """Clients come, as an agent lets them in."""
    agent: Any = SimpleNamespace(_clients=set())
    tasks = []

    async def comes(connect: bytes) -> Wire:
        wire = Wire()
        of: Any = account
        local = Local(wire, lambda *_: of, lambda new: Agent._joined(agent, new))  # type: ignore[arg-type]
        agent._clients.add(local)
        tasks.append(asyncio.ensure_future(local.run()))
        tasks[-1].add_done_callback(lambda _: agent._clients.discard(local))
        wire.says.put_nowait(connect)
        await calm()
        return wire

    yield comes
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_client_that_comes_again_has_its_own_place_where_all_are_taken() -> None:
    async def story() -> None:
        account = Account()
        account.seats = SEATS - 1
        async with house(account) as comes:
            first = await comes(build.connect("id", clean_session=False))
            second = await comes(build.connect("id", clean_session=False))
            assert (first.came[:4], second.came[:4]) == (b"\x20\2\1\0",) * 2
            assert first.closed
            assert account.seats == SEATS
            third = await comes(build.connect("other", clean_session=False))
            assert third.came[3] != 0
            assert (account.seats, second.closed) == (SEATS, False)

    played(story)


def test_a_client_whose_place_is_taken_while_it_waits_for_the_site_does_not_take_it_back() -> None:
    async def story() -> None:
        site = asyncio.Event()
        entered: list[str] = []

        class Slow(Account):
            async def enter(self, seat: Seat) -> None:
                await site.wait()
                entered.append("in")

        account = Slow()
        async with house(account) as comes:
            first = await comes(
                build.connect("id", clean_session=False) + build.subscribe(1, [("a", 1)])
            )
            second = await comes(build.connect("id", clean_session=False))
            assert (first.closed, first.came, second.came) == (True, b"", b"")
            site.set()
            await calm()
            assert (entered, second.came[:4]) == (["in"], b"\x20\2\1\0")
            assert (account.seats, second.closed) == (1, False)

    played(story)


def test_a_session_is_ended_before_its_client_sees_the_connection_s_end() -> None:
    async def story() -> None:
        connect = five(60).replace(b"MQTT\5\2", b"MQTT\5\0")
        async with joined(connect) as (_, wire, account):
            at: list[list[bool]] = []

            async def close() -> None:
                at.append([*account.kept])

            wire.close = close  # type: ignore[method-assign]
            wire.says.put_nowait(left(0))
            await calm()
            assert at == [[True, False]]

    played(story)


def test_a_session_that_is_not_kept_is_not_made_to_be_by_disconnect() -> None:
    async def story() -> None:
        async with joined(five(0)) as (_, wire, account):
            wire.says.put_nowait(left(60))
            await calm()
            assert account.kept == []
            assert b"\x81" in wire.came[-120:]
            assert b"session expiry interval" in wire.came

    played(story)


def test_a_stream_reads_no_more_than_waits_and_gives_it_in_pieces() -> None:
    class Transport:
        paused = closed = False

        def set_write_buffer_limits(self, high: int) -> None: ...

        def pause_reading(self) -> None:
            self.paused = True

        def resume_reading(self) -> None:
            self.paused = False

        def get_extra_info(self, name: str) -> None: ...

    async def scene() -> None:
        stream = Stream(lambda: None)
        transport: Any = Transport()
        stream.connection_made(transport)
        sent = bytes(range(256)) * 1000
        stream.data_received(b"first")
        assert not transport.paused
        stream.data_received(sent)
        assert transport.paused
        got = [await stream.read()]
        while transport.paused:
            got.append(await stream.read())
        stream.data_received(b"last")
        assert stream.eof_received(), "it may still be answered"
        while piece := await stream.read():
            got.append(piece)
        assert b"".join(got) == b"first" + sent + b"last"
        assert max(map(len, got)) == module._READ
        stream.connection_lost(None)
        with pytest.raises(ConnectionError):
            await stream.send(b"x")

    asyncio.run(scene())
