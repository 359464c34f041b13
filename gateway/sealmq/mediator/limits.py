"""Numbers that bound what anyone can make a mediator hold or wait for (SPEC.md 9)."""

from __future__ import annotations

from sealmq_spec.const import (
    M2_HEAD,
    M2_MIN,
    M3_HEAD,
    MAX_CONNECT,
    MAX_PAYLOAD,
    MAX_TLV,
    MAX_TOPIC,
)

# Remaining length of the largest PUBLISH: topic, its length, packet id, both envelopes, TLV block,
# payload.
MAX_PACKET = MAX_TOPIC + 4 + M2_MIN + (M3_HEAD - M2_HEAD) + 2 + MAX_TLV + MAX_PAYLOAD

# What may follow the fixed header of a CONNECT, so that the whole has at most 16,384 bytes.
MAX_CONNECT_BODY = MAX_CONNECT - 4

# Seconds.
OPENING_S = 10
QUARANTINE_S = 30
KEEPALIVE_UPSTREAM_S = 30

# Packets of one client that may wait behind one that has to wait for the store.
QUEUE = 64
# Connections: in all, and before a proof has verified.
CONNECTIONS = 4096
STRANGERS = 1024
STRANGERS_AN_ADDRESS = 64
# What may be held for one client, in bytes of payload, while something is waited for.
QUEUE_BYTES = 2 * MAX_PAYLOAD
# The largest packet before a proof has verified, beside CONNECT itself.
QUARANTINE_BYTES = 256
# Between our end of a connection and the end of a peer that does not read.
LINGER_S = 5
