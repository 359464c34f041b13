"""How long the journal counts a message as under way: to its PUBACK, or to its PUBCOMP."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sealmq.mediator.core.boots import Sent
from sealmq.mediator.underway import Underway
from sealmq.mqtt import Puback, Pubcomp, Pubrec


class World:
    """One connection's half, with a journal whose disk has everything."""

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.out: list[bytes] = []
        confirmed: set[Sent] = set()
        link = SimpleNamespace(
            confirm=confirmed.add,
            has_confirmed=lambda sent: sent in confirmed,
            receipt_due=lambda: False,
        )
        journal = SimpleNamespace(durable=9, acked=self.acked.append)
        conn: Any = SimpleNamespace(
            hub=SimpleNamespace(journal=journal), link=link, state="open", send=self.out.append
        )
        self.conn = conn
        self.underway = Underway(conn)

    def begins(self, packet_id: int, seq: int) -> None:
        sent = Sent(packet_id, b"")
        sent.seq, sent.where = seq, self.conn
        self.underway.begins(packet_id, sent)


def test_qos_1_ends_with_puback() -> None:
    w = World()
    w.begins(1, 5)
    w.underway.answered(Puback(1))
    assert w.acked == [5]
    assert len(w.out) == 1


def test_qos_2_ends_with_pubcomp() -> None:
    w = World()
    w.begins(1, 5)
    w.underway.answered(Pubrec(1))
    assert (w.acked, len(w.out)) == ([], 1), "no reader of it has anything yet"
    w.underway.answered(Pubcomp(1))
    assert (w.acked, len(w.out)) == ([5], 2)


def test_behind_pubrec_the_end_of_a_connection_ends_nothing() -> None:
    w = World()
    w.begins(1, 5)
    w.begins(2, 6)
    w.underway.answered(Pubrec(1))
    w.underway.ended()
    assert w.acked == [6], "the client may release the other one in its next connection"
