"""SUBSCRIBE and UNSUBSCRIBE (SPEC.md 4.2), and what becomes of a subscription when policy, store or
broker change.

Each filter's token is verified and the policy asked; filters that it allows go to the broker. A
refused filter gets 0x80 in SUBACK and a notice; the others go on. A kept session's filters are on
its own link, and in the store before SUBACK says so; `$share` is on the own link, too, and
everything else on the live link, whose retained messages are fetched after SUBACK.

Several filters of a client may be the same one at the broker, say with what a policy family puts
before it. The broker then has it once, at the highest QoS that was granted to any of those that are
allowed; each keeps its own QoS. A filter that the policy no longer allows is paused, and resumed
with its QoS when it is allowed again. The client is told of neither (it could do nothing about it).
What a paused one still gets is judged as always, so a pause need not come in time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sealmq.broker.promises import check_group, check_publish
from sealmq.families.engine import Decision
from sealmq.families.shared import GROUP, PUBLIC, inner
from sealmq.mqtt import FilterWishes
from sealmq.mqtt import Subscribe as SubscribePacket
from sealmq.mqtt import Unsubscribe as UnsubscribePacket
from sealmq.store.records import KeptSub, KeptSubGone, StoreRecord
from sealmq_spec.const import SUBSCRIBE, TOKEN, UNSUBSCRIBE
from sealmq_spec.errors import Denied, SealError, TooLarge, Unavailable, Unsupported
from sealmq_spec.topics import check_filter, matches

from . import refusals
from .broker_filter import NONE, BrokerFilter, Held
from .delivery import Reader
from .effects import LIVE, OWN, Commit, Subscribe, Unsubscribe, Yield
from .limits import SUBSCRIPTIONS
from .reasons import NO_SUBSCRIPTION, OK
from .reasons import codes as reason_codes
from .refusals import of, rule_of
from .tasks import Task

REFUSED = 0x80
_NO_WISHES = FilterWishes()
REFUSED_RULE = "mediator.resume.refused"
LOWER_RULE = "mediator.resume.qos"

_TOKEN = TOKEN.decode().rstrip("/")
# The most filters in one packet: each costs a verification.
_MOST = 512
# Filters of an UNSUBSCRIBE between two turns for others: some 100 us each.
_AT_ONCE = 16
# The most pauses and resumes of one session under way.
_ORDERS = 64


class _Asked(NamedTuple):
    """One allowed filter of a SUBSCRIBE: its index in the packet, filter, and QoS asked for; the
    filter at the broker, how it is `held` there, and how it was `before`. `fetches`: whether what
    is retained for it is wanted.
    """

    at: int
    raw: str
    qos: int
    target: BrokerFilter
    held: Held
    before: Held | None
    fetches: bool


class Subscriptions:
    """The subscriptions of one session; made after its outbox."""

    def __init__(self, session: Reader) -> None:
        self._session, self._delivery = session, session.delivery
        self._site, self._table = session.site, session.outboxes.table
        self._policy = session.policy
        self._kept = not session.clean
        # By the broker's filter, and by the client's.
        self._targets: dict[str, BrokerFilter] = {}
        self._of: dict[str, BrokerFilter] = {}
        # The rows in the store, once the commits under way are done.
        self._rows: dict[str, KeptSub] = {}
        self._orders = 0
        self._waiting: dict[BrokerFilter, None] = {}
        self._closed = False

    def __len__(self) -> int:
        """Filters of the client."""
        return len(self._of)

    # --- SUBSCRIBE ---

    def subscribe(self, packet: SubscribePacket) -> Task:
        """Handles one SUBSCRIBE. It may have many filters, each costly to judge: others have their
        turn between them, and during one that takes long.
        """
        session = self._session
        if len(packet.filters) > _MOST:
            session.close("too many filters in one SUBSCRIBE")
            return
        asked: list[_Asked] = []
        refused: dict[int, SealError] = {}
        wishes = packet.wishes or (_NO_WISHES,) * len(packet.filters)
        for at, (text, qos) in enumerate(packet.filters):
            if at:
                yield Yield(0)
            if self._closed:
                return
            try:
                one = yield from self._allowed(at, text, qos, wishes[at])
            except SealError as error:
                refused[at] = error.with_traceback(None)
                self._refuse(refusals.SUBSCRIBE, error, text)
                continue
            if one is None:
                return
            asked.append(one)
        # Meanwhile the policy may have given it another filter at the broker.
        asked = [one._replace(target=self._of[one.raw]) for one in asked]
        targets = list(dict.fromkeys(one.target for one in asked))
        turns = [(target, target.sent(target.asked)) for target in targets]
        codes = yield from self._ask(targets)
        for target, turn in turns:
            code = codes[target]
            target.answered(turn, None if code == REFUSED else code)
        yield from self._answered(packet, asked, codes, refused)

    def _ask(self, targets: Sequence[BrokerFilter]) -> Generator[Any, Any, dict[BrokerFilter, int]]:
        codes = dict.fromkeys(targets, REFUSED)
        for link in (OWN, LIVE):
            some = [target for target in targets if target.link == link]
            if some and not self._closed:
                filters = tuple((target.filter, target.have) for target in some)
                # If the link falls, the session hears of it otherwise; here the filters count as
                # refused.
                with suppress(Exception):
                    got = yield Subscribe(0, link, filters)
                    codes.update(zip(some, got, strict=False))
        return codes

    # Enters the filter with policy and table at once: the broker may send before it answers. None:
    # the session has ended meanwhile.
    def _allowed(
        self, at: int, text: str, qos: int, wishes: FilterWishes
    ) -> Generator[Any, Any, _Asked | None]:
        session, site = self._session, self._site
        raw, ctr = session.link.token(SUBSCRIBE, qos, text, session.token_low)
        try:
            check_filter(raw)
            self._check_wishes(raw, wishes)
            self._check_room(raw)
            if raw.startswith(PUBLIC):
                site.takes.check_filter(raw)
                check_publish(site.broker.retained, 0, retain=True, qos=0)
                return self._hold(at, raw, qos, raw, wishes)
            # ! is reserved for families: a filter that none of them parses is refused.
            mounted = site.ring.mounted(raw)
            if (raw[0] == "@" and not mounted) or self._policy.parse("subscribe", raw)[:1] == "!":
                raise Denied(f"filters that begin with {raw[0]} are reserved")
            decision = yield from self._judged(raw, qos)
            if decision is None:
                return None
            if not decision.allow:
                raise site.engine.refusal(decision.rule, decision.reason)
            filter = self._filter(decision)
        except SealError as error:
            raise of(error, ctr) from None
        if decision.overridden:
            name = session.client.name
            site.counts.count_unenforced(name, raw, decision.rule, "subscribe")
        self._policy.holds(decision, qos)
        return self._hold(at, decision.raw, qos, filter, wishes)

    # Links to the broker are of MQTT 3.1.1: it sends what is retained for each filter of an own
    # link, and no live message says whether it was retained.
    def _check_wishes(self, raw: str, wishes: FilterWishes) -> None:
        wrong = (
            (wishes.no_local, "no local: who sent a message is sealed"),
            (wishes.as_published, "retain as published: the broker's links do not have it"),
            (
                wishes.retained > 0 and self._link(raw) == OWN,
                "retain handling with a kept session or a shared subscription",
            ),
        )
        for is_set, what in wrong:
            if is_set:
                raise Unsupported(f"a subscription option that is not there, {what}")

    # None: the session has ended meanwhile.
    def _judged(self, raw: str, qos: int) -> Generator[Any, Any, Decision | None]:
        policy, site = self._policy, self._site
        # After the session's end the policy must not keep anything for it.
        return (
            yield from self._in_slices(
                lambda: policy.subscribe_soon(raw, qos, site.now_ms), lambda: not self._closed
            )
        )

    # Asks until there is an answer, with turns for others between. What takes more than one slice
    # goes on only while nothing else does that takes so long. None: it is no longer wanted.
    def _in_slices(
        self, ask: Callable[[], Decision | None], wanted: Callable[[], bool]
    ) -> Generator[Any, Any, Decision | None]:
        searches = self._site.searches
        if searches:
            # Each turn has the slice of a search already, and this may become one, too.
            yield Yield(0)
        if not wanted():
            return None
        decision = ask()
        if decision is not None:
            return decision
        turn = searches.join()
        try:
            yield turn
            while wanted() and (decision := ask()) is None:
                yield Yield(0)
        finally:
            searches.leave(turn)
        return decision

    def _check_room(self, raw: str) -> None:
        if self._kept and len(self._rows) >= SUBSCRIPTIONS and raw not in self._rows:
            raise TooLarge(f"{SUBSCRIPTIONS} subscriptions in one session; no more are kept")

    # What a family made of the client's filter goes to the broker, so it is checked like a
    # client's.
    def _filter(self, decision: Decision) -> str:
        check_filter(decision.topic)
        self._site.takes.check_filter(decision.topic)
        if decision.topic[0] in "!@" and not self._site.ring.mounted(decision.topic):
            raise Denied(f"filters that begin with {decision.topic[0]} are reserved")
        return self._grouped(decision.topic)

    # The group's name at the broker has the label (and a family adds the purpose): a member that
    # must not read would otherwise swallow its share.
    def _grouped(self, filter: str) -> str:
        if not filter.startswith(GROUP):
            return filter
        check_group(self._site.broker.shared)
        inner(filter)  # Malformed
        return f"{GROUP}{self._session.client.label}.{filter.removeprefix(GROUP)}"

    def _hold(self, at: int, raw: str, qos: int, filter: str, wishes: FilterWishes) -> _Asked:
        target = self._targets.get(filter)
        before = target.held.get(raw) if target is not None else None
        held = Held(qos, allowed=True, identifier=wishes.identifier)
        if wishes.identifier:
            self._delivery.identifiers = self._identifiers
        target = self._put(raw, filter, held)
        target.refused = False
        is_new = before is None or not before.taken
        fetches = wishes.retained == 0 or (wishes.retained == 1 and is_new)
        self._enter(target, waits=fetches)
        return _Asked(at, raw, qos, target, held, before, fetches)

    # Of the client's filters that match; what it knows them by is not part of their tokens.
    def _identifiers(self, topic: str) -> Sequence[int]:
        return [
            held.identifier
            for target in self._targets.values()
            if any(held.identifier for held in target.held.values())
            and matches(inner(target.filter), topic)
            for held in target.held.values()
            if held.identifier and held.allowed
        ]

    def _answered(
        self,
        packet: SubscribePacket,
        asked: Sequence[_Asked],
        got: dict[BrokerFilter, int],
        refused: Mapping[int, SealError],
    ) -> Task:
        session = self._session
        codes = [REFUSED] * len(packet.filters)
        rows: list[tuple[str, int, str, int]] = []
        fetched: dict[BrokerFilter, None] = {}
        touched: dict[BrokerFilter, None] = {}
        for one in asked:
            code = got[one.target]
            codes[one.at] = code if code == REFUSED else min(code, one.qos)
            if code != REFUSED:
                one.held.qos, one.held.taken = codes[one.at], True
            # Else the client has subscribed again meanwhile.
            target = self._of.get(one.raw)
            if target is None or target.held[one.raw] is not one.held:
                continue
            touched[target] = None
            if code != REFUSED:
                self._policy.granted(one.raw, one.held.qos, self._site.now_ms)
                # The same filter may stand in the packet once more, and have begun to wait.
                waits = self._table.value(self._delivery, target.filter) > 3
                if target is one.target and target.link == LIVE and (one.fetches or waits):
                    fetched[target] = None
            elif one.before is None or not one.before.taken:
                self._drop(one.raw)
                self._policy.unsubscribed(one.raw)
                yield from self._store_left([one.raw])
            else:
                # It goes on as it was before.
                one.held.qos, one.held.taken = one.before.qos, True
                self._policy.granted(one.raw, one.held.qos)
        for target in touched:
            self._enter(target)
            rows += target.rows
        if REFUSED in got.values():
            # What came meanwhile because of others' filters waits for nothing any more.
            self._delivery.left()
        if not (yield from self._store(rows)) or self._closed:
            return
        session.write(session.wire.suback(packet.packet_id, codes, refused))
        for target in fetched:
            self._fetch(target)
        for target in touched:
            self._settle(target)

    # --- UNSUBSCRIBE ---

    def unsubscribe(self, packet: UnsubscribePacket) -> Task:
        """Handles one UNSUBSCRIBE; it has no refusal in MQTT, so a refused filter gets its notice
        and stays.
        """
        session = self._session
        if len(packet.filters) > _MOST:
            session.close("too many filters in one UNSUBSCRIBE")
            return
        onward: dict[str, dict[str, None]] = {OWN: {}, LIVE: {}}
        left: list[str] = []
        codes = [NO_SUBSCRIPTION] * len(packet.filters)
        touched: dict[BrokerFilter, None] = {}
        for at, text in enumerate(packet.filters):
            if at and at % _AT_ONCE == 0:
                yield Yield(0)
            if self._closed:
                return
            ctr = 0
            try:
                filter, ctr = session.link.token(UNSUBSCRIBE, 0, text, session.token_low)
                check_filter(filter)
                for raw in self._policy.same(filter):
                    if raw in self._of:
                        codes[at] = OK
                    self._leave(raw, onward, touched)
                    left.append(raw)
            except SealError as error:
                error.ctr = error.ctr or ctr
                codes[at] = reason_codes(error).unsubscribe
                self._refuse(refusals.UNSUBSCRIBE, error, text)
        turns = [(target, target.turn) for target in touched if not target.held]
        self._delivery.left()
        for link, filters in onward.items():
            if filters:
                with suppress(Exception):
                    yield Unsubscribe(0, link, tuple(filters))
        for target, turn in turns:
            target.answered(turn, NONE)
        if not (yield from self._store_left(left)) or self._closed:
            return
        session.write(session.wire.unsuback(packet.packet_id, codes))
        for target in touched:
            self._settle(target)

    # The broker is told nothing while another of the client's filters stands for the same one
    # there. What was recorded counts, not what the policy would make of the filter now.
    def _leave(
        self, raw: str, onward: dict[str, dict[str, None]], touched: dict[BrokerFilter, None]
    ) -> None:
        target = self._drop(raw)
        self._policy.unsubscribed(raw)
        if target is None:
            self._leave_unknown(raw, onward)
            return
        touched[target] = None
        if not target.held:
            target.sent(NONE)
            onward[target.link][target.filter] = None

    # The broker may have it for a kept session that is older than the store.
    def _leave_unknown(self, raw: str, onward: dict[str, dict[str, None]]) -> None:
        plain = raw if raw.startswith(PUBLIC) else self._policy.parse("subscribe", raw)
        self._site.takes.check_filter(plain or "")
        at = self._grouped(plain) if plain else ""
        if at and at not in self._targets and self._link(at) == OWN:
            onward[OWN][at] = None

    def _refuse(self, what: int, error: SealError, text: str) -> None:
        rule = rule_of("subscribe", error)
        event = "packet-refused" if 0 < error.code < 5 else "subscribe-refused"
        topic = _without_token(text) or None
        self._session.refuse(what, error, rule, event=event, topic=topic)

    # --- filters at the broker ---

    def _link(self, filter: str) -> str:
        return OWN if self._kept or filter.startswith(GROUP) else LIVE

    # Enters the client's filter under this filter at the broker.
    def _put(self, raw: str, filter: str, held: Held) -> BrokerFilter:
        target = self._targets.get(filter)
        if target is None:
            target = self._targets[filter] = BrokerFilter(filter, self._link(filter))
        old = self._of.get(raw)
        target.held[raw] = held
        self._of[raw] = target
        if old is not None and old is not target:
            del old.held[raw]
            self._enter(old)
            self._settle(old)
        return target

    # The client has left it. Gives the filter at the broker under which it was.
    def _drop(self, raw: str) -> BrokerFilter | None:
        target = self._of.pop(raw, None)
        if target is not None:
            del target.held[raw]
            self._enter(target)
        return target

    # The table has what is wanted, whatever the broker has. `waits`: a new filter waits for its
    # snapshot. After the session's end nobody would take it out again.
    def _enter(self, target: BrokerFilter, waits: bool = False) -> None:
        if self._closed:
            return
        wanted = target.wanted
        delivery, filter = self._delivery, target.filter
        if target.link == OWN:
            table = delivery.own_table
            if wanted == NONE:
                table.drop(target)
            else:
                table.enter(target, inner(filter), 0)
            return
        live = self._table
        value = live.value(delivery, filter)
        if wanted == NONE:
            live.leave(delivery, filter)
            delivery.fetches.drop(filter)
        else:
            still = value > 3 if value >= 0 else waits and self._site.broker.retained
            live.enter(delivery, filter, wanted, still)

    def _fetch(self, target: BrokerFilter) -> None:
        value = self._table.value(self._delivery, target.filter)
        if value >= 0 and self._site.broker.retained:
            self._delivery.fetches.add(target.filter, value & 3, opens=value > 3)

    # Forgets it when the client holds nothing of it, and the broker has it no longer.
    def _tidy(self, target: BrokerFilter) -> None:
        over = not target.held and target.have == NONE and not target.busy
        if over and self._targets.get(target.filter) is target:
            del self._targets[target.filter]

    # --- what the policy says ---

    def restore(self, rows: Iterable[KeptSub]) -> Task:
        """Judges the stored subscriptions of a session that the broker has kept again, before the
        first message that waited there.
        """
        self._rows = {row.filter: row for row in rows}
        for n, row in enumerate(list(self._rows.values())):
            if n:
                yield Yield(0)
            if self._closed:
                return
            yield from self._restore(row)
        for target in list(self._targets.values()):
            self._settle(target)

    def _restore(self, row: KeptSub) -> Task:
        held = Held(row.qos, allowed=False, taken=True, identifier=row.identifier)
        if row.identifier:
            self._delivery.identifiers = self._identifiers
        if row.filter.startswith(PUBLIC):
            held.allowed = True
            target = self._put(row.filter, row.at or row.filter, held)
        else:
            decision = yield from self._judged(row.filter, row.qos)
            if decision is None:
                return
            self._policy.holds(decision, row.qos)
            at = self._at(decision)
            target = self._put(row.filter, row.at or at or decision.topic, held)
            held.allowed = at is not None
            if at is not None and at != target.filter:
                target.have = target.real = max(target.have, row.qos)
                target = self._put(row.filter, at, held)
                self._enter(target)
                return
        if row.at:
            target.have = target.real = max(target.have, row.qos)
        self._enter(target)

    def due(self, raws: Iterable[str]) -> None:
        """The policy may judge these filters, as they arrived, otherwise now: pauses or resumes."""
        self._session.beside(self._judge_all(tuple(raws)))

    def _judge_all(self, raws: Sequence[str]) -> Task:
        for n, raw in enumerate(raws):
            if n:
                yield Yield(0)
            yield from self._judge(raw)

    def _judge(self, raw: str) -> Task:
        policy, site = self._policy, self._site
        decision = yield from self._in_slices(
            lambda: policy.again_soon(raw, site.now_ms), lambda: policy.holding(raw)
        )
        target = self._of.get(raw)
        if target is None or decision is None:
            return
        at = self._at(decision)
        held = target.held[raw]
        held.allowed = at is not None
        target.refused = False
        if at is not None and at != target.filter:
            # It has another filter at the broker now, say in the group of another purpose.
            target = self._put(raw, at, held)
        # One that is resumed waits for its snapshot again. If the broker was not told of its pause
        # yet, there is no answer of the broker's after which that would be fetched.
        was = self._table.value(self._delivery, target.filter)
        self._enter(target, waits=True)
        if was < 0 and target.link == LIVE and target.have != NONE:
            self._fetch(target)
        if not held.allowed:
            self._delivery.left()
        self._settle(target)

    def _at(self, decision: Decision) -> str | None:
        if not decision.allow:
            return None
        try:
            return self._filter(decision)
        except SealError:
            return None

    # --- pauses and resumes ---

    # Pauses or resumes the filter if the broker has it otherwise than wanted. Policy and broker may
    # change while that is under way: after each answer both are compared again.
    def _settle(self, target: BrokerFilter) -> None:
        self._tidy(target)
        pauses = target.wanted == NONE and target.have != NONE
        if self._closed or target.busy:
            return
        if not pauses and (target.missed <= target.have or target.refused):
            return
        if self._orders >= _ORDERS:
            self._waiting[target] = None
            return
        self._orders += 1
        target.busy = True
        work = self._pause(target) if pauses else self._resume(target)
        self._session.beside(work, lambda: self._settled(target))

    def _settled(self, target: BrokerFilter) -> None:
        target.busy = False
        self._orders -= 1
        self._settle(target)
        while self._waiting and self._orders < _ORDERS:
            waiting = next(iter(self._waiting))
            del self._waiting[waiting]
            self._settle(waiting)

    # Stored before the broker is told: else the subscription could be lost for ever.
    def _pause(self, target: BrokerFilter) -> Task:
        while any(self._stands(raw) for raw in target.held):
            old = [self._rows[raw] for raw in target.held if raw in self._rows]
            rows = [(row.filter, row.qos, "", row.identifier) for row in old]
            if not (yield from self._store(rows)):
                return
        if target.wanted != NONE or target.have == NONE:
            # It was granted again meanwhile.
            yield from self._store(target.rows)
            return
        turn = target.sent(NONE)
        with suppress(Exception):
            yield Unsubscribe(0, target.link, (target.filter,))
        target.answered(turn, NONE)

    def _stands(self, raw: str) -> bool:
        row = self._rows.get(raw)
        return row is not None and row.at != ""

    def _resume(self, target: BrokerFilter) -> Task:
        wanted = target.wanted
        turn = target.sent(wanted)
        code = (yield from self._ask([target]))[target]
        target.answered(turn, None if code == REFUSED else code)
        if self._closed:
            return
        if code == REFUSED:
            target.refused = True
            if target.link == LIVE:
                self._table.leave(self._delivery, target.filter)
                self._delivery.left()
            words = "the broker refuses a subscription that it had before"
            self._tell(target, REFUSED_RULE, words)
            return
        if code < wanted:
            self._lower(target, code)
        self._enter(target)
        if target.link == LIVE and target.wanted != NONE:
            self._fetch(target)
        # The store has what the broker has, for a client that comes back.
        yield from self._store(target.rows)

    def _lower(self, target: BrokerFilter, code: int) -> None:
        for raw, held in target.held.items():
            if held.qos > code:
                held.qos = code
                self._policy.granted(raw, code)
        self._tell(target, LOWER_RULE, f"the broker resumes a subscription with QoS {code} only")

    def _tell(self, target: BrokerFilter, rule: str, words: str) -> None:
        for raw in target.held:
            self._session.refuse(refusals.SUBSCRIBE, Unavailable(words), rule, topic=raw)

    # --- the store, for a kept session: it is on disk before the client is told ---

    # Whether it was stored; if not, the session has ended.
    def _store(self, subs: Iterable[tuple[str, int, str, int]]) -> Generator[Any, Any, bool]:
        if not self._kept:
            return True
        key = self._session.client.number, self._session.client_id
        rows = [KeptSub(*key, *sub) for sub in subs]
        new = [row for row in rows if self._rows.get(row.filter) != row]
        self._rows.update((row.filter, row) for row in new)
        return (yield from self._commit(new))

    def _store_left(self, raws: Iterable[str]) -> Generator[Any, Any, bool]:
        rows = [self._rows.pop(raw) for raw in raws if raw in self._rows]
        gone = [KeptSubGone(row.client, row.client_id, row.filter) for row in rows]
        return (yield from self._commit(gone))

    def _commit(self, records: Sequence[StoreRecord]) -> Generator[Any, Any, bool]:
        if not records:
            return True
        session = self._session
        try:
            yield Commit(0, tuple(records))
        except Exception as error:
            # The client has no answer: it subscribes again after it has reconnected.
            if not self._closed:
                name = session.client.name
                session.audit("store-unavailable", client=name, reason=str(error)[:500])
                session.stop("its subscriptions cannot be stored")
            return False
        return True

    def close(self) -> None:
        """The session is over."""
        if self._closed:
            return
        self._closed = True
        live = tuple(target.filter for target in self._targets.values() if target.link == LIVE)
        if live:
            self._session.emit(Unsubscribe(0, LIVE, live))


# What the audit log shows: the token is of no use to its readers.
def _without_token(text: str) -> str:
    parts = text.split("/", 2)
    return parts[2] if parts[0] == _TOKEN and len(parts) == 3 and parts[2] else text
