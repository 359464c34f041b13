"""PUBLISH from a client (SPEC.md 6.1, GATEWAY.md G1; Chen and Wilson, Algorithm 2).

Open, judge, label, seal again, forward. The hot path: one plain function, one effect.

Decided before acknowledged: PUBACK and PUBREC go when broker and journal have the message
(`accepted`), or when it is refused. A message is its boot session's (boots.Sent): it moves once,
however often and on whichever connections it comes, and each is answered. QoS 2 of a publisher ends
here: PUBREC says that it moved, and PUBREL is answered whether its id is known any more or not.
"""

from __future__ import annotations

from typing import Any, Protocol

from sealmq.broker.promises import MESSAGE, NotPromised, check_publish
from sealmq.families.duties import items_put, lies_under
from sealmq.families.engine import Conn, Decision
from sealmq.families.records import TopicLabel
from sealmq.kinds import GATEWAY
from sealmq.mqtt import Publish, Pubrel, Will
from sealmq.store.errors import StoreUnavailable
from sealmq_spec.const import (
    CLEAR,
    LIVE,
    M2_HEAD,
    M3_HEAD,
    MAX_TOPIC,
    RECEIPT_EVERY,
    RETAINED,
    U24,
)
from sealmq_spec.envelope import get_m1, get_m2
from sealmq_spec.errors import Denied, Malformed, SealError, Unavailable
from sealmq_spec.origin import at_home
from sealmq_spec.tlv import EMPTY
from sealmq_spec.topics import check_topic
from sealmq_spec.window import NEW

from .boots import Sent
from .effects import AwaitRoom, Commit, Forward
from .limits import PUBLISH_HEAD, UNDERWAY
from .reasons import TAKEN_OVER, codes
from .refusals import JOURNAL_PART, PUBLISH, Proof, Repeated, of, proof_of, rule_of
from .retained import Place
from .session_api import SessionApi
from .site import Site
from .tasks import Task
from .wrap import Opened, for_broker, open_m2, seal_m3, tag_of, verify_m2

# What m3 is longer than m2, where no family adds to it.
_GROWS = M3_HEAD - M2_HEAD
# The TLV of the time at which a will fired.
_FIRED = 8
# Topics of one session that are known to be good.
_NAMES = 64
# Packet ids under which one message may wait.
_IDS = 8
_OPEN = "open"
# As the class's own constructor, at a third of its cost.
_new_tuple = tuple.__new__
# Malformed, unauthentic, stale or replayed: the policy has not judged these.
_EVENT_OF_CODE = dict.fromkeys((1, 2, 3, 4), "packet-refused")


class Asking(Protocol):
    """What labelling a new topic uses of a session."""

    site: Site
    policy: Conn

    def audit(self, event: str, **fields: Any) -> None: ...


class Publisher(SessionApi, Protocol):
    """What publishing uses of a session."""

    state: str
    conn_no: int
    low: int

    def block(self) -> None: ...
    def release(self) -> None: ...


def check_name(topic: str, raw: bytes, mount: str = "") -> None:
    """Refuses a topic on which no client may publish, whatever the policy says (SPEC.md 4.3, 9).
    mount: under which a bridge publishes, and nowhere else.

    Ask only after a verified tag: so the refusal is the client's own, and can be named.
    """
    if mount:
        if not topic.startswith(mount):
            raise Denied(f"a bridge publishes under {mount} alone")
        at_home(raw)
    elif topic[0] in "$!@":
        raise Denied(f"topics that begin with {topic[0]} are reserved")
    if len(raw) > MAX_TOPIC:
        check_topic(topic)


def label_topic(s: Asking, decision: Decision) -> Task:
    """First publish: the label is on disk when this ends (Algorithm 2, lines 5 to 7). Another
    mediator may have been first: ask again. Raises StoreUnavailable, Unavailable.
    """
    if s.site.away is not None:
        raise Unavailable("the broker is away, so no new topic is labelled")
    row = new_label(s.policy, decision, s.site.now_ms)
    held = (yield Commit(0, (row,)))[0]
    if held.fresh:
        s.audit("topic-labelled", **labelled(row, decision))


def new_label(policy: Conn, decision: Decision, now_ms: int) -> TopicLabel:
    """What a first publish by this decision stores."""
    return TopicLabel(decision.topic, decision.label or "", policy.who.client, now_ms)


def labelled(row: TopicLabel, decision: Decision) -> dict[str, Any]:
    """What `topic-labelled` says of it."""
    return {"client": row.client, "topic": row.topic, "label": row.label, "rule": decision.rule}


class Inbound:
    """The publishing half of one session."""

    __slots__ = ("_full", "_in_vain", "_known_tlv", "_lost", "_names", "_s", "_takes", "_underway")

    def __init__(self, session: Publisher) -> None:
        self._s = session
        self._known_tlv = tuple(session.site.engine.tlvs)
        # By packet id, what is to be answered here.
        self._underway: dict[int, Sent] = {}
        # Whether so many are that what comes now waits; whether nobody can be answered any more.
        self._full = self._lost = False
        # It has waited for room in the journal, and there was none: nothing waits until there is.
        self._in_vain = False
        # Topics that may be published on, for what the broker takes.
        self._names: set[bytes] = set()
        self._takes = session.site.takes

    # --- a packet ---

    def publish(self, packet: Publish, labelled: bool = False) -> None:
        """Handles one PUBLISH: it is forwarded or refused, or first its topic is labelled, or its
        client waits for room in the journal."""
        s = self._s
        site, link = s.site, s.link
        topic, raw, payload, qos, retain, _, packet_id = packet
        now_ms = site.now_ms
        flags = qos << 1 | retain
        ctr = 0
        try:
            if not payload:
                raise Malformed("an empty payload carries no envelope; a sealed `clear` deletes")
            verified = verify_m2(link, raw, payload, flags)
            ctr = verified[0]
            # What is above all that came before did not come before.
            if ctr <= link.window.top or ctr < s.low:
                if qos and (sent := link.again(ctr, tag_of(payload))) is not None:
                    self._again(packet, sent)
                    return
                link.look(ctr, s.low)
            if raw not in self._names or site.takes is not self._takes:
                self._check_name(topic, raw)
            size = PUBLISH_HEAD + len(raw) + len(payload) + _GROWS
            if size > site.takes.packet:
                site.takes.check_size(size)
            opened = open_m2(
                link, site.ring, s.client, verified, flags, now_ms // 1000, self._known_tlv
            )
            decision = s.policy.publish(
                topic, qos, retain, len(payload), now_ms, opened.tlv, (link.boot, ctr)
            )
            if decision.label is not None and decision.allow and not labelled:
                s.hold(self._label_first(packet, decision))
                return
            if not decision.allow or decision.label is not None:
                reason = "the topic could not be labelled" if decision.allow else decision.reason
                self._refuse(packet, of(site.engine.refusal(decision.rule, reason), ctr))
                return
            # RETAIN of QoS 0, too: an older message that the journal has would come back over it.
            if (qos or retain) and (full := site.refuses(s.client.number)) is not None:
                rule, why = full
                if rule == JOURNAL_PART and not (self._in_vain or self._lost):
                    s.hold(self._room_first(packet, labelled), ends=True)
                    return
                self._refuse(packet, of(Unavailable(why), ctr), rule)
                return
            self._in_vain = False
            m3_raw, m3 = self._seal(packet, opened, decision)
        except SealError as error:
            self._refuse(packet, of(error, ctr))
            return
        sent = None
        if qos:
            sent = link.mark(ctr, tag_of(payload))
            self._wait(sent, topic, packet_id, qos)
        else:
            link.passed(ctr)
        if not m3 and s.client.label in site.ring.leaving:
            # For bridges and borders, after the broker's own: who answers for the second has both.
            s.emit(Forward(None, m3_raw, m3, min(qos, 1), True, s.client.number))
            across = self._to_broker(opened, decision, m3_raw, RETAINED)
            s.emit(Forward(sent, m3_raw, across, qos, False, s.client.number))
        else:
            s.emit(_new_tuple(Forward, (sent, m3_raw, m3, qos, retain, s.client.number)))
        if retain:
            self._retained(opened, decision, m3)
        self._count(packet, opened, decision)
        if link.owed >= RECEIPT_EVERY:
            s.down(link.receipt())

    def _seal(self, packet: Publish, opened: Opened, decision: Decision) -> tuple[bytes, bytes]:
        s = self._s
        site, retain = s.site, packet.retain
        broker = site.broker
        if packet.qos > broker.qos or (retain and not broker.retained):
            check_publish(broker.retained, broker.qos, retain, packet.qos)
        if retain:
            # A retained message must not be overtaken by an older one of its sender.
            site.retained.check(decision.topic, *self._place(opened))
        raw = packet.topic_raw if decision.topic == packet.topic else decision.topic.encode()
        if opened.kind == CLEAR:
            m3 = b""
        else:
            body = opened.body
            if opened.start == len(EMPTY) and not decision.duties and not opened.own:
                label = site.ring.labels[s.client.label]
                m3 = seal_m3(site.ring, label, site.order, LIVE, raw, body, site.now_ms)
            else:
                m3 = self._to_broker(opened, decision, raw, opened.how)
        if retain:
            site.retained_bytes.check(decision.topic, s.client.number, len(m3))
        if decision.duties:
            site.takes.check_size(PUBLISH_HEAD + len(packet.topic_raw) + len(m3))
        return raw, m3

    def _to_broker(self, opened: Opened, decision: Decision, raw: bytes, how: int) -> bytes:
        site = self._s.site
        label, duties = site.ring.labels[self._s.client.label], decision.duties
        # Of the publisher's items none: readers take an item for the mediator's word.
        items = items_put(duties, opened.own)
        inner = label, opened.body, opened.start, lies_under(duties), items
        return for_broker(site.ring, site.order, *inner, how, raw, site.now_ms)

    # Whose retained message it is, and where it stands among that sender's. A bridge's are others'.
    def _place(self, opened: Opened) -> tuple[int, Place, bool]:
        client = self._s.client
        if client.kind != GATEWAY:
            return client.number, (opened.s1, self._s.link.boot, opened.ctr), False
        body, start = opened.body, opened.start
        _, _, _, _, sender, boot, _, ctr, t_pub, _ = get_m1(body, start, len(body))
        return sender, (t_pub, boot, ctr), True

    # What the broker does not take is refused before anything is labelled, stored or acknowledged.
    def _check_name(self, topic: str, raw: bytes) -> None:
        takes = self._s.site.takes
        if takes is not self._takes or len(self._names) >= _NAMES:
            self._names.clear()
            self._takes = takes
        client = self._s.client
        label = self._s.site.ring.labels.get(client.label) if client.kind == GATEWAY else None
        check_name(topic, raw, label.mount if label is not None else "")
        takes.check_topic(topic, len(raw))
        self._names.add(raw)

    # A new topic: its label is stored first, and then the packet is judged again.
    def _label_first(self, packet: Publish, decision: Decision) -> Task:
        s = self._s
        ctr = get_m2(packet.payload)[1]
        try:
            yield from label_topic(s, decision)
        except (StoreUnavailable, Unavailable) as error:
            event = "store-unavailable" if isinstance(error, StoreUnavailable) else ""
            self._refuse(packet, of(Unavailable(str(error)), ctr), event=event)
            return
        if s.state == _OPEN:
            self.publish(packet, labelled=True)

    def _room_first(self, packet: Publish, labelled: bool) -> Task:
        """It is judged anew when there is room. A client that gets no PUBACK meanwhile publishes
        more slowly; one that were refused would lose what it has sent."""
        s = self._s
        self._in_vain = not (yield AwaitRoom(0, s.client.number))
        if s.state == _OPEN:
            self.publish(packet, labelled)

    def _retained(self, opened: Opened, decision: Decision, m3: bytes) -> None:
        s = self._s
        site, topic, number = s.site, decision.topic, s.client.number
        sender, place, _ = self._place(opened)
        site.retained.published(topic, sender, place)
        newest = (site.order.ms, site.order.seq) if m3 else (site.now_ms, U24)
        site.retained.passed(topic, *newest)
        site.retained_bytes.took(topic, number, len(m3))

    def _count(self, packet: Publish, opened: Opened, decision: Decision) -> None:
        s = self._s
        site = s.site
        label = site.ring.labels[s.client.label].name
        site.counts.count_accepted(s.client.name, decision.topic, label)
        if decision.overridden:
            site.counts.count_unenforced(s.client.name, decision.topic, decision.rule, "publish")
        if "accepted" in site.engine.listens:
            s.policy.saw(
                "accepted",
                decision.raw,
                site.now_ms,
                label=label,
                qos=packet.qos,
                retain=packet.retain,
                size=len(packet.payload),
                tlv=opened.tlv,
                message_id=(s.link.boot, opened.ctr),
            )

    # --- the same packet again (SPEC.md 6.1, step 2), and answers ---

    def _again(self, packet: Publish, sent: Sent) -> None:
        if sent.ctr < self._s.low:
            text = f"counter {sent.ctr} is below {self._s.low}, which this connection announced"
            raise Repeated(text)
        if sent.refused is not None:
            self._refuse(packet, *sent.refused)
        elif sent.done:
            self._acknowledge(packet.packet_id, packet.qos)
        else:
            self._join(packet, sent)

    # It is under way: this packet is answered together with it. Of two connections of one boot
    # session the newer one counts, else whoever held on to the older one could take its answers.
    def _join(self, packet: Publish, sent: Sent) -> None:
        s, packet_id = self._s, packet.packet_id
        for other, _, its_id, _ in sent.waiting:
            if other is self:
                if its_id == packet_id:
                    return
                if packet.qos == 2 or len(sent.waiting) >= _IDS:
                    s.close("one message under two packet ids")
                    return
            elif other.is_open and other.conn_no > s.conn_no:
                s.close("a message that is under way in a newer connection of this session")
                return
        others = {other for other, *_ in sent.waiting if other is not self}
        sent.waiting = [row for row in sent.waiting if row[0] is self]
        self._wait(sent, packet.topic, packet_id, packet.qos)
        for other in others:
            other.give_way()

    def _wait(self, sent: Sent, topic: str, packet_id: int, qos: int) -> None:
        sent.waiting.append((self, topic, packet_id, qos))
        underway = self._underway
        underway[packet_id] = sent
        if len(underway) >= UNDERWAY and not self._full and not self._lost:
            self._full = True
            self._s.block()

    def lost(self) -> None:
        """The client will hear of nothing any more: what it sent waits for no answer."""
        self._lost = True
        if self._full:
            self._full = False
            self._s.release()

    @property
    def is_open(self) -> bool:
        """Whether anybody can be answered here."""
        return self._s.state == _OPEN

    @property
    def conn_no(self) -> int:
        """The connection's number."""
        return self._s.conn_no

    def give_way(self) -> None:
        """A newer connection of this boot session has brought what waits here."""
        self._s.close("the boot session goes on in a newer connection", TAKEN_OVER)

    def answer(self, sent: Sent, topic: str, packet_id: int, qos: int) -> None:
        """What this session brought under that packet id is done, or refused."""
        s = self._s
        if s.state == _OPEN:
            if self._underway.get(packet_id) is sent:
                del self._underway[packet_id]
            if sent.refused is not None:
                self._tell(topic, packet_id, qos, *sent.refused)
            else:
                if qos == 1:
                    s.write(s.wire.puback(packet_id))
                else:
                    self._acknowledge(packet_id, qos)
                if s.link.owed >= RECEIPT_EVERY:
                    s.down(s.link.receipt())
        if self._full and len(self._underway) < UNDERWAY:
            self._full = False
            s.release()

    def _acknowledge(self, packet_id: int, qos: int) -> None:
        s = self._s
        if qos == 1:
            s.write(s.wire.puback(packet_id))
        elif qos == 2:
            s.write(s.wire.pubrec(packet_id))

    def released(self, packet: Pubrel) -> None:
        """PUBREL: its message moved when PUBREC went out, and nobody else needs the id."""
        s = self._s
        if packet.packet_id in self._underway:
            s.close("PUBREL for a message that has no PUBREC yet")
        else:
            s.write(s.wire.pubcomp(packet.packet_id))

    def _refuse(self, packet: Publish, error: SealError, rule: str = "", event: str = "") -> None:
        rule = rule or rule_of("publish", error)
        if proof_of(error) is Proof.FIRST:
            # What comes again to a site that hangs up would never be acknowledged: there it may go
            # well once the store is back.
            if not (self._hangs_up and isinstance(error, Unavailable)):
                self._ends(packet, error, rule)
        self._tell(packet.topic, packet.packet_id, packet.qos, error, rule, event)

    @property
    def _hangs_up(self) -> bool:
        return self._s.site.config.mediator.on_denied == "disconnect"

    def _tell(
        self, topic: str, packet_id: int, qos: int, error: SealError, rule: str, event: str = ""
    ) -> None:
        s = self._s
        event = event or _EVENT_OF_CODE.get(error.code, "publish-refused")
        hangs_up = proof_of(error) is Proof.FIRST and self._hangs_up

        def acknowledge() -> None:
            if hangs_up:
                s.close(f"refused: {rule}", codes(error).end, rule)
            elif qos and packet_id in self._underway:
                # An answer to this packet would be taken for one to the message under way.
                s.close(f"refused under a packet id that is in use: {rule}")
            elif qos:
                s.write(s.wire.refused(packet_id, qos, error, rule))

        s.refuse(PUBLISH, error, rule, acknowledge, qos, event, topic=topic[:200])

    # Refuses it for good: it stays refused if it comes again, from whomever.
    def _ends(self, packet: Publish, error: SealError, rule: str) -> None:
        link, tag = self._s.link, tag_of(packet.payload)
        sent = link.again(error.ctr, tag)
        if sent is None:
            if link.window.look(error.ctr) != NEW:
                return  # it moved on another connection of this boot session meanwhile
            sent = link.mark(error.ctr, tag)
        elif sent.done or sent.waiting:
            return
        # The error's frames would keep the packet in memory.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        sent.refused = error, rule

    # --- wills ---

    def judge_will(self, will: Will) -> tuple[Opened, Decision]:
        """What the m2 of a will says, and the policy of it. Raises SealError."""
        s = self._s
        topic, raw = will.topic, will.topic.encode()
        flags = will.qos << 1 | will.retain
        now_ms = s.site.now_ms
        verified = verify_m2(s.link, raw, will.payload, flags)
        check_topic(topic)
        self._check_name(topic, raw)
        size = PUBLISH_HEAD + len(raw) + len(will.payload) + _GROWS + _FIRED
        s.site.takes.check_size(size)
        opened = open_m2(
            s.link, s.site.ring, s.client, verified, flags | 0x80, now_ms // 1000, self._known_tlv
        )
        decision = s.policy.publish(
            topic,
            will.qos,
            will.retain,
            len(will.payload),
            now_ms,
            opened.tlv,
            (s.link.boot, opened.ctr),
        )
        return opened, decision


def not_taken(sent: Sent, why: str) -> None:
    """The broker does not take it: refuses it now, and whenever it comes again."""
    error = NotPromised(f"the site's broker does not take this message: {why[:200]}", MESSAGE)
    sent.refused = of(error, sent.ctr), MESSAGE
    answer(sent)


def answer(sent: Sent) -> None:
    """It is done, or refused: tells all connections that wait for it."""
    waiting, sent.waiting = sent.waiting, []
    for asker, topic, packet_id, qos in waiting:
        asker.answer(sent, topic, packet_id, qos)
