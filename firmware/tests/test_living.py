"""A client that lives, against a scripted peer: connections that end, queues, what is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import INTERPRETERS, Board, board
from living_script import first_of_each, gives_receipts, hangs_up, live
from mqtt_frames import ConnectionClosed
from peer_connection import Connection
from sealmq_spec import const

every = pytest.mark.parametrize("interpreter", INTERPRETERS)


def away(b: Board, connects: int) -> None:
    """So many CONNECTs meet a mediator that is gone before it answers."""
    left = [connects]

    def on_connect(c: Connection) -> bool:
        left[0] -= 1
        if left[0] >= 0:
            b.peer.log("away")
            raise ConnectionClosed("away")
        return False

    b.peer.on_connect = on_connect


@every
def test_messages_wait_until_there_is_a_session(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        away(b, 3)
        said = live(
            b,
            interpreter,
            """
l = living()
l.set_callback(lambda m: say(m.payload.decode(), m.how))
l.subscribe("t/#", 1)
l.publish("t/1", "one", qos=1)
l.publish("t/2", b"two")
l.publish(b"t/3", b"three", retain=True, qos=1, life=20)
say(l.isconnected(), len(l.outbox), l.flush(9000), l.isconnected(), len(l.outbox))
for _ in range(5):
    l.turn(50)
""",
        )
        assert said[:4] == ["down OSError"] * 3 + ["up"]
        ends = [line for line in said if line[0].isdigit()]
        assert sorted(ends) == ["1 accepted", "2 sent", "3 accepted"]
        assert [line for line in said if line in ("one 0", "two 0", "three 0")] == [
            "one 0",
            "two 0",
            "three 0",
        ]
        assert "False 3 True True 0" in said
        sent = [
            (name, plain, flags, kind) for name, plain, flags, _, kind, _ in b.peer.said("publish")
        ]
        assert sent == [("t/1", b"one", 2, 0), ("t/2", b"two", 0, 0), ("t/3", b"three", 3, 1)]
        assert b.peer.said("subscribe") == [("t/#", 1)]


@every
@pytest.mark.parametrize("when", ["before", "behind", "acknowledged"])
def test_a_connection_that_ends_around_a_message(
    interpreter: str, when: str, tmp_path: Path
) -> None:
    """Each third message ends its connection: nothing is lost or comes twice, the order stays."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        tried: list[int] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            tried.append(ctr)
            if tried.count(ctr) > 1 or int(b.peer.said("publish")[-1][1]) % 3:
                return False
            if when == "before":
                # As if it had never arrived.
                b.peer.window.mask &= ~1
                b.peer.events.pop()
            if when == "acknowledged":
                c.send(0x40, c.publish_pid)
            c.sock.close()
            return True

        b.peer.on_publish = on_publish
        said = live(
            b,
            interpreter,
            """
l = living(box=Outbox(12))
for n in range(12):
    l.publish("t", str(n), qos=1)
say(l.flush(20000), l.outbox.counts["accepted"], len(l.core.unacked))
""",
        )
        ends = [line for line in said if line.endswith("accepted")]
        assert ends == [f"{n + 1} accepted" for n in range(12)]
        assert said[-1] == "True 12 0"
        assert said.count("down OSError") >= 3
        assert first_of_each(b) == [str(n) for n in range(12)]
        assert {boot for _, boot, _ in b.peer.said("connected")} == {2}
        if when == "behind":
            # The welcome's receipt proves that it had arrived: it does not go out again.
            assert len(tried) == 12


@every
def test_what_is_asked_between_two_messages_pushes_none_out_of_the_receipt(
    interpreter: str, tmp_path: Path
) -> None:
    """Subscriptions and commands take counters too: the second message waits for the first."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        said = live(
            b,
            interpreter,
            """
l = living()
clock = stopped(l)
l.outbox.prove_ms = 2000
l.publish("t", b"one", qos=1)
until(l, lambda: l.outbox.owed)
for n in range(70):
    l.subscribe("t/%d" % n)
l.publish("t", b"two", qos=1)
for _ in range(200):
    clock[0] += 10 if l.asks else 1000
    l.turn(100)
    if not len(l.outbox): break
""",
        )
        assert said == ["up", "1 accepted", "2 accepted"]
        assert [event[1] for event in b.peer.said("publish")] == [b"one", b"two"]
        assert len(b.peer.said("subscribe")) == 70


@every
def test_a_message_goes_out_again_before_what_was_asked_meanwhile(
    interpreter: str, tmp_path: Path
) -> None:
    """After 64 commands the mediator would call its counter too old."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        tried: list[tuple[int, int]] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            tried.append((ctr, len(b.peer.said("subscribe"))))
            if len(tried) > 1:
                return False
            # As if it had never arrived.
            b.peer.window.mask &= ~1
            return hangs_up(c)

        b.peer.on_publish = on_publish
        said = live(
            b,
            interpreter,
            """
l = living()
l.publish("t", b"x", qos=1)
until(l, lambda: l.core.unacked)
l.subscribe("t/1")
until(l, lambda: not (l.asks or len(l.outbox)))
""",
        )
        assert said == ["up", "down OSError", "up", "1 accepted"]
        assert tried == [(1, 0), (1, 0)]
        assert b.peer.said("subscribe") == [("t/1", 0)]


@every
@pytest.mark.parametrize(
    ("drop", "kept", "dropped"),
    [("oldest", [3, 4, 5], [1, 2]), ("newest", [1, 2, 3], [4, 5])],
)
def test_a_full_queue_says_what_it_drops(
    interpreter: str, drop: str, kept: list[int], dropped: list[int], tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        said = live(
            b,
            interpreter,
            f"""
l = living(box=Outbox(3, drop_newest={drop == "newest"}))
for n in range(1, 6):
    l.publish("t", str(n), qos=1)
say(len(l.outbox), l.outbox.counts["dropped"])
l.flush(9000)
""",
        )
        assert said[:3] == [f"{n} dropped" for n in dropped] + ["3 2"]
        assert said[4:] == [f"{n} accepted" for n in kept]
        assert first_of_each(b) == [str(n) for n in kept]


@every
def test_the_queue_counts_bytes(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = live(
            b,
            interpreter,
            """
l = living(box=Outbox(50, 100))
def tries(n):
    l.publish("t", bytes(n))
    say(len(l.outbox), l.outbox.bytes)
tries(10); tries(40); tries(20); tries(83)
caught(l.publish, "t", bytes(84))
for bad in ("", False, 2), ("", False, 0, 40), (bytes(4096),):
    caught(l.publish, "t", *bad)
caught(l.publish, "t/+", b""); caught(l.publish, "$SYS", b"")
caught(l.subscribe, "t", 2)
caught(lambda: living(keepalive=0))
say(len(l.outbox))
""",
        )
        assert said[:7] == ["1 27", "2 84", "1 dropped", "2 94", "2 dropped", "3 dropped", "1 100"]
        bad = ["TooLarge", "Misuse", "Misuse", "TooLarge", "Malformed", "Misuse"]
        assert said[7:] == bad + ["Misuse"] * 2 + ["1"]


@every
def test_refusals_are_typed_and_what_passes_is_tried_again(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        told: list[bytes] = []
        codes = {b"rate": 9, b"broker": 7, b"stale": 3, b"no": 5, b"huge": 8}

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            plain = b.peer.said("publish")[-1][1]
            told.append(plain)
            if plain in codes and (codes[plain] in (5, 8) or told.count(plain) == 1):
                c.notice(1, ctr, codes[plain], "rule", "why")
            return False

        b.peer.on_publish = on_publish
        said = live(
            b,
            interpreter,
            """
l = living(box=Outbox(proof=False))
clock = stopped(l)
for word in ("rate", "broker", "stale", "no", "huge", "fine"):
    l.publish("t", word, qos=1)
for _ in range(60):
    clock[0] += 500
    l.turn(0)
""",
        )
        assert said[0] == "up"
        ends = [line for line in said if line[0].isdigit()]
        assert ends == [
            "1 accepted", "2 accepted", "3 accepted", "4 refused Denied", "5 refused TooLarge",
            "6 accepted",
        ]  # fmt: skip
        assert told == [
            b"rate",
            b"rate",
            b"broker",
            b"broker",
            b"stale",
            b"stale",
            b"no",
            b"huge",
            b"fine",
        ]
        # A clock that was found wrong is put right by a new boot session.
        assert [boot for _, boot, _ in b.peer.said("connected")] == [2, 3]


@every
def test_a_forged_puback_is_found_out(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        seen: list[int] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            seen.append(ctr)
            if len(seen) == 1:
                # It never reached the mediator, and somebody says that it did.
                b.peer.window.mask &= ~1
                c.send(0x40, c.publish_pid)
                return True
            return False

        b.peer.on_publish = on_publish
        script = """
l = living(box=Outbox(again=AGAIN))
clock = stopped(l)
l.publish("t", b"x", qos=1)
for _ in range(40):
    clock[0] += 1000
    l.turn(100)
    if not len(l.outbox): break
say(l.outbox.counts["accepted"], l.outbox.counts["doubt"])
"""
        # Asked four times, it is not proved; nor does the welcome of another connection prove it.
        begins = ["up", "down OSError"]
        said = live(b, interpreter, script.replace("AGAIN", "True"))
        assert said == [*begins, "up", "1 accepted", "1 0"]
        assert seen == [1, 2]
        seen.clear()
        said = live(b, interpreter, script.replace("AGAIN", "False"))
        assert said == [*begins, "1 doubt", "up", "0 1"]
        assert seen == [1]


@every
def test_a_network_that_answers_for_the_mediator_brings_no_message_twice(
    interpreter: str, tmp_path: Path
) -> None:
    """The mediator accepted it; its receipts are kept back, and PINGRESPs come without them."""
    with board(tmp_path) as b:
        b.provision()
        seen: list[int] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            seen.append(ctr)
            return False

        b.peer.on_publish = on_publish
        said = live(
            b,
            interpreter,
            """
l = living()
clock = stopped(l)
l.publish("t", b"x", qos=1)
for _ in range(40):
    clock[0] += 1000
    l.turn(100)
    if not len(l.outbox): break
""",
        )
        assert said == ["up", "down OSError", "1 accepted", "up"]
        assert seen == [1]


@every
def test_an_application_that_is_busy_for_long_keeps_its_connection(
    interpreter: str, tmp_path: Path
) -> None:
    """An answer that came meanwhile counts, however late it is read."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        said = live(
            b,
            interpreter,
            """
import time
l = living(timeout=2)
clock = stopped(l)
for n in range(8):
    l.publish("t", str(n), qos=n % 2)
    for _ in range(3):
        l.turn(100)
        time.sleep(0.05)
        clock[0] += 31000
say(l.isconnected())
""",
        )
        assert "down OSError" not in said
        assert said[-1] == "True"


@every
@pytest.mark.parametrize("again", [True, False])
def test_what_a_new_boot_session_leaves_in_doubt(
    interpreter: str, again: bool, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        seen: list[int] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            seen.append(ctr)
            if len(seen) > 1:
                return False
            # From now on another board with the same files is ahead of this one.
            b.peer.highest = (1, 9, 1)
            c.sock.close()
            return True

        b.peer.on_publish = on_publish
        said = live(
            b,
            interpreter,
            f"""
l = living(box=Outbox(again={again}))
l.publish("t", b"x", qos=1)
l.publish("t", b"y", qos=1)
l.publish("t", b"z")
say(l.flush(9000))
""",
        )
        first = "1 accepted" if again else "1 doubt"
        ends = sorted(line for line in said if line[0].isdigit())
        assert ends == [first, "2 accepted", "3 sent"]
        assert [boot for _, boot, _ in b.peer.said("connected")] == [2, 10]
        assert len(seen) == (4 if again else 3)


@every
def test_wills_retained_and_subscriptions(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        b.peer.denied = {"no/#": (5, "labels.reader", "not yours")}
        wills: list[int] = []

        def on_connect(c: Connection) -> bool:
            wills.append(c.flags)
            return False

        b.peer.on_connect = on_connect
        said = live(
            b,
            interpreter,
            """
l = living()
l.core.set_last_will("t/state", b"gone", retain=True, qos=1)
l.subscribe("a/#", 1); l.subscribe("no/#"); l.subscribe("b/#"); l.unsubscribe("b/#")
l.publish("t/state", b"here", retain=True, qos=1)
l.flush(5000)
l.core._close()
l.publish("t/state", b"", retain=True, qos=1)
l.flush(5000)
l.disconnect()
""",
        )
        assert said == ["up", "up Denied", "1 accepted", "down OSError", "up", "2 accepted"]
        assert wills == [0xEE, 0xEE]
        asked = ["a/#", "no/#", "b/#", "a/#"]
        assert [filt for filt, _ in b.peer.said("subscribe")] == asked
        assert b.peer.said("unsubscribe") == [("b/#", 0)]
        kinds = [(plain, kind) for _, plain, _, _, kind, _ in b.peer.said("publish")]
        assert kinds == [(b"here", 1), (b"", const.CLEAR)]


@every
def test_errors_of_the_program_are_not_the_networks(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        said = live(
            b,
            interpreter,
            """
l = living()
l.subscribe("t")
def bad(m):
    raise ValueError("mine") if m.payload == b"1" else OSError(28)
l.set_callback(bad)
l.publish("t", b"1"); l.publish("t", b"2")
def wrong(*args):
    raise errors.Misuse("mine")
publish = l.core.publish
l.core.publish = wrong
try:
    l.flush(9000)
    say("swallowed")
except errors.Misuse as error:
    say(error)
l.core.publish = publish
caught_of = []
for _ in range(50):
    try:
        l.turn(20)
    except (ValueError, OSError) as error:
        caught_of.append(type(error).__name__)
    if len(caught_of) == 2: break
say(caught_of, l.isconnected())
""",
        )
        assert said[1] == "mine"
        assert said[-1] == "['ValueError', 'OSError'] True"
        assert len(b.peer.said("connected")) == 1


@every
def test_run_goes_on_until_it_is_stopped(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        away(b, 2)
        script = """
l = living()
l.publish("t", b"x", qos=1)
l.outbox.on_outcome = lambda item, how, error: l.stop()
l.run()
say(l.outbox.counts["accepted"])
"""
        assert live(b, interpreter, script) == ["down OSError", "down OSError", "up", "1"]


@every
def test_a_receipt_of_another_boot_session_proves_nothing(interpreter: str, tmp_path: Path) -> None:
    """What was acknowledged and not proved is in doubt then, and is not sent again."""
    with board(tmp_path) as b:
        b.provision()
        script = """
l = living()
l.publish("t", b"x", qos=1)
while not l.outbox.owed:
    l.turn(10)
l.core._begun = False   # the next CONNECT begins another boot session
l.core._close()
l.publish("t", b"y", qos=1)
l.flush(9000)
"""
        gives_receipts(b)
        b.peer.on_ping = None
        said = live(b, interpreter, script.replace("flush(9000)", "flush(500)"))
        assert said == ["up", "down OSError", "1 doubt", "up"]
        assert [plain for _, plain, *_ in b.peer.said("publish")] == [b"x", b"y"]


@every
def test_a_callback_that_always_raises_lets_no_messages_pile_up(
    interpreter: str, tmp_path: Path
) -> None:
    """The application catches what its callback raises and goes on."""
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            c.send(0x40, c.publish_pid)
            for n in range(200):
                m1 = c.m1(b"t", b"not json", c.site.own, n + 1000)
                c.publish(b"t", c.m3(b"t", m1, c.site.own))
            return True

        b.peer.on_publish = on_publish
        said = live(
            b,
            interpreter,
            """
l = living(box=Outbox(proof=False))
def bad(m):
    raise ValueError(m.payload)
l.set_callback(bad)
l.publish("go", b"", qos=1)
most = raised = 0
while raised < 200:
    try:
        l.turn(50)
    except ValueError:
        raised += 1
    most = max(most, len(l._inbox))
say(most < 33, l.isconnected(), l.core.refused)
""",
        )
        assert said == ["up", "1 accepted", "True True {}"]


PASSES = [(7, "unavailable"), (9, "rate")]


@every
@pytest.mark.parametrize("code", [code for code, _ in PASSES], ids=[word for _, word in PASSES])
def test_a_subscription_that_is_refused_for_the_moment_is_asked_for_again(
    interpreter: str, code: int, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        left = [2]

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            left[0] -= 1
            if left[0] < 0:
                return False
            c.notice(2, ctr, code, "rule", "try later")
            c.send(0x90, c.subscribe_pid + b"\x80")
            return True

        b.peer.on_subscribe = on_subscribe
        said = live(
            b,
            interpreter,
            """
l = living()
clock = stopped(l)
def passes(look):
    def looks():
        clock[0] += 1000
        return look()
    return looks
l.subscribe("a/#", 1); l.subscribe("b/#")
until(l, passes(lambda: not l.asks))
say(sorted(l.core._subscribed))
""",
        )
        assert said == ["up", "[b'a/#', b'b/#']"]
        filters = [filt for filt, _ in b.peer.said("subscribe")]
        assert filters == ["a/#", "b/#", "a/#", "b/#"]


@every
def test_a_subscription_that_a_new_connection_refuses_is_told_or_asked_for_again(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        # What is said each time: nothing, unavailable, nothing but SUBACK, nothing, denied.
        codes = [0, 7, -1, 0, 5]

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            code = codes.pop(0)
            if code > 0:
                c.notice(2, ctr, code, "rule", "why")
            if code:
                c.send(0x90, c.subscribe_pid + b"\x80")
            return bool(code)

        b.peer.on_subscribe = on_subscribe
        said = live(
            b,
            interpreter,
            """
l = living()
clock = stopped(l)
def passes(look):
    def looks():
        clock[0] += 1000
        return look()
    return looks
l.subscribe("a/#", 1)
until(l, lambda: not l.asks)
l.core._close()
until(l, lambda: not l.isconnected())
until(l, l.isconnected)
say(l.asks, l.core._subscribed)
until(l, passes(lambda: not l.asks))
say(l.asks, l.core._subscribed)
l.core._close()
until(l, lambda: not l.isconnected())
until(l, l.isconnected)
say(l.asks, l.core._subscribed)
""",
        )
        assert said == [
            "up", "down OSError", "up", "[(b'a/#', 1)] {}", "[] {b'a/#': 1}",
            "down OSError", "up", "up Denied", "[] {}",
        ]  # fmt: skip
        assert [filt for filt, _ in b.peer.said("subscribe")] == ["a/#"] * 5


# Subscribes, loses its session, and does `CASE` before or after there is another one.
AGAIN = """
l = living()
clock = stopped(l)
def passes(look):
    def looks():
        clock[0] += 1000
        return look()
    return looks
for filt in FILTERS:
    l.subscribe(filt, 1)
until(l, lambda: not l.asks)
l.core._close()
until(l, lambda: not l.isconnected())
CASE
until(l, passes(lambda: l.isconnected() and not l.asks))
say(l.asks, sorted(l.core._subscribed))
"""


def again(filters: list[str], case: str = "") -> str:
    return AGAIN.replace("FILTERS", repr(filters)).replace("CASE", case)


def refuses(b: Board, codes: list[int]) -> None:
    """What is said to each SUBSCRIBE: 0 nothing, -1 that the connection ends."""

    def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
        code = codes.pop(0) if codes else 0
        if code < 0:
            return hangs_up(c)
        if code:
            c.notice(2, ctr, code, "rule", "why")
            c.send(0x90, c.subscribe_pid + b"\x80")
        return code > 0

    b.peer.on_subscribe = on_subscribe


@every
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_what_ends_while_it_is_refused_for_the_moment_stays_ended(
    interpreter: str, before: bool, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        refuses(b, [0, 7] if before else [0, 7, 7])
        ends = 'l.unsubscribe("a/#")'
        case = ends if before else f"until(l, l.isconnected)\n{ends}"
        said = live(b, interpreter, again(["a/#"], case))
        assert said == ["up", "down OSError", "up", "[] []"]
        assert len(b.peer.said("subscribe")) == 3
        assert b.peer.said("unsubscribe") == [("a/#", 0)]


@every
def test_a_subscription_that_ends_as_a_connection_is_renewed(
    interpreter: str, tmp_path: Path
) -> None:
    """The one call joins again, where it is refused for the moment, and ends it."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        refuses(b, [0, 7])
        said = live(
            b,
            interpreter,
            """
l = living()
l.subscribe("a/#", 1)
until(l, lambda: not l.asks)
l.unsubscribe("a/#")
l.core.session.ctr = 0xFFFFFE
until(l, lambda: not l.asks)
say(l.asks, l.core._subscribed, l.core.missing)
""",
        )
        assert said[-1] == "[] {} {}"
        assert b.peer.said("unsubscribe") == [("a/#", 0)]


@every
def test_a_callback_that_raises_loses_no_subscription(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        refuses(b, [0, 7])
        case = """
def raises(up, error):
    l.on_change = changed
    raise ValueError
l.on_change = raises
try:
    until(l, l.isconnected)
except ValueError:
    say("raised")
"""
        said = live(b, interpreter, again(["a/#"], case))
        assert said == ["up", "down OSError", "raised", "[] [b'a/#']"]
        assert [filt for filt, _ in b.peer.said("subscribe")] == ["a/#"] * 3


@every
def test_each_refusal_of_a_new_session_is_told(interpreter: str, tmp_path: Path) -> None:
    """Whatever else comes in between: a message that is none."""
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        refuses(b, [0, 0, 0, 5, 0, 5])
        real = b.peer.on_subscribe

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            done = real is not None and real(c, filt, ctr)
            c.publish(b"a/b", b"none")
            return done

        b.peer.on_subscribe = on_subscribe
        said = live(b, interpreter, again(["a/#", "b/#", "c/#"]))
        assert said[:5] == ["up", "down OSError", "up", "up Denied", "up Denied"]
        gone = {filt for filt, _ in b.peer.said("subscribe")[3::2]}
        (left,) = {"a/#", "b/#", "c/#"} - gone
        assert said[5:] == [f"[] [{left.encode()!r}]"]


@every
def test_a_refusal_is_told_also_if_the_session_does_not_last(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        gives_receipts(b)
        refuses(b, [0, 0, 5, -1])
        said = live(b, interpreter, again(["a/#", "b/#"]))
        asked = [filt for filt, _ in b.peer.said("subscribe")]
        assert said == [
            "up", "down OSError", "down OSError", "down Denied", "up", f"[] [{asked[3].encode()!r}]"
        ]  # fmt: skip
        assert asked[3:] == [asked[3]] * 2 != asked[2:4]
