"""Envelopes, tokens, control packets, records, provisioning: every parser of the protocol.

The first byte picks the parser. Where a packet is sealed, the rest of the input is its plaintext,
sealed as it should be, so that what lies behind a good tag is tried as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from sealmq.aead import make
from sealmq_spec import control, envelope, keys, provision, records, tlv, topics
from sealmq_spec.b64 import b64u, unb64u
from sealmq_spec.const import ANSWER, CONTROL, DOWN, UP
from sealmq_spec.errors import SealError
from sealmq_spec.identity import Identity
from sealmq_spec.records import Roots

from .target import Draw, Finding, Target

SITE = b"\x01\x02\x03\x04"
KEY = bytes(range(32))
SALT = b"saltsalt"
VECTORS = Path(keys.__file__).parents[1] / "vectors"


def client(number: int = 7, label: int = 16, epoch: int = 2) -> Identity:
    """A provisioned client with fixed secrets."""
    ident = Identity(SITE, number, 1, KEY, f"client {number}", 1)
    ident.gen, ident.kseq, ident.km = 1, 1, KEY[::-1]
    ident.own = Roots(label, epoch, 1, KEY, KEY[::-1])
    return ident


def _headers(draw: Draw) -> None:
    data = draw.rest()
    parsers: tuple[Callable[..., object], ...] = (
        envelope.get_m2, envelope.get_m3, control.up_header, control.get_notice,
        control.get_receipt, control.get_welcome, records.get_record, records.get_manifest,
        provision.get_ask, provision.get_body,
    )  # fmt: skip
    for parse in parsers:
        _quiet(parse, data)
    _quiet(envelope.get_m1, data, 0, len(data))


def _tlv(draw: Draw) -> None:
    known = draw.pick(((), (1,), (2, 40)))
    data = draw.rest()
    items = tlv.block(data, 0, len(data), known)
    again = tlv.pack((t, bytes(data[a:b])) for t, (a, b) in items.items())
    if len(items) and len(again) != len(data) and all(t & 0x7F in known for t in items):
        raise Finding(f"a TLV block of {len(data)} bytes has {len(again)} when it is packed again")
    tlv.fired(tlv.unpack(data, *tlv.span(data, 0, len(data)), known), draw.number() % 2 == 1)


def _password(draw: Draw) -> None:
    control.split_proof(draw.rest())


def _connect(draw: Draw) -> None:
    aead = make(draw.pick((1, 2)), KEY)
    packet = draw.rest()
    if len(packet) > control.TAG_CHARS:
        good = bytearray(packet)
        control.sign_connect(aead, SITE, 1, SALT, 1, good)
        tag = unb64u(bytes(good[-control.TAG_CHARS :]))
        control.check_connect(aead, SITE, 1, SALT, 1, bytes(good), tag)
    control.check_connect(aead, SITE, 1, SALT, 1, packet, packet[:16])


def _b64u(draw: Draw) -> None:
    text = draw.rest()
    if b64u(unb64u(text)) != text:
        raise Finding("two texts stand for one value")


def _texts(draw: Draw) -> None:
    filt, topic = (part.decode("utf-8", "replace") for part in (draw.chunk(), draw.rest()))
    topics.is_reserved(topic)
    _quiet(topics.check_topic, topic)
    _quiet(topics.check_filter, filt)
    _quiet(topics.split_token, topic)
    if topics.matches(filt, topic) and topics.is_reserved(topic) and filt[:1] in "+#":
        raise Finding("a wildcard reaches a reserved topic")


def _token(draw: Draw) -> None:
    aead = make(1, KEY)
    op, qos, ctr = draw.number() % 2, draw.number() % 3, draw.take(3).ljust(3, b"\1")
    filt = draw.rest().decode("utf-8", "replace")
    raw = topics.check_filter(filt)
    tag = control.token_tag(aead, 1, op, ctr, SALT, SITE, 7, 1, qos, filt)
    found = topics.split_token(topics.put_token(ctr, tag, filt))
    if found != (ctr, tag, filt) or found[2].encode() != raw:
        raise Finding("a token does not come back as it was put")
    control.check_token(aead, 1, op, ctr, SALT, SITE, 7, 1, qos, filt, tag)


def _up(draw: Draw) -> None:
    aead = make(1, KEY)
    if draw.number() % 2:
        packet = control.seal_up(aead, 1, 1 + draw.number(), 5, SALT, SITE, 7, 1, draw.rest())
    else:
        packet = bytes((UP,)) + draw.rest()
    control.up_header(packet)
    control.open_up(aead, SALT, SITE, 7, 1, packet)


def _down(draw: Draw) -> None:
    aead = make(1, KEY)
    if draw.number() % 2:
        packet = control.seal_down(aead, 1, b"o" * 12, SITE, 7, 1, 3, draw.rest())
    else:
        packet = bytes((DOWN,)) + draw.rest()
    _, body = control.open_down(aead, 1, SITE, 7, 1, 3, packet)
    _quiet(control.get_welcome, body)
    _quiet(control.get_receipt, body)
    _quiet(control.get_notice, body)


def _answer(draw: Draw) -> None:
    ident = client()
    sealed, status, nonce = draw.number() % 2, draw.number() % 16, b"N" * 16
    if sealed:
        body = draw.rest()
        packet = provision.answer(make, SITE, KEY, 1, status, 7, nonce, b"o" * 12, body)
    else:
        packet = bytes((ANSWER,)) + draw.rest()
    before = ident.dump()
    try:
        ident.accept(make, nonce, packet)
    except SealError:
        if ident.dump() != before:
            raise Finding("a refused answer has changed the client") from None
        raise
    if ident.gen < 1 or ident.kseq < 1 or not Identity(SITE, 7, 1, KEY).load(ident.dump()):
        raise Finding("what was accepted cannot be stored")
    # And what was stored can be used.
    make(ident.suite, ident.km)
    make(ident.own.suite, ident.own.r)


def _ask(draw: Draw) -> None:
    packet = draw.rest()
    # The key generator compares the suite with the client's before it looks at the tag.
    if provision.get_ask(packet)[0] in (1, 2):
        provision.check_ask(make, SITE, KEY, packet, 1)


def _kg_time(draw: Draw) -> None:
    provision.open_kg_time(make, SITE, KEY, 1, 7, b"N" * 16, draw.rest())


def _identity(draw: Draw) -> None:
    Identity(SITE, 7, 1, KEY).load(draw.rest())


def _enrolment(draw: Draw) -> None:
    try:
        found = json.loads(draw.rest())
    except (ValueError, RecursionError):
        return
    ident = Identity.from_enrolment(found)
    if len(ident.site) != 4 or len(ident.ps) != 32:
        raise Finding("an enrolment with a site or a secret of another length")


def _record(draw: Draw) -> None:
    packet = draw.rest()
    records.record_topic(packet)
    records.derive(make, SITE, Roots(16, 2, 1, KEY, KEY[::-1]), packet)


PARSERS: tuple[Callable[[Draw], None], ...] = (
    _headers, _tlv, _password, _connect, _b64u, _texts, _token, _up, _down, _answer, _ask,
    _kg_time, _identity, _enrolment, _record,
)  # fmt: skip


def _quiet(parse: Callable[..., object], *args: object) -> None:
    try:
        parse(*args)
    except SealError:
        pass


class Fuzz(Target):
    """One parser an input; only SealError comes out."""

    longest: ClassVar[int] = 1024
    words: ClassVar[tuple[bytes, ...]] = (CONTROL, b"!s1/", b"@sm1/", b"$share/", b'{"sealmq": 1, ')

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        _quiet(draw.pick(PARSERS), draw)

    def seeds(self) -> Iterator[bytes]:
        """Each parser, and for the headers every packet of the vectors."""
        roots = Roots(16, 2, 1, KEY, KEY[::-1])
        low = Roots(17, 2, 1, KEY[::-1], KEY)
        record = records.make_record(make, SITE, roots, low, SALT, SALT, 3, 0, b"o" * 12)
        body = provision.body(2, 16, 2, 1, 1, 1, 4, 10**12, KEY, KEY, KEY, b"\0")
        ask = provision.ask(make, SITE, KEY, 1, 7, 0, 1, b"N" * 16, 1)
        told = control.welcome(0, 10**12, 1, 2, 3, 2, 4, b"\0")
        for number in range(len(PARSERS)):
            first = bytes((number,))
            for sample in (
                record, body, ask, told, b"\x01\x00" + body, b"\x01" + told, b"\x05arm/#arm/angle",
                b"\x00\x06\x02\x04\0\0\0\1", b'{"sealmq": 1, "site": "01020304"}', client().dump(),
            ):  # fmt: skip
                yield first + sample
        for path in sorted(VECTORS.glob("*-ccm*.json")):
            for value in json.loads(path.read_text())["in"].values():
                if isinstance(value, str) and len(value) % 2 == 0 and len(value) < 1600:
                    try:
                        yield b"\0" + bytes.fromhex(value)
                    except ValueError:
                        continue
