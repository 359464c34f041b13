"""The asyncio client that lives, against a scripted peer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from device_script import INTERPRETERS, PRELUDE, board
from living_script import NETWORK, first_of_each, gives_receipts, live
from mqtt_frames import ConnectionClosed
from peer_connection import Connection

every = pytest.mark.parametrize("interpreter", INTERPRETERS)

ASYNC = (
    PRELUDE.replace("c = client()\n", "")
    + """
import asyncio
from sealmq_device import aio
from sealmq_device.living_aio import Living
from sealmq_device.outbox import Outbox
def name(error):
    return "OSError" if isinstance(error, OSError) else type(error).__name__ if error else ""
def living(wlan=None, wdt=None, patience=0, clean=True, box=None, **options):
    options.setdefault("keepalive", 60)
    options.setdefault("timeout", 3)
    made = Living(aio.Client(sys.argv[1], **options), wlan, box, wdt, patience, clean)
    made.outbox.prove_ms = 0
    made.backoff.draw = lambda: 0
    made.outbox.on_outcome = lambda item, how, error: say(item.n, how, name(error))
    made.on_change = lambda up, error: say("up" if up else "down", name(error))
    return made
async def until(look):
    for _ in range(1000):
        if look():
            return
        await asyncio.sleep(0.02)
    say("in vain")
"""
)


@every
def test_it_lives(interpreter: str, tmp_path: Path) -> None:
    """Away twice, then each third message ends its connection; nothing is lost, or comes twice."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        tried: list[int] = []
        left = [2]

        def on_connect(c: Connection) -> bool:
            left[0] -= 1
            if left[0] >= 0:
                raise ConnectionClosed("away")
            return False

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            tried.append(ctr)
            if tried.count(ctr) > 1 or int(b.peer.said("publish")[-1][1]) % 3:
                return False
            c.sock.close()
            return True

        b.peer.on_connect = on_connect
        b.peer.on_publish = on_publish
        said = live(
            b,
            interpreter,
            """
async def main():
    l = living()
    got = []
    async def listen():
        async for m in l.client:
            got.append(m.payload)
    l.subscribe("t/#", 1)
    for n in range(6):
        l.publish("t/x", str(n), qos=1)
    tasks = [asyncio.create_task(l.run()), asyncio.create_task(listen())]
    await until(lambda: not len(l.outbox))
    say(l.client.up.is_set(), l.outbox.counts["accepted"])
    l.publish("t/x", "7", qos=1)
    await until(lambda: b"7" in got)
    conn = l.core.session.conn
    l.publish("t/x", "9")     # this ends the connection, and nobody waits for anything
    await until(lambda: l.core.session.conn > conn and l.client.up.is_set())
    await l.disconnect()
    for task in tasks:
        task.cancel()
asyncio.run(main())
""",
            ASYNC,
        )
        assert "in vain" not in said
        assert said[:3] == ["down OSError", "down OSError", "up"]
        ends = [line for line in said if line.endswith("accepted")]
        assert ends == [f"{n + 1} accepted" for n in range(7)]
        assert "True 6" in said
        assert first_of_each(b) == ["0", "1", "2", "3", "4", "5", "7", "9"]
        assert said.count("down OSError") == len([line for line in said if "down" in line]) >= 3


@every
def test_refusals_drops_and_wifi(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        b.peer.denied = {"no": (5, "rule", "why"), "no/#": (5, "rule", "why")}
        said = live(
            b,
            interpreter,
            """
async def main():
    class Wdt:
        fed = 0
        def feed(self):
            self.fed += 1
    wdt = Wdt()
    Radio.reachable = False
    l = living(Wlan("plant", "right"), wdt=wdt, box=Outbox(3))
    l.radio.backoff.draw = lambda: 0
    for n, topic in enumerate(("t/0", "t/1", "no", "t/3")):
        l.publish(topic, str(n), qos=1)
    l.subscribe("no/#")
    caught(l.publish, "t/+", b"")
    task = asyncio.create_task(l.run())
    await asyncio.sleep(0.3)
    say(l.isconnected(), wdt.fed > 0)
    Radio.reachable = True
    await until(lambda: not len(l.outbox))
    Radio.reachable = False
    await until(l.client.down.is_set)
    await asyncio.sleep(0.1)
    fed = wdt.fed
    import time
    time.sleep(0.3)          # a task that does not give way
    say(wdt.fed - fed)
    Radio.reachable = True
    l.publish("t/4", b"4")
    await until(lambda: not len(l.outbox))
    task.cancel()
asyncio.run(main())
""",
            ASYNC + NETWORK,
        )
        assert said[:3] == ["1 dropped", "Malformed", "False True"]
        assert said[3:8] == [
            "up",
            "up Denied",
            "2 accepted",
            "3 refused Denied",
            "4 accepted",
        ] or said[3:8] == ["up", "up Denied", "3 refused Denied", "2 accepted", "4 accepted"]
        assert said[8:] == ["down Unavailable", "0", "up", "5 sent"]


@every
def test_errors_of_the_program_end_the_task(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        said = live(
            b,
            interpreter,
            """
async def main():
    l = living()
    def bad(up, error):
        raise ValueError("mine")
    l.on_change = bad
    try:
        await asyncio.wait_for(l.run(), 10)
    except ValueError as error:
        say("raised", error)
    await l.disconnect()
asyncio.run(main())
""",
            ASYNC,
        )
        assert said == ["raised mine"]


@every
def test_a_queue_that_fills_while_a_message_is_under_way(interpreter: str, tmp_path: Path) -> None:
    """That one is dropped no more: others are, and the task goes on."""
    with board(tmp_path) as b:
        b.provision()
        held: list[bytes] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            held.append(c.publish_pid)
            return len(held) == 1

        def on_ping(c: Connection) -> bool:
            c.send(0x40, held[0])
            c.receipt()
            return False

        b.peer.on_publish, b.peer.on_ping = on_publish, on_ping
        said = live(
            b,
            interpreter,
            """
async def main():
    l = living(box=Outbox(2))
    task = asyncio.create_task(l.run())
    l.publish("t", b"0", qos=1)
    await until(lambda: l.core.waits and l.client.up.is_set())
    for n in (1, 2, 3):
        l.publish("t", str(n), qos=1)
    await l.client.ping()
    await until(lambda: task.done() or not len(l.outbox))
    say(task.done(), l.outbox.bytes)
    await task if task.done() else task.cancel()
asyncio.run(main())
""",
            ASYNC,
        )
        ends = ["2 dropped", "3 dropped", "1 accepted", "4 accepted"]
        assert said == ["up", *ends, "False 0"]


@every
def test_a_link_that_joins_anew_subscribes_again_by_itself(
    interpreter: str, tmp_path: Path
) -> None:
    """Whatever is queued, or happens, meanwhile."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            boots.append(c.boot)
            if c.boot > boots[0]:
                time.sleep(0.3)
            return False

        boots: list[int] = []
        b.peer.on_subscribe = on_subscribe
        said = live(
            b,
            interpreter,
            """
async def main():
    l = living()
    l.subscribe("a/#")
    l.subscribe("b/#", 1)
    task = asyncio.create_task(l.run())
    await until(lambda: l.client.up.is_set() and not l.asks)
    l.core.session.ctr = 0xFFFFFE
    again = asyncio.create_task(l.client.ping())
    await until(lambda: l.core.missing)
    l.publish("t", b"x")
    await until(lambda: not len(l.outbox) or task.done())
    say(task.done(), l.asks, l.core.missing, sorted(l.core._subscribed))
    task.cancel()
    await again
asyncio.run(main())
""",
            ASYNC,
        )
        assert said == ["up", "up", "1 sent", "False [] {} [b'a/#', b'b/#']"]
        assert b.peer.said("subscribe") == [("a/#", 0), ("b/#", 1)] * 2
