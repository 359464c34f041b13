"""The asyncio client where a task could wait for ever, or keep all others waiting."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from aio_script import run
from device_script import WIDTHS, board
from peer_connection import Connection
from sealmq_spec import const
from sealmq_spec.keys import u24

both = pytest.mark.parametrize("interpreter", WIDTHS)


@both
def test_connect_may_be_cancelled_wherever_it_waits(interpreter: str, tmp_path: Path) -> None:
    """Quarantine, roots, session, subscriptions: the client connects again each time."""
    with board(tmp_path) as b:
        one = threading.Lock()

        def on_ask(c: Connection, payload: bytes) -> bool:
            # One who has been cancelled may have asked, too.
            with one:
                answer = c.site.answer(payload)
            c.publish(const.CONTROL, answer)
            return True

        b.peer.on_ask = on_ask
        said = run(
            b,
            interpreter,
            """
global c
import os
from sealmq_device import tasks
real = tasks.readable, tasks.writable
left = 0
reached = asyncio.Event()
def counting(wait):
    async def one(sock):
        nonlocal left
        left -= 1
        if not left:
            reached.set()
        await wait(sock)
    return one
tasks.readable, tasks.writable = [counting(wait) for wait in real]
n = 0
wrong = 0
while True:
    n += 1
    try:
        os.remove(sys.argv[1].replace(".json", ".state"))
    except OSError:
        pass
    c = client()
    c.core._subscribed[b"a/#"] = 0
    reached.clear()
    left = n
    joins = asyncio.create_task(c.connect())
    while not reached.is_set() and not joins.done():
        await asyncio.sleep(0)
    if c.isconnected():
        await joins
        await c.disconnect()
        break
    joins.cancel()
    try:
        await joins
        wrong += 1
    except asyncio.CancelledError:
        pass
    wrong += bool(c.core.sock or c.core.waits or c._busy or c.isconnected())
    await c.connect()
    wrong += await c.publish("t", b"x", qos=1) < 1 or not c.isconnected()
    await c.disconnect()
say(n > 2, wrong)
""",
        )
        assert said == ["True 0"]


@both
def test_who_disconnects_leaves_nobody_waiting(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        again: list[int] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if c.conn > 1:
                again.append(ctr)
            return c.conn == 1

        b.peer.on_publish = on_publish
        said = run(
            b,
            interpreter,
            """
await c.connect()
tasks = [asyncio.create_task(caught(c.publish("t", b"x", qos=1))) for _ in range(10)]
asks = [asyncio.create_task(caught(c.subscribe("no/%d" % i))) for i in range(2)]
await until(lambda: c.core.session.ctr >= 8)
await asyncio.gather(c.disconnect(), c.disconnect())
await asyncio.gather(*tasks + asks)
say(sorted(c.unacked), c.core.waits, c.error is None)
await c.connect()
await c.resend()
say(c.unacked)
""",
        )
        assert set(said[:12]) <= {"OSError ECONNRESET", "OSError ENOTCONN"}
        assert said[12:] == [f"{list(range(1, 9))} {{}} False", "{}"]
        assert again == list(range(1, 9))


@both
@pytest.mark.parametrize("cut", [1, 3, 30])
def test_a_peer_that_goes_within_a_packet(interpreter: str, cut: int, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        packet = b"\x30\x40\0\x03!c/" + bytes(59)

        def goes(c: Connection) -> bool:
            c.sock.sendall(packet[:cut])
            c.sock.close()
            return True

        b.peer.on_welcome = lambda c, want: c.conn == 1 and goes(c)
        b.peer.on_publish = lambda c, *rest: c.conn == 2 and goes(c)
        said = run(
            b,
            interpreter,
            """
await caught(c.connect())
await c.connect()
await caught(c.publish("t", b"x", qos=1))
await c.connect()
await c.resend()
say(c.isconnected(), c.unacked)
""",
        )
        assert said == ["OSError ECONNRESET", "OSError ECONNRESET", "True {}"]


@both
def test_a_refusal_that_comes_with_new_roots_is_heard(interpreter: str, tmp_path: Path) -> None:
    """The mediator tells of an epoch, and refuses what is under way while roots are asked for."""
    with board(tmp_path) as b:
        b.provision()
        held: list[tuple[int, bytes]] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if ctr > 1:
                return False
            s = c.site
            s.new_epoch()
            held.append((ctr, c.publish_pid))
            what = bytes((const.OP_EPOCH,)) + u24(s.own.label) + u24(s.own.epoch)
            c.tell(what + s.kseq.to_bytes(4, "big") + bytes(4))
            return True

        def on_ask(c: Connection, payload: bytes) -> bool:
            for ctr, pid in held:
                c.notice(1, ctr, 6, "epoch", "provision again")
                c.send(0x40, pid)
            return False

        b.peer.on_publish, b.peer.on_ask = on_publish, on_ask
        said = run(
            b,
            interpreter,
            """
await c.connect()
say(await asyncio.wait_for(c.publish("t", b"x", qos=1), 8), c.core.ident.own.epoch)
""",
        )
        assert said == ["2 2"]


@both
@pytest.mark.parametrize("where", ["messages", "joining", "a packet"])
def test_a_flood_leaves_other_tasks_their_turn(
    interpreter: str, where: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def flood(c: Connection) -> bool:
            if where == "a packet":
                c.sock.sendall(b"\x30\xff\xff\xff\x7f\0\x01t")
            some = (b"\x30\x05\0\x01tno" if where != "a packet" else bytes(7)) * 9000
            while True:  # until the client has gone
                c.sock.sendall(some)

        b.peer.on_ping = flood
        b.peer.on_subscribe = lambda c, filt, ctr: where == "joining" and c.conn > 1 and flood(c)
        said = run(
            b,
            interpreter,
            f"""
joining = {where == "joining"}
one = {where == "a packet"}
"""
            + """
await c.connect()
await c.subscribe("a/#")
taken = 0
def counted(self, first, n):
    nonlocal taken
    for piece in real(self, first, n):
        taken += 1
        yield piece
if one:
    core = type(c.core)
    real = core._thrown_away
    core._thrown_away = counted
if joining:
    joins = asyncio.create_task(c.connect())
else:
    await c.ping()
await until(lambda: taken > 100 or c.refused.get("Malformed", 0) > 100)
say(joining and joins.done(), c.core.sock is not None, taken < 100000)
await c.disconnect()
if joining:
    await caught(joins)
say(c.core.sock, c.isconnected())
""",
        )
        assert said[0] == "False True True"
        assert said[-1] == "None False"


@both
@pytest.mark.parametrize("where", ["link", "watch"])
def test_no_memory_ends_the_connection_for_everybody(
    interpreter: str, where: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if c.conn == 1 and where == "link":
                c.publish(b"t", c.m3(b"t", m1, c.site.own))
            return c.conn == 1

        b.peer.on_publish = on_publish
        said = run(
            b,
            interpreter,
            f"global c\nc = client(keepalive={1 if where == 'watch' else 0}, timeout=10)\n"
            + """
def none(*args):
    raise MemoryError("no room")
real = c.core._deliver, c.core.ping
await c.connect()
c.core._deliver = c.core.ping = none
say(len(await asyncio.gather(*[caught(c.publish("t", b"x", qos=1)) for _ in range(3)])))
await caught(c.publish("t", b"x"))
c.core._deliver, c.core.ping = real
say(type(c.error).__name__, len(c.unacked), c.down.is_set())
await c.connect()
await c.resend()
say(c.isconnected(), c.unacked)
""",
        )
        lost = "OSError ECONNRESET"
        ends = "MemoryError 3 True"
        assert said == [lost, lost, lost, "3", "OSError ENOTCONN", ends, "True {}"]


@both
def test_what_waits_for_a_peer_that_does_not_read_is_bounded(
    interpreter: str, tmp_path: Path
) -> None:
    """It sends and sends with QoS 1, and takes none of the acknowledgements."""
    with board(tmp_path) as b:
        said = run(
            b,
            interpreter,
            """
from sealmq_device.wire import Wire
class Deaf:
    def write(self, *args):
        return None
    def close(self):
        pass
wire = Wire(Deaf(), lambda: 0, None)
say(wire.write(bytes(9000), 0, 9000))
taken = 0
try:
    while taken < 5000:
        taken += wire.write(bytes(4), 0, 4)
except OSError as error:
    say(errno.errorcode[error.errno], taken, len(wire.rest))
wire.close()
""",
        )
        assert said == ["9000", "ENOBUFS 4096 13096"]


@both
def test_two_tasks_that_send_again_both_come_to_an_end(interpreter: str, tmp_path: Path) -> None:
    """As each does that has lost its message with the connection."""
    with board(tmp_path) as b:
        b.provision()
        again: list[int] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if c.conn == 1:
                c.sock.close()
                return True
            again.append(ctr)
            return False

        b.peer.on_publish = on_publish
        said = run(
            b,
            interpreter,
            """
await c.connect()
await asyncio.gather(*[caught(c.publish("t", b"x", qos=1)) for _ in range(2)])
await c.connect()
await asyncio.gather(c.resend(), c.resend())
say(c.unacked, c.isconnected())
""",
        )
        assert said[-1] == "{} True"
        assert said[:-1] == ["OSError ECONNRESET"] * 2
        assert again == [1, 2]
