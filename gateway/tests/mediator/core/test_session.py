"""A client's session: its states, what each takes, what holds packets back, and how it ends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from core_world import TOPIC, Peer, Shell, open_peer
from mediator_world import PANEL, SENSOR, World
from sealmq.mediator.core.effects import (
    ALL,
    Commit,
    Deadline,
    End,
    Entered,
    OpenSession,
    Provision,
    Vouched,
)
from sealmq.mediator.core.effects import Will as WillEffect
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.core.limits import (
    OPENING_S,
    QUARANTINE_BYTES,
    QUARANTINE_S,
    QUEUE,
    QUEUE_BYTES,
    UNDERWAY,
)
from sealmq.mediator.core.session import STATES, TAKES
from sealmq.mqtt import (
    Connack,
    Connect,
    Disconnect,
    MalformedPacket,
    Pingreq,
    Pingresp,
    Pubacks,
    Publish,
    Pubrel,
    Suback,
    Subscribe,
    Unsubscribe,
    UnsupportedProtocol,
)
from sealmq_spec.const import ASK, OP_RECEIPT, OP_WELCOME

DESIGN = Path(__file__).parents[3] / "DESIGN.md"


# --- states ---


def test_the_states_are_those_of_the_design() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \|", DESIGN.read_text(), re.MULTILINE)
    assert rows == list(STATES) == list(TAKES)


def test_each_effect_of_the_core_stands_in_the_design() -> None:
    text = DESIGN.read_text()
    assert {kind.__name__ for kind in ALL if f"`{kind.__name__}`" not in text} == set()


def test_a_session_opens_only_by_its_proof() -> None:
    shell = Shell()
    peer = Peer(shell, SENSOR)
    assert (peer.session.state, shell.of(Deadline)) == ("new", [Deadline(OPENING_S)])
    shell.later = {Commit}
    peer.connect()
    assert (peer.session.state, peer.got) == ("opening", [])
    assert shell.of(Vouched) == [Vouched(SENSOR)]
    shell.answer()
    peer.take()
    assert peer.session.state == "open"
    assert peer.got == [Connack(False, 0)]
    assert [op for op, _ in peer.told] == [OP_WELCOME]
    assert shell.of(Entered) == [Entered()]
    assert shell.audits("connect")[0]["client"] == "sensor"
    assert shell.agenda.by_policy == {peer.session.policy: peer.session}


@pytest.mark.parametrize(
    "packet",
    [Publish("t", b"t", b"x"), Pingreq(), Subscribe(1, (("t", 0),))],
    ids=lambda p: repr(p),
)
def test_before_connect_anything_else_ends_the_connection(packet: Any) -> None:
    peer = Peer(Shell(), SENSOR)
    peer.send(packet)
    assert (peer.session.state, peer.got) == ("closed", [])
    assert peer.shell.audits("packet-refused")[0]["rule"] == "mqtt.MalformedPacket"


@pytest.mark.parametrize("kind", [Connect, Suback], ids=lambda k: k.__name__)
def test_in_an_open_session_a_packet_that_no_client_may_send_ends_it(kind: Any) -> None:
    peer = open_peer(Shell())
    peer.send(peer.hello() if kind is Connect else Suback(1, (0,)))
    assert peer.ended
    assert peer.shell.audits("packet-refused")[0]["client"] == "sensor"


def test_a_version_that_is_not_spoken_gets_its_connack_and_a_broken_packet_none() -> None:
    peer = Peer(Shell(), SENSOR)
    peer.session.broken(UnsupportedProtocol("level 5"))
    assert peer.take() == [Connack(False, 1)]
    other = Peer(Shell(), SENSOR)
    other.session.broken(MalformedPacket("flags"))
    assert other.take() == []
    again = open_peer(Shell())
    again.session.broken(UnsupportedProtocol("level 5"))
    assert again.take() == [], "not in an open session"


def test_nothing_leaves_or_enters_a_closed_session() -> None:
    shell = Shell()
    peer = open_peer(shell)
    packet = peer.message(qos=1, packet_id=1)
    peer.send(Disconnect())
    count = len(shell.done)
    for late in (packet, Pingreq(), peer.hello(), Disconnect()):
        peer.send(late)
    peer.session.lost("gone")
    peer.session.tick()
    peer.session.policy_changed()
    peer.session.keys_changed(shell.site.ring)
    peer.session.link_packet(Publish("t", b"t", b"x"))
    peer.session.link_lost("gone")
    peer.session.stop("again")
    shell.run()
    assert (peer.take(), len(shell.done), shell.agenda.by_policy) == ([], count, {})


# --- quarantine ---


def quarantined(shell: Shell) -> Peer:
    """A client without a link root."""
    peer = Peer(shell, SENSOR)
    peer.client.ident.gen = 0
    hello = peer.hello_without_roots()
    peer.send(hello)
    return peer


def test_without_roots_a_client_may_provision_and_ping_and_nothing_else() -> None:
    shell = Shell()
    peer = quarantined(shell)
    assert (peer.session.state, peer.got) == ("quarantine", [Connack(False, 0)])
    assert shell.of(Deadline)[-1] == Deadline(QUARANTINE_S)
    peer.send(Pingreq())
    assert peer.got[-1] == Pingresp()
    peer.send(Publish("t", b"t", b"x"))
    assert peer.ended
    assert shell.audits()[-1]["rule"] == "mediator.quarantine"
    assert shell.forwards() == []


def test_a_large_packet_before_a_proof_ends_the_connection() -> None:
    peer = quarantined(Shell())
    peer.send(Publish("!c1", b"!c1", bytes((ASK,)) + bytes(QUARANTINE_BYTES)))
    assert peer.ended


def test_in_quarantine_requests_wait_for_one_another() -> None:
    shell = Shell()
    shell.later = {Provision}
    peer = quarantined(shell)
    request = peer.request()
    peer.send(request)
    peer.send(request)
    assert len(shell.asked) == 1
    peer.send(Pingreq())
    assert peer.got[-1] == Pingresp()


def test_who_does_not_read_before_a_proof_is_ended() -> None:
    peer = Peer(Shell(), SENSOR)
    peer.session.writable(False)
    assert peer.session.state == "closed"


# --- what holds packets back ---


def test_what_waits_keeps_its_order_and_what_is_waited_for_may_pass() -> None:
    shell = Shell()
    peer = open_peer(shell)
    shell.later = {Commit}
    first = peer.message(b"new topic", topic="a/new/one", qos=1, packet_id=1)
    second = peer.message(b"second", qos=1, packet_id=2)
    peer.send(first)
    peer.send(second)
    assert shell.forwards() == [], "its topic is not labelled yet"
    peer.send(Pingreq())
    peer.send(Pubrel(7))
    assert [type(p).__name__ for p in peer.got[1:]] == ["Pingresp", "Pubcomp"]
    peer.send(Disconnect())
    assert peer.session.state == "open", "it was sent after what waits"
    shell.answer()
    peer.take()
    assert [f.topic for f in shell.forwards()] == [b"a/new/one", TOPIC.encode()]
    assert peer.session.state == "closed"


def test_a_session_that_waits_takes_so_much_and_no_more() -> None:
    shell = Shell()
    peer = open_peer(shell)
    shell.later = {Commit}
    peer.send(peer.message(topic="a/new/one"))
    for _ in range(QUEUE - 1):
        peer.session.receive(peer.message())
    crowded = [peer.session.crowded]
    peer.session.receive(peer.message())
    crowded.append(peer.session.crowded)
    shell.answer()
    assert [*crowded, peer.session.crowded] == [False, True, False]
    assert len(shell.forwards()) == QUEUE + 1


def test_large_packets_crowd_by_their_bytes() -> None:
    shell = Shell()
    peer = open_peer(shell)
    shell.later = {Commit}
    peer.send(peer.message(topic="a/new/one"))
    peer.session.receive(Publish("t", b"t", bytes(QUEUE_BYTES)))
    assert not peer.session.crowded
    peer.session.receive(Publish("t", b"t", b"x"))
    assert peer.session.crowded


@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_filters_crowd_by_their_bytes_too(kind: type[Any]) -> None:
    """Of a client whose message waits for room in the journal, say, for half a minute."""
    shell = Shell()
    peer = open_peer(shell)
    shell.later = {Commit}
    peer.send(peer.message(topic="a/new/one"))
    texts = ["f" * 60_000] * 10
    filters = [(text, 1) for text in texts] if kind is Subscribe else texts
    for number in range(1, 4):
        peer.session.receive(kind(number, tuple(filters)))
        assert not peer.session.crowded
    peer.session.receive(kind(4, tuple(filters)))
    assert peer.session.crowded


def test_so_many_are_forwarded_before_one_is_accepted_and_no_more() -> None:
    shell = Shell()
    peer = open_peer(shell)
    for n in range(UNDERWAY + 3):
        peer.send(peer.message(qos=1, packet_id=n + 1))
    assert len(shell.forwards()) == UNDERWAY
    shell.accept(shell.forwards()[0])
    assert len(shell.forwards()) == UNDERWAY + 1
    for forward in shell.forwards()[1:4]:
        shell.accept(forward)
    assert len(shell.forwards()) == UNDERWAY + 3


def test_what_was_sent_before_the_socket_broke_is_still_handled() -> None:
    shell = Shell()
    peer = open_peer(shell)
    shell.later = {Commit}
    peer.send(peer.message(topic="a/new/one"))
    peer.send(peer.message())
    peer.session.lost("reset")
    assert peer.session.state == "open"
    shell.answer()
    assert len(shell.forwards()) == 2
    assert peer.session.state == "closed"
    assert shell.audits("disconnect")[0]["reason"] == "reset"


def test_a_full_window_does_not_keep_a_lost_session() -> None:
    shell = Shell()
    peer = open_peer(shell)
    for n in range(UNDERWAY + 1):
        peer.send(peer.message(qos=1, packet_id=n + 1))
    peer.session.lost("reset")
    shell.run()
    assert peer.session.state == "closed"
    assert len(shell.forwards()) == UNDERWAY + 1


def test_what_came_while_it_opened_is_handled_once_it_is_open() -> None:
    shell = Shell()
    shell.later = {Commit, OpenSession}
    peer = Peer(shell, SENSOR).connect()
    peer.send(peer.message(qos=1, packet_id=1))
    peer.send(Pingreq())
    assert (shell.forwards(), peer.got) == ([], [])
    shell.answer()
    shell.answer()
    peer.take()
    assert len(shell.forwards()) == 1
    assert [type(p).__name__ for p in peer.got] == ["Connack", "Pingresp"]


# --- ends ---


def with_will(shell: Shell) -> Peer:
    peer = Peer(shell, SENSOR)
    peer.connect(will=peer.will("state/sensor", b"offline"))
    assert peer.session.state == "open"
    return peer


@pytest.mark.parametrize(
    ("end", "becomes", "clean"),
    [
        (lambda s: s.receive(Disconnect()), "drop", True),
        (lambda s: s.lost("reset"), "fire", False),
        (lambda s: s.broken(MalformedPacket("x")), "fire", False),
        (lambda s: s.close("taken over"), "fire", False),
        (lambda s: s.stop("clock"), "leave", False),
        (lambda s: s.link_lost("away"), "leave", False),
    ],
    ids=["disconnect", "lost", "broken", "closed", "stopped", "link lost"],
)
def test_what_becomes_of_a_will(end: Any, becomes: str, clean: bool) -> None:
    shell = Shell()
    peer = with_will(shell)
    end(peer.session)
    shell.run()
    assert [effect.what for effect in shell.of(WillEffect)] == [becomes]
    assert shell.audits("disconnect")[0]["clean"] is clean
    assert isinstance(shell.done[-1][1], End)


def test_keep_alive_counts_what_came_and_not_what_waits_for_us() -> None:
    shell = Shell()
    peer = open_peer(shell)
    session = peer.session
    session.heard = shell.site.mono_s = 100.0
    shell.site.mono_s = 190.0
    session.tick()
    assert session.state == "open"
    shell.site.mono_s = 191.0
    session.throttled = True
    session.tick()
    assert (session.state, session.heard) == ("open", 191.0)
    session.throttled = False
    shell.site.mono_s = 281.5
    session.tick()
    assert session.state == "closed"


def test_a_disabled_client_is_put_out_and_what_waits_for_it_never_goes() -> None:
    world = World()
    shell = Shell(world=world)
    peer = open_peer(shell)
    peer.session.receive(Pingreq())
    assert peer.session.out
    snapshot = world.snapshot()
    snapshot["clients"][0]["disabled"] = True
    before, shell.site.ring = shell.site.ring, Keyring(world.site, 9, snapshot)
    peer.session.keys_changed(before)
    shell.run()
    assert peer.session.out == []
    assert shell.of(End)[-1] == End(cut=True)


@pytest.mark.parametrize("gone", ["client", "label", "generation"])
def test_new_keys_end_whom_they_concern(gone: str) -> None:
    world = World()
    shell = Shell(world=world)
    peer, other = open_peer(shell), open_peer(shell, PANEL)
    snapshot = world.snapshot()
    if gone == "client":
        del snapshot["clients"][0]
    elif gone == "label":
        snapshot["clients"][0]["label"] = snapshot["labels"][1]["number"]
    else:
        snapshot["clients"][0]["ended"] = 1
    before, shell.site.ring = shell.site.ring, Keyring(world.site, 9, snapshot)
    for session in (peer.session, other.session):
        session.keys_changed(before)
    assert (peer.session.state, other.session.state) == ("closed", "open")


def test_a_receipt_goes_out_with_the_answer_to_a_ping() -> None:
    shell = Shell()
    peer = open_peer(shell)
    peer.send(peer.message())
    peer.send(Pingreq())
    assert peer.told[-1] == (OP_RECEIPT, (1, 1))
    count = len(peer.told)
    peer.send(Pingreq())
    assert len(peer.told) == count, "nothing new was accepted"


def test_bytes_and_effects_are_announced_once() -> None:
    shell = Shell()
    peer = open_peer(shell)
    for _ in range(3):
        peer.session.receive(Pingreq())
        peer.session.receive(peer.message())
    assert shell.agenda.dirty == [peer.session]
    assert shell.agenda.pending == [peer.session]


def test_pubacks_of_the_client_are_deliverys() -> None:
    shell = Shell()
    peer = open_peer(shell)
    came: list[Any] = []
    peer.session.delivery.acked = came.append  # type: ignore[method-assign, assignment]
    peer.send(Pubacks((5, 6)))
    assert came == [Pubacks((5, 6))]


def test_a_will_of_a_connection_that_never_opened_is_dropped() -> None:
    shell = Shell()
    shell.later = {OpenSession}
    peer = Peer(shell, SENSOR)
    peer.connect(will=peer.will("state/sensor", b"offline"))
    peer.session.lost("reset")
    assert peer.session.state == "opening", "its CONNECT is still under way"
    shell.asked.clear()
    peer.session.close("too slow")
    shell.run()
    assert [effect.what for effect in shell.of(WillEffect)] == ["drop"]
    assert shell.audits("disconnect") == []
