# base64url without padding (RFC 4648, 5), strict: one text for each value.
from binascii import a2b_base64, b2a_base64

from .errors import Malformed


def b64u(raw: "bytes | bytearray") -> bytes:
    text = b2a_base64(raw).rstrip(b"=\n")
    if b"+" in text:
        text = text.replace(b"+", b"-")
    if b"/" in text:
        text = text.replace(b"/", b"_")
    return text


# The text of buf[at:at+n] over it: a third more, for which there is room.
def put_b64u(buf: bytearray, at: int, n: int) -> None:
    text = b64u(buf[at : at + n])
    buf[at : at + len(text)] = text


def unb64u(text: bytes) -> bytes:
    for c in text:
        if not (48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122 or c == 45 or c == 95):
            raise Malformed("not base64url")
    if len(text) % 4 == 1:
        raise Malformed("not base64url: %d characters" % len(text))
    std = text.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(text) % 4)
    raw = a2b_base64(std)
    if b64u(raw) != text:
        raise Malformed("not base64url: unused bits are set")
    return raw
