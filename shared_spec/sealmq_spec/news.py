# What a policy family tells a client that has not asked (SPEC.md 4.4, op 9). A module of its own: a
# device that shows no news does not load it.
from .const import OP_NEWS
from .errors import Malformed


# Body of the control packet. family: its name, in ASCII.
def news(family: bytes, said: bytes) -> bytes:
    return bytes((OP_NEWS, len(family))) + family + said


# The family's name, and what it tells. body: after op, as Session.down gives it.
def get_news(body: bytes) -> "tuple[str, bytes]":
    n = body[0] if body else 0
    if not n or len(body) < 1 + n:
        raise Malformed("news of %d bytes" % len(body))
    for c in body[1 : 1 + n]:
        if not 32 < c < 127:
            raise Malformed("news of a family whose name is not ASCII")
    return body[1 : 1 + n].decode(), body[1 + n :]
