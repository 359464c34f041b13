"""What a session remembers about packet ids (MQTT 3.1.1 sections 2.3.1 and 4.3.3).

Each direction of a connection has ids of its own; one object serves one direction.
"""

from __future__ import annotations

from collections.abc import Iterable

from .errors import PacketIdsExhausted, UsageError

_LAST = 65535


class PacketIds:
    """Hands out packet ids for what we send, 1 to 65535, never one that is in use."""

    __slots__ = ("_latest", "_used")

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._latest = 0

    def take(self) -> int:
        """The next free id, in use from now on; going round puts off the reuse of an id.

        Raises PacketIdsExhausted when all are in use.
        """
        if len(self._used) == _LAST:
            raise PacketIdsExhausted(f"all {_LAST} packet ids are in flight; wait for answers")
        packet_id = self._latest
        while True:
            packet_id = packet_id % _LAST + 1
            if packet_id not in self._used:
                self._used.add(packet_id)
                self._latest = packet_id
                return packet_id

    def claim(self, packet_id: int) -> None:
        """Mark an id as in use that an earlier connection of the session handed out.

        Raises UsageError for an id out of range or already in use.
        """
        if not 0 < packet_id <= _LAST:
            raise UsageError(f"packet id {packet_id}; it is 1 to {_LAST} [MQTT-2.3.1-1]")
        if packet_id in self._used:
            raise UsageError(f"packet id {packet_id} is in use already")
        self._used.add(packet_id)

    def release(self, packet_id: int) -> bool:
        """Free an id; False when it was not in use, as after a second or a made-up answer."""
        if packet_id not in self._used:
            return False
        self._used.remove(packet_id)
        return True

    def release_all(self, packet_ids: Iterable[int]) -> None:
        """Free ids; whatever was not in use stays free."""
        self._used.difference_update(packet_ids)

    def __contains__(self, packet_id: object) -> bool:
        return packet_id in self._used

    def __len__(self) -> int:
        return len(self._used)


class QoS2Receiver:
    """The ids between PUBLISH and PUBREL, so that a resent message is not delivered twice.

    This is method A of section 4.3.3: the message goes on when its PUBLISH is accepted. PUBREC
    and PUBCOMP are due whatever the answers here (MQTT-4.3.3-2).
    """

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: set[int] = set()

    def accept(self, packet_id: int) -> bool:
        """True when the message of this id is new, False when it has been accepted before."""
        if packet_id in self._pending:
            return False
        self._pending.add(packet_id)
        return True

    def release(self, packet_id: int) -> bool:
        """PUBREL arrived: the id may carry a new message. False when none was pending."""
        if packet_id not in self._pending:
            return False
        self._pending.remove(packet_id)
        return True

    def clear(self) -> None:
        """Forget all ids: a clean session starts."""
        self._pending.clear()

    def __contains__(self, packet_id: object) -> bool:
        return packet_id in self._pending

    def __len__(self) -> int:
        return len(self._pending)
