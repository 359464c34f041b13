"""A worker takes a changed sealmq.toml over: as a whole, or nothing of it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from sealmq.families.api import Ask, Change, Family, FamilyConfigError, Verdict, allow
from sealmq.families.engine import Engine
from sealmq.families.labels.family import Labels
from sealmq.families.records import TopicReset
from sealmq.mediator.locks import RowLocks
from sealmq.mediator.policy import Policy
from sealmq.site.check import parse
from sealmq.site.config import Config
from sealmq.site.errors import SiteError
from sealmq.store import Held, StoreUnavailable

BEFORE = parse(
    """
[site]
name = "s"
id = "00c0ffee"
[labels]
low = []
high = ["low"]
[clients]
sensor = { label = "low" }
panel = { label = "high" }
[topics]
"t" = "high"
"""
)
OPENED = parse(BEFORE.text.replace('"t" = "high"', '"t" = "low"'))
PUT_OUT = parse(BEFORE.text.replace('sensor = { label = "low"', 'sensor = { label = "none"'))
FORGETS = parse(BEFORE.text + '"u" = "none"\n')


class Scene:
    """`fails`: why the store takes nothing."""

    def __init__(self, *more: Family) -> None:
        self.fails = ""
        self.taken: list[Config] = []
        self.asked: list[str] = []
        self.written: list[str] = []
        self.engine = Engine([Labels(), *more], on_fault=lambda *fault: self.policy.fault(*fault))
        self.engine.load(BEFORE, [])
        self.conn = self.engine.connection(self.engine.who("sensor", 1))
        session = SimpleNamespace(policy_changed=lambda: self.asked.append("sensor"))
        site: Any = SimpleNamespace(
            config=BEFORE, engine=self.engine, ring=SimpleNamespace(site=BEFORE.site.id), now_ms=1
        )
        self.site = site
        events: Any = SimpleNamespace(
            agenda=SimpleNamespace(by_policy={self.conn: session}), run=lambda what: what()
        )
        audit: Any = SimpleNamespace(write=lambda event, **fields: self.written.append(event))
        begin: Any = SimpleNamespace(first=True)
        shared: Any = SimpleNamespace(store=self, locks=RowLocks())
        nothing: Any = None
        self.spawned: list[Coroutine[Any, Any, None]] = []
        questions: Any = SimpleNamespace(spawn=lambda work, name: self.spawned.append(work))
        self.policy = Policy(
            begin, shared, site, audit, events, questions, nothing, self.taken.append
        )

    def records(self) -> list[Any]:
        return []

    async def commit(self, records: list[Any], urgent: bool = False, part: str = "") -> list[Held]:
        if self.fails:
            raise StoreUnavailable(self.fails)
        return [Held(record, True) for record in records]

    async def refused(self, config: Config) -> None:
        """The store fails while this is taken over."""
        self.fails = "database is locked"
        with pytest.raises(StoreUnavailable):
            await self.policy.reload(config)
        self.fails = ""

    def reads(self) -> bool:
        return self.conn.deliver("t", "low", 0, 1).allow


def test_a_file_that_was_not_taken_over_and_is_put_back_opens_nothing() -> None:
    async def story() -> None:
        it = Scene()
        assert not it.reads()
        await it.refused(OPENED)
        assert it.site.config == BEFORE
        await it.policy.reload(BEFORE)
        assert not it.reads(), "what sealmq.toml does not say any more is in force"
        assert it.taken == [BEFORE]
        await it.policy.reload(BEFORE)
        assert it.taken == [BEFORE], "nothing happens if it says the same"

    asyncio.run(story())


def test_whom_a_file_puts_out_hears_of_it_when_it_is_taken_over_the_second_time() -> None:
    async def story() -> None:
        it = Scene()
        await it.refused(PUT_OUT)
        await it.refused(PUT_OUT)
        assert (it.asked, it.taken) == ([], [])
        await it.policy.reload(PUT_OUT)
        assert (it.asked, it.taken) == (["sensor"], [PUT_OUT])
        assert not it.conn.connect(1).allow
        await it.policy.reload(FORGETS)
        assert it.asked == ["sensor", "sensor"], "it may connect again"
        assert it.written == ["config-reloaded", "topic-reset", "config-reloaded"]

    asyncio.run(story())


def test_what_is_to_be_forgotten_is_asked_of_the_store_again() -> None:
    async def story() -> None:
        it = Scene()
        await it.refused(FORGETS)
        await it.policy.reload(FORGETS)
        assert it.written == ["topic-reset", "config-reloaded"]
        await it.policy.reload(BEFORE)
        again = it.engine.reload(FORGETS).records
        assert again == [TopicReset("u")]

    asyncio.run(story())


class Full(Family):
    """A family by somebody else, who looks at its rows when the configuration changes."""

    name: ClassVar[str] = "full"
    rules: ClassVar[Mapping[str, str]] = {"full.yes": "Yes."}
    error: Exception | None = None

    def configure(self, config: Any) -> Change:
        if self.error is not None:
            raise self.error
        return Change()

    def connect(self, ask: Ask) -> Verdict:
        return allow("full.yes", "yes")

    publish = subscribe = deliver = connect


@pytest.mark.parametrize(
    ("error", "said", "hint"),
    [
        (
            FamilyConfigError("most", "it keeps 3 rows", "3 or more"),
            "most: it keeps 3 rows",
            "3 or",
        ),
        (
            ZeroDivisionError("x"),
            "family 'full' fails at configure: ZeroDivisionError",
            "mend that",
        ),
    ],
)
def test_what_a_family_does_not_take_is_said_and_ends_nothing(
    error: Exception, said: str, hint: str
) -> None:
    async def story() -> None:
        family = Full()
        it = Scene(family)
        family.error = error
        with pytest.raises(SiteError, match=said) as refused:
            await it.policy.reload(OPENED)
        assert (refused.value.hint or "").startswith(hint)
        assert (it.site.config, it.taken) == (BEFORE, [])
        family.error = None
        assert not it.reads()

    asyncio.run(story())


def test_a_family_that_cannot_say_which_rows_are_void_allows_nothing_and_that_is_said() -> None:
    class Void(Full):
        def noted(self, since: Mapping[str, int]) -> bool:
            return True

        def bearers(self, since: Mapping[str, int], rows: Any) -> list[Any]:
            raise KeyError("rows")

    async def story() -> None:
        it = Scene(Void())
        await it.policy.reload(OPENED)
        assert it.reads()
        before: Any = SimpleNamespace(told={}, bearers=dict)
        now: Any = SimpleNamespace(told={}, bearers=lambda: {"sensor": 5})
        it.policy.take_keys(now, before)
        [work] = it.spawned
        await work
        assert not it.reads()
        assert it.written[-1] == "family-fault"
        assert "'full' has failed at bearers, KeyError" in it.engine.lost

    asyncio.run(story())
