"""The transcript at the end of SPEC.md: one client from its enrolment to its first message read.

Made like the vectors, without sealmq_spec; `gen_vectors.py` writes it into the document.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .cases_connect import _remaining, _text, connect_packet
from .cases_envelopes import PLAIN, TOPIC, T
from .control import answer, answer_body, down, proof_head, request, token, welcome
from .envelopes import m1, m1_header, m2, m3
from .model import Client, F, Order, client, rnd, roots, u

BEGIN = "<!-- transcript: begin (gen_vectors.py writes what follows) -->\n"
END = "<!-- transcript: end -->\n"
_WIDTH = 60
FILTER = b"machine/1/#"
MS = T * 1000 + 400


@dataclass(frozen=True)
class Line:
    """One line: `kind` is "" for a heading, "=" for a value, ">" client to mediator, "<" back."""

    kind: str
    name: str
    value: bytes = b""


def publish(topic: bytes, payload: bytes, first: int = 0x30, pid: int = 0) -> bytes:
    """A PUBLISH of MQTT 3.1.1."""
    body = _text(topic) + (u(pid, 2) if first & 6 else b"") + payload
    return bytes([first]) + _remaining(len(body)) + body


def connect_unproved(c: Client) -> bytes:
    """A CONNECT in quarantine (section 4.1)."""
    password = proof_head(c.but(gen=0), 0, 0)
    middle = _text(b"m1-temp-sensor") + _text(b"sealmq1") + _text(password)
    body = _text(b"MQTT") + b"\x04\xc2" + u(60, 2) + middle
    return b"\x10" + _remaining(len(body)) + body


def people() -> tuple[Client, Client]:
    """The client in quarantine, and in its first session."""
    c = client().but(gen=1, own=roots(16, 5, 1))
    first = c.but(boot=1, salt=rnd("transcript salt 1", 8))
    return first, c.but(boot=2, salt=rnd("transcript salt 2", 8))


N_C = rnd("transcript N_c", 16)
ANSWER = Order(2, MS - 300, 0)


def enrolment(c: Client) -> str:
    """Section 7.1."""
    at = {"number": c.mediator, "host": "192.168.1.10", "port": 1883}
    rest = {"name": "m1-temp-sensor", "ps": c.ps.hex(), "suite": c.suite, "mediator": at}
    return json.dumps({"sealmq": 1, "site": c.site.hex(), "client": c.client, **rest})


def lines() -> list[Line]:
    """All of it, in order."""
    a, c = people()
    s, own = c.site, c.own
    body = answer_body(a, 1, 90, MS - 300)
    out = [
        Line("", "Provisioning, in quarantine (7.2): boot 1"),
        Line("=", "salt", a.salt),
        Line(">", "CONNECT, gen 0", connect_unproved(a)),
        Line("<", "CONNACK", bytes.fromhex("20020000")),
        Line("=", "N_c", N_C),
        Line("=", "key of the request", F("p1", s, u(c.suite, 1) + N_C, c.ps)),
        Line(">", "request", publish(b"!c1", request(a, 1, N_C, 0))),
        Line("=", "key of the answer", F("p1", s, u(16 + c.suite, 1) + N_C, c.ps)),
        Line("=", "its body", body),
        Line("<", "answer", publish(b"!c1", answer(a, N_C, ANSWER, body))),
        Line(">", "DISCONNECT", b"\xe0\x00"),
        Line("", "A session (4.1, 4.4): gen 1, boot 2, conn 1, low 1, flags 2"),
        Line("=", "salt", c.salt),
        Line("=", "link key, publish", c.key(1)),
        Line("=", "link key, control", c.key(2)),
        Line("=", "link key, down", c.key(3)),
        Line(">", "CONNECT", connect_packet(c, 1, 1, 2)),
        Line("<", "CONNACK", bytes.fromhex("20020000")),
    ]
    hello = welcome(MS, boot_floor=2)
    inner_key = own.inner(s, c.client, c.boot, c.salt)
    inner = m1(c, TOPIC, PLAIN, 1, T)
    sealed = m2(c, TOPIC, inner, 1, T, 2, b"\x00")
    text = token(c, 2, FILTER, 1, 0)
    order = Order(9, MS + 60, 0)
    given = m3(s, own, order, TOPIC, inner)
    out += [
        Line("=", "welcome's body", hello),
        Line("<", "welcome", publish(b"!c1", down(c, Order(9, MS, 0), 1, hello))),
        Line("", "A message with QoS 1 (3.1, 3.2): ctr 1, packet id 1"),
        Line("=", "topic", TOPIC),
        Line("=", "payload", PLAIN),
        Line("=", "inner key I", inner_key),
        Line("=", "m1's header", m1_header(c, 1, T)),
        Line("=", "m1", inner),
        Line(">", "PUBLISH of m2", publish(TOPIC, sealed, 0x32, 1)),
        Line("<", "PUBACK", bytes.fromhex("40020001")),
        Line("", "A subscription with QoS 1 (4.2): ctr 2, packet id 2"),
        Line("=", "filter", FILTER),
        Line(">", "SUBSCRIBE", _subscribe(text)),
        Line("<", "SUBACK", bytes.fromhex("9003000201")),
        Line("", "The message comes back, since the client subscribed (3.3): QoS 1, how live"),
        Line("=", "topic key EK", own.ek(s)),
        Line("=", "outer key O", own.outer(s, 9)),
        Line("<", "PUBLISH of m3", publish(TOPIC, given, 0x32, 1)),
        Line(">", "PUBACK", bytes.fromhex("40020001")),
        Line("", "A receipt (4.4), asked for by a ping: top 1, mask 1"),
        Line(">", "PINGREQ", b"\xc0\x00"),
        Line("<", "receipt", publish(b"!c1", down(c, Order(9, MS + 90, 0), 1, RECEIPT))),
        Line("<", "PINGRESP", b"\xd0\x00"),
        Line(">", "DISCONNECT", b"\xe0\x00"),
    ]
    return out


RECEIPT = u(2, 1) + u(1, 3) + u(1, 8)


def _subscribe(text: bytes) -> bytes:
    body = u(2, 2) + _text(text) + u(1, 1)
    return b"\x82" + _remaining(len(body)) + body


def block() -> str:
    """What stands in SPEC.md between the markers."""
    out = [f"    {enrolment(people()[0])}\n"]
    for line in lines():
        if not line.kind:
            out.append(f"\n{line.name}\n\n")
            continue
        sign = {"=": " ", ">": "→", "<": "←"}[line.kind]
        raw = line.value.hex()
        parts = [raw[i : i + 2 * _WIDTH] for i in range(0, len(raw), 2 * _WIDTH)]
        out += [f"    {sign} {line.name if not i else '':<20} {p}\n" for i, p in enumerate(parts)]
    return BEGIN + "".join(out) + END


def put(document: str) -> str:
    """The document with the transcript as it is now between its markers."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after and not rest:
        raise ValueError("SPEC.md has no place for the transcript")
    return before + block() + after
