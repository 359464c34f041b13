# m3 sealed to one client's link (ref 1) or to those who hold a grant (ref 2), SPEC.md 3.3: a
# mediator makes it as it delivers, for one connection. Its key, and what a reader keeps for it. A
# module of its own: a device loads it when the first such packet comes.
from .aead import seal
from .const import CCM, CHACHA, OP_GRANT, REF_GRANT, REF_LINK, TLV_LABEL, USE_DELIVERY
from .envelope import nonce_m3, tail_m3
from .errors import Malformed, NoKey, Stale, Unsupported, WrongEpoch
from .keys import grant_key, link_key, u24
from .tlv import pack

_TYPING = False
if _TYPING:
    from collections.abc import Iterable
    from typing import Any

    from .session import Session

    Held = tuple[int, int, int, int, bytes]

_GRANT_LEN = 43
_KEPT = 64
_OLD = "grant %d of epoch %d, held: %d"


# --- the mediator's side ---


# Body of a control packet that brings a grant. until: Unix seconds, 0 for no end. g: 32 bytes.
def grant(number: int, epoch: int, suite: int, until: int, g: bytes) -> bytes:
    head = bytes((OP_GRANT,)) + u24(number) + u24(epoch) + bytes((suite,))
    return head + until.to_bytes(4, "big") + g


# m3. aead: of a link key with use = delivery, or of a grant key. head: its 20 bytes, of put_m3.
# label: m1's. items: the families', (type, value).
def seal_delivery(
    aead: "Any",
    head: bytes,
    site: bytes,
    topic: bytes,
    label: int,
    m1: bytes,
    items: "Iterable[tuple[int, bytes]]" = (),
) -> bytes:
    block = pack([(TLV_LABEL | 0x80, u24(label))] + list(items))
    return seal(aead, nonce_m3(head), head, tail_m3(site, topic), block + m1)


# --- the reader's side ---


# What is sealed to a client's link or to its grants, in one connection after the other.
class Deliveries:
    def __init__(self) -> None:
        self._of: "Any" = None  # the connection that the grants came in
        # number, epoch, suite, until, G; in the order in which they came.
        self._grants: "list[Held]" = []

    # Grants end with their connection, and so does what was made of them. ciphers: a reader's, of
    # labels by numbers, of these by a key first.
    def _held(self, session: "Session", ciphers: "dict[Any, Any]", number: int) -> "Held | None":
        of = session.salt, session.conn
        if of != self._of:
            self._of = of
            self._grants = []
            for key in list(ciphers):
                if isinstance(key[0], bytes):
                    del ciphers[key]
        for held in self._grants:
            if held[0] == number:
                return held
        return None

    # What op 8 brings, after op. Refusals raise and change nothing.
    def add(self, session: "Session", ciphers: "dict[Any, Any]", body: bytes) -> None:
        if len(body) != _GRANT_LEN:
            raise Malformed("grant: %d bytes" % len(body))
        number, epoch = int.from_bytes(body[:3], "big"), int.from_bytes(body[3:6], "big")
        suite, g = body[6], body[11:]
        _check_numbers(number, epoch)
        if suite != CCM and suite != CHACHA:
            raise Unsupported("grant: suite %d" % suite)
        held = self._held(session, ciphers, number)
        if held is not None:
            if epoch < held[1]:
                raise WrongEpoch(_OLD % (number, epoch, held[1]))
            if epoch == held[1] and (suite, g) != (held[2], held[4]):
                raise Malformed("grant %d of epoch %d with another key" % (number, epoch))
            self._grants.remove(held)
        elif len(self._grants) >= _KEPT:
            self._grants.pop(0)
        self._grants.append((number, epoch, suite, int.from_bytes(body[7:11], "big"), g))

    # For an m3 with such header fields: what selects its cipher among those in `ciphers`; that
    # one, or None; the cipher.
    def outer(
        self,
        session: "Session",
        ciphers: "dict[Any, Any]",
        suite: int,
        ref: int,
        number: int,
        epoch: int,
        inst: int,
        s2: int,
    ) -> "tuple[Any, Any, Any]":
        ident = session.ident
        if ref == REF_LINK:
            if epoch:
                raise Malformed("ref 1 with epoch %d" % epoch)
            if number != ident.client:
                raise NoKey("the link of client %d" % number)
            wanted = ident.suite
            key: "Any" = ident.km, session.boot, session.salt
        elif ref == REF_GRANT:
            _check_numbers(number, epoch)
            held = self._held(session, ciphers, number)
            if held is None or epoch > held[1]:
                raise NoKey("grant %d of epoch %d" % (number, epoch))
            if epoch < held[1]:
                raise WrongEpoch(_OLD % (number, epoch, held[1]))
            wanted = held[2]
            # By the mediator's time: what it sealed before the end may arrive later.
            if held[3] and s2 // 1000 >= held[3]:
                raise Stale("grant %d has ended" % number)
            # All that the key comes from: nothing keeps two grants from the same G.
            key = held[4], number, suite, epoch, inst
        else:
            raise Unsupported("ref %d" % ref)
        if suite != wanted:
            raise Unsupported("m3 of suite %d, not %d" % (suite, wanted))
        known = ciphers.get(key)
        if known is not None:
            return key, known, known
        if ref == REF_LINK:
            km, boot, salt = key
            k = link_key(ident.site, USE_DELIVERY, suite, ident.mediator, boot, salt, km)
        else:
            k = grant_key(ident.site, suite, number, epoch, inst, key[0])
        return key, None, session.make(suite, k)


def _check_numbers(number: int, epoch: int) -> None:
    if not number or not epoch:
        raise Malformed("grant %d of epoch %d" % (number, epoch))
