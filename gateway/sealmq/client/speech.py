"""The version of MQTT that a client speaks: one table of encoders for each, and a decoder.

What comes is given as packets of `sealmq.mqtt`, whatever version it was decoded from. Only the
envelopes mean anything: what MQTT 5 says besides, a reason code say, stands in the clear, so it is
a hint and proves nothing (SPEC.md 4.6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from sealmq.mqtt import (
    Connack,
    Decoder,
    Packet,
    Pingresp,
    ProtocolError,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
    Will,
    build,
)
from sealmq.mqtt import five as v5
from sealmq.mqtt import five_client as v5c

_FOR_EVER = 0xFFFFFFFF
_REFUSED = 0x80


@dataclass(frozen=True, slots=True)
class Hint:
    """A PUBACK or PUBREC of MQTT 5 that refuses. Its sealed notice, which comes first, counts."""

    kind: str
    packet_id: int
    code: int


@dataclass(frozen=True, slots=True)
class Farewell:
    """A DISCONNECT from the other side."""

    code: int
    reason: str


Came = Packet | Hint | Farewell


class Decodes(Protocol):
    """A decoder of one connection."""

    def feed(self, data: bytes) -> Sequence[Came]:
        """As Decoder.feed; what a ProtocolError has in `packets`, too."""


class Connects(Protocol):
    """Makes a CONNECT, with a user name and a password as its last field."""

    def __call__(
        self,
        client_id: str,
        *,
        clean_session: bool = True,
        keepalive: int = 60,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
    ) -> bytes: ...


class Speech(NamedTuple):
    """`decoder(most)`: for one connection, with the largest remaining length. `parts(packet)`: what
    a PUBLISH that `publish` has made was made from: topic, payload, QoS, retain.
    """

    decoder: Callable[[int], Decodes]
    connect: Connects
    publish: Callable[..., bytes]
    subscribe: Callable[[int, Sequence[tuple[str, int]]], bytes]
    unsubscribe: Callable[[int, Sequence[str]], bytes]
    parts: Callable[[bytes], tuple[bytes, bytes, int, bool]]


def _parts_311(packet: bytes) -> tuple[bytes, bytes, int, bool]:
    [sent] = Decoder(len(packet), role="server").feed(packet)
    if not isinstance(sent, Publish):
        raise ValueError(f"{type(sent).__name__} where a PUBLISH was kept")
    return sent.topic_raw, sent.payload, sent.qos, sent.retain


V311 = Speech(
    decoder=lambda most: Decoder(most, role="client", together=True),
    connect=build.connect,
    publish=build.publish,
    subscribe=build.subscribe,
    unsubscribe=build.unsubscribe,
    parts=_parts_311,
)
"""MQTT 3.1.1."""


class _Decoder5:
    def __init__(self, most: int) -> None:
        # The properties of a delivery come on top.
        self._decoder = v5c.ServerDecoder5(most + 65_536, most + 65_536)

    def feed(self, data: bytes) -> list[Came]:
        try:
            return [_GIVEN[type(one)](one) for one in self._decoder.feed(data)]
        except ProtocolError as error:
            came: Sequence[Any] = error.packets
            error.packets = tuple(_GIVEN[type(one)](one) for one in came)  # type: ignore[misc]
            raise


def _delivery(one: v5.Publish5) -> Publish:
    topic, payload, qos, retain, dup, packet_id, _ = one
    return Publish(topic, topic.encode(), payload, qos, retain, dup, packet_id)


def _answer(one: v5c.Answer5) -> Packet:
    if one.kind == "UNSUBACK":
        return Unsuback(one.packet_id)
    return Suback(one.packet_id, tuple(min(code, _REFUSED) for code in one.codes))


_ACKS: dict[str, Callable[[int], Packet]] = {
    "PUBACK": Puback,
    "PUBREC": Pubrec,
    "PUBREL": Pubrel,
    "PUBCOMP": Pubcomp,
}
_GIVEN: dict[type[Any], Callable[[Any], Came]] = {
    v5c.Connack5: lambda one: Connack(one.session_present, one.code),
    v5.Publish5: _delivery,
    v5.Ack5: lambda one: _ACKS[one.kind](one.packet_id),
    v5c.Refused5: lambda one: Hint(one.kind, one.packet_id, one.code),
    v5c.Answer5: _answer,
    v5c.Pingresp5: lambda one: Pingresp(),
    v5.Disconnect5: lambda one: Farewell(one.code, one.properties.get(v5.REASON, "")),
}


def _connect_5(
    client_id: str,
    *,
    clean_session: bool = True,
    keepalive: int = 60,
    will: Will | None = None,
    username: str | None = None,
    password: bytes | None = None,
    expiry: int = _FOR_EVER,
) -> bytes:
    return v5c.connect(
        client_id,
        fresh=clean_session,
        keepalive=keepalive,
        will=will,
        username=username,
        password=password,
        properties=v5.NONE if clean_session else {v5.SESSION_EXPIRY: expiry},
    )


def _parts_5(packet: bytes) -> tuple[bytes, bytes, int, bool]:
    body = next(at for at in range(1, 5) if packet[at] < 128) + 1
    sent = v5.read_publish(packet[0] & 15, packet[body:], v5.Aliases(0))
    return sent.topic.encode(), sent.payload, sent.qos, sent.retain


V5 = Speech(
    decoder=_Decoder5,
    connect=_connect_5,
    publish=v5c.publish,
    subscribe=v5c.subscribe,
    unsubscribe=v5c.unsubscribe,
    parts=_parts_5,
)
"""MQTT 5."""

SPEECHES = {4: V311, 5: V5}
"""By protocol level."""


def speech(protocol: int, expiry: int | None) -> Speech:
    """As in Options."""
    found = SPEECHES[protocol]
    return found if expiry is None else found._replace(connect=partial(_connect_5, expiry=expiry))
