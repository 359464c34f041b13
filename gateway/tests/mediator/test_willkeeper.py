"""When wills fire whose connections mediator or broker have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sealmq.families.records import TopicLabel
from sealmq.mediator import willkeeper
from sealmq.mediator.core.denied import DeniedByRule
from sealmq.mediator.core.refusals import JOURNAL_PART
from sealmq.mediator.core.retained import Retained
from sealmq.mediator.willkeeper import GRACE_S, WillKeeper
from sealmq.store import Held, WillRecord


def will(client: int, conn: int = 1) -> WillRecord:
    return WillRecord(client, "id", 1, 1, conn, "t", 1, False, 16, conn, b"")


class Keeper:
    """A WillKeeper whose time passes by `passes`; `fired`: clients and connections, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fired: list[tuple[int, int]] = []
        self.ready = asyncio.Event()
        self.ready.set()
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []
        engine = SimpleNamespace(who=lambda *_: None, connection=lambda who: None)
        site: Any = SimpleNamespace(engine=engine, ring=SimpleNamespace(clients={}))
        store: Any = SimpleNamespace(wills=list)
        control: Any = SimpleNamespace(ready=self.ready)
        nobody: Any = None
        self.it = WillKeeper(site, store, nobody, nobody, control, nobody, nobody, nobody)
        monkeypatch.setattr(self.it, "fire", self._fire)
        monkeypatch.setattr(self.it, "drop", lambda will: None)
        slept = {**vars(asyncio), "sleep": self._sleep}
        monkeypatch.setattr(willkeeper, "asyncio", SimpleNamespace(**slept))

    def _fire(self, will: WillRecord, policy: object) -> None:
        self.fired.append((will.client, will.conn))

    async def _sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append((seconds, done))
        await done

    async def passes(self) -> None:
        """The pause that it waits for is over."""
        await self.settled()
        ((seconds, done),) = self._sleeping
        assert seconds == GRACE_S
        self._sleeping.clear()
        done.set_result(None)
        await self.settled()

    async def settled(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def played(monkeypatch: pytest.MonkeyPatch, story: Callable[[Keeper], Any]) -> None:
    async def run() -> None:
        keeper = Keeper(monkeypatch)
        running = asyncio.create_task(keeper.it.run())
        await story(keeper)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def test_a_will_that_was_left_while_another_one_waits_has_a_grace_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fired with the other one, though its client would have been back in time."""

    async def story(keeper: Keeper) -> None:
        keeper.it.leave(will(1))
        await keeper.settled()
        for client in (2, 3):
            keeper.it.leave(will(client))
        await keeper.passes()
        assert keeper.fired == [(1, 1)]
        keeper.it.returned(3, "id")
        await keeper.passes()
        assert keeper.fired == [(1, 1), (2, 1)]

    played(monkeypatch, story)


def test_a_client_that_returns_and_is_left_again_has_its_newest_will_fired_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(keeper: Keeper) -> None:
        keeper.it.leave(will(1))
        await keeper.settled()
        keeper.it.returned(1, "id")
        keeper.it.leave(will(1, conn=2))
        await keeper.passes()
        assert keeper.fired == []
        await keeper.passes()
        assert keeper.fired == [(1, 2)]

    played(monkeypatch, story)


def test_the_grace_begins_again_if_the_broker_was_lost_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(keeper: Keeper) -> None:
        keeper.ready.clear()
        keeper.it.leave(will(1))
        await keeper.settled()
        keeper.ready.set()
        await keeper.settled()
        keeper.ready.clear()
        await keeper.passes()
        assert keeper.fired == []
        keeper.ready.set()
        await keeper.passes()
        assert keeper.fired == [(1, 1)]

    played(monkeypatch, story)


class Firing:
    """A keeper whose wills go out as `went`; `ring`: clients and labels that are there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on = True
        self.went: list[bytes] = []
        self.forgotten: list[str] = []
        self.labelled: list[TopicLabel] = []
        self.room = asyncio.Event()
        self.full = False
        self.labels: dict[int, Any] = {16: SimpleNamespace(name="low")}
        ring = SimpleNamespace(clients={}, labels=self.labels, goes_on=lambda *words: self.goes_on)
        monkeypatch.setattr(willkeeper, "seal", lambda *words: b"sealed")
        monkeypatch.setattr(willkeeper, "taken", lambda *words: self.labels[16])
        monkeypatch.setattr(willkeeper, "judge", lambda *words: SimpleNamespace(label=None))
        monkeypatch.setattr(willkeeper, "fire", lambda *words: SimpleNamespace(topic="t", at_ms=1))
        site: Any = SimpleNamespace(
            ring=ring,
            now_ms=1,
            order=SimpleNamespace(ms=1, seq=1),
            retained=Retained(),
            retained_bytes=SimpleNamespace(took=lambda *words: None),
        )
        journal: Any = SimpleNamespace(
            refuses=lambda client: (JOURNAL_PART, "full") if self.full else None,
            room=self._room,
            append=lambda *words: 0,
            acked=lambda seq: None,
            safe=self._safe,
        )
        store: Any = SimpleNamespace(wills=list, commit=self._commit)
        self.audit = SimpleNamespace(
            write=lambda event, **fields: self.refused.append(fields["rule"]),
            count_accepted=lambda *words: None,
        )
        self.refused: list[str] = []
        audit: Any = self.audit
        self.ready = asyncio.Event()
        control: Any = SimpleNamespace(losses=0, ready=self.ready)
        nobody: Any = None
        self.it = WillKeeper(
            site, store, audit, journal, control, self._publish, nobody, self._label
        )

    async def _room(self, client: int) -> bool:
        await self.room.wait()
        self.full = False
        return True

    async def _safe(self, seq: int) -> None:
        pass

    async def _publish(self, topic: bytes, payload: bytes, *words: Any) -> None:
        self.went.append(payload)
        await asyncio.sleep(0)

    async def _label(self, records: list[Any]) -> list[Held]:
        self.labelled += records
        return [Held(record, False) for record in records]

    async def _commit(self, records: list[Any]) -> None:
        self.forgotten += [type(record).__name__ for record in records]


POLICY: Any = SimpleNamespace(close=lambda now_ms: None, who=SimpleNamespace(client="sensor"))


def test_a_will_that_has_waited_for_room_goes_out_only_if_its_client_still_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That takes half a minute at most, in which its client may have been disabled."""

    async def story() -> None:
        it = Firing(monkeypatch)
        it.full = True
        firing = asyncio.create_task(it.it._fire(replace(will(1), retain=True), POLICY))
        await asyncio.sleep(0)
        it.goes_on = False
        it.room.set()
        await firing
        assert it.went == []
        assert it.refused == ["mediator.will.disabled"]
        assert it.forgotten == ["WillGone"]

    asyncio.run(story())


def test_a_will_whose_label_goes_while_it_goes_out_is_forgotten_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would fire once more at the next start."""

    async def story() -> None:
        it = Firing(monkeypatch)
        firing = asyncio.create_task(it.it._fire(will(1), POLICY))
        await asyncio.sleep(0)
        assert it.went == [b"sealed"]
        it.labels.clear()
        await firing
        assert it.forgotten == ["WillGone"]

    asyncio.run(story())


def test_a_will_on_a_topic_that_was_forgotten_labels_it_when_the_broker_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile its client may have been disabled; it has fired before."""

    async def story(goes_on: bool) -> None:
        it = Firing(monkeypatch)
        fired: list[int] = []

        def judged(site: Any, *words: Any) -> Any:
            if not it.goes_on:
                raise DeniedByRule("over", "mediator.will.disabled")
            label = None if it.labelled else "low"
            return SimpleNamespace(topic="t", label=label, rule="first")

        def fires(site: Any, will: Any, decision: Any, now_ms: int) -> Any:
            fired.append(now_ms)
            return SimpleNamespace(topic="t", at_ms=now_ms)

        monkeypatch.setattr(willkeeper, "judge", judged)
        monkeypatch.setattr(willkeeper, "fire", fires)
        firing = asyncio.create_task(it.it._fire(will(1), POLICY))
        await asyncio.sleep(0)
        assert not it.labelled
        it.goes_on, it.it._site.now_ms = goes_on, 9
        it.ready.set()
        await firing
        assert it.labelled == ([TopicLabel("t", "low", "sensor", 9)] if goes_on else [])
        assert fired == ([1] if goes_on else [])
        assert it.refused == ([] if goes_on else ["mediator.will.disabled"])

    for goes_on in (True, False):
        asyncio.run(story(goes_on))
