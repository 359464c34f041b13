"""Models of what else a mediator uses: the store, a policy that changes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from core_world import Memory
from sealmq.families.api import NEVER, Ask, Family, Verdict, allow, deny
from sealmq.families.records import Record, TopicLabel
from sealmq.mediator.locks import RowLocks
from sealmq.store.records import Held, KeptSession, KeptSub, KeptSubs, SessionMark, StoreRecord


class Shut(Family):
    """A policy that may shut readers out."""

    name: ClassVar[str] = "shut"
    rules: ClassVar[dict[str, str]] = {"shut.open": "It is open.", "shut.shut": "It is shut."}
    on = False

    def connect(self, ask: Ask) -> Verdict:
        return allow("shut.open", "open")

    publish = subscribe = connect

    def deliver(self, ask: Ask) -> Verdict:
        if self.on:
            return deny("shut.shut", "shut", until=NEVER)
        return allow("shut.open", "open", until=NEVER)


class Question(NamedTuple):
    """A commit that waits. `done`: it is on disk."""

    records: Any
    answer: asyncio.Future[Any]
    done: bool


class Store(Memory):
    """SharedStore. It outlives the mediator. `slow`: commits of labels are answered by steps."""

    def __init__(self) -> None:
        super().__init__()
        self.subs: dict[str, KeptSub] = {}
        self.sessions_kept: list[KeptSession] = []
        self.questions: deque[Question] = deque()
        self.slow = False

    def records(self) -> list[Record]:
        return list(self.topics.values())

    def sessions(self) -> dict[int, SessionMark]:
        return self.marks

    def wills(self) -> list[Any]:
        return []

    def kept(self) -> list[KeptSession]:
        return self.sessions_kept

    def hold(self, records: Iterable[StoreRecord]) -> list[Held]:
        """On disk."""
        held = []
        for record in records:
            match record:
                case KeptSubs():
                    held.append(Held(replace(record, subs=tuple(self.subs.values())), False))
                    continue
                case KeptSession():
                    self.sessions_kept = [record]
                case KeptSub():
                    self.subs[record.filter] = record
            held += self.memory(record)
        return held

    def memory(self, record: StoreRecord) -> list[Held]:
        held: list[Held] = Memory.commit(self, [record])
        return held

    async def commit(self, records: Any, urgent: bool = False, part: str = "") -> list[Held]:  # type: ignore[override]
        if not self.slow or not isinstance(records[0], TopicLabel):
            return self.hold(records)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.questions.append(Question(records, answer, False))
        held: list[Held] = await answer
        return held


class Shared:
    """Shared of one worker without a key generator."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.kg = self
        self.lost = False
        self.locks = RowLocks()

    async def reopened(self) -> None:
        """There is no other worker."""

    def passed(self, *words: Any) -> None:
        """Does nothing: there is no other worker."""

    took = live = marked = passed


class Audit:
    """An audit log that keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        return _nothing


def _nothing(*words: Any, **fields: Any) -> None:
    pass
