"""How a connection begins (SPEC.md 4.1, 7.2): CONNECT with its proof, or quarantine. Sans-IO."""

from __future__ import annotations

import copy

from sealmq.mqtt import Connack, Publish, build
from sealmq.mqtt import ProtocolError as MqttFault
from sealmq.mqtt import Will as MqttWill
from sealmq_spec import provision
from sealmq_spec.const import ANSWER, CONTROL, MAX_CONNECT, USER, WILL
from sealmq_spec.control import proof_head
from sealmq_spec.errors import TooLarge
from sealmq_spec.identity import Identity
from sealmq_spec.session import Session
from sealmq_spec.topics import check_topic

from .cipher import make
from .errors import BadWelcome, PeerFault, connect_refused
from .seal import seal_message
from .speech import V311, Came, Speech
from .values import Will

_USER = USER.decode()
# The proof's last 22 characters, until the packet around them is complete.
_UNSIGNED = b"-" * 22
# Topic, its length, and the answer with whatever TLV block it may carry.
_QUARANTINE_MAX = 65536


def connect(
    session: Session,
    client_id: str,
    clean: bool,
    keepalive: int,
    will: Will | None,
    want_kg_time: bool,
    low: int,
    mono: int,
    speech: Speech = V311,
) -> bytes:
    """A signed CONNECT. low: lowest ctr that may be sent again, 0 if none. mono: ms.

    TooLarge with a will that is too large.
    """
    head = session.begin_connect(want_kg_time, low)
    sealed = None
    if will is not None:
        # Sealed after `begin_connect`, so that its ctr is not below the `low` that the proof names.
        _, payload = seal_message(
            session,
            check_topic(will.topic),
            will.payload,
            will.qos << 1 | will.retain,
            WILL,
            will.life,
            mono,
        )
        sealed = MqttWill(will.topic, bytes(payload), will.qos, will.retain)
    packet = bytearray(
        speech.connect(
            client_id,
            clean_session=clean,
            keepalive=keepalive,
            will=sealed,
            username=_USER,
            password=head + _UNSIGNED,
        )
    )
    if len(packet) > MAX_CONNECT:
        raise TooLarge(
            f"CONNECT of {len(packet)} bytes with this will; at most {MAX_CONNECT} are taken"
        )
    session.sign(packet, mono)
    return bytes(packet)


class Quarantine:
    """A connection in which a client asks for roots. boot, salt: as for a session's CONNECT.

    nonce_c: 16 fresh random bytes.
    """

    def __init__(
        self, identity: Identity, boot: int, salt: bytes, nonce_c: bytes, client_id: str
    ) -> None:
        self._identity, self._boot, self._salt, self._nonce = identity, boot, salt, nonce_c
        self._client_id = client_id
        # Provisioning says nothing that MQTT 5 would say better.
        self._decoder = V311.decoder(_QUARANTINE_MAX)
        self._open = False

    def connect(self) -> bytes:
        """CONNECT without a tag: gen 0."""
        i = self._identity
        head = proof_head(i.suite, 0, 0, i.client, self._boot, self._salt, 0, 0)
        return build.connect(self._client_id, keepalive=60, username=_USER, password=head)

    def receive(self, data: bytes) -> tuple[bytes, bytes | None]:
        """(what to send, the answer or None). Raises ConnectRefused, PeerFault, BadWelcome."""
        try:
            packets = self._decoder.feed(data)
        except MqttFault as error:
            raise PeerFault(f"the mediator broke MQTT: {error}") from None
        out, answer = b"", None
        for packet in packets:
            if not self._open:
                self._open = _is_accepted(packet)
                out += build.publish(CONTROL, ask(self._identity, self._boot, self._nonce))
            elif isinstance(packet, Publish) and packet.topic_raw == CONTROL:
                if packet.payload[:1] == bytes((ANSWER,)):
                    answer = packet.payload
            else:
                raise PeerFault(
                    f"{type(packet).__name__} arrived in quarantine, where only answers do"
                )
        return out, answer


def _is_accepted(packet: Came) -> bool:
    if not isinstance(packet, Connack):
        raise BadWelcome(f"{type(packet).__name__} arrived where CONNACK was due")
    if packet.code:
        raise connect_refused(packet.code)
    return True


def ask(identity: Identity, boot: int, nonce_c: bytes) -> bytes:
    """A provisioning request, for the control topic."""
    i = identity
    return provision.ask(make, i.site, i.ps, i.suite, i.client, i.gen, boot, nonce_c, i.mediator)


def take_answer(identity: Identity, nonce_c: bytes, packet: bytes) -> Identity:
    """A new Identity with what the answer gives; the old one is not touched. Raises SealError.

    The caller stores it before anything of it is used.
    """
    fresh = copy.copy(identity)
    fresh.accept(make, nonce_c, packet)
    return fresh
