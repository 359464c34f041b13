"""Messages of other sites (SPEC.md 3.5), as boards take or refuse them with the files that ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import EVERY, board
from peer_connection import Connection
from sealmq_spec.origin import CRITICAL, message_id, put
from sealmq_spec.records import Roots
from sealmq_spec.tlv import pack
from test_shipping import a_set, both, built, shipped

__all__ = ["built"]

AWAY, THERE, THEIR_EPOCH = b"away", 40, 77
MOUNTED = "@north/machine/1/t"
PLAIN = b"machine/1/t", b"own"
LISTENS = """
got = []
c.set_callback(got.append)
c.connect()
c.subscribe("@north/#", qos=1)
c.subscribe("machine/#", qos=1)
c.ping()
"""
HEARS = f"""{LISTENS}
while not (got or c.refused):
    c.wait_msg()
c.publish("machine/1/t", b"own", qos=1)
while not got or got[-1].payload != b"own":
    c.wait_msg()
say([(m.topic, bytes(m.payload)) for m in got], c.refused)
"""
BOTH = [f"[('{MOUNTED}', b'21.5'), ('machine/1/t', b'own')] {{}}"]


def heard(c: Connection) -> bool:
    """Answers a PINGREQ with one that is right."""
    of_another_site(c)
    return True


def of_another_site(c: Connection, flip: int = 0, topic: str = MOUNTED, ctr: int = 5) -> bytes:
    """Sends what a mediator makes of what a bridge has brought. How feedback calls it."""
    own = c.site.own
    theirs = Roots(THERE, THEIR_EPOCH, own.suite, own.r, own.r_bar)
    m1 = bytearray(c.m1(b"machine/1/t", b"21.5", theirs, ctr, site=AWAY))
    m1[-1] ^= flip
    item = pack([(CRITICAL, put(AWAY, THERE, own.epoch))])
    raw = topic.encode()
    c.publish(raw, c.m3(raw, bytes(m1), own, tlv=item))
    return message_id(m1)


@pytest.mark.parametrize("interpreter", EVERY)
def test_a_board_opens_what_another_site_has_sealed(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.peer.on_ping = heard
        assert b.run(interpreter, HEARS) == BOTH


@both
def test_the_set_for_other_sites_opens_it_and_the_one_without_refuses_it(
    bits: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    for name, said in (
        ("display-sites", BOTH),
        ("display", ["[('machine/1/t', b'own')] {'Unsupported': 1}"]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        shipped(a_set(name, bits, built, folder / "set"), monkeypatch)
        with board(folder) as b:
            b.peer.on_ping = heard
            assert b.run(bits, HEARS) == said


@pytest.mark.parametrize("interpreter", EVERY)
def test_many_of_one_sender_and_own_ones_between_all_open(interpreter: str, tmp_path: Path) -> None:
    """What the board learns of a message that comes again and again is for its own site's."""
    count = 12

    def both_sites(c: Connection) -> bool:
        for n in range(count):
            of_another_site(c, ctr=2 * n + 1)
            c.publish(
                b"machine/1/t",
                c.m3(b"machine/1/t", c.m1(*PLAIN, c.site.own, 2 * n + 2), c.site.own),
            )
        return True

    script = f"""{LISTENS}
while len(got) < {2 * count} and not c.refused:
    c.wait_msg()
say(len([1 for m in got if m.topic[0] == "@"]), len(got), c.refused)
"""
    with board(tmp_path) as b:
        b.peer.on_ping = both_sites
        assert b.run(interpreter, script) == [f"{count} {2 * count} {{}}"]


# The third one comes a minute later by the client's clock.
SPOILT = """
c.set_callback(say)
c.connect()
c.subscribe("@north/#", qos=1)
mono, late = c.mono, [0]
c.mono = lambda: mono() + late[0]
for n in range(3):
    late[0] = 60_000 if n == 2 else 0
    c.ping()
    while c.refused.get("Unauthentic", 0) < n + 1:
        c.wait_msg()
c.ping()
say(c.refused)
"""


@pytest.mark.parametrize("interpreter", EVERY)
@pytest.mark.parametrize("refused", [False, True])
def test_a_board_says_once_a_minute_that_a_message_was_spoilt(
    interpreter: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bytes] = []
    ids: list[bytes] = []

    def spoils(c: Connection) -> bool:
        if len(ids) == 3:
            return False
        if len(ids) == 2:
            now_ms = c.site.now_ms()
            monkeypatch.setattr(c.site, "now_ms", lambda: now_ms + 60_000)
        ids.append(of_another_site(c, flip=1, ctr=5 + len(ids)))
        return True

    def hears(c: Connection, command: str, ctr: int) -> bool:
        told.append(command.encode("utf-8", "surrogateescape"))
        if refused:
            c.notice(4, ctr, 5, "engine.no-feedback", "")
        return refused

    with board(tmp_path) as b:
        b.peer.on_ping, b.peer.on_command = spoils, hears
        assert b.run(interpreter, SPOILT) == ["{'Unauthentic': 3}"]
    said = [b"\0" + one + MOUNTED.encode() for one in ids]
    assert [e for e in b.peer.said("command") if e[0] != "feedback"] == []
    assert told == [said[0]] + ([] if refused else [said[2]])


@both
def test_what_was_changed_on_its_way_or_stands_elsewhere_is_refused(
    bits: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(a_set("display-sites", bits, built, tmp_path / "set"), monkeypatch)
    for number, (more, error) in enumerate(
        (({"flip": 1}, "Unauthentic"), ({"topic": "@north/machine/1/u"}, "Unauthentic"))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        with board(folder) as b:
            b.peer.on_ping = lambda c, more=more: bool(of_another_site(c, **more))
            assert b.run(bits, HEARS) == [f"[('machine/1/t', b'own')] {{'{error}': 1}}"]
