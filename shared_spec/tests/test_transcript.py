"""The transcript at the end of SPEC.md is what sealmq_spec says and takes, packet by packet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SPEC = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SPEC))

from sealmq_spec import control, provision  # noqa: E402
from sealmq_spec.errors import SealError  # noqa: E402
from sealmq_spec.identity import Identity  # noqa: E402
from sealmq_spec.reader import Reader  # noqa: E402
from sealmq_spec.session import Session  # noqa: E402
from spec_cipher import make  # noqa: E402
from vectorgen import transcript  # noqa: E402
from vectorgen.cases_envelopes import PLAIN  # noqa: E402

LINES = transcript.lines()


def packet(name: str, nth: int = 0) -> bytes:
    """The whole packet with that name."""
    return [line.value for line in LINES if line.kind in "<>" and line.name == name][nth]


def payload(name: str) -> tuple[bytes, bytes]:
    """(topic, payload) of a PUBLISH."""
    raw = packet(name)
    at = 2 if raw[1] < 128 else 3
    n = int.from_bytes(raw[at : at + 2], "big")
    end = at + 2 + n + (2 if raw[0] & 6 else 0)
    return raw[at + 2 : at + 2 + n], raw[end:]


def identity() -> Identity:
    """The client after the transcript's answer."""
    first, _ = transcript.people()
    ident = Identity(first.site, 7, 1, first.ps, "m1-temp-sensor")
    ident.accept(make, transcript.N_C, payload("answer")[1])
    return ident


def test_the_request_is_the_one_of_the_enrolment() -> None:
    ps = transcript.people()[0].ps
    site = transcript.people()[0].site
    made = provision.ask(make, site, ps, 1, 7, 0, 1, transcript.N_C, 1)
    assert payload("request") == (b"!c1", made)


def test_a_session_says_and_takes_what_stands_there() -> None:
    ident = identity()
    c = transcript.people()[1]
    session = Session(ident, make, 2, c.salt)
    connect = packet("CONNECT")
    head = session.begin_connect(False)
    assert bytes(head) in connect
    unsigned = bytearray(connect[:-22] + bytes(22))
    session.sign(unsigned, 1000)
    assert bytes(unsigned) == connect
    assert session.down(payload("welcome")[1], 1500) == (1, 0)
    topic, m2 = payload("PUBLISH of m2")
    buf = bytearray(100)
    buf[37 : 37 + 11] = PLAIN
    n = session.seal_publish(buf, 0, len(PLAIN), topic, 2, 0, 0, 1500)
    assert bytes(buf[:n]) == m2
    text, _ = session.token("machine/1/#", 1)
    assert text.encode() in packet("SUBSCRIBE")
    assert session.down(payload("receipt")[1], 1600) == (2, (1, 1))
    assert session.receipted(1)


def test_a_reader_opens_what_comes_back() -> None:
    topic, m3 = payload("PUBLISH of m3")
    message = Reader(identity(), make).open(topic, bytearray(m3), transcript.MS + 100)
    assert (message.topic, message.payload) == (topic.decode(), PLAIN)
    assert (message.label, message.sender) == (16, 7)


def test_a_changed_byte_is_refused() -> None:
    topic, m3 = payload("PUBLISH of m3")
    changed = bytearray(m3)
    changed[-20] ^= 1
    with pytest.raises(SealError):
        Reader(identity(), make).open(topic, changed, transcript.MS + 100)


def test_the_whole_connect_verifies() -> None:
    c = transcript.people()[1]
    raw = packet("CONNECT")
    password = raw[-54:]
    claim = control.split_proof(password)
    assert claim[2:5] == (1, 7, 2)
    control.check_connect(make(1, c.key(2)), c.site, 1, c.salt, 1, raw, claim[-1])
