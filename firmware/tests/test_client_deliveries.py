"""What is sealed to the device's link or to a grant, and families' items, between messages that the
fast way takes (SPEC.md 3.3, 4.4): the general way opens it, on every interpreter alike."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from device_script import INTERPRETERS, board
from peer_connection import Connection
from peer_site import Site, make
from sealmq_spec import const
from sealmq_spec.delivery import grant, seal_delivery
from sealmq_spec.envelope import put_m3
from sealmq_spec.keys import grant_key

every = pytest.mark.parametrize("interpreter", INTERPRETERS)
T = b"machine/1/temperature"
INST, NUMBER, EPOCH = 5, 7, 2
G = os.urandom(32)

RECEIVE = """
seen = []
c.set_callback(seen.append)
c.connect()
c.publish("go", b"", qos=1)
while not c.notices:
    c.wait_msg()
for m in seen:
    say(m.payload.decode(), m.label, sorted(m.tlv.items()))
say(sorted(c.refused.items()))
c.disconnect()
"""


class Mediator:
    """What a mediator sends in one connection."""

    def __init__(self, c: Connection) -> None:
        self.c, self.site = c, c.site
        self.ctr = 0

    def usual(self, n: int) -> None:
        for _ in range(n):
            self.c.publish(T, self.c.m3(T, self.m1(b"usual"), self.site.own))

    def m1(self, plain: bytes, below: bool = False) -> bytes:
        self.ctr += 1
        return self.c.m1(T, plain, self.site.lower if below else self.site.own, self.ctr)

    def sealed(
        self, ref: int, m1: bytes, label: int, items: tuple[tuple[int, bytes], ...] = ()
    ) -> bytes:
        s = self.site
        if ref == const.REF_LINK:
            aead, suite, number, epoch = self.c.aead(const.USE_DELIVERY), s.suite, s.client, 0
        else:
            suite, number, epoch = const.CCM, NUMBER, EPOCH
            aead = make(suite, grant_key(s.id, suite, number, epoch, INST, G))
        s.seq += 1
        head = bytearray(20)
        put_m3(head, 0, suite, ref, 0, number, epoch, INST, s.now_ms(), s.seq)
        m3: bytes = seal_delivery(aead, bytes(head), s.id, T, label, m1, items)
        return m3

    def send(self, ref: int, plain: bytes, items: tuple[tuple[int, bytes], ...] = ()) -> None:
        self.c.publish(T, self.sealed(ref, self.m1(plain), self.site.own.label, items))

    def all(self) -> None:
        """What each test's client gets."""
        own = self.site.own.label
        self.usual(8)
        self.send(const.REF_LINK, b"to the link")
        self.send(const.REF_GRANT, b"no grant")
        self.c.tell(grant(NUMBER, EPOCH, const.CCM, 0, G))
        self.send(const.REF_GRANT, b"to the grant", ((40, b"rated"),))
        self.usual(2)
        m1 = self.m1(b"once")
        self.c.publish(T, self.sealed(const.REF_LINK, m1, own))
        self.c.publish(T, self.c.m3(T, m1, self.site.own))
        self.c.tell(grant(NUMBER, EPOCH - 1, const.CCM, 0, G))
        self.c.tell(b"\x05" + self.site.record())
        below = self.m1(b"below", True)
        self.c.publish(T, self.sealed(const.REF_LINK, below, self.site.lower.label))
        for kind in (40, 0x80 | 40):
            self.send(const.REF_LINK, b"item %d" % kind, ((kind, b""),))
        self.usual(2)


@every
@pytest.mark.parametrize("suite", [1, 2])
def test_links_and_grants_are_opened_beside_what_the_fast_way_takes(
    suite: int, interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path, Site(suite)) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            c.send(0x40, c.publish_pid)
            Mediator(c).all()
            c.notice(9, 0, 5, "end", "")
            return True

        b.peer.on_publish = on_publish
        own, lower = b.peer.site.own.label, b.peer.site.lower.label
        usual = f"usual {own} []"
        assert b.run(interpreter, RECEIVE) == [
            *[usual] * 8,
            f"to the link {own} []",
            f"to the grant {own} [(40, b'rated')]",
            *[usual] * 2,
            f"once {own} []",
            f"below {lower} []",
            f"item 40 {own} [(40, b'')]",
            *[usual] * 2,
            "[('NoKey', 1), ('Replay', 1), ('Unsupported', 1), ('WrongEpoch', 1)]",
        ]


@every
def test_an_application_says_which_critical_items_it_knows(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            c.send(0x40, c.publish_pid)
            Mediator(c).send(const.REF_LINK, b"known", ((0x80 | 40, b"x"),))
            c.notice(9, 0, 5, "end", "")
            return True

        b.peer.on_publish = on_publish
        said = b.run(interpreter, "c.known_tlv = (40,)\n" + RECEIVE)
        assert said == [f"known {b.peer.site.own.label} [(168, b'x')]", "[]"]
