"""PUBLISH of a client: what moves, what is refused, and which acknowledgement comes when."""

from __future__ import annotations

import gc
import os
import weakref
from typing import Any

import pytest

from core_world import CONFIG, TOPIC, Peer, Shell, opened
from families.toy import Toy
from mediator_world import NOW_MS, PANEL, SENSOR, World, sealed
from sealmq.broker.promises import BrokerTakes
from sealmq.families.attributes import Attribute
from sealmq.mediator.core.effects import AwaitRoom, Commit
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.core.refusals import JOURNAL_PART
from sealmq.mediator.core.wrap import look_m3, open_m3
from sealmq.mqtt import Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel
from sealmq.store.errors import StoreUnavailable
from sealmq_spec.const import OP_NOTICE, OP_RECEIPT, RECEIPT_EVERY
from sealmq_spec.envelope import nonce_link, put_m2
from sealmq_spec.window import WIDTH

RAW = TOPIC.encode()


def notices(peer: Peer) -> list[tuple[int, str]]:
    """(ctr, rule) of the notices that the client has."""
    return [(said[1], said[3]) for op, said in peer.told if op == OP_NOTICE]


def ack(qos: int, packet_id: int) -> Any:
    """What answers a PUBLISH."""
    return Puback(packet_id) if qos == 1 else Pubrec(packet_id)


# --- what moves ---


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_is_sealed_for_readers_and_moves_once(qos: int) -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(peer.message(b"21.5", qos=qos, packet_id=7 if qos else 0))
    (forward,) = shell.forwards()
    assert (forward.topic, forward.qos, forward.retain) == (TOPIC.encode(), qos, False)
    assert forward.client == SENSOR
    ring = shell.world.ring
    inside = open_m3(ring, look_m3(ring, forward.payload), forward.topic, forward.payload)
    assert (inside.sender, inside.ctr) == (SENSOR, 1)
    assert peer.got == []
    if not qos:
        assert forward.sent is None
        return
    shell.accept(forward)
    assert peer.take() == [ack(qos, 7)]


def test_pubrel_is_answered_after_pubrec_and_for_an_id_that_nobody_knows() -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(Pubrel(9))
    assert peer.got == [Pubcomp(9)]
    peer.send(peer.message(qos=2, packet_id=7))
    shell.accept(shell.forwards()[0])
    peer.send(Pubrel(7))
    assert peer.got[1:] == [Pubrec(7), Pubcomp(7)]


def test_pubrel_before_pubrec_is_no_way_to_an_acknowledgement() -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(peer.message(qos=2, packet_id=7))
    peer.send(Pubrel(7))
    assert (peer.got, peer.session.state) == ([], "closed")


def test_a_clear_goes_out_as_an_empty_retained_message() -> None:
    shell = Shell()
    peer = opened(shell)
    packet = peer.message(b"", retain=True)
    clear = peer.message(b"", retain=True, kind=3)
    peer.send(packet)
    peer.send(clear)
    assert [bool(f.payload) for f in shell.forwards()] == [True, False]
    assert all(f.retain for f in shell.forwards())


def test_a_receipt_goes_out_with_every_sixteenth_that_was_accepted() -> None:
    shell = Shell()
    peer = opened(shell)
    for n in range(RECEIPT_EVERY):
        peer.send(peer.message(qos=n & 1, packet_id=n & 1 and n))
    assert [op for op, _ in peer.told] == []
    for forward in shell.forwards():
        if forward.sent is not None:
            shell.accept(forward)
    peer.take()
    top, mask = next(said for op, said in peer.told if op == OP_RECEIPT)
    assert (top, mask) == (RECEIPT_EVERY, (1 << RECEIPT_EVERY) - 1)


def test_what_is_not_accepted_stands_in_no_receipt() -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(peer.message(qos=1, packet_id=1))
    window = peer.session.link.accepted
    assert (window.top, window.mask) == (0, 0)
    shell.accept(shell.forwards()[0])
    assert (window.top, window.mask) == (1, 1)


def test_a_family_s_item_goes_into_m3_and_the_publisher_s_do_not() -> None:
    shell = Shell(Toy())
    shell.site.engine.take_attributes([Attribute("open", "", True, NOW_MS * 2)])
    peer = opened(shell)
    peer.send(peer.message(topic="~hello/" + TOPIC, tlv=bytes((3, 41, 1, 9))))
    (forward,) = shell.forwards()
    assert forward.topic == TOPIC.encode()
    ring = shell.world.ring
    inside = open_m3(ring, look_m3(ring, forward.payload), forward.topic, forward.payload, (40,))
    assert inside.tlv == {40: b"hello"}


def test_an_item_that_no_family_puts_is_dropped() -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(peer.message(tlv=bytes((3, 41, 1, 9))))
    (forward,) = shell.forwards()
    ring = shell.world.ring
    inside = open_m3(ring, look_m3(ring, forward.payload), forward.topic, forward.payload)
    assert inside.start == 1, "an empty block and m1"


@pytest.mark.parametrize("differs", ["counter", "time"])
def test_what_says_otherwise_inside_than_outside_is_refused(differs: str) -> None:
    """A client that has its label's roots could else pass on what it has read."""
    shell = Shell()
    peer = opened(shell)
    link, client = peer.session.link, shell.world.session(SENSOR, salt=peer.client.salt)
    client.ctr = peer.client.ctr + (differs == "counter")
    inner = sealed(client, TOPIC, b"x", 0, mono=1000 * (differs == "time"))
    body = link.publish.open(nonce_link(link.salt, inner), inner[9:], inner[:9] + link.tail(RAW, 0))
    assert body is not None
    head = bytearray(9)
    put_m2(head, 0, inner[0], link.suite, peer.client.ctr + 1, NOW_MS // 1000)
    nonce = nonce_link(link.salt, head)
    outer = bytes(head) + link.publish.seal(nonce, body, bytes(head) + link.tail(RAW, 0))
    peer.send(Publish(TOPIC, RAW, outer))
    assert notices(peer) == [(peer.client.ctr + 1, "mediator.publish.malformed")]
    assert shell.forwards() == []


# --- the same again ---


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_under_way_is_answered_once_under_its_packet_id(qos: int) -> None:
    shell = Shell()
    peer = opened(shell)
    packet = peer.message(qos=qos, packet_id=7)
    for _ in range(3):
        peer.send(packet._replace(dup=True))
    assert (len(shell.forwards()), peer.got) == (1, [])
    shell.accept(shell.forwards()[0])
    assert peer.take() == [ack(qos, 7)]
    peer.send(packet)
    assert peer.got[1:] == [ack(qos, 7)], "it is done"
    assert len(shell.forwards()) == 1


def test_qos_1_under_a_second_packet_id_is_answered_under_both() -> None:
    shell = Shell()
    peer = opened(shell)
    packet = peer.message(qos=1, packet_id=7)
    peer.send(packet)
    peer.send(packet._replace(packet_id=8))
    shell.accept(shell.forwards()[0])
    assert peer.take() == [Puback(7), Puback(8)]
    assert len(shell.forwards()) == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_one_message_under_too_many_packet_ids_ends_the_connection(qos: int) -> None:
    shell = Shell()
    peer = opened(shell)
    packet = peer.message(qos=qos, packet_id=1)
    for n in range(1 + (2 if qos == 2 else 8)):
        assert peer.session.state == "open" or qos == 2
        peer.send(packet._replace(packet_id=n + 1))
    assert peer.ended


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_outlives_its_connection_and_is_answered_on_the_next(qos: int) -> None:
    """GATEWAY.md G1: it moves once, however often it comes."""
    shell = Shell()
    peer = opened(shell)
    packet = peer.message(qos=qos, packet_id=7)
    peer.send(packet)
    old = peer.session
    old.lost("reset")
    shell.run()
    peer.begin()
    peer.connect(low=1)
    peer.got.clear()
    peer.send(packet._replace(dup=True))
    assert peer.got == []
    shell.accept(shell.forwards()[0])
    assert peer.take() == [ack(qos, 7)]
    assert (len(shell.forwards()), old.out) == (1, [])


def test_what_was_accepted_meanwhile_is_answered_at_once_on_the_next_connection() -> None:
    shell = Shell()
    peer = opened(shell)
    packet = peer.message(qos=1, packet_id=7)
    peer.send(packet)
    peer.session.lost("reset")
    shell.accept(shell.forwards()[0])
    peer.begin()
    peer.connect(low=1)
    peer.got.clear()
    peer.send(packet)
    assert peer.got == [Puback(7)]


def test_of_two_connections_of_a_boot_session_the_newer_one_counts() -> None:
    shell = Shell()
    first = opened(shell)
    second = Peer(shell, SENSOR, client=first.client, client_id="other").connect(low=1)
    second.got.clear()
    packet = first.message(qos=1, packet_id=7)
    first.send(packet)
    second.send(packet)
    assert (first.session.state, second.session.state) == ("closed", "open")
    shell.accept(shell.forwards()[0])
    assert (first.take(), second.take()) == ([], [Puback(7)])


def test_the_older_connection_of_a_boot_session_gives_way_itself() -> None:
    shell = Shell()
    first = opened(shell)
    second = Peer(shell, SENSOR, client=first.client, client_id="other").connect(low=1)
    packet = first.message(qos=1, packet_id=7)
    second.send(packet)
    first.send(packet)
    assert (first.session.state, second.session.state) == ("closed", "open")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_counter_that_came_before_moves_nothing(qos: int) -> None:
    shell = Shell()
    peer = opened(shell)
    packet_id = 7 if qos else 0
    packet = peer.message(qos=qos, packet_id=packet_id)
    peer.send(packet)
    for _ in range(WIDTH):
        peer.send(peer.message(qos=qos, packet_id=packet_id))
        if qos:
            shell.accept(shell.forwards()[-1])
    peer.take()
    peer.got.clear()
    peer.send(packet._replace(packet_id=packet_id and 8))
    assert len(shell.forwards()) == WIDTH + 1
    assert notices(peer)[-1] == (1 if qos else 0, "mediator.publish.replay")
    assert peer.got == ([ack(qos, 8)] if qos else [])


def test_what_lies_below_low_is_a_repeat_also_if_it_is_known() -> None:
    shell = Shell()
    peer = opened(shell)
    packet = peer.message(qos=1, packet_id=7)
    peer.send(packet)
    shell.accept(shell.forwards()[0])
    peer.session.lost("reset")
    peer.begin()
    peer.connect()  # low: the next counter
    peer.send(packet)
    assert notices(peer) == [(0, "mediator.publish.replay")], "a receipt beats it"
    assert peer.got[-1] == Puback(7)


# --- refusals (GATEWAY.md G10) ---


def refused_with(peer: Peer, packet: Publish, rule: str) -> None:
    """It is refused by this rule, told with its counter, and nothing of it moves."""
    before = len(peer.shell.forwards())
    peer.send(packet)
    assert peer.shell.audits()[-1]["rule"] == rule
    assert len(peer.shell.forwards()) == before
    assert notices(peer)[-1][1] == rule


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_policy_denies_is_named_and_acknowledged_and_stays_refused(qos: int) -> None:
    shell = Shell(text=CONFIG + '[topics]\n"secret/x" = "high"\n')
    peer = opened(shell)
    packet = peer.message(topic="secret/x", qos=qos, packet_id=7 if qos else 0)
    refused_with(peer, packet, "labels.publish.other-label")
    assert notices(peer) == [(1, "labels.publish.other-label")]
    assert peer.got == ([ack(qos, 7)] if qos else [])
    peer.send(packet._replace(packet_id=qos and 8))
    if qos:
        assert notices(peer)[-1] == (1, "labels.publish.other-label")
        assert peer.got[-1] == ack(qos, 8)
    else:
        assert notices(peer)[-1] == (0, "mediator.publish.replay")
    if qos == 2:
        peer.send(Pubrel(7))
        assert peer.got[-1] == Pubcomp(7)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_does_not_verify_is_never_acknowledged(qos: int) -> None:
    shell = Shell()
    peer = opened(shell)
    packet = peer.message(qos=qos, packet_id=7 if qos else 0)
    bent = packet._replace(payload=packet.payload[:-1] + bytes((packet.payload[-1] ^ 1,)))
    peer.send(bent)
    assert notices(peer) == [(0, "mediator.publish.unauthentic")]
    assert shell.audits("packet-refused")[0]["topic"] == TOPIC
    assert peer.got == []
    assert peer.ended is bool(qos)
    if not qos:
        peer.send(packet)
        assert len(shell.forwards()) == 1, "nothing of it was used up"


@pytest.mark.parametrize(
    ("topic", "rule"),
    [("$SYS/x", "denied"), ("!x", "denied"), ("@sm1/x", "denied"), ("t" * 1100, "malformed")],
)
def test_a_name_on_which_nobody_publishes_is_refused_by_name(topic: str, rule: str) -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(peer.message(topic=topic, qos=1, packet_id=1))
    assert notices(peer) == [(1, f"mediator.publish.{rule}")]
    assert shell.forwards() == []
    assert peer.got == [Puback(1)]


def test_an_empty_payload_is_refused() -> None:
    peer = opened(Shell())
    peer.send(Publish(TOPIC, TOPIC.encode(), b""))
    assert notices(peer) == [(0, "mediator.publish.malformed")]


@pytest.mark.parametrize(
    ("takes", "topic", "rule"),
    [
        (BrokerTakes(levels=2), "a/b/c", "broker.takes.levels"),
        (BrokerTakes(length=3), "abcd", "broker.takes.length"),
        (BrokerTakes(packet=100), TOPIC, "broker.takes.size"),
        (BrokerTakes(), "a\u0001b", "mqtt.characters"),
    ],
    ids=["levels", "length", "size", "characters"],
)
def test_what_the_broker_does_not_take_is_refused_before_it_is_labelled(
    takes: BrokerTakes, topic: str, rule: str
) -> None:
    shell = Shell()
    shell.site.takes = takes
    peer = opened(shell)
    refused_with(peer, peer.message(topic=topic), rule)
    assert topic not in shell.store.topics or topic == TOPIC
    shell.site.takes = BrokerTakes()
    peer.send(peer.message())
    assert len(shell.forwards()) == 1
    shell.site.takes = takes
    if topic == TOPIC:
        refused_with(peer, peer.message(), rule)


def test_what_the_broker_does_not_promise_is_refused() -> None:
    shell = Shell(qos=1, retained=False)
    peer = opened(shell)
    refused_with(peer, peer.message(qos=2, packet_id=1), "broker.promise.qos")
    refused_with(peer, peer.message(retain=True), "broker.promise.retained")


@pytest.mark.parametrize("topic", ["machine/1/temperature", "machine/9/new"])
def test_a_client_whose_part_of_the_journal_is_full_waits_for_room(topic: str) -> None:
    """In its order, also where its topic is labelled first; what it gets goes on meanwhile."""
    shell, peer = full_part()
    for packet in (peer.message(topic=topic, qos=1, packet_id=1), peer.message(), Pingreq()):
        peer.send(packet)
    assert peer.got == [Pingresp()]
    assert not shell.forwards()
    [asked] = [asked.effect for asked in shell.asked]
    assert isinstance(asked, AwaitRoom)
    assert asked.client == SENSOR
    # Another session of this client was faster.
    shell.answer(None, True)
    assert not shell.forwards()
    assert len(shell.asked) == 1
    shell.site.refuses = lambda client: None
    shell.answer(None, True)
    assert [f.qos for f in shell.forwards()] == [1, 0]


def test_who_has_waited_for_room_in_vain_is_refused_and_all_that_it_sends_until_there_is() -> None:
    """Else each message would wait by itself, and grow old."""
    shell, peer = full_part()
    for packet_id in (1, 2, 3):
        peer.send(peer.message(qos=1, packet_id=packet_id))
    shell.answer(None, False)
    assert not shell.asked
    rules = [row["rule"] for row in shell.audits() if row["event"] == "publish-refused"]
    assert rules == [JOURNAL_PART] * 3
    full, shell.site.refuses = shell.site.refuses, lambda client: None
    peer.send(peer.message(qos=1, packet_id=4))
    assert len(shell.forwards()) == 1
    shell.site.refuses = full
    peer.send(peer.message(qos=1, packet_id=5))
    assert len(shell.asked) == 1, "there was room meanwhile"


def test_what_a_client_that_is_gone_has_sent_does_not_wait_for_room() -> None:
    shell, peer = full_part()
    for packet_id in (1, 2, 3):
        peer.send(peer.message(qos=1, packet_id=packet_id))
    peer.session.lost("it has gone")
    shell.answer(None, True)
    assert not shell.asked
    assert not shell.forwards()


def full_part() -> tuple[Shell, Peer]:
    """A client whose part of the journal is full; it waits."""
    shell = Shell()
    shell.later = {AwaitRoom}
    peer = opened(shell)
    shell.site.refuses = lambda client: (JOURNAL_PART, "its part is full")
    return shell, peer


def test_a_full_journal_refuses_what_is_retained_whatever_its_qos() -> None:
    """What it has of before would come back over it when the mediator is started again."""
    shell = Shell()
    peer = opened(shell)
    shell.site.refuses = lambda client: ("mediator.publish.journal", "the journal is full")
    refused_with(peer, peer.message(retain=True), "mediator.publish.journal")
    assert not shell.forwards()


def test_a_full_journal_refuses_qos_1_and_takes_qos_0() -> None:
    shell = Shell()
    peer = opened(shell)
    shell.site.refuses = lambda client: ("mediator.publish.journal", "the journal is full")
    refused_with(peer, peer.message(qos=1, packet_id=1), "mediator.publish.journal")
    assert peer.got == [Puback(1)]
    peer.send(peer.message())
    assert len(shell.forwards()) == 1


def test_a_refusal_under_a_packet_id_in_use_ends_the_connection() -> None:
    """Its acknowledgement would be taken for one of the message under way."""
    shell = Shell(text=CONFIG + '[topics]\n"secret/x" = "high"\n')
    peer = opened(shell)
    peer.send(peer.message(qos=1, packet_id=7))
    peer.send(peer.message(topic="secret/x", qos=1, packet_id=7))
    assert (peer.got, peer.ended) == ([], True)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_site_may_hang_up_instead_of_acknowledging(qos: int) -> None:
    text = CONFIG + '[topics]\n"secret/x" = "high"\n[mediator]\non_denied = "disconnect"\n'
    shell = Shell(text=text)
    peer = opened(shell)
    peer.send(peer.message(topic="secret/x", qos=qos, packet_id=qos))
    assert (peer.got, peer.ended) == ([], True)


def test_at_a_site_that_hangs_up_what_was_unavailable_may_come_again() -> None:
    shell = Shell(text=CONFIG + '[mediator]\non_denied = "disconnect"\n')
    peer = opened(shell)
    packet = peer.message(qos=1, packet_id=7)
    shell.site.refuses = lambda client: ("mediator.publish.journal", "full")
    peer.send(packet)
    assert peer.ended
    shell.site.refuses = lambda client: None
    peer.begin()
    peer.connect(low=1)
    peer.send(packet)
    assert len(shell.forwards()) == 1


class Local:
    """Stands beside the payload in the frame that refuses it, and can be watched."""


def test_what_is_remembered_of_a_refused_message_does_not_hold_its_bytes() -> None:
    """A client could fill the memory with refused ones of a megabyte each."""
    shell = Shell(text=CONFIG + '[topics]\n"secret/x" = "high"\n')
    peer = opened(shell)
    watched: list[weakref.ref[Local]] = []

    def refuse() -> None:
        beside = Local()
        watched.append(weakref.ref(beside))
        peer.send(peer.message(topic="secret/x", qos=1, packet_id=1))

    refuse()
    gc.collect()
    refused = peer.session.link.seen[1].refused
    assert refused is not None
    error = refused[0]
    assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)
    assert watched[0]() is None


def test_a_refused_message_of_the_broker_is_told_to_whoever_waits_and_stays_refused() -> None:
    shell = Shell()
    peer = opened(shell)
    packet = peer.message(qos=1, packet_id=7)
    peer.send(packet)
    shell.not_taken(shell.forwards()[0])
    peer.take()
    assert notices(peer) == [(1, "broker.takes.message")]
    assert peer.got == [Puback(7)]
    assert shell.audits("publish-refused")[0]["topic"] == TOPIC
    peer.send(packet._replace(packet_id=8))
    assert peer.got[-1] == Puback(8)
    assert (peer.session.link.accepted.top, len(shell.forwards())) == (0, 1)


def test_one_that_the_window_has_left_behind_may_still_be_refused_by_the_broker() -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(peer.message(qos=1, packet_id=7))
    for _ in range(2 * WIDTH):
        peer.send(peer.message())
    shell.not_taken(shell.forwards()[0])
    peer.take()
    assert Puback(7) in peer.got
    assert peer.session.link.window.mask < 1 << WIDTH


# --- the label comes first ---


def test_a_new_topic_is_labelled_durably_before_anything_leaves() -> None:
    shell = Shell()
    shell.later = {Commit}
    peer = Peer(shell, SENSOR).connect()
    shell.answer()
    peer.send(peer.message(topic="a/new/one", qos=1, packet_id=1))
    assert shell.forwards() == []
    assert shell.audits("topic-labelled") == []
    shell.answer()
    assert [f.topic for f in shell.forwards()] == [b"a/new/one"]
    (said,) = shell.audits("topic-labelled")
    assert (said["client"], said["label"]) == ("sensor", "low")


def test_another_may_have_been_first_and_then_it_is_judged_again() -> None:
    shell = Shell()
    peer = opened(shell, SENSOR)
    other = opened(shell, PANEL)
    shell.later = {Commit}
    peer.send(peer.message(topic="a/new/one", qos=1, packet_id=1))
    other.send(other.message(topic="a/new/one", qos=1, packet_id=1))
    shell.answer(shell.asked.pop())
    shell.answer()
    peer.take()
    assert [f.client for f in shell.forwards()] == [PANEL]
    assert notices(peer) == [(1, "labels.publish.other-label")]
    assert len(shell.audits("topic-labelled")) == 1


def test_without_a_store_nothing_new_is_published_and_the_reason_stays_here() -> None:
    shell = Shell()
    peer = opened(shell)
    shell.later = {Commit}
    peer.send(peer.message(topic="a/new/one", qos=1, packet_id=1))
    shell.answer(None, StoreUnavailable("/var/lib/secret is full"))
    peer.take()
    assert shell.audits("store-unavailable")[0]["reason"] == "/var/lib/secret is full"
    ((_, said),) = peer.told
    assert "secret" not in said[4]
    assert said[3] == "mediator.publish.unavailable"
    assert peer.got == [Puback(1)]
    peer.send(peer.message())
    assert len(shell.forwards()) == 1, "what is labelled flows"


def test_while_the_broker_is_away_no_topic_is_labelled() -> None:
    shell = Shell()
    peer = opened(shell)
    shell.site.away = "the broker is away"
    refused_with(peer, peer.message(topic="a/new/one"), "mediator.publish.unavailable")
    assert "a/new/one" not in shell.store.topics


def test_who_left_before_its_topic_was_labelled_has_published_nothing() -> None:
    shell = Shell()
    peer = opened(shell)
    shell.later = {Commit}
    peer.send(peer.message(topic="a/new/one", qos=1, packet_id=1))
    peer.session.close("taken over")
    shell.answer()
    assert shell.forwards() == []
    assert len(shell.audits("topic-labelled")) == 1, "it holds, so it is said"


def test_one_that_comes_on_two_connections_while_its_topic_is_labelled_moves_once() -> None:
    shell = Shell()
    first = opened(shell)
    second = Peer(shell, SENSOR, client=first.client, client_id="other").connect(low=1)
    second.got.clear()
    packet = first.message(topic="a/new/one", qos=1, packet_id=1)
    shell.later = {Commit}
    first.send(packet)
    second.send(packet)
    shell.answer()
    shell.answer()
    assert len(shell.forwards()) == 1
    shell.accept(shell.forwards()[0])
    assert (first.session.state, second.take()) == ("closed", [Puback(1)])


# --- retained ---


def test_an_older_retained_message_of_a_sender_does_not_overtake_its_newer_one() -> None:
    shell = Shell()
    peer = opened(shell)
    older = peer.message(b"old", qos=1, packet_id=1, retain=True)
    newer = peer.message(b"new", qos=1, packet_id=2, retain=True)
    peer.send(newer)
    peer.send(older)
    assert len(shell.forwards()) == 1
    assert shell.audits("packet-refused")[0]["rule"] == "mediator.publish.stale"


def test_the_retained_messages_of_a_client_have_so_many_bytes() -> None:
    shell = Shell()
    shell.site.retained_bytes.most = 100
    peer = opened(shell)
    peer.send(peer.message(b"x", retain=True))
    peer.send(peer.message(b"x", topic="machine/2", retain=True))
    assert shell.audits()[-1]["rule"] == "mediator.publish.retained-full"
    assert len(shell.forwards()) == 1
    peer.send(peer.message(b"", retain=True, kind=3))
    peer.send(peer.message(b"x", topic="machine/2", retain=True))
    assert len(shell.forwards()) == 3


# --- epochs ---


def test_an_epoch_that_is_over_is_refused_and_one_in_its_hand_over_is_not() -> None:
    world = World()
    shell = Shell(world=world)
    peer = opened(shell)
    before = peer.message(qos=1, packet_id=1)
    late = peer.message(qos=1, packet_id=2, mono=61_000)
    snapshot = world.snapshot()
    low = snapshot["labels"][0]
    end = NOW_MS // 1000 + 60
    low["previous"] = {"epoch": low["epoch"], "ek": low["ek"], "handover_end": end}
    low["epoch"], low["ek"] = low["epoch"] + 1, os.urandom(32).hex()
    shell.site.ring = Keyring(world.site, 9, snapshot)
    peer.send(before)
    assert len(shell.forwards()) == 1
    shell.site.now_ms += 61_000
    peer.send(late)
    assert notices(peer) == [(2, "mediator.publish.wrongepoch")]


def test_what_enforce_false_lets_through_is_counted() -> None:
    shell = Shell(text=CONFIG + '[topics]\n"secret/x" = "high"\n')
    shell.site.engine.enforce = False
    peer = opened(shell)
    peer.send(peer.message(topic="secret/x"))
    assert shell.counts.unenforced == [
        ("sensor", "secret/x", "labels.publish.other-label", "publish")
    ]


def test_forwards_are_in_the_order_in_which_they_were_sent() -> None:
    shell = Shell()
    peer = opened(shell)
    for n in range(30):
        peer.send(peer.message(b"%d" % n, qos=n % 3, packet_id=n + 1 if n % 3 else 0))
    ring = shell.world.ring
    ctrs = [
        open_m3(ring, look_m3(ring, f.payload), f.topic, f.payload).ctr for f in shell.forwards()
    ]
    assert ctrs == list(range(1, 31))
