"""Numbers that bound what anyone can make a mediator hold or wait for (SPEC.md 9)."""

from __future__ import annotations

from dataclasses import dataclass, field

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

# Of a PUBLISH: first byte, its length, the topic's length, the packet id.
PUBLISH_HEAD = 1 + 4 + 2 + 2

# What may follow the fixed header of a CONNECT, so that the whole has at most 16,384 bytes.
MAX_CONNECT_BODY = MAX_CONNECT - 4

# Of MQTT 5: topic aliases of a connection, each way; and the least maximum packet size that a
# client may set: control packets, of which the largest is a body of 16,384 bytes, have to reach it.
ALIASES = 64
LEAST_PACKET = 17 * 1024

# Seconds.
OPENING_S = 10
QUARANTINE_S = 30
KEEPALIVE_UPSTREAM_S = 30

# Packets of one client that may wait after one that waits for the store.
QUEUE = 64
# PUBLISHes of one connection that are forwarded and not accepted; more wait.
UNDERWAY = 64
# Connections that are open, and those before a proof has verified.
CONNECTIONS = 16_384
STRANGERS = 1024
# Connections that the kernel holds for us until we take them.
BACKLOG = 1024
# Files that are open beside connections: store, journal, audit log, links, the key generator; and
# connections that are accepted before the places of others are free.
OTHER_FILES = 256
# What may be held for one client, in bytes of payload, while something is waited for.
QUEUE_BYTES = 2 * MAX_PAYLOAD
# The largest packet before a proof has verified, beside CONNECT itself.
QUARANTINE_BYTES = 256
# From our end of a connection until a peer that does not read is cut off.
LINGER_S = 5

# How long deliveries are held back during an epoch's hand-over.
HOLD_S = 60
# What a paused own link still reads.
HELD_PACKETS = 64
HELD_BYTES = 256 * 1024
# What waits in all outboxes; above it none may have more than HELD_BYTES.
HELD_ALL = 64 * 1024 * 1024
# Subscriptions of one session that the broker keeps.
SUBSCRIPTIONS = 1024
# Seconds of one turn of the loop for work that can wait. Its last step, of some milliseconds, may
# exceed them; others' packets wait no longer than that.
TURN_S = 0.0005
# Connections of one client; one more ends the oldest.
CONNECTIONS_A_CLIENT = 16
# How long a provisioning request waits for a key generator that is away. Clients wait 10 s.
PROVISION_S = 8
# Provisioning requests that the key generator has at a time.
ASKED_AT_ONCE = 4
# Bytes that may wait in an outbox: of QoS 0, whose oldest is dropped then; of QoS 1 and 2, above
# which a live reader is ended, and nothing more is read from an own link.
SLOW_BYTES = 256 * 1024
SLOW_SURE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Room:
    """The bounds of a worker's outboxes, in bytes: of one for QoS 0 (`loose`) and for QoS 1 and 2
    (`sure`), of all together, and of one (`each`) once these have more. Nothing below `little` can
    be too much.
    """

    loose: int = SLOW_BYTES
    sure: int = SLOW_SURE_BYTES
    each: int = HELD_BYTES
    together: int = HELD_ALL
    little: int = field(init=False)

    def __post_init__(self) -> None:
        # A half: a link that was paused goes on at half of its bound.
        object.__setattr__(self, "little", min(self.loose, self.sure, self.each) // 2)


# A client waits so long for room in its part of the journal. Room comes with the broker's third
# save: within 18 s with `--broker mosquitto`. Clients wait longer than that for an answer.
ROOM_S = 30.0
