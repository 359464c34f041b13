# The authenticated TLV block of m2, m3 and some control bodies (SPEC.md 3.4).
from .const import MAX_TLV, TLV_FAMILIES, TLV_FIRED
from .errors import Malformed, TooLarge, Unsupported

EMPTY = b"\x00"

_TYPING = False
if _TYPING:
    from collections.abc import Iterable, Sequence

    Readable = bytes | bytearray | memoryview


# items: iterable of (type, value bytes). Bit 7 of type: critical.
def pack(items: "Iterable[tuple[int, bytes]]") -> bytes:
    out = bytearray()
    for t, value in items:
        if len(value) > 255:
            raise TooLarge("TLV %d has %d bytes, at most 255 fit" % (t, len(value)))
        if len(out) + 2 + len(value) > MAX_TLV:
            raise TooLarge("TLV block of more than %d bytes" % MAX_TLV)
        out.extend(bytes((t, len(value))))
        out.extend(value)
    n = len(out)
    head = bytes((n,)) if n < 128 else bytes((0x80 | n >> 8, n & 255))
    return head + bytes(out)


# The block of a publisher's m2. items: of the policy families' types alone, with bit 7 where the
# mediator has to understand one or refuse the message.
def publishers(items: "Iterable[tuple[int, bytes]]") -> bytes:
    items = list(items)
    for t, _ in items:
        if not TLV_FAMILIES <= t & 0x7F or not 0 <= t <= 255:
            raise Malformed("TLV type %d: a publisher's begin at 32" % t)
        if len([1 for other, _ in items if other & 0x7F == t & 0x7F]) > 1:
            raise Malformed("TLV %d occurs twice" % (t & 0x7F))
    return pack(items)


# Where the items of the block at buf[o] start and end; `limit` is the end of what may be read.
def span(buf: "Readable", o: int, limit: int) -> "tuple[int, int]":
    if o >= limit:
        raise Malformed("TLV block is missing")
    n = buf[o]
    o += 1
    if n & 0x80:
        if o >= limit:
            raise Malformed("TLV length is cut off")
        n = (n & 0x7F) << 8 | buf[o]
        o += 1
        if n < 128:
            raise Malformed("TLV length %d in two bytes" % n)
        if n > MAX_TLV:
            raise TooLarge("TLV block of %d bytes, at most %d are taken" % (n, MAX_TLV))
    if o + n > limit:
        raise Malformed("TLV block of %d bytes, %d are there" % (n, limit - o))
    return o, o + n


# {type: (from, to)} of the block that stands at buf[o] and has to end at `limit`.
def block(
    buf: "Readable", o: int, limit: int, known: "Sequence[int]" = ()
) -> "dict[int, tuple[int, int]]":
    if o >= limit or buf[o] != limit - o - 1 or buf[o] > 127:
        o, end = span(buf, o, limit)
        if end != limit:
            raise Malformed("%d bytes behind the TLV block" % (limit - end))
    else:
        o += 1
    return spans(buf, o, limit, known)


# Where the values of the items from buf[o] to `end` stand: {type: (from, to)}. Types keep their
# critical bit. `known`: types that the caller understands (without the bit).
def spans(
    buf: "Readable", o: int, end: int, known: "Sequence[int]" = ()
) -> "dict[int, tuple[int, int]]":
    out: dict[int, tuple[int, int]] = {}
    while o < end:
        if o + 2 > end:
            raise Malformed("TLV item is cut off")
        t = buf[o]
        start = o + 2
        o = start + buf[o + 1]
        if o > end:
            raise Malformed("TLV %d is cut off" % t)
        if t in out or t ^ 0x80 in out:
            raise Malformed("TLV %d occurs twice" % (t & 0x7F))
        if t & 0x80 and t & 0x7F not in known:
            raise Unsupported("critical TLV %d is unknown" % (t & 0x7F))
        out[t] = start, o
    return out


# The same with the values themselves: {type: value}.
def unpack(buf: "Readable", o: int, end: int, known: "Sequence[int]" = ()) -> "dict[int, bytes]":
    found = spans(buf, o, end, known)
    return {t: bytes(buf[found[t][0] : found[t][1]]) for t in found} if found else {}


# When a will fired, u32 seconds; 0 for a message that has a time of its own. An untimed one has the
# item, others do not (SPEC.md 3.4).
def fired(found: "dict[int, bytes]", untimed: bool) -> int:
    value = found.get(TLV_FIRED)
    if (value is not None) != untimed or (value is not None and len(value) != 4):
        raise Malformed("untimed %d, TLV %d: %r" % (untimed, TLV_FIRED, value))
    return int.from_bytes(value, "big") if value else 0
