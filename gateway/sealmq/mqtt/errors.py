"""Errors of the MQTT codec: what the peer did wrong stands apart from what our caller did wrong.

No text holds a payload, a user name or a password. Texts are for logs and tests; the peer is told
nothing but a CONNACK code, where MQTT has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .packets import Packet


class MqttError(Exception):
    """Base of every error that this package raises on purpose."""


class UsageError(MqttError, ValueError):
    """The caller asked for something that MQTT 3.1.1 cannot say, for instance a packet id of 0."""


class PacketIdsExhausted(MqttError):
    """All 65,535 packet ids are in flight (MQTT 3.1.1 section 2.3.1)."""


class ProtocolError(MqttError):
    """The peer broke MQTT 3.1.1; the connection has to be closed (section 4.8).

    `packets` are the complete packets that came before the fault in the same `feed`, so that what
    was understood does not depend on how the network cut the stream. `connack` is the return code
    that a server owes before it closes, or None where it closes without a word.
    """

    connack: int | None = None

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.packets: tuple[Packet, ...] = ()


class MalformedPacket(ProtocolError):
    """Bytes that are no MQTT 3.1.1 packet, or a packet that this peer may not send."""


class PacketTooLarge(ProtocolError):
    """A remaining length above our limit; raised before any of the body is held."""


class BadAlias(MalformedPacket):
    """A topic alias of MQTT 5 that was not offered, or that stands for nothing."""


class NotTaken(ProtocolError):
    """Good MQTT 5 that is not taken here, by decision: `code` is its reason code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class UnsupportedProtocol(ProtocolError):
    """A CONNECT of another MQTT version (section 3.1.2.2)."""

    connack = 1


class IdentifierRejected(ProtocolError):
    """An empty client id without a clean session (section 3.1.3.1)."""

    connack = 2


class DecoderDead(ProtocolError):
    """More bytes were fed after a fault; where the next packet starts is unknown for good."""
