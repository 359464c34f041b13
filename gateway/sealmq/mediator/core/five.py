"""MQTT 5 at a session: the decoder and the table of encoders of one connection (SPEC.md 4.6).

The session core knows nothing of it: what came is given as packets of `sealmq.mqtt`, and what the
core cannot keep is refused here. Of the properties only those are taken that say how packets are to
be sent. What says something of a message, or to its reader, is refused, since no seal covers it:
anybody on the path could have put it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sealmq.mqtt import (
    Connect,
    DecoderDead,
    Disconnect,
    FilterWishes,
    NotTaken,
    Packet,
    Pingreq,
    ProtocolError,
    Pubacks,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    Will,
    Wishes,
    build,
)
from sealmq.mqtt import five as v5
from sealmq_spec.errors import SealError

from . import reasons
from .limits import ALIASES, LEAST_PACKET, MAX_CONNECT_BODY, MAX_PACKET, UNDERWAY
from .message import Message
from .site import BrokerFace, Site
from .wire import ACCEPTED, UNAVAILABLE, Wire

FOR_EVER = 0xFFFFFFFF
EXPIRED, PACKET = "mediator.deliver.expired", "mediator.deliver.packet"
# The largest remaining length: with an alias and the properties' length besides.
_MOST = MAX_PACKET + 4
# Of a whole packet: first byte and remaining length.
_HEAD = 4
_REFUSED = 0x80


class Five:
    """One connection of a client that speaks MQTT 5."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._decoder = v5.Decoder5(_MOST, MAX_CONNECT_BODY, ALIASES)
        self._fault = ""
        self._wishes = Wishes()
        # Topics to the client, by name.
        self._aliases: dict[str, int] = {}
        self.wire = Wire(
            connack=self._connack,
            broken=self._broken,
            publish=_publish,
            around_id=build.around_id,
            alone=self._alone,
            keeps=self._keeps,
            puback=build.puback,
            pubrec=build.pubrec,
            pubrel=build.pubrel,
            pubcomp=build.pubcomp,
            refused=self._refused,
            suback=_suback,
            unsuback=v5.unsuback,
            pingresp=build.pingresp,
            goodbye=self._goodbye,
        )

    # --- from the client ---

    @property
    def buffered(self) -> int:
        """As Decoder.buffered."""
        return self._decoder.buffered

    def feed(self, data: bytes) -> list[Packet]:
        """As Decoder.feed."""
        if self._fault:
            raise DecoderDead(f"bytes after a fault that ended the stream: {self._fault}")
        fault: ProtocolError | None = None
        try:
            came: Sequence[Any] = self._decoder.feed(data)
        except ProtocolError as error:
            came, fault = error.packets, error
        packets: list[Packet] = []
        try:
            for one in came:
                packets.append(_TAKES[type(one)](self, one))
        except ProtocolError as error:
            fault = error
        if fault is not None:
            self._fault = str(fault)
            fault.packets = tuple(packets)
            raise fault
        return packets

    def _connect(self, packet: v5.Connect5) -> Connect:
        said = packet.properties
        # Kept before anything is refused: the answer depends on it.
        self._wishes = wishes = Wishes(
            packet.clean_start,
            said.get(v5.RECEIVE_MAX, 65_535),
            said.get(v5.MAX_PACKET, Wishes().max_packet),
            said.get(v5.ALIAS_MAX, 0),
            bool(said.get(v5.PROBLEM_INFO, 1)),
            said.get(v5.SESSION_EXPIRY, 0),
        )
        if v5.AUTH_METHOD in said:
            raise NotTaken(
                "CONNECT with an authentication method; the proof is user name and password",
                reasons.AUTH_METHOD,
            )
        _no_words("CONNECT", said)
        if wishes.max_packet < LEAST_PACKET:
            raise NotTaken(
                f"CONNECT with maximum packet size {wishes.max_packet}; control packets need "
                f"{LEAST_PACKET} bytes",
                reasons.TOO_LARGE,
            )
        will = None
        if packet.will is not None:
            topic, payload, qos, retain, of = packet.will
            _no_words("will", of)
            will = Will(topic, payload, qos, retain)
        return Connect(
            packet.client_id, 5, wishes.expiry == 0, packet.keepalive, will, packet.username,
            packet.password, packet.raw, wishes,
        )  # fmt: skip

    def _message(self, packet: v5.Publish5) -> Publish:
        topic, payload, qos, retain, dup, packet_id, said = packet
        if said:
            _no_words("PUBLISH", said)
        return Publish(topic, topic.encode(), payload, qos, retain, dup, packet_id)

    def _ack(self, packet: v5.Ack5) -> Packet:
        # A PUBREC that refuses is as good as another: PUBREL follows, and ends it.
        return _ACKS[packet.kind](packet.packet_id)

    def _subscribe(self, packet: v5.Subscribe5) -> Subscribe:
        _no_words("SUBSCRIBE", packet.properties)
        number = packet.properties.get(v5.SUBSCRIPTION_ID, 0)
        return Subscribe(
            packet.packet_id,
            tuple((one.filter, one.qos) for one in packet.filters),
            tuple(
                FilterWishes(one.no_local, one.as_published, one.retain_handling, number)
                for one in packet.filters
            ),
        )

    def _unsubscribe(self, packet: v5.Unsubscribe5) -> Unsubscribe:
        _no_words("UNSUBSCRIBE", packet.properties)
        return Unsubscribe(packet.packet_id, packet.filters)

    def _ping(self, packet: v5.Pingreq5) -> Pingreq:
        return Pingreq()

    def _disconnect(self, packet: v5.Disconnect5) -> Disconnect:
        expiry = packet.properties.get(v5.SESSION_EXPIRY)
        said = self._wishes.expiry
        if expiry is not None and expiry != said:
            raise NotTaken(
                f"DISCONNECT with session expiry {expiry}, where CONNECT had {said}: no seal "
                "covers it, so it is not taken",
                reasons.SPECIFIC if said else reasons.PROTOCOL,
            )
        return Disconnect(with_will=packet.code != 0)

    # --- to the client ---

    def _connack(self, present: bool, outcome: int, rule: str) -> bytes:
        if outcome != ACCEPTED:
            other = reasons.SERVER_AWAY if outcome == UNAVAILABLE else reasons.NOT_AUTHORIZED
            return v5.connack(False, reasons.CONNACKS.get(rule, other), self._reason(rule))
        said = {
            v5.RECEIVE_MAX: UNDERWAY,
            v5.MAX_PACKET: _MOST + _HEAD,
            v5.ALIAS_MAX: ALIASES,
            **_lacks(self._site.broker),
        }
        return v5.connack(present, 0, said)

    def _broken(self, error: ProtocolError) -> bytes:
        return v5.connack(False, reasons.fault(error), self._reason(reasons.fault_rule(error)))

    def _reason(self, rule: str) -> dict[int, Any]:
        return {v5.REASON: rule} if rule and self._wishes.reasons else {}

    def _refused(self, packet_id: int, qos: int, error: SealError, rule: str) -> bytes:
        kind = "PUBACK" if qos == 1 else "PUBREC"
        return v5.ack(kind, packet_id, reasons.codes(error).publish, self._reason(rule))

    def _goodbye(self, code: int, rule: str) -> bytes:
        return v5.disconnect(code, self._reason(rule))

    def _keeps(self, message: Message, payload: bytes, qos: int, ids: Sequence[int]) -> str:
        said = self._said(message, ids)
        if said.get(v5.EXPIRY) == 0:
            return EXPIRED
        size = len(_publish(message.packet.topic_raw, b"", qos, False, False, 1, said))
        # The remaining length may need three bytes more than that of none.
        return PACKET if size + 3 + len(payload) > self._wishes.max_packet else ""

    def _alone(
        self,
        message: Message,
        payload: bytes,
        qos: int,
        dup: bool,
        packet_id: int,
        ids: Sequence[int],
    ) -> bytes:
        topic, said = message.topic, self._said(message, ids)
        number = self._aliases.get(topic, 0)
        if number:
            topic = ""
        elif len(self._aliases) < min(self._wishes.alias_max, ALIASES):
            number = len(self._aliases) + 1
        if number:
            with_alias = {v5.ALIAS: number, **said}
            data = v5.publish(topic, payload, qos, message.retain, dup, packet_id, with_alias)
            if len(data) <= self._wishes.max_packet:
                self._aliases[message.topic] = number
                return data
        topic = message.topic
        return v5.publish(topic, payload, qos, message.retain, dup, packet_id, said)

    # What is known of a message without opening it for this: its life, where it was opened.
    def _said(self, message: Message, ids: Sequence[int]) -> dict[int, Any]:
        said: dict[int, Any] = {}
        left = message.left_s(self._site.now_ms)
        if left is not None:
            said[v5.EXPIRY] = min(left, FOR_EVER)
        if ids:
            said[v5.SUBSCRIPTION_ID] = ids
        return said


# How packets are sent, and what changes nothing.
_TAKEN = frozenset(
    (v5.SESSION_EXPIRY, v5.RECEIVE_MAX, v5.MAX_PACKET, v5.ALIAS_MAX, v5.PROBLEM_INFO,
     v5.RESPONSE_INFO, v5.ALIAS, v5.SUBSCRIPTION_ID)
)  # fmt: skip
# What is 0 where it is not said.
_DEFAULTS = frozenset((v5.PAYLOAD_FORMAT, v5.WILL_DELAY))
_WORDS = {
    v5.EXPIRY: "a message expiry interval (a message's life is said in its seal)",
    v5.USER: "a user property",
    v5.CONTENT_TYPE: "a content type",
    v5.RESPONSE_TOPIC: "a response topic",
    v5.CORRELATION: "correlation data",
    v5.PAYLOAD_FORMAT: "a payload format",
    v5.WILL_DELAY: "a will delay (the site's grace is the same for all)",
}


def _no_words(where: str, said: Mapping[int, Any]) -> None:
    for kind, value in said.items():
        # The default, written out, says nothing.
        if kind in _TAKEN or (kind in _DEFAULTS and not value):
            continue
        what = _WORDS.get(kind, f"property {kind}")
        raise NotTaken(
            f"{where} with {what}: no seal covers it, so it is not taken",
            reasons.SPECIFIC,
        )


def _lacks(broker: BrokerFace) -> dict[int, int]:
    return {
        **({v5.MAX_QOS: broker.qos} if broker.qos < 2 else {}),
        **({} if broker.retained else {v5.RETAINS: 0}),
        **({} if broker.shared else {v5.SHARED: 0}),
    }


def _publish(
    topic: bytes,
    payload: bytes,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    said: Mapping[int, Any] = v5.NONE,
) -> bytes:
    return v5.publish(topic.decode(), payload, qos, retain, dup, packet_id, said)


def _suback(packet_id: int, codes: Iterable[int], refused: Mapping[int, SealError]) -> bytes:
    return v5.suback(
        packet_id,
        [
            reasons.codes(refused[at]).subscribe if code == _REFUSED and at in refused else code
            for at, code in enumerate(codes)
        ],
    )


_ACKS: dict[str, Callable[[int], Packet]] = {
    "PUBACK": lambda packet_id: Pubacks((packet_id,)),
    "PUBREC": Pubrec,
    "PUBREL": Pubrel,
    "PUBCOMP": Pubcomp,
}
_TAKES: dict[type[Any], Callable[[Five, Any], Packet]] = {
    v5.Connect5: Five._connect,
    v5.Publish5: Five._message,
    v5.Ack5: Five._ack,
    v5.Subscribe5: Five._subscribe,
    v5.Unsubscribe5: Five._unsubscribe,
    v5.Pingreq5: Five._ping,
    v5.Disconnect5: Five._disconnect,
}
