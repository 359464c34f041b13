# Topic names and filters (MQTT 3.1.1, 4.7; SPEC.md 4.2, 4.3, 9). All of them are str; bytes only on
# the wire.
from .b64 import b64u, unb64u
from .const import MAX_TOPIC, TAG, TOKEN
from .errors import Malformed

_TOKEN = TOKEN.decode()
_TOKEN_CHARS = 26


def check_topic(topic: str) -> bytes:
    raw = topic.encode()
    n = len(raw)
    if not 0 < n <= MAX_TOPIC:
        raise Malformed("a topic has 1 to %d bytes, this one %d" % (MAX_TOPIC, n))
    if b"+" in raw or b"#" in raw or b"\0" in raw:
        raise Malformed("a topic to publish on has no +, # or NUL: %r" % topic)
    return raw


def check_filter(filt: str) -> bytes:
    raw = filt.encode()
    check_raw_filter(raw)
    return raw


# The same of bytes that are UTF-8: on a device each new str is looked for among all names.
def check_raw_filter(raw: bytes) -> None:
    n = len(raw)
    if not 0 < n <= MAX_TOPIC:
        raise Malformed("a filter has 1 to %d bytes, this one %d" % (MAX_TOPIC, n))
    if b"\0" in raw:
        raise Malformed("a filter has no NUL: %r" % raw)
    if b"+" not in raw and b"#" not in raw:
        return
    levels = raw.split(b"/")
    last = len(levels) - 1
    for i, level in enumerate(levels):
        if b"+" in level and level != b"+":
            raise Malformed("+ stands alone in its level: %r" % raw)
        if b"#" in level and (level != b"#" or i != last):
            raise Malformed("# stands alone and last: %r" % raw)


# First character reserved: a client cannot publish there (SPEC.md 4.3).
def is_reserved(topic: str) -> bool:
    return topic[:1] in ("$", "!", "@")


# MQTT 4.7: wildcards do not reach `$` topics from the first level; here nor `!` and `@` ones.
def matches(filt: str, topic: str) -> bool:
    if filt[:1] in ("+", "#") and is_reserved(topic):
        return False
    f = filt.split("/")
    t = topic.split("/")
    for i, level in enumerate(f):
        if level == "#":
            return True
        if i >= len(t) or (level != "+" and level != t[i]):
            return False
    return len(f) == len(t)


# "!s1/", 26 characters, "/" in front of a filter.
def put_token(ctr: bytes, tag: bytes, filt: str) -> str:
    return _TOKEN + b64u(ctr + tag).decode() + "/" + filt


# (ctr as 3 bytes, tag, filter after the token).
def split_token(filt: str) -> "tuple[bytes, bytes, str]":
    start = len(_TOKEN)
    end = start + _TOKEN_CHARS
    if not filt.startswith(_TOKEN) or filt[end : end + 1] != "/":
        raise Malformed("the filter carries no token (!s1/, 26 characters, /): %r" % filt)
    raw = unb64u(filt[start:end].encode())
    if len(raw) != 3 + TAG:
        raise Malformed("the token has %d bytes, not 19" % len(raw))
    if raw[:3] == b"\0\0\0":
        raise Malformed("a token with ctr 0; ctr counts from 1")
    return raw[:3], raw[3:], filt[end + 1 :]
