# A PUBLISH that was stored under a link that has ended, for the link of a newer gen (SPEC.md 5,
# point 3): the same m1, byte for byte, so that readers drop what comes twice.
from .const import M2, M2_HEAD, TAG, USE_PUBLISH
from .envelope import get_m2, nonce_link, open_at, put_m2, seal_at, tail_m2
from .errors import Misuse, Unauthentic
from .keys import link_key

_TYPING = False
if _TYPING:
    from typing import Any

    from .identity import Identity
    from .records import Make


# m2 as it was sent under `old`, for `new`, two states of one client; boot and salt are those under
# which it was sealed, and the session must go on with them. flags: as for seal_publish. Sealed once
# for a gen: afterwards the result is what is sent again. Unauthentic when m2 is not of that link.
# Misuse for another label: m1 is under the old one's roots. A mediator does not see that, and would
# call delivered what no reader can open.
def relink(
    make: "Make",
    old: "Identity",
    new: "Identity",
    boot: int,
    salt: bytes,
    topic: bytes,
    flags: int,
    m2: bytes,
) -> bytes:
    if old.own.label != new.own.label:
        raise Misuse("a message of another label")
    buf = bytearray(m2)
    _, ctr, s1 = get_m2(buf)
    nonce = nonce_link(salt, buf)
    end = len(buf)
    if not open_at(
        _publish(make, old, boot, salt), nonce, buf, 0, M2_HEAD, end, _tail(old, flags, topic)
    ):
        raise Unauthentic("a stored PUBLISH of another link, or changed")
    put_m2(buf, 0, M2, new.suite, ctr, s1)
    n = end - M2_HEAD - TAG
    seal_at(_publish(make, new, boot, salt), nonce, buf, 0, M2_HEAD, n, _tail(new, flags, topic))
    return bytes(buf)


def _publish(make: "Make", i: "Identity", boot: int, salt: bytes) -> "Any":
    key = link_key(i.site, USE_PUBLISH, i.suite, i.mediator, boot, salt, i.km)
    return make(i.suite, key)


def _tail(i: "Identity", flags: int, topic: bytes) -> bytes:
    return tail_m2(i.site, i.client, i.mediator, flags, topic)
