"""What each session has at the broker: its session there, its own link, its filters on the live
link, and the snapshots that it fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from .core import effects as fx
from .core.limits import OPENING_S
from .core.reasons import TAKEN_OVER
from .core.session import Session
from .events import Events
from .kept_sessions import KeptSessions
from .links import BrokerAddress, LiveLink, OwnLink, Snapshot, Snapshots
from .links.broker import OnUnfit
from .questions import Questions
from .registry import Registry


class _Links:
    """Of one session. `key`: its session at the broker. `live`: filters that it holds on the live
    link, or asks for. `done`: it has ended, and all that it asked is answered.
    """

    __slots__ = ("done", "key", "live", "own", "session", "snapshots", "turn")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.key: tuple[int, str] | None = None
        self.own: OwnLink | None = None
        # What is asked on the own link keeps its order, also while that is opened.
        self.turn = asyncio.Lock()
        self.live: set[str] = set()
        self.snapshots: dict[int, Snapshot] = {}
        self.done: asyncio.Future[None] | None = None


class SessionLinks:
    """Executes the effects of sessions that concern the broker's side of them. `kept`: what the
    store knows of sessions that the broker keeps.
    """

    def __init__(
        self,
        address: BrokerAddress,
        events: Events,
        questions: Questions,
        registry: Registry,
        kept: KeptSessions,
        live: LiveLink,
        snapshots: Snapshots,
        on_unfit: OnUnfit,
    ) -> None:
        self._address, self._events, self._questions = address, events, questions
        self._registry, self._kept, self._live = registry, kept, live
        self._snapshots, self._on_unfit = snapshots, on_unfit
        self._links: dict[Session, _Links] = {}
        # The newest session of each (client, client id) that the broker was asked for.
        self._newest: dict[tuple[int, str], _Links] = {}
        self._tokens = 0

    # --- a session at the broker ---

    def open(self, session: Session, effect: fx.OpenSession) -> None:
        """As OpenSession."""
        links = self._of(session)
        links.key = session.client.number, session.client_id
        before = self._newest.get(links.key)
        if before is not None and before.session.state != "closed":
            if _place(before.session) > _place(session):
                session.close("its session goes on in a newer connection", TAKEN_OVER)
                self._questions.reply(session, effect.task, fx.Opened(False))
                return
            before.session.close("its session goes on in a newer connection", TAKEN_OVER)
        self._newest[links.key] = links
        self._ask(links, effect.task, self._opened(links, before, effect))

    async def _opened(
        self, links: _Links, before: _Links | None, effect: fx.OpenSession
    ) -> fx.Opened:
        session, kept = links.session, self._kept
        key = session.client.number, session.client_id
        if session.site.away is not None:
            raise fx.BrokerAway(session.site.away)
        self._registry.place(session)
        self._events.drain()
        if before is not None and before.done is not None and not before.done.done():
            # What it began is done first: its rows, its filters at the broker.
            await asyncio.wait({before.done}, timeout=OPENING_S)
        if effect.fresh:
            await kept.prepare(session.client, effect.gen, session.client_id, clean=True)
        known = await kept.prepare(
            session.client, effect.gen, session.client_id, effect.clean, effect.expiry
        )
        if effect.clean:
            return fx.Opened(False)
        try:
            _, present = await self._open_own(links, clean=False)
        except BaseException:
            if known:
                kept.doubt(key)
            raise
        doubtful = kept.doubtful(key, present)
        subs = await kept.subscriptions(key, effect.gen, known, present)
        return fx.Opened(present, tuple(subs), doubtful)

    async def _open_own(self, links: _Links, clean: bool) -> tuple[OwnLink, bool]:
        session = links.session
        run = self._events.run
        own = OwnLink(
            lambda packet: run(session.link_packet, packet),
            lambda reason: run(session.link_lost, reason),
            self._on_unfit,
        )
        name = session.site.broker_id(session.client.number, session.client_id)
        present = await own.open(self._address, name, clean)
        links.own = own
        return own, present

    # --- subscriptions ---

    def subscribe(self, session: Session, effect: fx.Subscribe) -> None:
        """As Subscribe."""
        links = self._of(session)
        if effect.link == fx.OWN:
            self._ask(links, effect.task, self._subscribed(links, effect))
            return
        filters = [filter for filter, _ in effect.filters]
        links.live.update(filters)
        # The live link is asked now, not when the task first runs: an UNSUBSCRIBE may follow.
        self._ask(links, effect.task, self._live.subscribe(session, filters))

    async def _subscribed(self, links: _Links, effect: fx.Subscribe) -> object:
        async with links.turn:
            if links.own is None and links.session.state != "closed":
                # The first $share of a clean session.
                own, _ = await self._open_own(links, clean=True)
                own.pause(False)
                if links.session.state == "closed":
                    self._close_own(links)
        if links.own is None:
            raise fx.BrokerAway("the session has ended")
        codes = await links.own.subscribe(effect.filters)
        if links.key is not None and not links.session.clean:
            self._kept.changed(links.key, [filter for filter, _ in effect.filters])
        return codes

    def unsubscribe(self, session: Session, effect: fx.Unsubscribe) -> None:
        """As Unsubscribe."""
        links = self._of(session)
        if effect.link == fx.LIVE:
            links.live.difference_update(effect.filters)
            self._live.unsubscribe(session, effect.filters)
            if effect.task:
                self._questions.reply(session, effect.task, None)
        else:
            self._ask(links, effect.task, self._unsubscribed(links, effect))

    async def _unsubscribed(self, links: _Links, effect: fx.Unsubscribe) -> None:
        async with links.turn:
            pass
        if links.own is not None:
            await links.own.unsubscribe(effect.filters)

    def live_lost(self, reason: str) -> None:
        """The live link has fallen: who had a filter on it ends."""
        for links in list(self._links.values()):
            if links.live:
                links.live.clear()
                self._events.run(links.session.link_lost, reason)

    # --- snapshots ---

    def snapshot(self, session: Session, effect: fx.Snapshot) -> None:
        """As Snapshot."""
        self._tokens += 1
        snapshot = self._snapshots.of(session.client.number, effect.filter)
        links = self._of(session)
        links.snapshots[self._tokens] = snapshot
        self._ask(links, effect.task, self._some(links, self._tokens), ends=True)

    def snapshot_more(self, session: Session, effect: fx.SnapshotMore) -> None:
        """As SnapshotMore."""
        links = self._of(session)
        self._ask(links, effect.task, self._some(links, effect.token), ends=True)

    async def _some(self, links: _Links, token: int) -> fx.Some:
        snapshot = links.snapshots.get(token)
        if snapshot is None:
            return fx.Some((), None)
        try:
            messages, more = await snapshot.more()
        except BaseException:
            links.snapshots.pop(token, None)
            raise
        if not more:
            links.snapshots.pop(token, None)
        return fx.Some(messages, token if more else None)

    def snapshot_drop(self, session: Session, effect: fx.SnapshotDrop) -> None:
        """As SnapshotDrop."""
        links = self._links.get(session)
        snapshot = links.snapshots.pop(effect.token, None) if links is not None else None
        if snapshot is not None:
            snapshot.close()

    # --- the own link ---

    def answer(self, session: Session, effect: fx.Answer) -> None:
        """As Answer."""
        links = self._links.get(session)
        if links is not None and links.own is not None:
            links.own.send(effect.data)

    def pause(self, session: Session, effect: fx.PauseLink) -> None:
        """As PauseLink."""
        links = self._links.get(session)
        if links is not None and links.own is not None:
            links.own.pause(effect.on)

    # --- the end ---

    def end(self, session: Session) -> None:
        """The session has ended; it may be told so twice, when a link was opened late."""
        links = self._links.get(session)
        if links is None:
            return
        for snapshot in links.snapshots.values():
            snapshot.close()
        links.snapshots.clear()
        self._close_own(links)
        if links.live:
            self._live.unsubscribe(session, links.live)
            links.live = set()
        if links.key is not None and self._newest.get(links.key) is links:
            self._kept.left(links.key)
        self._forget_when_done(links)

    def _of(self, session: Session) -> _Links:
        links = self._links.get(session)
        if links is None:
            links = self._links[session] = _Links(session)
        return links

    def _ask(
        self, links: _Links, task: int, work: Coroutine[Any, Any, object], ends: bool = False
    ) -> None:
        self._questions.ask(links.session, task, work, ends)
        self._forget_when_done(links)

    def _close_own(self, links: _Links) -> None:
        own, links.own = links.own, None
        if own is not None:
            own.close()

    def _forget_when_done(self, links: _Links) -> None:
        if links.done is None:
            links.done = self._questions.done(links.session)
            links.done.add_done_callback(lambda _: self._forget(links))

    def _forget(self, links: _Links) -> None:
        self._links.pop(links.session, None)
        if links.key is not None and self._newest.get(links.key) is links:
            del self._newest[links.key]


def _place(session: Session) -> tuple[int, int, int]:
    """Of two sessions of one client the one that was proved later has the greater."""
    return session.link.gen, session.link.boot, session.conn_no
