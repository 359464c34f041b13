"""MQTT 5 at a session: what a client that speaks it is told, and what is not taken of it. Nothing
of it changes what a client of 3.1.1 gets.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core_world import TOPIC, Shell
from mediator_world import PANEL, SENSOR, sealed
from sealmq.mediator.core import reasons
from sealmq.mediator.core.effects import Commit, End, OpenSession, Snapshot, Subscribe
from sealmq.mediator.core.effects import Will as Fate
from sealmq.mediator.core.five import Five, _no_words
from sealmq.mediator.core.limits import ALIASES, LEAST_PACKET, UNDERWAY
from sealmq.mediator.core.session import Session
from sealmq.mqtt import NotTaken, ProtocolError, Will, build, five_client
from sealmq.mqtt import five as v5
from sealmq.store.records import KeptSub
from sealmq_spec.const import CONTROL, WILL
from sealmq_spec.session import Session as Client

GATEWAY = Path(__file__).parents[4] / "shared_spec/GATEWAY.md"


class Peer5:
    """A client of MQTT 5 with real keys, and its session in the core. `got`: what it was sent but
    control packets, which are in `told`, opened.
    """

    def __init__(self, shell: Shell, number: int, client: Client | None = None) -> None:
        self.shell = shell
        self.client = client or shell.world.session(number)
        self.five = Five(shell.site)
        self.session = Session(shell.site, shell.agenda, "192.0.2.7", self.five.wire)
        self.decoder = five_client.ServerDecoder5(1 << 24, aliases=9)
        self.got: list[Any] = []
        self.told: list[Any] = []
        shell.run()

    def hello(self, said: v5.Properties = v5.NONE, low: int = 0, **more: Any) -> bytes:
        """A CONNECT with its proof."""
        head = self.client.begin_connect(False, low)
        packet = bytearray(
            five_client.connect(
                "id", username="sealmq1", password=head + b"-" * 22, properties=said, **more
            )
        )
        self.client.sign(packet, 0)
        return bytes(packet)

    def connect(self, said: v5.Properties = v5.NONE, **more: Any) -> five_client.Connack5:
        """The answer to a CONNECT."""
        self.send(self.hello(said, **more))
        connack = self.got.pop(0)
        assert isinstance(connack, five_client.Connack5)
        return connack

    def send(self, *data: bytes) -> list[Any]:
        """Bytes to the mediator; what it answers."""
        fault: ProtocolError | None = None
        try:
            packets = self.five.feed(b"".join(data))
        except ProtocolError as error:
            packets, fault = list(error.packets), error
        self.session.receive(*packets)
        if fault is not None:
            self.session.broken(fault)
        self.shell.run()
        return self.take()

    def take(self) -> list[Any]:
        """What the mediator has for the client."""
        self.shell.agenda.dirty.clear()
        out, self.session.out = self.session.out, []
        fresh = []
        for packet in self.decoder.feed(b"".join(out)):
            if isinstance(packet, v5.Publish5) and packet.topic.encode() == CONTROL:
                self.told.append(self.client.down(packet.payload, 0))
            else:
                fresh.append(packet)
        self.got += fresh
        return fresh

    def message(
        self, topic: str = TOPIC, qos: int = 0, packet_id: int = 0, said: v5.Properties = v5.NONE,
        sent_as: str | None = None, payload: bytes = b"21.5",
    ) -> bytes:  # fmt: skip
        """A PUBLISH, sealed for `topic`, sent with it or `sent_as`."""
        m2 = sealed(self.client, topic, payload, qos << 1)
        name = topic if sent_as is None else sent_as
        return v5.publish(name, m2, qos, False, False, packet_id, said)

    def token(self, filter: str, qos: int) -> str:
        return self.client.token(filter, qos)[0]

    @property
    def ended(self) -> bool:
        return bool(self.shell.of(End, self.session))


def opened(shell: Shell, number: int = SENSOR, said: v5.Properties = v5.NONE) -> Peer5:
    peer = Peer5(shell, number)
    assert peer.connect(said).code == 0
    assert peer.session.state == "open"
    peer.got.clear()
    peer.told.clear()
    return peer


# --- CONNECT ---


def test_connack_says_what_may_be_sent_and_what_the_site_s_broker_lacks() -> None:
    said = Peer5(Shell(shared=True), SENSOR).connect().properties
    assert said == {
        v5.RECEIVE_MAX: UNDERWAY,
        v5.MAX_PACKET: said[v5.MAX_PACKET],
        v5.ALIAS_MAX: ALIASES,
    }
    lacks = Peer5(Shell(shared=False, retained=False, qos=1), SENSOR).connect().properties
    assert (lacks[v5.SHARED], lacks[v5.RETAINS], lacks[v5.MAX_QOS]) == (0, 0, 1)


@pytest.mark.parametrize(
    "at", ["properties", "level", "flags"], ids=["a property", "the version", "clean start"]
)
def test_the_proof_covers_what_a_connect_of_mqtt_5_says(at: str) -> None:
    shell = Shell()
    peer = Peer5(shell, SENSOR)
    data = bytearray(peer.hello({v5.RECEIVE_MAX: 9}))
    where = data.index(b"MQTT") + 4
    if at == "properties":
        data[data.index(b"\x21\0\x09") + 2] = 1
    elif at == "flags":
        data[where + 1] ^= 2
    else:
        # As 3.1.1: the properties' bytes would have to go, and with them the tag.
        data[where] = 4
    if at == "level":
        with pytest.raises(ProtocolError):
            peer.five.feed(bytes(data))
        return
    peer.send(bytes(data))
    assert peer.got[0].code == reasons.NOT_AUTHORIZED
    assert not peer.got[0].properties, "who is not known learns no reason"
    assert shell.audits("connect-refused")[0]["rule"] == "mediator.connect.unauthentic"


def test_a_session_that_expires_never_or_later_is_kept_and_clean_start_begins_it_anew() -> None:
    for expiry, fresh, expected in (
        (0, True, (True, True)), (0, False, (True, False)),
        (60, False, (False, False)), (60, True, (False, True)),
        (0xFFFFFFFF, False, (False, False)),
    ):  # fmt: skip
        shell = Shell()
        shell.later.add(OpenSession)
        peer = Peer5(shell, SENSOR)
        peer.send(peer.hello({v5.SESSION_EXPIRY: expiry}, fresh=fresh))
        asked = shell.asked[0].effect
        assert (asked.clean, asked.fresh) == expected
        assert asked.expiry == expiry
        shell.answer()
        peer.take()
        # It is as long as CONNECT has said.
        assert not peer.got[0].properties.keys() & {v5.SESSION_EXPIRY, v5.SUBSCRIPTION_IDS}


def test_what_the_broker_does_not_keep_is_refused_at_connect_with_its_reason() -> None:
    for broker, said, will, code, rule in (
        ({"keeps_sessions": False}, {v5.SESSION_EXPIRY: 9}, None, 0x83,
         "broker.promise.persistent-session"),
        ({"retained": False}, {}, Will(TOPIC, b"x", 0, True), 0x9A, "broker.promise.retained"),
        ({"qos": 1}, {}, Will(TOPIC, b"x", 2), 0x9B, "broker.promise.qos"),
    ):  # fmt: skip
        answer = Peer5(Shell(**broker), SENSOR).connect(said, will=will)
        assert (answer.code, answer.properties) == (code, {v5.REASON: rule})


def test_a_client_that_is_denied_learns_the_outcome_and_no_reason() -> None:
    shell = Shell()
    clients = shell.world.ring.clients
    clients[SENSOR] = replace(clients[SENSOR], disabled=True)
    answer = Peer5(shell, SENSOR).connect()
    assert (answer.code, dict(answer.properties)) == (reasons.NOT_AUTHORIZED, {})


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({v5.AUTH_METHOD: "SCRAM"}, reasons.AUTH_METHOD),
        ({v5.USER: [("a", "b")]}, reasons.SPECIFIC),
        ({v5.MAX_PACKET: LEAST_PACKET - 1}, reasons.TOO_LARGE),
    ],
)
def test_a_connect_that_asks_for_what_is_not_taken_is_refused(
    said: v5.Properties, code: int
) -> None:
    shell = Shell()
    answer = Peer5(shell, SENSOR).connect(said)
    assert answer.code == code
    assert answer.properties == {v5.REASON: "mqtt.NotTaken"}
    assert not shell.of(End) == []
    assert Peer5(Shell(), SENSOR).connect({v5.MAX_PACKET: LEAST_PACKET}).code == 0


# --- PUBLISH ---


def test_a_refused_message_carries_its_reason_after_the_sealed_notice() -> None:
    for qos, kind in ((1, "PUBACK"), (2, "PUBREC")):
        peer = opened(Shell(), PANEL)
        # TOPIC is of the label below: the panel may not write there.
        [answer] = peer.send(peer.message(qos=qos, packet_id=7))
        assert (answer.kind, answer.packet_id) == (kind, 7)
        assert answer.code == reasons.NOT_AUTHORIZED
        (op, notice) = peer.told[0]
        assert (op, notice[0]) == (3, 1)
        assert answer.properties == {v5.REASON: notice[3]}, "the rule's id, and nothing else"


def test_who_wants_no_reasons_gets_none() -> None:
    peer = opened(Shell(), PANEL, {v5.PROBLEM_INFO: 0})
    [answer] = peer.send(peer.message(qos=1, packet_id=7))
    assert (answer.code, dict(answer.properties)) == (reasons.NOT_AUTHORIZED, {})


def test_the_codes_are_those_of_the_specification() -> None:
    text = GATEWAY.read_text().partition("## G10.1 ")[2].partition("\nUNSUBACK says")[0]
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")][1:]
    said = {
        name: tuple(int(code[:4], 16) for code in codes)
        for names, *codes in rows
        for name in names.split(", ")
    }
    names = {
        "malformed": 1, "unauthentic": 2, "stale": 3, "replay": 4, "denied": 5, "epoch": 6,
        "unavailable": 7, "too large": 8, "rate": 9, "unsupported": 10,
    }  # fmt: skip
    assert said == {name: tuple(reasons.TABLE[number]) for name, number in names.items()}


def test_each_code_is_one_that_the_standard_lets_stand_there() -> None:
    publish = {0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
    subscribe = {0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}
    unsubscribe = {0x80, 0x83, 0x87, 0x8F, 0x91}
    end = {0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98}
    assert set(reasons.TABLE) == set(range(11)), "every class of SPEC.md 11"
    for row in reasons.TABLE.values():
        assert row.publish in publish
        assert row.subscribe in subscribe
        assert row.unsubscribe in unsubscribe
        assert row.end in end


@pytest.mark.parametrize(
    "said",
    [
        {v5.USER: [("sender", "panel")]}, {v5.EXPIRY: 1}, {v5.CONTENT_TYPE: "text/plain"},
        {v5.RESPONSE_TOPIC: "a"},
    ],
)  # fmt: skip
def test_a_property_that_no_seal_covers_is_not_taken_and_uses_no_counter(
    said: v5.Properties,
) -> None:
    shell = Shell()
    peer = opened(shell)
    data = peer.message(qos=1, packet_id=3)
    changed = v5.publish(TOPIC, data[data.index(TOPIC.encode()) + len(TOPIC) + 3 :], 1, False,
                         False, 3, said)  # fmt: skip
    [bye] = peer.send(changed)
    assert (bye.code, bye.properties) == (reasons.SPECIFIC, {v5.REASON: "mqtt.NotTaken"})
    assert peer.ended
    assert not shell.forwards()
    # Whoever put it there has not refused the message: it goes in the next connection.
    again = Peer5(shell, SENSOR, peer.client)
    assert again.connect(low=1).code == 0
    again.send(data)
    assert len(shell.forwards()) == 1


def test_the_default_of_a_property_that_is_written_out_says_nothing() -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(peer.message(said={v5.PAYLOAD_FORMAT: 0}))
    assert len(shell.forwards()) == 1
    [bye] = peer.send(peer.message(said={v5.PAYLOAD_FORMAT: 1}))
    assert bye.code == reasons.SPECIFIC
    for ok in ({v5.WILL_DELAY: 0, v5.PAYLOAD_FORMAT: 0}, {}):
        _no_words("will", ok)
    wrongs: list[v5.Properties] = [
        {v5.EXPIRY: 0}, {v5.CONTENT_TYPE: ""}, {v5.USER: []}, {v5.WILL_DELAY: 1}
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(NotTaken):
            _no_words("will", wrong)


def test_an_alias_stands_for_its_topic_and_for_no_other() -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(peer.message(said={v5.ALIAS: 3}))
    peer.send(peer.message(said={v5.ALIAS: 3}, sent_as=""))
    assert [one.topic for one in shell.forwards()] == [TOPIC.encode()] * 2
    # Somebody on the path has named another topic with it: the seal does not verify.
    peer.send(peer.message("machine/1/other", said={v5.ALIAS: 4}, sent_as=TOPIC))
    assert len(shell.forwards()) == 2
    assert peer.told[-1][1][2] == 2, "unauthentic"
    for number, name, why in ((ALIASES + 1, TOPIC, "not offered"), (9, "", "stands for nothing")):
        other = opened(Shell())
        [bye] = other.send(other.message(said={v5.ALIAS: number}, sent_as=name))
        assert bye.code == reasons.BAD_ALIAS, why
        assert other.ended


def test_pubrec_pubrel_and_pubcomp_end_a_message_of_qos_2() -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(peer.message(qos=2, packet_id=5))
    shell.accept(shell.forwards()[0])
    assert peer.take() == [v5.Ack5("PUBREC", 5, 0)]
    assert peer.send(build.pubrel(5)) == [v5.Ack5("PUBCOMP", 5, 0)]


# --- the end ---


def test_an_end_says_why_and_the_client_s_own_is_not_answered() -> None:
    shell = Shell()
    peer = opened(shell)
    peer.session.keepalive_s = 1
    shell.site.mono_s += 60
    peer.session.tick()
    assert peer.take() == [v5.Disconnect5(reasons.KEEP_ALIVE, {})]
    other = opened(shell, PANEL)
    assert other.send(b"\xe0\x00") == []
    assert other.ended


@pytest.mark.parametrize(("code", "fate"), [(0, "drop"), (4, "fire"), (0x80, "fire")])
def test_a_disconnect_may_ask_for_the_will(code: int, fate: str) -> None:
    shell = Shell()
    peer = Peer5(shell, SENSOR)
    head = peer.client.begin_connect(False, 0)
    will = Will(TOPIC, sealed(peer.client, TOPIC, b"gone", 0, kind=WILL), 0)
    packet = bytearray(
        five_client.connect("id", will=will, username="sealmq1", password=head + b"-" * 22)
    )
    peer.client.sign(packet, 0)
    peer.send(bytes(packet))
    assert peer.session.state == "open"
    peer.send(v5.disconnect(code))
    assert [one.what for one in shell.of(Fate)] == [fate]


@pytest.mark.parametrize(
    ("connect", "expiry", "code"),
    [
        (0, 60, reasons.PROTOCOL),
        (60, 0, reasons.SPECIFIC),
        (60, 59, reasons.SPECIFIC),
        (60, 0xFFFFFFFF, reasons.SPECIFIC),
    ],
)
def test_a_disconnect_changes_nothing_of_how_long_a_session_is_kept(
    connect: int, expiry: int, code: int
) -> None:
    """No seal covers it: anybody on the path could have sent it."""
    peer = opened(Shell(), SENSOR, {v5.SESSION_EXPIRY: connect})
    [bye] = peer.send(v5.disconnect(0, {v5.SESSION_EXPIRY: expiry}))
    assert bye.code == code
    same = opened(Shell(), SENSOR, {v5.SESSION_EXPIRY: connect})
    assert same.send(v5.disconnect(0, {v5.SESSION_EXPIRY: connect})) == []
    assert same.ended


# --- SUBSCRIBE ---


def test_each_filter_gets_its_reason_and_unsubscribing_too() -> None:
    shell = Shell(shared=False)
    shell.later |= {Subscribe, Snapshot}
    peer = opened(shell, PANEL)
    filters = ("machine/#", "@own/x", "$share/g/machine/#")
    token = [(peer.token(text, 1), 1) for text in filters]
    peer.send(five_client.subscribe(4, [*token, ("machine/1", 1)]))
    shell.answer(None, [1])
    [answer] = peer.take()
    assert answer.codes == (1, reasons.NOT_AUTHORIZED, reasons.NO_SHARED, reasons.BAD_FILTER)
    tokens = [peer.client.token(text, 0, 1)[0] for text in ("machine/#", "machine/9")]
    [answer] = peer.send(five_client.unsubscribe(5, tokens))
    assert answer.codes == (reasons.OK, reasons.NO_SUBSCRIPTION)


@pytest.mark.parametrize(("options", "code"), [(4, 0x83), (8, 0x83), (0x20, 1), (0x10, 1)])
def test_an_option_that_cannot_be_kept_is_refused(options: int, code: int) -> None:
    shell = Shell()
    shell.later |= {Subscribe, Snapshot}
    peer = opened(shell, PANEL)
    peer.send(five_client.subscribe(4, [(peer.token("machine/#", 1), 1 | options)]))
    if shell.asked:
        shell.answer(None, [1])
    peer.take()
    [answer] = peer.got
    assert answer.codes == (code,)


def test_a_kept_session_keeps_its_subscription_identifiers() -> None:
    shell = Shell()
    peer = opened(shell, PANEL, {v5.SESSION_EXPIRY: 9})
    packet = five_client.subscribe(4, [(peer.token("a", 1), 1)], {v5.SUBSCRIPTION_ID: (7,)})
    shell.later |= {Commit, Subscribe}
    peer.send(packet)
    shell.answer(None, [1])
    [asked] = [one.effect for one in shell.asked]
    assert asked.records == (KeptSub(PANEL, "id", "a", 1, "a", 7),)
