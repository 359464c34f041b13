"""What a board says to policy families: TLV items with a publish, commands of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

import aio_script
from device_script import INTERPRETERS, board
from peer_connection import Connection
from publish_script import COUNT, INSIDE
from sealmq_spec.errors import Denied
from test_client_handover import refuse_old

every = pytest.mark.parametrize("interpreter", INTERPRETERS)
ITEMS = {32: b"", 127: bytes(255), 0x80 | 40: b"must"}
BAD = (
    ("{31: b''}", "Malformed"),
    ("{256: b''}", "Malformed"),
    ("{40: b'', 0xA8: b''}", "Malformed"),
    ("{32: bytes(256)}", "TooLarge"),
)


@every
def test_items_go_with_one_message(interpreter: str, tmp_path: Path) -> None:
    """Also between messages of the fast path, whose costs and packets they leave as they were."""
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            INSIDE
            + COUNT
            + f"""
connect()
often(); often(qos=1)
for qos in (0, 1):
    before = general
    c.publish(T, b"a", qos=qos)
    c.publish(T, b"21.5", qos=qos, tlv={ITEMS})
    c.publish(T, "text", True, qos, 5, {{33: b"x"}})
    c.publish(T, b"", True, qos, tlv={{33: b"y"}})
    c.publish(T, b"b", qos=qos, tlv={{}})
    say(general - before == (3 if fast else 5))
for bad in ({", ".join(text for text, _ in BAD)}):
    caught(c.publish, T, b"x", tlv=bad)
c.publish(T, bytes(3000), tlv={{32: bytes(200)}})
say(c.session.ctr)
""",
        )
        assert said == ["True", "True", *(f"{name}  " for _, name in BAD), "59"]
        items = [(50, ITEMS), (51, {33: b"x"}), (52, {33: b"y"})]
        items += [(ctr + 5, what) for ctr, what in items]
        assert b.peer.said("items") == [*items, (59, {32: bytes(200)})]
        got = b.peer.said("publish")
        assert [m[1] for m in got[48:53]] == [b"a", b"21.5", b"text", b"", b"b"]
        assert got[-1][1] == bytes(3000)


@every
def test_items_stay_with_a_message_that_goes_out_again(interpreter: str, tmp_path: Path) -> None:
    """As it was, after a reconnect; sealed anew, where it was refused for its epoch."""
    with board(tmp_path) as b:
        lost: list[int] = []

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if not lost:
                lost.append(ctr)
                c.sock.close()
                return True
            return False

        b.peer.on_publish = on_publish
        said = b.run(
            interpreter,
            """
c.connect()
caught(c.publish, "t", b"x", qos=1, tlv={40: b"kept"})
c.connect()
c.resend()
say(c.unacked)
""",
        )
        assert said == ["OSError ECONNRESET", "{}"]
        assert b.peer.said("items") == [(1, {40: b"kept"})] * 2
    (tmp_path / "epoch").mkdir()
    with board(tmp_path / "epoch") as b:
        b.provision()
        refuse_old(b)

        def on_ping(c: Connection) -> bool:
            c.site.new_epoch()  # and no word of it
            return False

        b.peer.on_ping = on_ping
        script = """
c.connect()
c.ping()
c.wait_msg()
say(c.publish("t", b"x", qos=1, tlv={40: b"kept"}), c.ident.gen)
"""
        assert b.run(interpreter, script) == ["2 2"]
        assert b.peer.said("items") == [(ctr, {40: b"kept"}) for ctr in (1, 2)]


REPLIES = """
say(COMMAND("toy", b"\\x00ask"))
say(COMMAND("toy", "text"))
caught(COMMAND, "toy", b"no")
for name, body in (("", b""), ("n" * 256, b""), ("toy", bytes(5000))):
    caught(COMMAND, name, body)
"""


def answering(c: Connection, command: str, ctr: int) -> bool:
    if command == "no":
        c.notice(4, ctr, Denied.code, "toy.rule", "not you")
    else:
        c.reply(ctr, b"said " + command.encode())
    return True


@every
def test_a_familys_command_is_answered(interpreter: str, tmp_path: Path) -> None:
    want = [r"b'said \x00ask'", "b'said text'", "Denied toy.rule not you"]
    want += ["Malformed  ", "Malformed  ", "TooLarge  "]
    with board(tmp_path) as b:
        b.peer.on_command = answering
        assert b.run(interpreter, "c.connect()\n" + REPLIES.replace("COMMAND", "c.command")) == want
        said = [(family, text) for family, text, _ in b.peer.said("command")]
        assert said == [("toy", "\0ask"), ("toy", "text"), ("toy", "no")]


@every
def test_asyncio_sends_items_and_commands(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.peer.on_command = answering
        said = aio_script.run(
            b,
            interpreter,
            """
await c.connect()
say(await c.command("toy", b"ask"))
await caught(c.command("toy", b"no"))
await asyncio.gather(*[c.publish("t", b"x", qos=1, tlv={40: b"%d" % i}) for i in range(3)])
await c.publish("t", b"x", tlv={41: b"z"})
await caught(c.publish("t", b"x", tlv={31: b"z"}))
await c.disconnect()
""",
        )
        assert said == ["b'said ask'", "Denied toy.rule not you", "Malformed  "]
        items = [what for _, what in b.peer.said("items")]
        assert items == [{40: b"0"}, {40: b"1"}, {40: b"2"}, {41: b"z"}]
