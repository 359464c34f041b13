"""The reader's state machine: messages to a label, a link or a grant, records, manifests and grants
in any order, well sealed or not.

The harness has all keys, so an input decides what is inside good seals. Nothing but SealError comes
out. What nobody sealed leaves no trace at all, and what is sealed but refused none but in caches,
which hold what anybody with the roots would put there. Everything remembered stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from sealmq.aead import Aead, make
from sealmq_spec import delivery, envelope, keys, records
from sealmq_spec.const import (
    M1_HEAD,
    M3_HEAD,
    REF_GRANT,
    REF_LABEL,
    REF_LINK,
    TAG,
    TLV_LABEL,
    USE_DELIVERY,
)
from sealmq_spec.errors import SealError
from sealmq_spec.reader import Reader
from sealmq_spec.records import Roots
from sealmq_spec.session import Session

from .packets import KEY, SALT, SITE, client
from .target import Draw, Finding, Target

NOW = 1_800_000_000
LIMIT = 4
GRANTS = 64
TOPICS = b"a/b", b"c", "tü".encode()
_PLAIN = frozenset((int, bytes, str, bool, type(None)))
# Caches of ciphers and associated data say nothing about what was seen, so a refused packet may
# leave its there once its own tag has verified; the clock of use is for them, and for the roots.
_CACHES = ("_outer", "_inner", "_tails", "_uses")


def roots(label: int, epoch: int) -> Roots:
    """The key generator's, fixed."""
    seed = bytes((label, epoch))
    return Roots(label, epoch, 1, (seed + KEY)[:32], (seed + KEY[::-1])[:32])


def link_key(session: Session) -> bytes:
    """Of what is sealed to this client."""
    i = session.ident
    return keys.link_key(SITE, USE_DELIVERY, 1, i.mediator, session.boot, session.salt, i.km)


def secret(number: int, epoch: int) -> bytes:
    """G of a grant, fixed."""
    return (b"G" + bytes((number & 255, epoch & 255)) + KEY)[:32]


def grant(draw: Draw) -> bytes:
    """Op 8, after op, as the input says."""
    number, epoch = draw.number() % 4, draw.number() % 4
    if draw.number() % 8 == 0:
        number = draw.number()  # of grants without end
    suite, until = draw.pick((1, 1, 1, 2, 5)), draw.pick((0, 0, NOW, NOW + 200))
    g = secret(number, epoch if draw.number() % 8 else 0)
    return delivery.grant(number, epoch, suite, until, g)[1:] + bytes(draw.number() % 8 == 0)


def frozen(value: Any) -> Any:
    """A value to compare: what is remembered, without objects' identities."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return {k: v if type(v) in _PLAIN else frozen(v) for k, v in value.items()}
    if kind is list or kind is tuple:
        return [v if type(v) in _PLAIN else frozen(v) for v in value]
    if isinstance(value, Roots):
        return value.label, value.epoch, value.suite, value.r, value.r_bar
    if hasattr(value, "__dict__") and type(value).__module__.startswith("sealmq_spec."):
        return frozen(vars(value))
    return id(value)


class Fuzz(Target):
    """Up to twelve packets an input."""

    longest: ClassVar[int] = 1500

    # Messages delivered by the last input.
    delivered = 0

    def __init__(self) -> None:
        # Of each cipher that the reader has made from the last input, by identity: it and its key.
        self._made: dict[int, tuple[Aead, int, bytes]] = {}

    def _make(self, suite: int, key: bytes) -> Aead:
        cipher = make(suite, key)
        self._made[id(cipher)] = cipher, suite, key
        return cipher

    def one(self, data: bytes) -> None:
        self.delivered = 0
        self._made.clear()
        draw = Draw(data)
        ident = client()
        ident.own = roots(16, 2)
        reader = Reader(ident, self._make, LIMIT)
        reader.session = session = Session(client(), self._make, 3, SALT)
        sent: list[tuple[bytes, bytes]] = []
        now = NOW
        for _ in range(12):
            if not draw.more():
                break
            step = draw.number() % 8
            # Grants go with their connection, at the latest when one is looked for.
            reader._delivered()._held(session, reader._outer, 0)
            if step == 0:
                now += draw.number(2) - 300
            elif step == 1:
                # A new epoch of its own label, by provisioning.
                ident.own = roots(16, min(ident.own.epoch + 1, 9))
                reader.reset()
            elif step == 2 and sent:
                self._open(reader, *draw.pick(sent), now)
            elif step == 7:
                if draw.number() % 4 == 0:
                    session.begin_connect(False)
                    reader._delivered()._held(session, reader._outer, 0)
                body = grant(draw) if draw.number() % 8 else draw.chunk()
                self._guarded(reader, lambda body=body: reader.add_grant(body), ())
            elif step in (3, 4):
                record = self._record(draw) if step == 3 else draw.chunk()
                self._guarded(reader, lambda record=record: reader.add(record), ())
            else:
                topic = draw.pick(TOPICS)
                if step == 5:
                    packet = b"\x13" + draw.chunk()
                else:
                    packet = self.message(draw, topic, now, link_key(session))
                sent.append((topic, packet))
                self._forge(reader, topic, packet, now)
                self._open(reader, topic, packet, now)
        self._check_caches(reader, session)
        if len(reader._delivered()._grants) > GRANTS:
            raise Finding("grants without end")
        for name, table in vars(reader).items():
            for part in (table, *getattr(table, "__dict__", {}).values()):
                if isinstance(part, dict) and len(part) > LIMIT + 1:
                    raise Finding(f"reader.{name} has {len(part)} entries, the limit is {LIMIT}")

    def _open(self, reader: Reader, topic: bytes, packet: bytes, now: int) -> None:
        def read() -> None:
            reader.open(topic, bytearray(packet), now * 1000)
            self.delivered += 1

        self._guarded(reader, read, _CACHES)

    def _forge(self, reader: Reader, topic: bytes, packet: bytes, now: int) -> None:
        """The same with another tag, before the reader has seen the right one."""
        forged = bytearray(packet)
        forged[-1] ^= 1

        def read() -> None:
            reader.open(topic, forged, now * 1000)
            raise Finding("a message with a wrong tag was delivered")

        self._guarded(reader, read, ())

    def _guarded(self, reader: Reader, call: Any, may_change: tuple[str, ...]) -> None:
        def seen() -> Any:
            kept = {k: v for k, v in vars(reader).items() if k not in (*may_change, "ident")}
            uses = [] if may_change else [held.used for held in reader._roots.values()]
            return frozen(kept), uses

        before = seen()
        try:
            call()
        except SealError:
            if seen() != before:
                raise Finding("a refused packet has left a trace") from None

    def _check_caches(self, reader: Reader, session: Session) -> None:
        """Whoever left it there, a cache holds nothing but what its key stands for."""
        for name, cipher in reader._outer.items():
            if len(name) == 5:  # a grant's G and all else that its key comes from
                g, number, suite, epoch, inst = name
                key = keys.grant_key(SITE, suite, number, epoch, inst, g)
                self._check_cipher(cipher, suite, key)
                continue
            label, epoch, inst = name
            if isinstance(inst, bytes):  # a link's root, boot and salt
                self._check_cipher(cipher, 1, link_key(session))
                continue
            own = reader._roots[label, epoch]
            ek = keys.topic_key(SITE, own.suite, label, epoch, own.r)
            key = keys.outer_key(SITE, own.suite, label, epoch, inst, ek)
            self._check_cipher(cipher, own.suite, key)
        for (label, epoch, sender, boot, salt), cipher in reader._inner.items():
            own = reader._roots[label, epoch]
            key = keys.inner_key(SITE, own.suite, sender, boot, salt, own.r_bar)
            self._check_cipher(cipher, own.suite, key)
        for topic, (label, m3, m1, text, site) in reader._tails.items():
            tails = envelope.tail_m3(SITE, topic), envelope.tail_m1(SITE, label, topic)
            if (m3, m1, text.encode(), site) != (*tails, topic, SITE):
                raise Finding("the associated data of another topic or label")

    def _check_cipher(self, cipher: Aead, suite: int, key: bytes) -> None:
        if self._made[id(cipher)] != (cipher, suite, key):
            raise Finding("a cipher under the name of another")

    def _record(self, draw: Draw) -> bytes:
        """A record or manifest, sealed by whoever has the roots of its source."""
        n, e_n, label, e_l = draw.pick((16, 17, 18, 30)), draw.number() % 6, 16, draw.number() % 6
        if draw.number() % 4 == 0:
            label = 17
        target, source = roots(n, e_n), roots(label, e_l)
        target.suite = draw.pick((1, 1, 1, 5))
        if draw.number() % 8 == 0:
            # Of labels without end, as an insider could make them.
            target = Roots(draw.number(3), e_n, draw.number() % 16, KEY, KEY)
        kseq, end = draw.number(), NOW + draw.number(2) - 300
        order = b"order" + bytes(7)
        if draw.number() % 4 == 0:
            return records.make_manifest(make, SITE, source, kseq, end, order)
        return records.make_record(make, SITE, source, target, SALT, SALT, kseq, end, order)

    def message(self, draw: Draw, topic: bytes, now: int, link: bytes) -> bytes:
        """Well sealed outside and inside; header fields are what the input says. link: the key of
        the reader's link."""
        label = roots(draw.pick((16, 16, 17, 18)), draw.number() % 5)
        inner = roots(label.label, draw.number() % 5)
        flags, how = draw.number(), draw.number() % 4
        sender, ctr = draw.number() % 8, 1 + draw.number() % 80
        t_pub = max(0, now + draw.number(2) - 32768) if flags & 8 == 0 else 0
        life = draw.pick((0, 5, 12, 31, 255, 40))
        s2 = (now + draw.number() - 128) * 1000
        block = draw.pick((b"\0", b"\0", b"\x06\x02\x04\x6b\x49\xd2\0", b""))
        if not block:
            block = draw.chunk()
        plain = draw.chunk()
        header = bytearray(M1_HEAD)
        header[0] = 0x11
        header[1] = 1 << 4 | flags & 15
        header[2:5] = keys.u24(inner.epoch)
        header[5:8] = keys.u24(sender)
        header[8:11] = keys.u24(draw.number() % 3)
        header[11:19] = SALT
        header[19:22] = keys.u24(ctr)
        header[22:26] = t_pub.to_bytes(4, "big")
        header[26] = life
        boot = int.from_bytes(header[8:11], "big")
        key = keys.inner_key(SITE, 1, sender, boot, SALT, inner.r_bar)
        m1 = header + plain + bytes(TAG)
        nonce = envelope.nonce_m1(m1, 0)
        tail = envelope.tail_m1(SITE, label.label, topic)
        envelope.seal_at(make(1, key), nonce, m1, 0, M1_HEAD, len(plain), tail)
        suite = draw.pick((1, 1, 1, 5))
        ref = draw.pick((REF_LABEL, REF_LABEL, REF_LINK, REF_GRANT, 3))
        number, epoch = label.label, label.epoch
        if ref != REF_LABEL:
            number, epoch = draw.number() % 8, draw.number() % 4
            if draw.number() % 8 and block[:1] < b"\x70":
                item = bytes((TLV_LABEL | 0x80, 3)) + keys.u24(label.label)
                block = bytes((block[0] + len(item),)) + item + block[1:] if block else b""
        if ref == REF_GRANT:
            outer = make(1, keys.grant_key(SITE, 1, number, epoch, 9, secret(number, epoch)))
        elif ref == REF_LABEL:
            ek = keys.topic_key(SITE, 1, number, epoch, label.r)
            outer = make(1, keys.outer_key(SITE, 1, number, epoch, 9, ek))
        else:
            outer = make(1, link)
        m3 = bytearray(M3_HEAD) + block + m1 + bytes(TAG)
        envelope.put_m3(m3, 0, suite, ref, how, number, epoch, 9, s2, 1)
        inside = len(m3) - M3_HEAD - TAG
        tail = envelope.tail_m3(SITE, topic)
        envelope.seal_at(outer, envelope.nonce_m3(m3), m3, 0, M3_HEAD, inside, tail)
        return bytes(m3)

    def seeds(self) -> Iterator[bytes]:
        live, record = sample(), _derivation()
        yield live + live + b"\x02\0"
        yield record + sample(label=2)
        yield record + _derivation(manifest=0) + b"\x01" + _derivation(e_l=3) + b"\0\x01\0" + live
        yield _derivation(suite=3) + sample(label=2, suite=3)
        for flags, how, block in ((1, 1, 0), (10, 2, 2), (1, 3, 0)):
            yield sample(flags=flags, how=how, block=block) + b"\x02\0"
        to_link, to_grant = sample(ref=2) + b"\x07\0\1", sample(ref=3) + b"\1\2\1"
        given, newer = b"\x07\1\1\1\2\1\0\0\1\1", b"\x07\1\1\1\3\1\0\0\1\1"
        yield to_link + b"\x02\0" + sample(label=2, ref=2) + b"\x07\0\1"
        yield to_grant + given + to_grant + newer + to_grant
        yield given + to_grant + b"\x07\0" + given[2:] + to_grant


def sample(
    label: int = 0, flags: int = 0, how: int = 0, block: int = 0, suite: int = 0, ref: int = 0
) -> bytes:
    """The bytes that make `message` a good one, of epoch 2 and now.

    ref 2: to a link, 3: to a grant; a number, an epoch and a 1 follow then.
    """
    time = b"" if flags & 8 else b"\x80\0"
    return (
        bytes((6, 0, label, 2, 2, flags, how, 3, 1))
        + time
        + bytes((1, 128, block, 1, 120, 0, suite, ref))
    )


def _derivation(e_l: int = 2, suite: int = 0, manifest: int = 1) -> bytes:
    """The bytes that make _record one from our own label to label 17, or a manifest."""
    return bytes((3, 1, 2, e_l, 1, suite, 1, 5, 1, 44, manifest))
