"""What an agent itself keeps of its local clients' sessions; all else of them is the site's.

Packet ids of QoS 2 that are not released, in memory; on disk those that a kept session's client is
done with before the site (delivery.py). Of clients of MQTT 5 what their subscriptions
ask for besides QoS, which no site does for them: no local, retain as published, retain handling,
identifiers. Of a session that is kept that is on disk before SUBACK says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from sealmq.client import Message
from sealmq.families.filters import covers
from sealmq.mqtt import FilterWishes
from sealmq_spec.const import RETAINED

from .spool import Spool

log = logging.getLogger("sealmq.agent")

# Messages of QoS 2 that a client may have published without a PUBREL.
UNRELEASED = 2048
_SESSIONS = 256
# Of all sessions that are kept, packet ids of QoS 2 together.
_ALL_UNRELEASED = 65_536
# The newest messages of clients that do not want their own back.
_OWN = 16_384
_SHARE = "$share/"
_TOPICS = 256


class Unreleased:
    """Packet ids of QoS 2 messages that a client has published, and not released. accepted: by the
    site; refused: those that are not told apart from others by a client that overlooks PUBREC's
    reason code, the newest ones."""

    __slots__ = ("accepted", "refused")

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self.refused: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self.accepted) + len(self.refused)

    def decided(self, packet_id: int, accepted: bool) -> None:
        """The site has decided about it."""
        self.refused.pop(packet_id, None)
        if accepted:
            self.accepted.add(packet_id)
            return
        self.refused[packet_id] = None
        if len(self.refused) > UNRELEASED:
            del self.refused[next(iter(self.refused))]

    def released(self, packet_id: int) -> bool:
        """PUBREL has come: whether the message was refused."""
        self.accepted.discard(packet_id)
        return self.refused.pop(packet_id, False) is None


class Asked(NamedTuple):
    """A subscription: the QoS that was asked for, and what besides. retained: whether its SUBSCRIBE
    brings what is retained; granted: the QoS that it has, None while the site has not said so (a
    connection may end before its answer)."""

    qos: int
    wishes: FilterWishes
    retained: bool = True
    granted: int | None = None


class Session:
    """Of one client identifier. filters: its subscriptions, of MQTT 5; choosing: how many of them
    ask for more than QoS; expiry: seconds, as at its last CONNECT; freed: the site's packet ids for
    which its client had a PUBREL before the site's came, until the site is done with them."""

    __slots__ = (
        "_found", "choosing", "client_id", "expiry", "filters", "freed", "kept", "own",
        "received",
    )  # fmt: skip

    def __init__(self, client_id: str, own: dict[tuple[int, int], str]) -> None:
        self.client_id, self.own = client_id, own
        self.received = Unreleased()
        self.filters: dict[str, Asked] = {}
        self.kept = False
        self.freed: set[int] = set()
        self.choosing = self.expiry = 0
        # Topics that were matched before: a client has up to 1,024 filters (GATEWAY.md).
        self._found: dict[str, list[Asked]] = {}

    def put(self, filt: str, asked: Asked | None) -> Asked | None:
        """In force from now on; None: it has ended. What was there before."""
        before = self.filters.pop(filt, None)
        if before is not None:
            self.choosing -= any(before.wishes)
        if asked is not None:
            self.filters[filt] = asked
            self.choosing += any(asked.wishes)
        self._found.clear()
        return before

    def _matching(self, topic: str) -> list[Asked]:
        found = self._found.get(topic)
        if found is None:
            found = [one for filt, one in self.filters.items() if covers(_plain(filt), topic)]
            if len(self._found) >= _TOPICS:
                self._found.clear()
            self._found[topic] = found
        return found

    def seen(self, m: Message, mine: bool) -> tuple[Message, Sequence[int]] | None:
        """A message as its subscriptions want it, with their identifiers; None: they do not.

        mine: whether its sender is the client of the site that this one publishes as.
        """
        found = self._matching(m.topic)
        if not found:
            return m, ()
        if m.retain and not any(one.retained for one in found):
            return None
        its_own = mine and self.own.get(m.number) == self.client_id
        if its_own and all(one.wishes.no_local for one in found):
            return None
        if m.kind == RETAINED and any(one.wishes.as_published for one in found):
            m = m._replace(retain=True)
        return m, [one.wishes.identifier for one in found if one.wishes.identifier]


def _plain(filt: str) -> str:
    """Without the group of a shared subscription."""
    return filt.split("/", 2)[2] if filt.startswith(_SHARE) else filt


class Sessions:
    """Of one user's clients, by client identifier. no_local: those that do not want their own
    messages back, of whose messages `sent` has to be told."""

    def __init__(self, user: str, spool: Spool) -> None:
        self._user, self._spool = user, spool
        self._kept: dict[str, Session] = {}
        # Of the connection that came last, by client identifier.
        self._here: dict[str, Session] = {}
        # As they are on disk; None: a write has failed, so nobody knows.
        self._rows: dict[str, str | None] = {}
        # The newest write that is under way, by client identifier.
        self._writes: dict[str, tuple[str | None, asyncio.Future[None]]] = {}
        self.no_local: dict[str, Session] = {}
        self._own: dict[tuple[int, int], str] = {}

    async def load(self) -> None:
        """What an earlier agent has kept. sqlite3.Error"""
        for client_id, text in await self._spool.sessions(self._user):
            session = self._kept[client_id] = Session(client_id, self._own)
            session.kept = True
            try:
                session.expiry, filters, *freed = json.loads(text)
                session.freed.update(*freed)
                # What the site has granted is asked anew: it may have taken it back, and the agent
                # have been killed before that was here. Earlier ones wrote it.
                for filt, (qos, wishes, retained, *_) in filters.items():
                    session.put(filt, Asked(qos, FilterWishes(*wishes), retained))
            except (ValueError, TypeError):
                log.error("%s", f"{self._user}: what {client_id!r} subscribed to cannot be read")
            # What it had published before may leave before it comes back.
            self.chosen(session)
            self._rows[client_id] = text

    def enter(self, client_id: str, kept: bool, present: bool = False) -> Session:
        """Of a client that comes in. present: the site has its session still. Of very many the
        newest stay, and those whose clients are here."""
        if not kept:
            session = self._here[client_id] = Session(client_id, self._own)
            return session
        held = self._kept.pop(client_id, None)
        session = held if held is not None and present else Session(client_id, self._own)
        if session is not held:
            self.no_local.pop(client_id, None)
        session.kept = True
        self._kept[client_id] = self._here[client_id] = session
        self.chosen(session)
        if len(self._kept) > _SESSIONS:
            self.forget(next((one for one in self._kept if one not in self._here), client_id))
        unreleased = sum(len(one.received) for one in self._kept.values())
        for one in self._kept.values():
            if unreleased <= _ALL_UNRELEASED or one is session:
                break
            unreleased -= len(one.received)
            # Another one: a connection that is still there goes on with its own.
            one.received = Unreleased()
        return session

    def expiry_of(self, client_id: str) -> int:
        """For how many seconds a session is kept that is here; 0: there is none."""
        session = self._kept.get(client_id)
        return 0 if session is None else session.expiry

    def chosen(self, session: Session) -> None:
        """Its subscriptions are others now. What is late, of a connection whose place another one
        has, says nothing about that one's."""
        if self._here.get(session.client_id, session) is not session:
            return
        if any(one.wishes.no_local for one in session.filters.values()):
            self.no_local[session.client_id] = session
        else:
            self._no_more(session)

    def sent(self, client_id: str, number: tuple[int, int]) -> None:
        """A client of `no_local` has published the message of this boot and counter."""
        self._own[number] = client_id
        if len(self._own) > _OWN:
            del self._own[next(iter(self._own))]

    def leave(self, session: Session) -> None:
        """Its connection has ended, and no other one has its session."""
        if self._here.get(session.client_id) is session:
            del self._here[session.client_id]
        if not session.kept:
            self._no_more(session)

    # Another connection may have its client identifier by now, and a session of its own.
    def _no_more(self, session: Session) -> None:
        if self.no_local.get(session.client_id) is session:
            del self.no_local[session.client_id]

    async def save(self, session: Session) -> None:
        """On disk when this returns, if it is kept: what its subscriptions ask for, and which
        packet ids its client is done with. A disk that
        fails is told in the log: they are as they were asked for while this agent lives, and the
        next time writes them."""
        client_id = session.client_id
        if self._kept.get(client_id) is not session:
            return
        filters = {
            filt: (one.qos, one.wishes, one.retained) for filt, one in session.filters.items()
        }
        freed = [sorted(session.freed)] if session.freed else []
        text = json.dumps([session.expiry, filters, *freed])
        said, write = self._writes.get(client_id, (None, None))
        if write is None or said != text:
            if write is None and self._rows.get(client_id) == text:
                return
            write = self._write(client_id, text)
        # The write goes on if whoever waits for it is cancelled.
        await asyncio.wait([write])

    def stored(self, client_id: str) -> bool:
        """Whether anything of its session is on disk, or on the way there."""
        return client_id in self._rows or client_id in self._writes

    def forget(self, client_id: str) -> None:
        """It is over."""
        self._kept.pop(client_id, None)
        self.no_local.pop(client_id, None)
        if self.stored(client_id):
            self._write(client_id, None)

    def _write(self, client_id: str, text: str | None) -> asyncio.Future[None]:
        """None: its row goes."""
        write = self._spool.keep_session(self._user, client_id, text)
        self._writes[client_id] = text, write
        write.add_done_callback(partial(self._written, client_id, text))
        return write

    # In the order in which they were asked for.
    def _written(self, client_id: str, text: str | None, write: asyncio.Future[None]) -> None:
        if (newest := self._writes.get(client_id)) is not None and newest[1] is write:
            del self._writes[client_id]
        error = write.exception()
        if error is not None:
            self._rows[client_id] = None
            what = "stays on disk, and is over" if text is None else "is not on disk as it is now"
            log.error("%s", f"{self._user}: the session of {client_id!r} {what}: {error}")
        elif text is None:
            self._rows.pop(client_id, None)
        else:
            self._rows[client_id] = text
