"""What is retained for a reader's filters, fetched for its outbox: one filter after the other, and
the next chunk of it when the reader has taken the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from sealmq.mqtt import Publish
from sealmq_spec.errors import Unavailable

from .effects import Snapshot, SnapshotDrop, SnapshotMore, Some
from .refusals import SUBSCRIBE
from .session_api import SessionApi
from .tasks import Task


class Fetch:
    """A snapshot. `opens`: its filter has waited for it in the table. `ms`: when it was asked for.
    `token`: there is more of it. `over`: nobody wants it any more.
    """

    __slots__ = ("asked", "filter", "ms", "opens", "over", "qos", "token")

    def __init__(self, filter: str, qos: int, opens: bool, ms: int) -> None:
        self.filter, self.qos, self.opens, self.ms = filter, qos, opens, ms
        self.token: int | None = None
        self.asked = self.over = False


class Taker(Protocol):
    """The outbox."""

    @property
    def takes_more(self) -> bool:
        """Whether it wants the next chunk now; else it calls `go_on` when it does."""

    def came(self, fetch: Fetch, copies: Iterable[Publish], opens: bool) -> None:
        """A chunk. opens: it was the last one for which messages of this filter wait."""


class Fetches:
    """Those of one session."""

    __slots__ = ("_closed", "_new", "_rows", "_session", "_taker", "_under_way")

    def __init__(self, session: SessionApi, taker: Taker) -> None:
        self._session, self._taker = session, taker
        self._rows: deque[Fetch] = deque()
        # Those of them that have not begun, by filter.
        self._new: dict[str, Fetch] = {}
        self._under_way = self._closed = False

    @property
    def idle(self) -> bool:
        """Whether there is nothing more to fetch."""
        return not self._rows

    def add(self, filter: str, qos: int, opens: bool) -> None:
        """For a filter on the live link, granted with this QoS. opens: until all is there its
        messages wait. One that has not begun serves all who have asked for it by then.
        """
        fetch = self._new.get(filter)
        if fetch is None:
            fetch = self._new[filter] = Fetch(filter, qos, opens, self._session.site.now_ms)
            self._rows.append(fetch)
        fetch.qos, fetch.opens = qos, fetch.opens or opens
        if self._taker.takes_more:
            self.go_on()

    def drop(self, filter: str) -> None:
        """The filter has gone."""
        self._new.pop(filter, None)
        for fetch in [one for one in self._rows if one.filter == filter]:
            fetch.over = True
            if fetch.token is not None and not fetch.asked:
                self._session.emit(SnapshotDrop(fetch.token))
                fetch.token = None
            if not fetch.asked:
                self._rows.remove(fetch)

    def go_on(self) -> None:
        """The outbox wants more."""
        if self._rows and not self._under_way and not self._closed:
            self._under_way = True
            self._session.beside(self._fetch())

    def close(self) -> None:
        """The session is over."""
        self._closed = True
        for fetch in self._rows:
            if fetch.token is not None:
                self._session.emit(SnapshotDrop(fetch.token))
        self._rows.clear()
        self._new.clear()

    def _fetch(self) -> Task:
        rows, taker = self._rows, self._taker
        while rows and taker.takes_more:
            fetch = rows[0]
            fetch.asked = True
            if self._new.get(fetch.filter) is fetch:
                del self._new[fetch.filter]
            token, fetch.token = fetch.token, None
            some = Some((), None)
            try:
                some = yield (
                    Snapshot(0, fetch.filter) if token is None else SnapshotMore(0, token)
                )
            except Exception as error:
                self._failed(fetch, error)
            fetch.asked, fetch.token = False, some.token
            if self._closed:
                return
            if fetch.over:
                rows.popleft()
                if some.token is not None:
                    self._session.emit(SnapshotDrop(some.token))
                continue
            if some.token is None:
                rows.popleft()
            taker.came(fetch, some.messages, some.token is None and self._is_last(fetch))
        self._under_way = False
        if taker.takes_more:
            self.go_on()

    def _is_last(self, fetch: Fetch) -> bool:
        return fetch.opens and not any(f.opens and f.filter == fetch.filter for f in self._rows)

    def _failed(self, fetch: Fetch, error: Exception) -> None:
        if not fetch.over:
            words = Unavailable(f"what is retained for a filter cannot be fetched: {error}")
            rule = "mediator.snapshot.unavailable"
            self._session.refuse(SUBSCRIBE, words, rule, topic=fetch.filter)
