# A PUBLISH that no PUBACK came for, for the link of a newer gen: loaded when there is one.
from sealmq_spec.relink import relink

_TYPING = False
if _TYPING:
    from typing import Any

    from sealmq_spec.identity import Identity


# raw: the whole packet as it was sent under `old`, with QoS 1. SealError when it is not of that
# link.
def relinked(
    make: "Any", old: "Identity", new: "Identity", boot: int, salt: bytes, raw: bytes
) -> bytes:
    at = 1
    while raw[at] & 128:
        at += 1
    n = raw[at + 1] << 8 | raw[at + 2]
    at += 3
    topic = raw[at : at + n]
    at += n + 2
    return raw[:at] + relink(make, old, new, boot, salt, topic, raw[0] & 7, raw[at:])
