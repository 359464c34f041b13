"""The reader's half under anything in any order: no message of QoS 1 or 2 is lost or doubled while
the reader lives, the bounds hold, and in the end the broker has what the policy allows.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families.gate import opened, shut
from mediator_world import HIGH, PANEL
from reader_scene import REFUSED, Client, Scene
from sealmq.aead import make
from sealmq.mediator.core.delivery import WINDOW
from sealmq.mediator.core.effects import Commit, Snapshot, SnapshotMore, Subscribe, Unsubscribe
from sealmq.mediator.core.limits import SLOW_BYTES, SLOW_SURE_BYTES
from sealmq.mqtt import Puback, Pubcomp, Publish, Pubrec, Pubrel
from sealmq.store.records import KeptSub
from sealmq_spec.reader import Reader

# --- messages ---

STEPS = st.one_of(
    st.tuples(
        st.just("publish"), st.sampled_from("ab"), st.integers(0, 2), st.sampled_from([9, 9000])
    ),
    st.tuples(st.just("retain"), st.sampled_from("ab"), st.integers(1, 2)),
    st.tuples(st.just("subscribe"), st.sampled_from(["t/#", "t/a", "+/a"]), st.integers(1, 2)),
    st.tuples(st.just("ack"), st.integers(1, 5)),
    st.tuples(st.just("answer")),
    st.tuples(st.just("writable"), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([0.5, 20])),
    st.tuples(st.just("copies"), st.integers(1, 3)),
)


class Story:
    """One reader, and what became of each message."""

    def __init__(self, clean: bool) -> None:
        self.scene = Scene()
        self.clean = clean
        self.session = self.scene.open(clean=clean)
        self.scene.subscribe(self.session, 1, ("t/#", 2))
        self.scene.settle()
        self.client = Client(self.session)
        self.client.take()
        self.sent: list[tuple[str, bytes, int]] = []
        self.packets: list[Publish] = []
        # Of the broker: what waits for a link that is not read, and what is not acknowledged.
        self.waits: deque[Publish] = deque()
        self.owed: set[int] = set()
        self.under_way: deque[Any] = deque()
        self.seen = 0
        # What came, and when.
        self.came: list[tuple[Publish, int]] = []

    def publish(self, topic: str, qos: int, size: int, retain: bool = False) -> None:
        number = len(self.sent) + 1
        body = b"%d." % number + bytes(size)
        name = f"t/{topic}"
        m3 = self.scene.m3(name, body, kind=1 if retain else 0)
        packet = Publish(name, name.encode(), m3, qos, packet_id=number if qos else 0)
        if retain:
            self.scene.broker.retained[name] = packet._replace(retain=True)
        self.sent.append((name, b"%d" % number, qos))
        self.packets.append(packet)
        if qos and not self.clean:
            self.owed.add(number)
        self.waits.append(packet)

    def copies(self, count: int) -> None:
        """Brokers may send a message for each filter of the live link."""
        if self.clean and not self.waits:
            for packet in self.packets[-count:]:
                self.scene.live(packet.topic, packet.payload, packet.qos)

    def go_on(self) -> None:
        """What the broker has arrives, as far as it is read."""
        while self.waits and not (not self.clean and self.scene.paused.get(self.session)):
            packet = self.waits.popleft()
            if self.clean:
                self.scene.live(packet.topic, packet.payload, packet.qos)
            else:
                self.session.link_packet(packet)
            self.scene.collect()
        for answer in self.scene.answers:
            if isinstance(answer, Puback | Pubcomp):
                self.owed.remove(answer.packet_id)
            elif isinstance(answer, Pubrec):
                self.session.link_packet(Pubrel(answer.packet_id))
        self.scene.answers.clear()
        self.client.take()
        for told in self.client.told[self.seen :]:
            if isinstance(told, Pubrel) or (isinstance(told, Publish) and told.qos):
                self.under_way.append(told)
            if isinstance(told, Publish):
                self.came.append((told, self.scene.site.now_ms))
        self.seen = len(self.client.told)

    def ack(self) -> None:
        if not self.under_way:
            return
        packet = self.under_way.popleft()
        if isinstance(packet, Pubrel):
            self.scene.receive(self.session, Pubcomp(packet.packet_id))
        else:
            kind = Puback if packet.qos == 1 else Pubrec
            self.scene.receive(self.session, kind(packet.packet_id))

    def check(self) -> None:
        delivery = self.session.delivery
        assert len(delivery._under_way) <= WINDOW
        assert delivery._live <= SLOW_SURE_BYTES + 10_000
        assert delivery._loose <= SLOW_BYTES + 10_000
        waiting = delivery._live + delivery._own + delivery._loose
        assert self.scene.outboxes.held == waiting


@pytest.mark.parametrize("clean", [True, False])
@settings(max_examples=120, deadline=None)
@given(steps=st.lists(STEPS, max_size=60))
def test_no_message_of_qos_1_or_2_is_lost_or_doubled_and_order_is_kept(
    clean: bool, steps: list[Any]
) -> None:
    story = Story(clean)
    scene, session = story.scene, story.session
    for number, (what, *rest) in enumerate(steps, 2):
        match what:
            case "publish":
                story.publish(*rest)
            case "retain" if clean:
                topic, qos = rest
                story.publish(topic, qos, 9, retain=True)
            case "subscribe" if clean:
                scene.subscribe(session, number, (rest[0], rest[1]))
            case "ack":
                for _ in range(rest[0]):
                    story.ack()
                    story.go_on()
            case "answer" if scene.questions:
                scene.answer()
            case "writable":
                session.writable(rest[0])
            case "time":
                scene.passes(rest[0])
            case "copies":
                story.copies(*rest)
        scene.collect()
        story.go_on()
        story.check()
    session.writable(True)
    story.go_on()
    while scene.questions or story.under_way or story.waits:
        scene.settle()
        story.go_on()
        story.ack()
        story.go_on()
        story.check()
    assert session.state == "open"
    assert scene.outboxes.held == 0
    assert not session.delivery._under_way
    assert story.owed == set(), "the broker is owed nothing"
    judge(story)


# As a reader does it: what it takes, how often and in which order.
def judge(story: Story) -> None:
    reader = Reader(story.scene.world.identities[PANEL], make)
    reader.add_record(story.scene.world.record)
    taken: list[tuple[str, bytes]] = []
    lately: list[tuple[str, bytes]] = []
    for packet, now_ms in story.came:
        message = reader.open(packet.topic_raw, bytearray(packet.payload), now_ms)
        row = packet.topic, message.payload.split(b".")[0]
        # A snapshot brings again what a reader had.
        if packet.retain and row in taken:
            lately.append(row)
            continue
        taken.append(row)
    assert len(set(taken)) == len(taken), "none twice, but in a snapshot"
    for topic in ("t/a", "t/b"):
        numbers = [int(number) for name, number in taken if name == topic]
        assert numbers == sorted(numbers)
    sure = {(topic, number) for topic, number, qos in story.sent if qos}
    assert sure <= set(taken)
    dropped = sum(rule == "mediator.deliver.slow" for *_, rule in story.scene.counts.denied)
    assert len(taken) + dropped >= len(story.sent)


# --- subscriptions ---


def kind_of(effect: Any) -> str:
    """Answers of one kind come in the order of the questions."""
    match effect:
        case Subscribe() | Unsubscribe():
            return str(effect.link)
        case Commit():
            return "commit"
        case Snapshot() | SnapshotMore():
            return "snapshot"
    return "turn"


def answer_one(scene: Scene, dice: random.Random) -> None:
    """The oldest question of some kind gets its answer."""
    if not scene.questions:
        return
    kinds = [kind_of(question.effect) for question in scene.questions]
    scene.answer(kinds.index(dice.choice(kinds)))


def history(seed: int, clean: bool) -> Scene:
    """Random packets, changes, answers and commits; then everything ends."""
    dice = random.Random(seed)
    scene = Scene(gate=True)
    session = scene.open(clean=clean)
    client = Client(session)
    filters = [
        f"!AP/{filt}{{{p}}}"
        for filt in ("a", "b/%23", "b/HASH", "$share/g/c")
        for p in ("x", "y", "z")
    ]
    scene.broker.grants = lambda filt, qos: (
        REFUSED if dice.random() < 0.03 else min(qos, dice.choice((0, 1, 2, 2, 2, 2)))
    )
    asked: list[int] = []
    for _ in range(400):
        number = dice.randrange(65_500, 65_536)
        match dice.randrange(7):
            case 0:
                some = dice.sample(filters, dice.randrange(1, 4))
                scene.subscribe(session, number, *((filt, dice.randrange(3)) for filt in some))
                asked.append(number)
            case 1:
                scene.unsubscribe(session, number, *dice.sample(filters, dice.randrange(1, 3)))
                asked.append(number)
            case 2:
                change = shut if dice.random() < 0.5 else opened
                scene.apply(change(*dice.sample("xyz", dice.randrange(1, 3))))
            case 3:
                scene.publish(dice.choice(("a", "b/1")), qos=dice.randrange(3))
                for packet in client.take():
                    if isinstance(packet, Publish) and packet.qos:
                        scene.receive(session, Pubrec(packet.packet_id), Puback(packet.packet_id))
                        scene.receive(session, Pubcomp(packet.packet_id))
            case _:
                answer_one(scene, dice)
        if len(scene.questions) + len(session._queue) > 40:
            scene.settle()
        if dice.random() < 0.02:
            scene.gate.mark = dice.choice(("", "-m"))
    scene.broker.grants = lambda filt, qos: qos
    scene.settle()
    # Whatever was refused is asked for again.
    scene.apply(opened(*"xyz"))
    scene.settle()
    scene.apply(shut(*dice.sample("xyz", dice.randrange(3))))
    scene.settle()
    assert session.state == "open"
    assert sorted(number for _, number, _ in client.acks) == sorted(asked), "each answered once"
    return scene


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_in_the_end_the_broker_has_what_the_policy_allows(seed: int, clean: bool) -> None:
    scene = history(seed, clean)
    (session,) = scene.agenda.by_policy.values()
    wanted: dict[str, int] = {}
    policy = session.policy
    for _, raw in policy.held():
        decision = policy.again(raw, scene.site.now_ms)
        assert decision is not None
        sub = policy._subs[raw]
        at = decision.topic
        if at.startswith("$share/"):
            at = f"$share/{HIGH}." + at.removeprefix("$share/")
        if decision.allow:
            wanted[at] = max(wanted.get(at, 0), sub.qos)
        if not clean:
            stored = scene.rows.pop(raw)
            assert stored.qos == sub.qos
            assert stored.at == (at if at in scene.broker.of(session) else "")
    got = scene.broker.of(session)
    assert set(got) == set(wanted)
    assert all(got[at] >= qos for at, qos in wanted.items())
    assert scene.rows == {}
    if clean:
        table, delivery = scene.outboxes.table, session.delivery
        live = {filter: table.value(delivery, filter) for filter in table.filters(delivery)}
        assert live == {at: qos for at, qos in wanted.items() if not at.startswith("$share")}
    assert session.subs._orders == 0
    assert not session.subs._waiting
    assert len(session._tasks) == 0
    session.close("test")
    scene.collect()
    assert scene.broker.live == {}
    assert len(scene.outboxes.table) == 0


def test_kept_rows_name_where_each_stands() -> None:
    """What was granted under way and what is stored are one thing, also for a moved group."""
    scene = Scene(gate=True)
    group = "!AP/$share/g/c{x}"
    at = f"$share/{HIGH}.x.g/c"
    session = scene.open(clean=False, rows=(KeptSub(PANEL, "id", group, 1, at),))
    scene.settle()
    scene.gate.mark = "-m"
    scene.apply(opened("x"))
    scene.settle()
    moved = f"$share/{HIGH}.x-m.g/c"
    assert scene.broker.own[session] == {moved: 1}
    assert scene.rows[group].at == moved
