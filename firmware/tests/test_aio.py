"""The asyncio client: the same scripted peer, many tasks."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from aio_script import run
from device_script import INTERPRETERS, Board, board
from peer_connection import Connection
from peer_site import Site
from sealmq_spec import const, control

every = pytest.mark.parametrize("interpreter", INTERPRETERS)


@every
@pytest.mark.parametrize("suite", [const.CCM, const.CHACHA])
def test_provisions_publishes_and_receives(interpreter: str, suite: int, tmp_path: Path) -> None:
    with board(tmp_path, Site(suite)) as b:
        said = run(
            b,
            interpreter,
            """
say(await c.connect(), c.isconnected(), c.has_kg_time(), c.down.is_set())
say(await c.subscribe("machine/#", 1))
say(await c.publish("machine/1/state", "gr\\u00fcn", retain=True, qos=1, life=7))
say(await c.publish(b"machine/1/temperature", b"21.5"))
got = []
async for m in c:
    got.append((m.topic, m.payload))
    if len(got) == 2:
        break
say(got)
await c.unsubscribe("machine/#")
await c.disconnect()
say(c.isconnected(), c.down.is_set(), c.refused, c.notices, c.unacked)
await caught(c.publish("t", b"x"))
""",
        )
        pairs = [("machine/1/state", "grün".encode()), ("machine/1/temperature", b"21.5")]
        assert said == [
            "False True True False", "1", "2", "3", str(pairs), "False True {} [] {}",
            "OSError ENOTCONN",
        ]  # fmt: skip
        assert [event[0] for event in b.peer.events if event[0] not in ("end", "puback")] == [
            "quarantine", "asked", "connected", "subscribe", "publish", "publish", "unsubscribe",
        ]  # fmt: skip


@every
def test_a_slow_puback_holds_no_other_publisher(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        slow = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if topic == "slow":
                slow.append(c.publish_pid)
                return True
            if topic == "denied":
                c.notice(1, ctr, 5, "labels", "not yours")
            c.send(0x40, c.publish_pid)
            if topic == "last":
                c.send(0x40, slow[0])
            return True

        b.peer.on_publish = on_publish
        said = run(
            b,
            interpreter,
            """
await c.connect()
slow = asyncio.create_task(c.publish("slow", b"x", qos=1))
await asyncio.sleep(0)
say(await asyncio.gather(*[c.publish("t/%d" % i, b"y", qos=1) for i in range(20)]))
await caught(c.publish("denied", b"x", qos=1))
say(slow.done())
await c.publish("last", b"x", qos=1)
say(await slow, c.unacked)
""",
        )
        rest = str(list(range(2, 22)))
        assert said == [rest, "Denied labels not yours", "False", "1 {}"]


@every
@pytest.mark.parametrize("order", ["receipt, notice", "notice, receipt"])
def test_a_receipt_beats_a_notice(interpreter: str, order: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            for word in order.split(", "):
                if word == "receipt":
                    c.tell(control.receipt(ctr, 1))
                else:
                    c.notice(1, ctr, 4, "mediator.publish.replay", "it came before")
            c.send(0x40, c.publish_pid)
            return True

        b.peer.on_publish = on_publish
        script = """
await c.connect()
say(await c.publish("t", b"x", qos=1), c.receipted(1), c.unacked)
"""
        assert run(b, interpreter, script) == ["1 True {}"]


@every
def test_a_cancelled_publish_disturbs_no_other(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        held: list[bytes] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if topic == "held":
                held.append(c.publish_pid)
            elif topic == "go":
                for pid in [*held, c.publish_pid]:
                    c.send(0x40, pid)
            return topic in ("held", "go")

        b.peer.on_publish = on_publish
        said = run(
            b,
            interpreter,
            """
await c.connect()
tasks = [asyncio.create_task(c.publish("held", b"x", qos=1)) for _ in range(10)]
await until(lambda: c.core.session.ctr == 8)
tasks[0].cancel()
tasks[9].cancel()
await until(lambda: c.core.session.ctr == 9)
for t in (tasks[0], tasks[9]):
    try:
        await t
    except asyncio.CancelledError:
        say("cancelled")
go = asyncio.create_task(c.publish("go", b"x", qos=1))
tasks[1].cancel()
say(await asyncio.gather(*tasks[2:9]), await go, c.unacked, c.isconnected())
""",
        )
        # Eight wait at a time. One that waited for its turn was never published.
        assert said == ["cancelled", "cancelled", "[3, 4, 5, 6, 7, 8, 9] 10 {} True"]
        ctrs = [event[3] for event in b.peer.said("publish")]
        assert ctrs == list(range(1, 11))


@every
def test_a_connect_that_is_cancelled_leaves_nothing(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.on_welcome = lambda c, want: c.conn == 1
        said = run(
            b,
            interpreter,
            """
t = asyncio.create_task(c.connect())
await until(lambda: c.core.session.conn == 1)
t.cancel()
try:
    await t
except asyncio.CancelledError:
    say("cancelled", c.core.sock, c.isconnected())
await c.connect()
say(await c.publish("t", b"x", qos=1), c.core.session.conn)
""",
        )
        # ctr 1 went into the question for the key generator's time.
        assert said == ["cancelled None False", "2 2"]


@every
def test_a_peer_that_reads_nothing_gets_whole_packets(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        go = threading.Event()
        b.peer.on_ping = lambda c: go.wait(10) and False
        said = (
            run(
                b,
                interpreter,
                """
await c.connect()
await c.ping()
size = 3000
async def fill():
    while True:
        await c.publish("big", bytes(size))
t = asyncio.create_task(fill())
ticks = 0
while not c.core.sock.rest:
    await asyncio.sleep(0)
    ticks += 1
c.core.ping()
waiting = [asyncio.create_task(c.publish("t", b"x", qos=1)) for _ in range(3)]
await asyncio.sleep(0.05)
ctr = c.core.session.ctr
t.cancel()
waiting[1].cancel()
await asyncio.sleep(0)
say(ctr == c.core.session.ctr, ticks > 0)
print("GO")
import os
open(sys.argv[1] + ".go", "w").close()
say([await waiting[0] - ctr, await waiting[2] - ctr], c.refused, c.unacked)
""",
            )
            if release(b, go)
            else []
        )
        assert [line for line in said if line != "GO"] == ["True True", "[1, 2] {} {}"]
        ctrs = [event[3] for event in b.peer.said("publish")]
        assert ctrs == list(range(1, len(ctrs) + 1))
        assert len(ctrs) > 5


def release(b: Board, go: threading.Event) -> bool:
    """Sets `go` once the script has written its file."""
    path = Path(str(b.enrolment) + ".go")

    def watch() -> None:
        while not path.exists() and not go.wait(0.01):
            pass
        go.set()

    threading.Thread(target=watch, daemon=True).start()
    return True


@every
@pytest.mark.parametrize("where", ["connack", "welcome", "packet", "puback", "rest"])
def test_a_peer_that_stalls_is_left(interpreter: str, where: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_connect(c: Connection) -> bool:
            return where == "connack"

        def on_welcome(c: Connection, want: bool) -> bool:
            if where == "welcome":
                c.sock.sendall(b"\x30\x40\0\x03!c")
            return where == "welcome"

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if where == "packet":
                c.send(0x40, c.publish_pid)
                c.sock.sendall(b"\x30\x20\0")
            return True

        b.peer.on_connect, b.peer.on_welcome, b.peer.on_publish = on_connect, on_welcome, on_publish
        never = threading.Event()
        b.peer.on_ping = lambda c: never.wait(6) or True
        script = """
global c
c = client(timeout=1)
if await caught(c.connect()) is not None:
    if WHERE == "rest":
        await c.ping()
        async def fill():
            while True:
                await c.publish("big", bytes(3000))
        await caught(fill())
    else:
        await caught(c.publish("t", b"x", qos=1))
    await c.down.wait()
say(c.core.sock, c.isconnected(), len(c.unacked), c.error)
""".replace("WHERE", repr(where))
        if where == "rest":
            # The peer's thread sleeps on: nothing of it is looked at.
            b.peer.settle = lambda: None  # type: ignore[method-assign]
        said = run(b, interpreter, script)
        never.set()
        kept = 1 if where == "puback" else 0
        if where != "packet":
            assert said[0] == "OSError ETIMEDOUT"
        assert said[-1].startswith(f"None False {kept}")
        assert "ETIMEDOUT" in said[-1] or "110" in said[-1]


@every
def test_a_lost_connection_tells_everybody_and_resend_follows(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        came: list[int] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            came.append(ctr)
            if len(came) == 3:
                c.sock.close()
            return len(came) <= 3

        b.peer.on_publish = on_publish
        said = run(
            b,
            interpreter,
            """
await c.connect()
await asyncio.gather(*[caught(c.publish("t", b"x", qos=1)) for _ in range(3)])
say(sorted(c.unacked), c.down.is_set())
say(await c.connect(), c.up.is_set())
await c.resend()
say(c.unacked, await c.publish("t", b"y", qos=1))
""",
        )
        lost = "OSError ECONNRESET"
        assert said == [lost, lost, lost, "[1, 2, 3] True", "False True", "{} 4"]
        assert came == [1, 2, 3, 1, 2, 3, 4]
        assert b.peer.said("connected") == [(1, 2, 1), (1, 2, 2)]


@every
def test_subscriptions_are_made_again_and_refusals_raised(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.denied["secret/#"] = (5, "purposes", "not for this")
        said = run(
            b,
            interpreter,
            """
await c.connect()
say(await asyncio.gather(c.subscribe("a/#", 1), c.subscribe("b/#")))
await caught(c.subscribe("secret/#"))
await caught(c.subscribe("a/#/b"))
await c.connect()
await c.publish("a/1", b"x", qos=1)
async for m in c:
    say(m.topic, m.payload)
    break
""",
        )
        assert said == ["[1, 0]", "Denied purposes not for this", "Malformed  ", "a/1 b'x'"]
        filters = [event[0] for event in b.peer.said("subscribe")]
        assert sorted(filters) == ["a/#", "a/#", "b/#", "b/#", "secret/#"]


@every
def test_what_a_connect_cannot_subscribe_again_is_missing(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            if c.conn == 2:
                c.notice(2, ctr, 7, "rule", "try later")
                c.send(0x90, c.subscribe_pid + b"\x80")
            return c.conn == 2

        b.peer.on_subscribe = on_subscribe
        said = run(
            b,
            interpreter,
            """
await c.connect()
await c.subscribe("a/#")
await c.connect()
say(c.isconnected(), c.missing, c.core._subscribed)
await c.connect()
say(c.isconnected(), c.missing, c.core._subscribed)
""",
        )
        assert said == ["True {b'a/#': 0} {b'a/#': 0}", "True {} {b'a/#': 0}"]
        assert len(b.peer.said("subscribe")) == 3


@every
def test_a_new_epoch_is_taken_while_connected(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        told: list[int] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if len(told) == 0:
                told.append(ctr)
                c.site.new_epoch()  # and no word of it
            if int.from_bytes(m1[2:5], "big") == c.site.own.epoch:
                return False
            c.notice(1, ctr, 6, "epoch", "provision again")
            c.send(0x40, c.publish_pid)
            return True

        b.peer.on_publish = on_publish
        said = run(
            b,
            interpreter,
            """
await c.connect()
ctrs = await asyncio.gather(*[c.publish("t", b"x", qos=1) for _ in range(4)])
say(sorted(ctrs), c.core.ident.own.epoch, c.core.session.conn, c.unacked)
""",
        )
        # Each of the four was refused and went out once more.
        assert said == ["[5, 6, 7, 8] 2 1 {}"]
        assert b.peer.said("asked") == [(1,)]


@every
def test_a_late_refusal_for_the_old_epoch_asks_for_no_roots(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        held: list[tuple[int, bytes]] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if ctr == 1:
                c.site.new_epoch()
            if int.from_bytes(m1[2:5], "big") == c.site.own.epoch:
                for late, pid in held:
                    c.notice(1, late, 6, "epoch", "provision again")
                    c.send(0x40, pid)
                held.clear()
                return False
            held.append((ctr, c.publish_pid))
            if ctr == 1:
                late, pid = held.pop()
                c.notice(1, late, 6, "epoch", "provision again")
                c.send(0x40, pid)
            return True

        b.peer.on_publish = on_publish
        said = run(
            b,
            interpreter,
            """
await c.connect()
say(sorted(await asyncio.gather(*[c.publish("t", b"x", qos=1) for _ in range(2)])))
""",
        )
        assert said == ["[3, 4]"]
        assert b.peer.said("asked") == [(1,)]


@every
def test_the_end_of_a_boot_session_is_waited_for(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        said = run(
            b,
            interpreter,
            """
await c.connect()
c.core.session.ctr = 0xFFFFFB
ctrs = await asyncio.gather(*[c.publish("t", b"x", qos=i & 1) for i in range(6)])
say(sorted(ctrs), c.core.session.boot, c.isconnected())
""",
        )
        last = [0xFFFFFC, 0xFFFFFD, 0xFFFFFE]
        assert said == [f"{[1, 2, 3, *last]} 3 True"]
        assert b.peer.said("connected") == [(1, 2, 1), (1, 3, 1)]
        ctrs = [event[3] for event in b.peer.said("publish")]
        assert sorted(ctrs) == [1, 2, 3, *last]


@every
def test_the_keep_alive_is_kept(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        pings: list[int] = []

        def on_ping(c: Connection) -> bool:
            pings.append(1)
            return len(pings) > 1  # then it is silent

        b.peer.on_ping = on_ping
        said = run(
            b,
            interpreter,
            """
global c
c = client(timeout=1, keepalive=1)
await c.connect()
await c.down.wait()
say(c.isconnected())
""",
        )
        assert said == ["False"]
        assert len(pings) == 2


@every
def test_wills_and_what_is_too_large(interpreter: str, tmp_path: Path) -> None:
    wills = []
    with board(tmp_path) as b:
        b.provision()

        def on_welcome(c: Connection, want: bool) -> bool:
            _, topic, payload, _, _ = c.fields
            wills.append((topic, c.unseal(topic, c.flags >> 5 & 1 | c.flags >> 2 & 6, payload)[2]))
            return False

        def on_ping(c: Connection) -> bool:
            c.publish(b"big", os.urandom(9000), 1)
            c.publish(b"t", bytes(400))
            return False

        b.peer.on_welcome, b.peer.on_ping = on_welcome, on_ping
        said = run(
            b,
            interpreter,
            """
c.set_last_will("machine/1/state", b"gone", retain=True, qos=1, life=255)
await c.connect()
await caught(c.publish("t", bytes(5000)))
await c.ping()
await until(lambda: len(c.refused) == 2)
say(sorted(c.refused), await c.publish("t", b"x", qos=1))
""",
        )
        assert said == ["TooLarge  ", "['Malformed', 'TooLarge'] 2"]
    assert wills == [(b"machine/1/state", b"gone")]


@every
def test_what_a_peer_without_mqtt_gets(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if topic == "long":
                c.sock.sendall(b"\x30\xff\xff\xff\xff\x01")
            elif topic == "type":
                c.sock.sendall(b"\x80\x02\0\0")
            else:
                # About nobody's: the connection's end is what keeps the message, and no notice.
                c.tell(control.notice(1, 0, 2, "frame", "the tag does not verify"))
                c.sock.shutdown(2)
            return True

        b.peer.on_publish = on_publish
        said = run(
            b,
            interpreter,
            """
for topic in ("long", "type", "doubt"):
    await c.connect()
    await caught(c.publish(topic, b"x", qos=1))
    say(topic, c.isconnected(), len(c.unacked))
""",
        )
        assert said == [
            "Malformed  ", "long False 1", "Malformed  ", "type False 2",
            "OSError ECONNRESET", "doubt False 3",
        ]  # fmt: skip


@every
def test_another_connects_or_nobody_listens(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        said = run(
            b,
            interpreter,
            """
t = asyncio.create_task(c.connect())
await asyncio.sleep(0)
await caught(c.connect())
# Who publishes meanwhile waits for the session.
say(await c.publish("t", b"x", qos=1), await t)
await c.disconnect()
c.core.port = 9
await caught(c.connect())
say(c.down.is_set(), c.core.sock)
""",
        )
        assert said == ["Misuse  ", "1 False", "OSError ECONNREFUSED", "True None"]
