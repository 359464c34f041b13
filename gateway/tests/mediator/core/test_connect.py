"""CONNECT (SPEC.md 4.1): what is checked in which order, what a peer learns, what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from core_world import CONFIG, TOPIC, Peer, Shell
from mediator_world import PANEL, SENSOR, World
from sealmq.broker.promises import BrokerTakes
from sealmq.mediator.core.denied import DeniedByRule
from sealmq.mediator.core.effects import (
    AskTime,
    BrokerAway,
    Commit,
    Confirmed,
    End,
    Entered,
    NoPlace,
    Opened,
    OpenSession,
    PauseLink,
    Returned,
)
from sealmq.mediator.core.effects import Will as WillEffect
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.core.proof import Newest
from sealmq.mqtt import Connack, Publish, Will
from sealmq.store.errors import StoreUnavailable
from sealmq.store.records import SessionMark, WillRecord
from sealmq_spec.const import BEHIND, OP_WELCOME, READY

NOT_AUTHORISED, UNAVAILABLE = Connack(False, 5), Connack(False, 3)


def refused(peer: Peer, rule: str, answer: Connack = NOT_AUTHORISED) -> None:
    """It learns a code and nothing else, and one audit record says why."""
    assert (peer.got, peer.told) == ([answer], [])
    assert peer.ended
    (said,) = peer.shell.audits("connect-refused")
    assert said["rule"] == rule
    assert peer.shell.of(Entered) == []
    assert peer.shell.agenda.by_policy == {}


def test_the_order_is_proof_store_broker_and_then_welcome() -> None:
    shell = Shell()
    shell.later = {Commit, OpenSession}
    peer = Peer(shell, SENSOR).connect(clean=False)
    (asked,) = shell.asked
    mark = SessionMark(SENSOR, 1, 1, peer.client.salt, 1)
    assert asked.effect.records == (mark,)
    assert shell.of(Returned) == []
    shell.answer()
    (asked,) = shell.asked
    assert (asked.effect.gen, asked.effect.clean) == (1, False)
    assert shell.of(Returned) == [Returned(SENSOR, "id")]
    assert shell.site.newest[SENSOR].conn == 1
    assert peer.take() == []
    shell.answer(None, Opened(True))
    assert peer.take() == [Connack(True, 0)]
    assert [(op, said) for op, said in peer.told] == [(OP_WELCOME, READY)]
    assert shell.of(PauseLink) == [PauseLink(False)]


def test_what_its_own_link_brings_early_waits_for_the_welcome() -> None:
    shell = Shell()
    shell.later = {OpenSession}
    peer = Peer(shell, SENSOR).connect(clean=False)
    early = Publish(TOPIC, TOPIC.encode(), b"x", 1, False, False, 1)
    peer.session.link_packet(early)
    came: list[Any] = []
    opened = peer.session.opened

    def watched(welcome: bytes) -> None:
        opened(welcome)
        peer.session.delivery.own = came.append  # type: ignore[method-assign, assignment]

    peer.session.opened = watched  # type: ignore[method-assign]
    shell.answer(None, Opened(True))
    assert came == [early]


def test_a_second_connect_of_a_boot_session_shares_its_window() -> None:
    shell = Shell()
    peer = Peer(shell, SENSOR).connect()
    first = peer.session.link
    peer.begin()
    peer.connect()
    assert peer.session.link is first


# --- refusals ---


def _user(peer: Peer) -> Any:
    return replace(peer.hello(), username="somebody")


def _password(peer: Peer) -> Any:
    return replace(peer.hello(), password=b"short")


def _tag(peer: Peer) -> Any:
    hello = peer.hello()
    return replace(hello, raw=hello.raw[:20] + b"?" + hello.raw[21:])


def _id(peer: Peer) -> Any:
    return replace(peer.hello(), client_id="")


@pytest.mark.parametrize(
    ("bend", "rule"),
    [(_user, "malformed"), (_password, "malformed"), (_tag, "unauthentic"), (_id, "malformed")],
)
def test_what_is_no_proof_is_refused(bend: Callable[[Peer], Any], rule: str) -> None:
    peer = Peer(Shell(), SENSOR)
    peer.send(bend(peer))
    refused(peer, f"mediator.connect.{rule}")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"number": 77}, "mediator.connect.denied"),
        ({"disabled": True}, "mediator.connect.denied"),
        ({"suite": 2}, "mediator.connect.unsupported"),
        ({"links": [{"gen": 2, "km": "22" * 32, "pending": False}]}, "mediator.connect.ended"),
        (
            {"links": [{"gen": 1, "km": "22" * 32, "pending": False}]},
            "mediator.connect.unauthentic",
        ),
    ],
    ids=["unknown", "disabled", "suite", "generation ended", "other root"],
)
def test_who_is_not_known_by_these_keys_is_refused(change: dict[str, Any], rule: str) -> None:
    world = World()
    shell = Shell(world=world)
    snapshot = world.snapshot()
    snapshot["clients"][0].update(change)
    shell.site.ring = Keyring(world.site, 9, snapshot)
    refused(Peer(shell, SENSOR).connect(), rule)


def test_a_client_that_policy_does_not_know_is_refused() -> None:
    shell = Shell(text=CONFIG.replace("sensor = ", "another = "))
    peer = Peer(shell, SENSOR).connect()
    assert peer.got == [NOT_AUTHORISED]
    assert shell.audits("connect-refused")[0]["rule"] == "labels.client.unknown"


def test_what_the_broker_does_not_keep_is_refused() -> None:
    refused(
        Peer(Shell(keeps_sessions=False), SENSOR).connect(clean=False),
        "broker.promise.persistent-session",
    )
    shell = Shell()
    shell.site.takes = BrokerTakes(client_id=10)
    refused(Peer(shell, SENSOR).connect(), "broker.takes.length")
    peer = Peer(Shell(retained=False), SENSOR)
    peer.connect(will=peer.will("state/sensor", b"off", retain=True))
    refused(peer, "broker.promise.retained")


def test_behind_the_newest_it_is_welcomed_as_behind_and_touches_nothing() -> None:
    shell = Shell()
    peer = Peer(shell, SENSOR)
    hello = peer.hello()
    peer.send(hello)
    peer.begin()
    peer.send(hello)
    assert peer.ended
    assert peer.got[-1] == Connack(False, 0)
    assert peer.told[-1] == (OP_WELCOME, BEHIND)
    assert shell.audits("connect-refused")[0]["rule"] == "mediator.connect.behind"
    assert len(shell.of(Entered)) == 1


def test_behind_what_another_worker_stored_meanwhile_is_behind_too() -> None:
    shell = Shell()
    higher = SessionMark(SENSOR, 1, 9, bytes(8), 1)
    shell.store.commit([higher])
    peer = Peer(shell, SENSOR).connect()
    assert peer.told == [(OP_WELCOME, BEHIND)]
    assert peer.client.boot_floor == 9
    assert shell.site.newest[SENSOR].boot == 9
    assert shell.of(Returned) == []


@pytest.mark.parametrize(
    ("question", "answer", "event"),
    [
        (Commit, StoreUnavailable("full"), "store-unavailable"),
        (OpenSession, BrokerAway("gone"), "broker-away"),
        (OpenSession, StoreUnavailable("full"), "store-unavailable"),
    ],
)
def test_what_is_not_there_is_unavailable(question: Any, answer: Exception, event: str) -> None:
    shell = Shell()
    shell.later = {question}
    peer = Peer(shell, SENSOR).connect()
    shell.answer(None, answer)
    assert peer.take() == [UNAVAILABLE]
    assert peer.ended
    assert shell.audits(event)[0]["client"] == "sensor"


def test_a_broker_that_is_away_is_unavailable_before_anything_is_stored() -> None:
    shell = Shell()
    shell.site.away = "the broker is away"
    peer = Peer(shell, SENSOR).connect()
    assert (peer.got, shell.store.marks) == ([UNAVAILABLE], {})


def test_a_broker_that_was_lost_while_the_session_opened_lets_nobody_in() -> None:
    shell = Shell()
    shell.later = {OpenSession}
    peer = Peer(shell, SENSOR).connect()
    shell.site.away = "the broker is away"
    shell.answer()
    assert peer.take() == [UNAVAILABLE]
    assert shell.of(End) == [End()]


@pytest.mark.parametrize(
    ("error", "rule", "answer"),
    [
        (NoPlace("4096 connections"), "mediator.connect.full", UNAVAILABLE),
        (
            DeniedByRule("too many", "mediator.connect.sessions-full"),
            "mediator.connect.sessions-full",
            NOT_AUTHORISED,
        ),
    ],
)
def test_no_place_and_too_many_sessions_are_refused(
    error: Exception, rule: str, answer: Connack
) -> None:
    shell = Shell()
    shell.later = {OpenSession}
    peer = Peer(shell, SENSOR).connect()
    shell.answer(None, error)
    peer.take()
    refused(peer, rule, answer)


@pytest.mark.parametrize("change", ["disabled", "label"])
def test_keys_that_change_while_it_opens_count(change: str) -> None:
    world = World()
    shell = Shell(world=world)
    shell.later = {OpenSession}
    peer = Peer(shell, SENSOR).connect()
    snapshot = world.snapshot()
    if change == "disabled":
        snapshot["clients"][0]["disabled"] = True
    else:
        snapshot["clients"][0]["label"] = 99
    shell.site.ring = Keyring(world.site, 9, snapshot)
    shell.answer()
    peer.take()
    refused(peer, "mediator.connect.changed")


# --- generations, time ---


def test_the_first_proof_of_a_pending_generation_ends_the_older_ones() -> None:
    world = World()
    shell = Shell(world=world)
    snapshot = world.snapshot()
    row = snapshot["clients"][0]
    row["links"] = [
        {"gen": 1, "km": row["links"][0]["km"], "pending": True},
    ]
    shell.site.ring = Keyring(world.site, 9, snapshot)
    shell.later = {Confirmed}
    peer = Peer(shell, SENSOR).connect()
    (asked,) = shell.asked
    assert (asked.effect.client, asked.effect.gen) == (SENSOR, 1)
    assert shell.site.ring.clients[SENSOR].pending == frozenset()
    assert peer.got == [], "the key generator does not know yet"
    shell.answer()
    assert peer.take() == [Connack(False, 0)]
    assert shell.audits("provisioned")[0]["gen"] == 1
    Peer(shell, PANEL).connect()
    assert not shell.asked, "it was not pending"


def test_a_client_that_is_removed_while_its_first_proof_is_stored_is_refused() -> None:
    world = World()
    shell = Shell(world=world)
    snapshot = world.snapshot()
    snapshot["clients"][0]["links"][0]["pending"] = True
    shell.site.ring = Keyring(world.site, 9, snapshot)
    shell.later = {Commit}
    peer = Peer(shell, SENSOR).connect()
    del snapshot["clients"][0]
    shell.site.ring = Keyring(world.site, 9, snapshot)
    shell.answer()
    peer.take()
    refused(peer, "mediator.connect.changed")


def test_slots_of_before_the_key_generator_heard_of_a_proof_bring_no_generation_back() -> None:
    """A snapshot that was asked for before, or an answer to a request of then."""
    world = World()
    shell = Shell(world=world)
    older = Peer(shell, SENSOR)
    newer = copy(world.identities[SENSOR])
    newer.gen, newer.km = 2, bytes(32)
    world.identities[SENSOR] = newer
    before = world.snapshot()
    links = before["clients"][0]["links"] = [
        {"gen": 1, "km": older.client.ident.km.hex(), "pending": False},
        {"gen": 2, "km": newer.km.hex(), "pending": True},
    ]
    shell.site.ring = Keyring(world.site, 9, before)
    assert older.connect().got == [Connack(False, 0)]
    peer = Peer(shell, SENSOR)
    assert peer.connect().got == [Connack(False, 0)]
    for _ in range(3):
        older.begin()
        assert older.connect().got[-1] == NOT_AUTHORISED
        assert shell.audits("connect-refused")[-1]["rule"] == "mediator.connect.ended"
        if shell.site.ring.clients[SENSOR].pending:
            shell.site.ring.set_links(SENSOR, links)
        else:
            shell.site.ring = Keyring(world.site, 9, before)
    # The key generator is told again, as it may not have been; the log has it once.
    shell.later = {Confirmed}
    peer.begin()
    peer.connect()
    (asked,) = shell.asked
    assert (asked.effect.client, asked.effect.gen) == (SENSOR, 2)
    shell.answer()
    assert peer.take() == [Connack(False, 0)]
    assert len(shell.audits("provisioned")) == 1


def test_a_key_generator_that_was_put_back_does_not_know_what_was_proved() -> None:
    """Its clients are behind, and provision until they are not."""
    shell = Shell()
    shell.site.newest[SENSOR] = Newest(5, 1, bytes(8), 1)
    peer = Peer(shell, SENSOR).connect()
    assert peer.told == [(OP_WELCOME, BEHIND)]
    assert shell.audits("connect-refused")[0]["rule"] == "mediator.connect.behind"


def test_the_key_generator_s_time_is_in_the_welcome_of_whoever_asks_for_it() -> None:
    sizes = []
    for blob in (None, bytes(40)):
        shell = Shell()
        shell.later = {AskTime}
        peer = Peer(shell, SENSOR)
        peer.send(peer.hello(kg_time=True))
        assert peer.got == []
        shell.answer(None, blob)
        assert peer.session.state == "open"
        sizes.append(len(b"".join(peer.session.out)))
    assert sizes[1] - sizes[0] == 2 + 40, "type, length, time"


# --- wills ---


def test_a_will_is_judged_labelled_and_stored_before_connack() -> None:
    shell = Shell()
    shell.later = {Commit}
    peer = Peer(shell, SENSOR)
    peer.connect(will=peer.will("state/sensor", b"offline"))
    shell.answer()  # the mark
    shell.answer()  # the label of its topic
    assert shell.store.topics["state/sensor"].label == "low"
    (asked,) = shell.asked
    (record,) = asked.effect.records
    assert isinstance(record, WillRecord)
    assert (record.client, record.topic, record.conn) == (SENSOR, "state/sensor", 1)
    assert peer.take() == []
    shell.answer()
    assert peer.take() == [Connack(False, 0)]
    assert peer.session.will == record


@pytest.mark.parametrize(
    ("topic", "rule"),
    [
        ("secret/x", "mediator.will.denied"),
        ("!c1", "mediator.will.denied"),
        ("$x", "mediator.will.denied"),
    ],
)
def test_a_will_that_may_not_be_published_is_refused(topic: str, rule: str) -> None:
    shell = Shell(text=CONFIG + '[topics]\n"secret/x" = "high"\n')
    peer = Peer(shell, SENSOR)
    peer.connect(will=peer.will(topic, b"offline"))
    refused(peer, rule)
    assert not [row for row in shell.store.rows if isinstance(row, WillRecord)]


def test_a_will_that_does_not_verify_is_refused() -> None:
    shell = Shell()
    peer = Peer(shell, SENSOR)
    will = peer.will("state/sensor", b"offline")
    peer.connect(will=Will("state/other", will.payload, will.qos, will.retain))
    refused(peer, "mediator.will.unauthentic")


def test_a_will_without_a_store_is_unavailable() -> None:
    shell = Shell()
    peer = Peer(shell, SENSOR)
    shell.later = {Commit}
    peer.connect(will=peer.will(TOPIC, b"offline"))
    shell.answer()
    shell.answer(None, StoreUnavailable("full"))
    assert peer.take() == [UNAVAILABLE]


# --- a peer that leaves in the middle ---


def test_who_leaves_at_any_question_is_never_let_in_and_leaves_no_will() -> None:
    for when in range(5):
        shell = Shell()
        shell.later = {Commit, OpenSession, AskTime}
        peer = Peer(shell, SENSOR)
        will = peer.will("state/sensor", b"offline")
        peer.send(peer.hello(will=will, kg_time=True))
        for _ in range(when):
            shell.answer()
        assert peer.session.state == "opening"
        peer.session.close("too slow")
        shell.run()
        while shell.asked:
            shell.answer()
        assert (peer.take(), peer.told) == ([], [])
        assert shell.of(Entered) == []
        stored = [row for row in shell.store.rows if isinstance(row, WillRecord)]
        assert [w.will for w in shell.of(WillEffect) if w.what == "drop"] == stored
        # What was opened meanwhile is closed: End comes once more after it.
        assert len(shell.of(End)) == (2 if when >= 3 else 1)
        assert shell.site.newest[SENSOR].conn == 1, "its number is used up all the same"
