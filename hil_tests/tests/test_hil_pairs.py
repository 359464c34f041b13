"""What the rig writes down of nonces: lines of the contract, whose keys are named as they really
are, in segments that are closed once; a counter that begins anew shows, a packet sent again not.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from jsonschema import Draft202012Validator
from sealmq_spec.const import M3_HEAD, USE_DOWN, WILL
from sealmq_spec.control import seal_down, welcome
from sealmq_spec.envelope import nonce_m3, put_m3, seal_at, tail_m3
from sealmq_spec.identity import Identity
from sealmq_spec.keys import link_key, outer_key, topic_key
from sealmq_spec.provision import ask
from sealmq_spec.records import Roots, make_manifest, make_record
from sealmq_spec.session import Session

from sealmq_hil import path
from sealmq_hil.errors import RigError
from sealmq_hil.nonces import Book, Pair
from sealmq_hil.pairs import Pairs
from sealmq_hil.tap import Envelopes
from wire import Cipher, connect, packet, publish, text

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "shared_spec" / "nonce.schema.json").read_text())
validator = Draft202012Validator(SCHEMA)

SITE, MEDIATOR, RUN = bytes.fromhex("00c0ffee"), 77, "0" * 15 + "7"
TOPIC = b"rig/one/reading"
TOP, LOW = (Roots(n, e, s, bytes((n, e)) * 16, bytes((e, n)) * 16) for n, e, s in
            ((20, 1, 1), (16, 3, 2)))  # fmt: skip
BOARDS = {5: "one", 6: "two"}


class Spy(Cipher):
    """Every key and nonce with which anything was really sealed, in order."""

    used: ClassVar[list[tuple[bytes, bytes]]] = []
    # What was sealed last.
    plain = b""

    def __init__(self, suite: int, key: bytes) -> None:
        super().__init__(suite, key)
        self._key = key

    def seal_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
        Spy.used.append((self._key, bytes(nonce)))
        Spy.plain = bytes(buf[start : start + n])
        super().seal_into(nonce, aad, buf, start, n)


def closed(folder: Path) -> Iterator[dict[str, Any]]:
    """Every line of the closed segments, each valid."""
    for file in sorted(folder.glob(f"{RUN}-nonces-*.jsonl")):
        data = file.read_bytes()
        assert data.endswith(b"\n")
        for line in data.decode("ascii").splitlines():
            row = json.loads(line)
            validator.validate(row)
            yield row


def reused(rows: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """(key, nonce) under which different things were sealed."""
    under: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        under[row["key"], row["nonce"]].add(row["digest"])
    return [pair for pair, digests in under.items() if len(digests) > 1]


def enrolled(client: int, gen: int, suite: int = 1) -> Identity:
    """A client that has its roots."""
    made = Identity(SITE, client, MEDIATOR, bytes(range(32)), "c", suite)
    made.gen, made.km, made.own = gen, bytes((client, gen)) * 16, LOW
    return made


class Line:
    """A client's boot session and what the path of its board sees of it."""

    def __init__(self, book: Book, ident: Identity, boot: int, salt: bytes) -> None:
        self.book, self.ident = book, ident
        self.session = Session(ident, Spy, boot, salt)
        self.order = boot << 40
        self.path = path.Session(book)

    def connects(self) -> None:
        """CONNECT, and the welcome."""
        self.path = path.Session(self.book)
        head = self.session.begin_connect(False)
        made = connect(b"one", head + b"A" * 22)
        self.session.sign(made, 0)
        self.path.feed(bytes(made))
        ident, session, self.order = self.ident, self.session, self.order + 1
        key = link_key(SITE, USE_DOWN, ident.suite, MEDIATOR, session.boot, session.salt, ident.km)
        body = welcome(0, 1_000_000, 0, 0, 0, LOW.epoch, 1, b"\0")
        who = (SITE, ident.client, MEDIATOR, session.conn)
        order = self.order.to_bytes(12, "big")
        down = seal_down(Spy(ident.suite, key), ident.suite, order, *who, body)
        self.path.feed_down(b"\x20\x02\0\0" + publish(b"!c1", down) + b"\xd0\0")
        session.down(down, 0)

    def works(self) -> None:
        """Everything that a board seals in a connection."""
        asks = self.session.ask_time(b"n" * 16, 0)
        self.path.feed(publish(b"!c1", asks))
        filt, _ = self.session.token("rig/#")
        self.path.feed(packet(0x82, b"\0\1" + text(filt.encode()) + b"\1"))
        i = self.ident
        who = i.site, i.ps, i.suite, i.client, i.gen
        n_c = self.session.salt + (i.gen << 8 | self.session.boot).to_bytes(8, "big")
        self.path.feed(publish(b"!c1", ask(Spy, *who, self.session.boot, n_c, MEDIATOR)))

    def seals(self, payload: bytes = b"21.5") -> bytes:
        """A PUBLISH; a will's, which needs no time."""
        buf = bytearray(37 + len(payload) + 32)
        buf[37 : 37 + len(payload)] = payload
        n = self.session.seal_publish(buf, 0, len(payload), TOPIC, 2, WILL, 0, 0)
        return publish(TOPIC, bytes(buf[:n]), 0x32, 1)


def collecting(folder: Path | None, each: int = 5000) -> tuple[Book, Pairs]:
    book = Book()
    book.site, book.mediator = SITE.hex(), MEDIATOR
    pairs = Pairs(folder, RUN, BOARDS, lines_each=each)
    book.on_pair = pairs.add
    return book, pairs


def names_fit(rows: list[dict[str, Any]], used: list[tuple[bytes, bytes]]) -> None:
    """The nonces are the real ones, in order, and one name stands for one key."""
    assert [row["nonce"] for row in rows] == [nonce.hex() for _, nonce in used]
    names: dict[bytes, set[str]] = defaultdict(set)
    keys: dict[str, set[bytes]] = defaultdict(set)
    for row, (key, _) in zip(rows, used, strict=True):
        names[key].add(row["key"])
        keys[row["key"]].add(key)
    assert all(len(each) == 1 for each in names.values())
    assert all(len(each) == 1 for each in keys.values())


def test_on_the_path_a_key_is_named_as_it_really_is(tmp_path: Path) -> None:
    book, pairs = collecting(tmp_path)
    Spy.used = []
    for client, gen, suite, boot, salt in (
        (5, 1, 1, 1, b"saltsalt"), (5, 2, 1, 1, b"saltsalt"), (5, 2, 1, 2, b"saltsalt"),
        (5, 2, 1, 2, b"tlastlas"), (6, 1, 2, 1, b"saltsalt"),
    ):  # fmt: skip
        line = Line(book, enrolled(client, gen, suite), boot, salt)
        line.connects()
        line.works()
        line.connects()
        line.path.feed(line.seals())
        del Spy.used[-2]  # of m1, which is closed to a path
    pairs.close()
    rows = list(closed(tmp_path))
    assert [row["layer"] for row in rows[:8]] == [
        "proof", "down", "up", "token", "request", "proof", "down", "m2"
    ]  # fmt: skip
    names_fit(rows, Spy.used)
    assert {row["board"] for row in rows} == set(BOARDS.values())
    link = "site=00c0ffee client=5 gen=1 use={} suite=1 mediator=77 boot=1 salt=73616c7473616c74"
    assert rows[0]["key"] == "l1 " + link.format(2) == rows[3]["key"]
    assert (rows[1]["key"], rows[7]["key"]) == ("l1 " + link.format(3), "l1 " + link.format(1))
    assert rows[4]["key"].startswith("p1 site=00c0ffee client=5 dir=0 suite=1 n_c=73616c74")
    assert rows[4]["nonce"] == "0" * 24
    assert [row["id"] for row in rows] == [f"{RUN}-n{n}" for n in range(1, len(rows) + 1)]
    assert (book.twice, book.unread) == ([], [])


def m3(m1: bytes, seq: int, inst: int = 2) -> bytes:
    """A message as mediators publish it."""
    buf = bytearray(M3_HEAD) + b"\0" + m1 + bytes(16)
    put_m3(buf, 0, 2, 0, 0, LOW.label, LOW.epoch, inst, 1_000_000, seq)
    key = outer_key(SITE, 2, LOW.label, LOW.epoch, inst,
                    topic_key(SITE, 2, LOW.label, LOW.epoch, LOW.r))  # fmt: skip
    n = 1 + len(m1)
    seal_at(Spy(2, key), nonce_m3(buf), buf, 0, M3_HEAD, n, tail_m3(SITE, TOPIC))
    return bytes(buf)


def test_at_the_broker_a_key_is_named_as_it_really_is(tmp_path: Path) -> None:
    book, pairs = collecting(tmp_path)
    reader = Identity(SITE, 9, MEDIATOR, bytes(range(32)))
    reader.own = TOP
    seen = Envelopes(book, reader)
    Spy.used = []
    made = b""
    record = make_record(Spy, SITE, TOP, LOW, b"k" * 8, b"b" * 8, 1, 0, b"o" * 12)
    seen.came(b"@sm1/z/20/16", record)
    for own, order in ((TOP, b"p" * 12), (LOW, b"o" * 12)):
        seen.came(b"@sm1/m/1", make_manifest(Spy, SITE, own, 1, 0, order))
    for client, inst, seq in ((5, 2, 1), (5, 3, 1), (6, 3, 2)):
        Line(Book(), enrolled(client, 1), 4, b"saltsalt").seals()
        inner, _ = Spy.used.pop(-2), Spy.used.pop()
        made = m3(Spy.plain[1:], seq, inst)
        seen.came(TOPIC, made)
        Spy.used.append(inner)  # the outside is seen first
    # Delivered to a board it comes by once more.
    path.Session(book).feed_down(publish(TOPIC, made))
    Spy.used.append(Spy.used[-2])
    seen.came(TOPIC, b"")
    pairs.close()
    rows = list(closed(tmp_path))
    assert [row["layer"] for row in rows] == ["record"] * 3 + ["m3", "m1"] * 3 + ["m3"]
    names_fit(rows, Spy.used)
    assert [row.get("board") for row in rows[3:]] == [None, "one", None, "one", None, "two", None]
    assert rows[-1]["digest"] == rows[-3]["digest"]
    assert rows[3]["key"] == "o1 site=00c0ffee suite=2 label=16 epoch=3 inst=2"
    assert rows[4]["key"] == (
        "i1 site=00c0ffee suite=2 label=16 epoch=3 sender=5 boot=4 salt=73616c7473616c74"
    )
    assert rows[0]["key"] == rows[1]["key"] == "r1 site=00c0ffee suite=1 label=20 epoch=1"
    assert (book.twice, book.unread) == ([], [])


def test_a_counter_that_begins_anew_shows_and_what_is_sent_again_does_not(tmp_path: Path) -> None:
    book, pairs = collecting(tmp_path)
    line = Line(book, enrolled(5, 1), 1, b"saltsalt")
    line.connects()
    sent = line.seals(b"first")
    line.path.feed(sent + bytes((sent[0] | 8,)) + sent[1:])
    line.session.ctr = 0
    line.path.feed(line.seals(b"other"))
    pairs.close()
    rows = list(closed(tmp_path))
    m2 = [row for row in rows if row["layer"] == "m2"]
    assert len(m2) == 3
    assert len({(row["key"], row["nonce"]) for row in m2}) == 1
    assert m2[0]["digest"] == m2[1]["digest"] != m2[2]["digest"]
    assert reused(rows) == [(m2[0]["key"], m2[0]["nonce"])]
    assert len(book.twice) == 1


def pair(n: int) -> Pair:
    return Pair(n, "m3", f"o1 site=00c0ffee inst={n}", f"{n:024x}", f"{n:032x}", 0)


def test_segments_are_bounded_and_closed_once(tmp_path: Path) -> None:
    _, pairs = collecting(tmp_path, each=2)
    for n in range(5):
        pairs.add(pair(n))
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [f"{RUN}-nonces-{n}" for n in ("1.jsonl", "2.jsonl", "3.jsonl.open")]
    pairs.close()
    pairs.add(pair(6))
    pairs.close()
    assert not list(tmp_path.glob("*.open"))
    assert [row["at_ms"] for row in closed(tmp_path)] == list(range(5))
    _, none = collecting(None)
    none.add(pair(1))
    none.close()


def test_what_cannot_be_written_fails_the_run_and_no_tap(tmp_path: Path) -> None:
    (tmp_path / f"{RUN}-nonces-2.jsonl").write_text("somebody else's\n")
    _, pairs = collecting(tmp_path, each=2)
    for n in range(5):
        pairs.add(pair(n))
    with pytest.raises(RigError, match="the nonces could not be written: FileExistsError"):
        pairs.close()
    assert (tmp_path / f"{RUN}-nonces-2.jsonl").read_text() == "somebody else's\n"
