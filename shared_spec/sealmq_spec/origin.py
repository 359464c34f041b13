# Messages of other sites (SPEC.md 3.5): an m1 passes from site to site as it is, so a reader opens
# it as one of the site that it comes from. A module of its own: a device has it where it is wanted.
from collections import namedtuple
from hashlib import sha256

from .const import M1_HEAD, TAG, TLV_ORIGIN
from .envelope import tail_m1
from .errors import Malformed, Unauthentic
from .keys import u24
from .reader import Reader as _Reader

_TYPING = False
if _TYPING:
    from collections.abc import Sequence
    from typing import Any

    from .identity import Identity
    from .reader import Message, Tails
    from .records import Make

CRITICAL = TLV_ORIGIN | 0x80
_LEN = 10

# site: 4 bytes. label: its number there. epoch: the reader's site's, whose roots m1 is sealed with.
Origin = namedtuple("Origin", ("site", "label", "epoch"))


# The item of an m3. epoch: of the label here.
def put(site: bytes, label: int, epoch: int) -> bytes:
    return site + u24(label) + u24(epoch)


def get(value: "bytes | None") -> Origin:
    if value is None or len(value) != _LEN:
        raise Malformed("origin %r" % value)
    return Origin(value[:4], int.from_bytes(value[4:7], "big"), int.from_bytes(value[7:], "big"))


# What feedback calls an m1, which is the same at every site: its header and its tag, hashed
# (GATEWAY.md G11).
def message_id(m1: "bytes | bytearray | memoryview") -> bytes:
    return sha256(bytes(m1[:M1_HEAD]) + bytes(m1[-TAG:])).digest()[:16]


# What a topic is called at its own site: what follows the levels that begin with `@`.
def at_home(topic: bytes) -> bytes:
    name = topic
    while name[:1] == b"@" and b"/" in name:
        name = name[name.find(b"/") + 1 :]
    if name == topic or name[:1] in (b"", b"@", b"!", b"$"):
        raise Malformed("the topic of no other site: %r" % topic)
    return name


# A reader that takes them; to others they are *unsupported*.
class Reader(_Reader):
    def __init__(
        self, ident: "Identity", make: "Make", limit: int = 64, known_tlv: "Sequence[int]" = ()
    ) -> None:
        _Reader.__init__(self, ident, make, limit, known_tlv)
        self.known_tlv += (TLV_ORIGIN,)
        # While such a message is opened: the epoch here.
        self._here = 0
        # The last one whose inner tag has failed, for whoever says so; it empties this.
        self.bad = b""

    def _open_inner(
        self,
        topic: bytes,
        payload: bytearray,
        o: int,
        end: int,
        roots: "Any",
        how: int,
        s2: int,
        now: int,
        items: "dict[int, bytes]",
        tails: "Tails",
    ) -> "Message":
        if TLV_ORIGIN not in items and CRITICAL not in items:
            return _Reader._open_inner(
                self, topic, payload, o, end, roots, how, s2, now, items, tails
            )
        origin = get(None if TLV_ORIGIN in items else items[CRITICAL])
        tail = tail_m1(origin.site, origin.label, at_home(topic))
        tails = tails[:2] + (tail, tails[3], origin.site)
        self._here = origin.epoch
        try:
            return _Reader._open_inner(
                self, topic, payload, o, end, None, how, s2, now, items, tails
            )
        except Unauthentic:
            self.bad = message_id(memoryview(payload)[o:end])
            raise
        finally:
            self._here = 0
            # It is not what a message of this site has on that topic.
            self._tails.pop(topic, None)

    def _held(self, label: int, epoch: int) -> "Any":
        return _Reader._held(self, label, self._here or epoch)

    def _check_epoch(self, label: int, epoch: int, at: int) -> None:
        _Reader._check_epoch(self, label, self._here or epoch, at)
