"""The rig's taps: every nonce on a board's path and at the broker is collected; one that comes
twice with other content is found, one that is sent again is not taken for it.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from sealmq_spec.b64 import b64u
from sealmq_spec.const import M1_HEAD, M3_HEAD
from sealmq_spec.envelope import nonce_m3, put_m1, put_m3, seal_at, tail_m3
from sealmq_spec.identity import Identity
from sealmq_spec.keys import outer_key, topic_key
from sealmq_spec.records import Roots, make_record

from sealmq_hil import mqtt, nonces
from sealmq_hil.nonces import Book
from sealmq_hil.path import Path as BoardPath
from sealmq_hil.path import Session
from sealmq_hil.processes import until
from sealmq_hil.tap import Cipher, Envelopes
from wire import connect, packet, publish, text

SITE, SALT = b"site", b"saltsalt"
CLIENT = 5
TOPIC = b"rig/one/reading"


def head(gen: int = 1, boot: int = 7, conn: int = 1) -> bytes:
    """What stands in the password before the tag."""
    numbers = b"".join(n.to_bytes(3, "big") for n in (gen, CLIENT, boot))
    return b"\x10" + numbers + SALT + conn.to_bytes(3, "big") + b"\0\0\1"


def joins(conn: int = 1, tag: bytes = b"t" * 16, **fields: Any) -> bytes:
    """A CONNECT with a proof."""
    gen = fields.pop("gen", 1)
    password = b64u(head(gen=gen, conn=conn)) + (b64u(tag) if gen else b"")
    return bytes(connect(b"one", password, **fields))


def m2(ctr: int, body: bytes = b"sealed") -> bytes:
    """A message of the link."""
    return b"\x12\x10" + ctr.to_bytes(3, "big") + bytes(4) + body


def subscribes(ctr: int, filt: bytes = b"rig/#", pid: bytes = b"\0\1") -> bytes:
    """SUBSCRIBE with a token."""
    token = b64u(ctr.to_bytes(3, "big") + b"g" * 16)
    return packet(0x82, pid + text(b"!s1/" + token + b"/" + filt) + b"\1")


def read(book: Book, *packets: bytes, each: int = 1_000_000) -> None:
    """A connection; `each`: so many bytes at a time."""
    session = Session(book)
    data = b"".join(packets)
    for at in range(0, len(data), each):
        session.feed(data[at : at + each])


WHOLE = (
    joins(),
    publish(TOPIC, m2(1), 0x32, 1),
    publish(b"!c1", b"\x14\x10" + (2).to_bytes(3, "big") + b"body"),
    publish(b"!c1", b"\x1a\x10" + bytes(9) + os.urandom(16) + bytes(16)),
    subscribes(3),
    b"\xc0\0",
)


@pytest.mark.parametrize("each", [1, 3, 1_000_000])
def test_every_use_on_the_path_is_collected(each: int) -> None:
    book = Book()
    read(book, *WHOLE, each=each)
    assert book.counts() == {"m2": 1, "proof": 1, "request": 1, "token": 1, "up": 1}
    assert [(s.client, s.boot, s.salt) for s in book.seen] == [(CLIENT, 7, SALT.hex())] * 4
    assert book.salts(CLIENT) == {SALT.hex()}
    assert (book.twice, book.unread) == ([], [])


def test_what_is_sent_again_is_no_repeat() -> None:
    book = Book()
    read(book, *WHOLE)
    # DUP and the packet id may differ.
    read(book, joins(2), publish(TOPIC, m2(1), 0x3A, 9), subscribes(3, pid=b"\0\7"))
    # Under a new generation what was stored is sealed anew, with its counter.
    read(book, joins(1, gen=2), publish(TOPIC, m2(1, b"other"), 0x32, 1))
    assert book.twice == []


@pytest.mark.parametrize(
    ("again", "use"),
    [
        ((joins(1, b"u" * 16),), "proof"),
        ((joins(2), publish(TOPIC, m2(1, b"other"), 0x32, 1)), "m2"),
        ((joins(2), publish(b"rig/other", m2(1), 0x32, 1)), "m2"),
        ((joins(2), publish(TOPIC, m2(1), 0x30)), "m2"),
        ((joins(2), publish(b"!c1", b"\x14\x10" + (2).to_bytes(3, "big") + b"more")), "up"),
        ((joins(2), subscribes(3, b"rig/one")), "token"),
        ((joins(2, will=text(TOPIC) + text(m2(1, b"will")), flags=0xCE),), "m2"),
        ((joins(2), WHOLE[3][:-1] + b"x"), "request"),
    ],
)
def test_a_nonce_with_other_content_is_found(again: tuple[bytes, ...], use: str) -> None:
    book = Book()
    read(book, *WHOLE)
    read(book, *again)
    assert [key[:2] for key in book.twice] == [(use, str(CLIENT))]


def test_quarantine_proves_nothing() -> None:
    book = Book()
    read(book, joins(0, gen=0), WHOLE[3])
    assert book.counts() == {"request": 1}
    assert book.salts(CLIENT) == set()


def test_the_path_passes_on_what_it_cannot_read() -> None:
    book = Book()
    with socket.create_server(("127.0.0.1", 0)) as mediator:
        path = BoardPath(book, mediator.getsockname())
        with socket.create_connection(("127.0.0.1", path.port), 10) as board:
            board.sendall(b"\xc0\0 no MQTT\r\n\r\n")
            served, _ = mediator.accept()
            with served:
                served.settimeout(10)
                got = b""
                while not got.endswith(b"\r\n\r\n"):
                    got += served.recv(100)
                served.sendall(b"no")
                assert board.recv(2) == b"no"
                until("the note", lambda: book.unread)
                path.cut()
                assert board.recv(1) == b""
        path.shut(True)
        with socket.create_connection(("127.0.0.1", path.port), 10) as board:
            assert board.recv(1) == b""
        path.close()


def test_who_is_let_in_while_it_is_shut_is_put_out(monkeypatch: pytest.MonkeyPatch) -> None:
    connects = socket.create_connection
    with socket.create_server(("127.0.0.1", 0)) as mediator:
        path = BoardPath(Book(), mediator.getsockname())

        def slow(*where: Any) -> socket.socket:
            made = connects(*where)
            path.shut(True)
            return made

        monkeypatch.setattr(socket, "create_connection", slow)
        with connects(("127.0.0.1", path.port), 60) as board:
            assert board.recv(1) == b""
        path.close()


# --- at the broker -----------------------------------------------------------------------------


def roots(label: int, epoch: int) -> Roots:
    """A label's."""
    byte = bytes((label, epoch))
    return Roots(label, epoch, 1, byte * 16, byte[::-1] * 16)


TOP, LOW = roots(20, 1), roots(16, 3)


def reader() -> Identity:
    """Who holds the keys of the label above."""
    made = Identity(SITE, 9, 1, bytes(range(32)))
    made.own = TOP
    return made


def record(low: Roots = LOW) -> bytes:
    """What opens the lower label."""
    return make_record(Cipher, SITE, TOP, low, b"k" * 8, b"b" * 8, 1, 0, b"o" * 12)


def m3(ctr: int, seq: int, body: bytes = b"closed", salt: bytes = SALT) -> bytes:
    """A message as mediators publish it."""
    m1 = bytearray(M1_HEAD) + body + bytes(16)
    put_m1(m1, 0, 1, 0, LOW.epoch, CLIENT, 7, salt, ctr, 1000, 0)
    buf = bytearray(M3_HEAD) + b"\0" + m1 + bytes(16)
    put_m3(buf, 0, 1, 0, 0, LOW.label, LOW.epoch, 2, 1_000_000, seq)
    ek = topic_key(SITE, 1, LOW.label, LOW.epoch, LOW.r)
    cipher = Cipher(1, outer_key(SITE, 1, LOW.label, LOW.epoch, 2, ek))
    seal_at(cipher, nonce_m3(buf), buf, 0, M3_HEAD, 1 + len(m1), tail_m3(SITE, TOPIC))
    return bytes(buf)


def test_nonces_outside_and_inside_of_what_is_at_the_broker() -> None:
    book = Book()
    seen = Envelopes(book, reader())
    seen.came(TOPIC, m3(1, 1))
    assert (seen.waiting(), seen.opened) == (1, 0)
    seen.came(b"@sm1/z/20/16", record())
    assert (seen.waiting(), seen.opened) == (0, 1)
    seen.came(TOPIC, m3(1, 2))  # m1 sealed into another m3: as a mediator does with what is late
    seen.came(TOPIC, m3(2, 3))
    assert book.counts() == {"m1": 2, "m3": 3, "record": 1}
    assert [(s.client, s.boot, s.ctr, s.epoch) for s in book.seen] == [
        (CLIENT, 7, 1, 3), (CLIENT, 7, 1, 3), (CLIENT, 7, 2, 3)
    ]  # fmt: skip
    assert (book.twice, book.unread) == ([], [])
    seen.came(TOPIC, m3(2, 4, b"other"))
    seen.came(TOPIC, m3(3, 4))
    assert [key[0] for key in book.twice] == [nonces.INNER, nonces.OUTER]


def test_what_cannot_be_opened_is_told() -> None:
    book = Book()
    seen = Envelopes(book, reader())
    seen.came(TOPIC, m3(1, 1))
    seen.came(b"@sm1/z/20/16", record()[:-1] + b"x")
    seen.came(b"other/topic", m3(1, 2))
    seen.came(TOPIC, b"plain text")
    seen.came(TOPIC, b"")  # a clear
    seen.end()
    assert len(book.unread) == 3
    assert "no key for label 16, epoch 3" in book.unread[1]


def test_a_stream_of_packets() -> None:
    stream = mqtt.Stream()
    long = mqtt.packet(0x30, mqtt.text(b"t") + bytes(300))
    assert stream.feed(long[:2]) == []
    assert [p[2] for p in stream.feed(long[2:] + b"\xc0\0\xc0")] == [long, b"\xc0\0"]
    with pytest.raises(mqtt.NotMqtt):
        mqtt.Stream().feed(b"\x30\xff\xff\xff\xff\xff")
    with pytest.raises(mqtt.NotMqtt):
        mqtt.published(0x30, b"\0\x09abc")


def test_the_book_looks_back(tmp_path: Path) -> None:
    book = Book()
    book.sealed("m2", 1, 1, 1, SALT, 1, b"a", under="l1")
    moment = book.seen[0].at + 1e-9
    assert book.since(0, "m2", 1)
    assert not book.since(moment, "m2", 1)
    assert not book.since(0, "m2", 2)
