"""The process that owns a mediator's store, its way to the key generator, and its configuration.

The key generator reads sealmq.toml, and says which one is in force; only while it is away, and when
told to, the file is read here.

With one worker that is in the same process; with more, each is a process of its own (workers.py).
What one worker commits, new keys and a new configuration are applied by all workers before the
command that waits for it is answered; a worker that does not answer is ended first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from sealmq.audit import Audit
from sealmq.families.attributes import Attribute
from sealmq.families.records import FamilyRecord, Record
from sealmq.families.registry import has_kg_part, put_back
from sealmq.kglink import Answer, KgClient, KgError, KgUnavailable
from sealmq.site.config import Config, load, loads
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout
from sealmq.store import Held, Store, StoreError, StoreRecord

from .attribute_sources import AttributeSources
from .counted import Counted, is_count
from .frames import Handler
from .keysource import KeySource
from .locks import RowLocks
from .shared import Fresh, Row, Worker
from .workers import WorkerProcess

log = logging.getLogger("sealmq.mediator")

_RETRY_S = 1.0
# So long a policy waits for the keys that the key generator makes for it.
_KEYS_S = 2.0
# Commits that the other workers are told at a time.
_ROUND = 256


class Owner:
    """`workers`: those that run, or begin."""

    def __init__(
        self, layout: Layout, config: Config, store: Store, keys: KeySource, audit: Audit
    ) -> None:
        self.layout, self.config, self.store, self.keys = layout, config, store, keys
        self.newest = config
        """What a new worker begins with. The others may not have taken it over yet."""
        self.order = config.policy.order
        """The policy families that judge until the next start, also at a worker that begins."""
        self.workers: list[Worker] = []
        self.begun = asyncio.Event()
        """Set once all workers that are processes have begun."""
        # The serial number of the keys that all workers have.
        self._kseq = int(keys.snapshot["kseq"])
        # The policy that these were made for.
        self._policy = keys.snapshot.get("policy")
        self._keyed = asyncio.Condition()
        self.kg: KgClient | None = None
        self.locks = RowLocks()
        # Set when the key generator may go by another sealmq.toml, or the file is to be read here.
        self._reload = asyncio.Event()
        self._by_file = False
        # The digest of the last one that was taken over as a whole, or refused and put back.
        self._dealt = config.digest
        self.told: Callable[[], None] = lambda: None
        """Called when a worker has reported its state, has ended or begun, or a source fails."""
        self.sources = AttributeSources(self._told_attributes, lambda: self.told(), audit.write)
        self._audit = audit
        # Set when keys or policy may differ from what the key generator was told last.
        self._news = asyncio.Event()
        self._news.set()
        # The newest answer to each client that the newest snapshot may not hold.
        self._fresh: dict[int, Answer] = {}
        self._rounds = Rounds(self._others)
        self.counted = Counted(store)
        self._bound(config)

    async def put_back(self) -> None:
        """Before any worker, where the store may be as old as a backup. StoreError."""
        now_ms = time.time_ns() // 1_000_000
        await self.store.commit(put_back(self.store.rows, now_ms), urgent=True)

    def hang_up(self) -> None:
        """SIGHUP: sealmq.toml was edited. The key generator has heard of it too, if it is there.
        One that was refused here is tried again.
        """
        if self.kg is None:
            self._by_file = True
            self._reload.set()
        elif self._dealt != self.config.digest:
            self._dealt = ""
            self._reload.set()

    async def run(self) -> None:
        """Follows keys and configuration; for ever."""
        # The file that this was started with may be one that was not taken over.
        self._reload.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_keys(), name="keys")
            group.create_task(self._confirm(), name="confirm")
            group.create_task(self._watch_reload(), name="reload")

    @property
    def fresh(self) -> Fresh:
        """Link slots that the newest snapshot may not hold."""
        return [(client, answer.links) for client, answer in self._fresh.items()]

    # --- keys and configuration ---

    async def _watch_keys(self) -> None:
        async for risen in self.keys.watch(self.kg, self._set_kg):
            if risen:
                kseq, policy = int(self.keys.snapshot["kseq"]), self.keys.snapshot.get("policy")
                self._fresh = {n: one for n, one in self._fresh.items() if one.kseq > kseq}
                fresh = self.fresh
                await self._all(worker.ring(self.keys, fresh) for worker in self.workers)
                self._kseq, self._policy = kseq, policy
                self._news.set()
                async with self._keyed:
                    self._keyed.notify_all()
            self._reload.set()

    def _set_kg(self, kg: KgClient | None) -> None:
        self.kg = kg
        for worker in self.workers:
            worker.set_kg(kg is not None)

    # Tells the key generator which keys and policy are in force: its commands wait for that.
    async def _confirm(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            kseq, policy = self._kseq, self.config.digest
            await self._all(worker.ended() for worker in self.workers)
            if self.kg is not None:
                try:
                    await self.kg.took(kseq, policy)
                except KgError as error:
                    log.warning("key generator: %s", error)

    async def _watch_reload(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            by_file, self._by_file = self._by_file, False
            try:
                config = await self._other(by_file)
                if config is not None:
                    await self._take(config)
            except (SiteError, OSError) as error:
                self._refused(error)
            except (StoreError, KgError) as error:
                log.error("sealmq.toml is not taken over yet: %s", error)
                self._by_file |= by_file
                asyncio.get_running_loop().call_later(_RETRY_S, self._reload.set)

    # What is in force, if it may be another one than what was dealt with here.
    async def _other(self, by_file: bool) -> Config | None:
        if self.kg is None:
            return load(self.layout.config) if by_file else None
        text = await self.kg.in_force(self._dealt)
        return None if text is None else loads(text, self.layout.config)

    async def _take(self, config: Config) -> None:
        if config.site.id != self.keys.site:
            # The key generator refuses it too: nothing of such a file counts.
            log.error("sealmq.toml is not taken over: it names another site's id")
            return
        self.newest, self._dealt = config, ""
        await self._keys_first(config)
        try:
            await self._go_by(config)
        except SiteError:
            # As a whole, or nothing of it: other workers may have taken it over.
            self.newest = self.config
            await self._go_by(self.config)
            self._dealt = config.digest
            raise
        self.config, self._dealt = config, config.digest
        self._bound(config)
        self._news.set()

    async def _go_by(self, config: Config) -> None:
        # What a rule that is new asks about is told before it is asked.
        await self.sources.take(config.attributes)
        await self._all(worker.config(config) for worker in self.workers)
        await self.sources.again()

    def _bound(self, config: Config) -> None:
        self.store.bound(config.limits.rows, config.limits.family_mib << 20)

    # A grant that a family names is there before the family names it: else what goes to those who
    # hold it from now on would be withheld. The key generator may refuse what we take.
    async def _keys_first(self, config: Config) -> None:
        if self.kg is None or not has_kg_part(config.policy.order):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KEYS_S), self._keyed:
                await self._keyed.wait_for(lambda: self._policy == config.digest)

    async def _told_attributes(self, rows: list[Attribute]) -> None:
        await self._all(worker.attributes(rows) for worker in self.workers)

    # What was in force stays in force.
    def _refused(self, error: SiteError | OSError) -> None:
        hint = getattr(error, "hint", None)
        log.error("sealmq.toml is not taken over: %s%s", error, f"; {hint}" if hint else "")
        self._audit.write("config-refused", reason=str(error)[:500])

    # Waits for all of them, even if one fails.
    async def _all(self, asked: Iterable[Any]) -> None:
        for result in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    # --- what workers ask ---

    async def answer(self, request: bytes) -> Answer:
        """As SharedKg.answer."""
        answer = await self._there().answer(request)
        if answer.kseq > int(self.keys.snapshot["kseq"]):
            self._fresh[answer.client] = answer
            await self._all(worker.links(answer.client, answer.links) for worker in self.workers)
        return answer

    async def time(self, client: int, nonce: bytes, suite: int) -> bytes:
        """As SharedKg.time."""
        return await self._there().time(client, nonce, suite)

    async def confirm(self, client: int, gen: int) -> None:
        """As SharedKg.confirm."""
        await self._there().confirm(client, gen)

    @property
    def lost(self) -> bool:
        """As SharedKg.lost."""
        return self.kg is None or self.kg.lost

    def _there(self) -> KgClient:
        if self.kg is None:
            raise KgUnavailable("the key generator is away")
        return self.kg

    async def commit(
        self, by: WorkerProcess | None, records: Sequence[StoreRecord], urgent: bool, part: str
    ) -> list[Held]:
        """As SharedStore.commit, by a worker."""
        held = await self.store.commit(records, urgent)
        rows: list[Record] = [
            h.record for h in held if isinstance(h.record, Record) and not is_count(h.record)
        ]
        if rows:
            await self._rounds.passed(by, rows, part)
        return held

    def _others(self, by: WorkerProcess | None) -> list[WorkerProcess]:
        return [w for w in self.workers if isinstance(w, WorkerProcess) and w is not by]

    def handlers(self, worker: WorkerProcess) -> Mapping[str, Handler]:
        """What a worker process may call."""
        held: set[Row] = set()
        alone = False

        async def take(rows: list[list[str]]) -> bool:
            wanted = frozenset((family, key) for family, key in rows)
            at_once = await self.locks.take(wanted)
            held.update(wanted)
            return at_once

        def free(rows: list[list[str]]) -> None:
            mine = {(family, key) for family, key in rows} & held
            held.difference_update(mine)
            self.locks.free(mine)

        async def take_all() -> None:
            nonlocal alone
            await self.locks.alone()
            alone = True

        def together() -> None:
            nonlocal alone
            if alone:
                alone = False
                self.locks.together()

        def leave() -> None:
            free([list(row) for row in held])
            together()
            live(False)
            self.sources.lost(worker.index)

        # All of them have begun, or nobody waits for the others yet.
        async def reopened() -> None:
            await self.begun.wait()
            await asyncio.gather(*(other.reopened() for other in self._others(worker)))

        async def renew() -> list[Any] | None:
            inst = await self.keys.draw()
            if inst is None:
                return None
            worker.inst = inst
            return [self.keys.site, inst, self.keys.snapshot, self.fresh]

        def relay(name: str, *words: Any) -> None:
            for other in self._others(worker):
                other.tell(name, *words)

        def live(there: bool) -> None:
            worker.live = there
            relay("live", worker.index, there)

        def marked(index: int, number: int) -> None:
            for other in self._others(worker):
                if other.index == index:
                    other.tell("marked", worker.index, number)

        async def derived(rows: list[list[Any]]) -> list[Attribute]:
            return self.sources.derived(worker.index, [Attribute(*row) for row in rows])

        worker.left = leave
        return {
            "commit": lambda records, urgent, part: self.commit(worker, records, urgent, part),
            "take": take,
            "free": free,
            "alone": take_all,
            "together": together,
            "answer": self.answer,
            "time": self.time,
            "confirm": self.confirm,
            "reopened": reopened,
            "renew": renew,
            "passed": partial(relay, "passed"),
            "took": partial(relay, "took"),
            "live": live,
            "marked": marked,
            "derived": derived,
            "inform": partial(relay, "inform"),
            "reloading": worker.reloading,
            "tell": worker.told,
        }


class Rounds:
    """Tells each commit to all workers but its own, in the order of the store; commits that share
    no row are told together.
    """

    def __init__(self, others: Callable[[WorkerProcess | None], list[WorkerProcess]]) -> None:
        self._others = others
        self._waiting: deque[_Passed] = deque()
        self._task: asyncio.Task[None] | None = None

    async def passed(self, by: WorkerProcess | None, rows: list[Record], part: str) -> None:
        """Returns when each other worker has applied the commit, or has ended."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Passed(by, rows, part, done))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="rounds")
        await done

    async def _run(self) -> None:
        while self._waiting:
            some = self._some()
            told = []
            for worker in self._others(None):
                groups = [(one.part, one.rows) for one in some if one.by is not worker]
                if groups:
                    told.append(worker.apply(groups))
            await asyncio.gather(*told, return_exceptions=True)
            for one in some:
                if not one.done.done():
                    one.done.set_result(None)
        self._task = None

    def _some(self) -> list[_Passed]:
        some: list[_Passed] = []
        keys: set[tuple[str, ...]] = set()
        while self._waiting and len(some) < _ROUND:
            rows = set(map(_key, self._waiting[0].rows))
            if not keys.isdisjoint(rows):
                break
            keys |= rows
            some.append(self._waiting.popleft())
        return some


class _Passed(NamedTuple):
    by: WorkerProcess | None
    rows: list[Record]
    part: str
    done: asyncio.Future[None]


def _key(record: Record) -> tuple[str, ...]:
    if isinstance(record, FamilyRecord):
        return record.family, record.key
    return (record.topic,)
