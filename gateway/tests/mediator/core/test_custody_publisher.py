"""Whatever order packets, answers, repeats and losses come in: a publisher hears that a message
moved only when it has, each packet is answered at most once, and after the end nothing happens.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core_world import TOPIC, Peer, Shell
from mediator_world import SENSOR
from sealmq.mediator.core.effects import Commit, Forward, Lock, Unlock
from sealmq.mediator.core.wrap import look_m3, open_m3
from sealmq.mqtt import Disconnect, Pingreq, Puback, Pubcomp, Publish, Pubrec, Pubrel
from sealmq.store.errors import StoreUnavailable

NEW_TOPICS = [f"new/{n}" for n in range(6)]


class Publisher(RuleBasedStateMachine):
    """One boot session over several connections; the broker and the store answer when they like."""

    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell()
        self.peer = Peer(self.shell, SENSOR).connect()
        self.shell.later = {Commit}
        self.sent: list[Publish] = []
        self.used: set[int] = set()
        # Forwards, and of those what broker and journal have, by the counter inside.
        self.moved: Counter[int] = Counter()
        self.accepted: set[int] = set()
        self.refused: set[int] = set()
        self.open: list[Forward] = []
        self.seen = 0
        # In this connection: packets by id, and answers.
        self.given: Counter[int] = Counter()
        self.answers: Counter[int] = Counter()
        self.ctr_of: dict[int, set[int]] = {}

    def _ctr(self, packet: Publish) -> int:
        return int.from_bytes(packet.payload[2:5], "big")

    def _look(self) -> None:
        ring = self.shell.world.ring
        forwards = self.shell.forwards()
        for forward in forwards[self.seen :]:
            m3 = forward.payload
            self.moved[open_m3(ring, look_m3(ring, m3), forward.topic, m3).ctr] += 1
            if forward.sent is not None:
                self.open.append(forward)
        self.seen = len(forwards)
        for packet in self.peer.take():
            if isinstance(packet, Puback | Pubrec):
                ctrs = self.ctr_of.get(packet.packet_id, set())
                self.answers[packet.packet_id] += 1
                assert ctrs & (self.accepted | self.refused), "acknowledged before it was accepted"

    @property
    def alive(self) -> bool:
        return self.peer.session.state == "open"

    def _publish(self, packet: Publish) -> None:
        if packet.qos:
            self.given[packet.packet_id] += 1
            self.ctr_of.setdefault(packet.packet_id, set()).add(self._ctr(packet))
        self.peer.session.receive(packet)
        self.shell.run()
        self._look()

    # --- the client ---

    @precondition(lambda self: self.alive)
    @rule(qos=st.integers(0, 2), topic=st.sampled_from([TOPIC, TOPIC, *NEW_TOPICS]))
    def publishes(self, qos: int, topic: str) -> None:
        free = next(n for n in range(1, 1000) if n not in self.used)
        self.used.add(free)
        packet = self.peer.message(topic=topic, qos=qos, packet_id=free if qos else 0)
        self.sent.append(packet)
        self._publish(packet)

    @precondition(lambda self: self.alive and self.sent)
    @rule(data=st.data(), fresh=st.booleans())
    def sends_again(self, data: st.DataObject, fresh: bool) -> None:
        packet = data.draw(st.sampled_from(self.sent))
        if packet.qos and fresh:
            free = next(n for n in range(1, 1000) if n not in self.used)
            self.used.add(free)
            packet = packet._replace(packet_id=free)
        self._publish(packet._replace(dup=bool(packet.qos)))

    @precondition(lambda self: self.alive)
    @rule(packet_id=st.integers(1, 50))
    def releases(self, packet_id: int) -> None:
        mine = self.peer.session.inbound
        ids = {row[2] for f in self.open if f.sent for row in f.sent.waiting if row[0] is mine}
        self.peer.session.receive(Pubrel(packet_id))
        self.shell.run()
        completed = Pubcomp(packet_id) in self.peer.take()
        assert completed is (packet_id not in ids)

    @precondition(lambda self: self.alive)
    @rule()
    def pings(self) -> None:
        self.peer.session.receive(Pingreq())
        self._look()

    @rule(how=st.sampled_from(["lost", "disconnect", "stop"]))
    def goes_and_comes_again(self, how: str) -> None:
        session = self.peer.session
        if how == "lost":
            session.lost("reset")
        elif how == "disconnect":
            session.receive(Disconnect())
        else:
            session.stop("clock")
        self.shell.run()
        while self.shell.asked:
            self.shell.answer()
        self._look()
        assert session.state == "closed"
        assert session.out == []
        self.shell.later = set()
        self.peer.begin()
        self.peer.connect(low=1)
        self.shell.later = {Commit}
        self.peer.got.clear()
        self.given.clear()
        self.answers.clear()
        assert self.alive

    # --- broker, journal and store ---

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def accepts(self, data: st.DataObject) -> None:
        forward = data.draw(st.sampled_from(self.open))
        self.open.remove(forward)
        sent = forward.sent
        assert sent is not None
        self.accepted.add(sent.ctr)
        self.shell.accept(forward)
        self._look()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def does_not_take(self, data: st.DataObject) -> None:
        forward = data.draw(st.sampled_from(self.open))
        self.open.remove(forward)
        sent = forward.sent
        assert sent is not None
        self.refused.add(sent.ctr)
        self.shell.not_taken(forward)
        self._look()

    @precondition(lambda self: self.shell.asked)
    @rule(fails=st.booleans())
    def stores(self, fails: bool) -> None:
        asked = self.shell.asked.popleft()
        before = set(self.shell.locked)
        if fails:
            # Then what waits for it is refused, which is an answer, too.
            topic = asked.effect.records[0].topic
            mine = {self._ctr(packet) for packet in self.sent if packet.topic == topic}
            self.refused |= mine - set(self.moved)
            self.shell.answer(asked, StoreUnavailable("full"))
        else:
            self.shell.answer(asked)
        self._look()
        assert before >= self.shell.locked

    # --- what holds ---

    @invariant()
    def a_message_moves_once(self) -> None:
        assert max(self.moved.values(), default=0) <= 1

    @invariant()
    def no_packet_is_answered_more_often_than_it_came(self) -> None:
        assert all(n <= self.given[packet_id] for packet_id, n in self.answers.items())

    @invariant()
    def receipts_say_what_was_accepted_and_nothing_else(self) -> None:
        window = self.peer.session.link.accepted
        said = {window.top - back for back in range(64) if window.mask >> back & 1}
        of_qos_0 = {self._ctr(p) for p in self.sent if not p.qos and self.moved[self._ctr(p)]}
        assert said <= self.accepted | of_qos_0

    @invariant()
    def nothing_leaves_a_closed_session(self) -> None:
        session = self.peer.session
        if session.state == "closed":
            assert not session._queue
            assert session not in self.shell.agenda.by_policy.values()

    @invariant()
    def locks_are_given_back(self) -> None:
        taken = sum(bool(e.rows) for e in self.shell.of(Lock))
        assert taken <= len(self.shell.of(Unlock))


Publisher.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestPublisher = Publisher.TestCase
