# The narrow port behind which a cipher lives, and the few calls everything else is made of.
# A backend's `make(suite, key)` gives an object with
#   seal_into(nonce, aad, buf, start, n)          encrypts buf[start:start+n] in place, tag after
# it
#   open_into(nonce, aad, buf, start, n) -> bool  the reverse; False wipes the n bytes
from .const import TAG
from .errors import Malformed, Unauthentic

_TYPING = False
if _TYPING:
    from typing import Any


# TAG(K, nonce, A) of SPEC.md 1.2: 16 bytes over associated data alone.
def tag(aead: "Any", nonce: bytes, aad: "bytes | bytearray") -> bytes:
    buf = bytearray(TAG)
    aead.seal_into(nonce, aad, buf, 0, 0)
    return bytes(buf)


def check_tag(aead: "Any", nonce: bytes, aad: "bytes | bytearray", given: bytes, what: str) -> None:
    if len(given) != TAG:
        raise Malformed("%s: the tag has %d bytes, not 16" % (what, len(given)))
    if not aead.open_into(nonce, aad, bytearray(given), 0, 0):
        raise Unauthentic("%s: the tag does not verify" % what)


# header, then plaintext sealed after it. The header is associated data in front of `tail`.
def seal(aead: "Any", nonce: bytes, header: bytes, tail: bytes, plaintext: bytes) -> bytes:
    buf = bytearray(header)
    buf.extend(plaintext)
    buf.extend(bytes(TAG))
    aead.seal_into(nonce, header + tail, buf, len(header), len(plaintext))
    return bytes(buf)


def unseal(aead: "Any", nonce: bytes, packet: bytes, head: int, tail: bytes, what: str) -> bytes:
    n = len(packet) - head - TAG
    if n < 0:
        raise Malformed("%s: %d bytes, at least %d expected" % (what, len(packet), head + TAG))
    buf = bytearray(packet)
    if not aead.open_into(nonce, packet[:head] + tail, buf, head, n):
        raise Unauthentic("%s: the tag does not verify" % what)
    return bytes(buf[head : head + n])
