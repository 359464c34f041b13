"""The sources of attributes: each is a task of its own, and what it says goes to all workers; so
does what a worker's families derive from events.

What a source said before holds until its validity is over, while the source fails; what it does not
say any more holds no longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping

from sealmq.attributes.files import BadSource
from sealmq.attributes.sources import Rows, Source, has_source, source, why
from sealmq.families.attributes import Attribute, same, shown, stands
from sealmq.plain import plain
from sealmq.site.model import Attribute as Settings

log = logging.getLogger("sealmq.mediator")

LOOK_S = 1.0
# How long those that are new are waited for: a file may be on a disk that hangs.
FIRST_S = 5.0
_LONGEST = 300

Tell = Callable[[list[Attribute]], Awaitable[None]]


class AttributeSources:
    """`tell`: to all workers; returns when they have it. `changed`: another one fails, or none.
    `record`: into the audit log.
    """

    def __init__(
        self,
        tell: Tell,
        changed: Callable[[], None],
        record: Callable[..., None],
        make: Callable[[str, Settings], Source] = source,
    ) -> None:
        self._tell, self._changed, self._record, self._make = tell, changed, record, make
        self._settings: dict[str, Settings] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._rows: dict[str, Rows] = {}
        # Of events: by name and subject, with the worker that has told it last.
        self._derived: dict[tuple[str, str], tuple[int, Attribute]] = {}
        self._events: dict[str, Settings] = {}
        self._news: dict[tuple[str, str], None] = {}
        self._passing: asyncio.Task[None] | None = None
        self._begun: set[str] = set()
        # All workers are told in one order.
        self._telling = asyncio.Lock()
        self.failing: dict[str, str] = {}
        """Why the source of an attribute says nothing, for those that fail."""

    @property
    def rows(self) -> list[Attribute]:
        """What they have said last, for a worker that begins."""
        rows = [row for rows in self._rows.values() for row in rows.values()]
        return rows + [row for _, row in self._derived.values()]

    async def take(self, settings: Mapping[str, Settings]) -> None:
        """From now on there are these. Returns when each new one has been asked once."""
        before = self._events
        self._events = {name: said for name, said in settings.items() if said.family}
        for name, subject in list(self._derived):
            if not stands(before[name], self._events.get(name)):
                del self._derived[name, subject]
        settings = {name: said for name, said in settings.items() if has_source(said)}
        for name in [n for n, was in self._settings.items() if settings.get(n) != was]:
            await self._end(name)
        first = []
        for name, said in settings.items():
            if name not in self._settings:
                asked = asyncio.Event()
                self._settings[name] = said
                self._begun.add(name)
                work = self._watch(name, self._make(name, said), asked)
                self._tasks[name] = asyncio.create_task(work, name=f"attribute {name}")
                first.append(asyncio.ensure_future(asked.wait()))
        if first:
            _, late = await asyncio.wait(first, timeout=FIRST_S)
            for waiting in late:
                waiting.cancel()

    async def close(self) -> None:
        """Ends all tasks; nothing is told."""
        tasks = [*self._tasks.values(), *filter(None, [self._passing])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def again(self) -> None:
        """Tells what those say that began with the last `take`: a worker that has taken the
        configuration over since does not go by what was told under the one before.
        """
        begun, self._begun = self._begun, set()
        async with self._telling:
            rows = [row for name in begun for row in self._rows.get(name, {}).values()]
            if rows:
                await self._tell(rows)

    # --- of events ---

    def derived(self, worker: int, rows: Iterable[Attribute]) -> list[Attribute]:
        """A worker's families have derived these. Gives what counts of the same from now on, in
        the order in which workers come; the others are told soon.
        """
        keys = []
        for row in rows:
            key = row.name, row.subject
            if row.until > 0 and row.name in self._events:
                self._derived[key] = worker, row
            else:
                self._derived.pop(key, None)
            keys.append(key)
        self._pass(keys)
        return [self._now(key) for key in keys]

    def lost(self, worker: int) -> None:
        """It has ended, and what it derived last may not have been told: nothing of its counts."""
        gone = [key for key, (by, _) in self._derived.items() if by == worker]
        for key in gone:
            del self._derived[key]
        self._pass(gone)

    def _pass(self, keys: Iterable[tuple[str, str]]) -> None:
        self._news.update(dict.fromkeys(keys))
        if self._news and self._passing is None:
            self._passing = asyncio.create_task(self._pass_on(), name="derived attributes")

    # What counts by then is told, not what came first: else a worker would go back to it.
    async def _pass_on(self) -> None:
        try:
            while self._news:
                async with self._telling:
                    news, self._news = self._news, {}
                    await self._tell([self._now(key) for key in news])
        finally:
            self._passing = None

    def _now(self, key: tuple[str, str]) -> Attribute:
        held = self._derived.get(key)
        return Attribute(*key, None, 0) if held is None else held[1]

    async def _end(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._says(name, None)
        await self._take(name, {})
        self._rows.pop(name, None)
        del self._settings[name]

    async def _watch(self, name: str, of: Source, asked: asyncio.Event) -> None:
        self._rows.setdefault(name, {})
        while True:
            try:
                rows = await _apart(of.look, name)
                if rows is not None:
                    self._says(name, None)
                    await self._take(name, rows)
            except (BadSource, OSError) as error:
                self._says(name, why(error))
            except Exception as error:  # a defect must not end the others
                self._says(name, f"{type(error).__name__}: {error}")
            asked.set()
            await asyncio.sleep(LOOK_S)

    async def _take(self, name: str, rows: Rows) -> None:
        before = self._rows.get(name, {})
        gone = (row for row in before.values() if row.subject not in rows)
        news = [row for row in rows.values() if not same(before.get(row.subject), row)]
        news += [row._replace(value=None, until=0) for row in gone]
        if news:
            async with self._telling:
                # What a worker that begins is told comes before, or has it.
                self._rows[name] = rows
                await self._tell(news)
            if self._settings[name].path is not None:
                self._write(news)

    # They are in force at all workers by now. What a time zone tells is no news: a table that goes
    # on, from which each moment's time of day follows.
    def _write(self, news: Iterable[Attribute]) -> None:
        for name, subject, value, until in news:
            held = {"value": _text(value), "until_ms": until} if until > 0 else {}
            self._record(
                "attribute-changed", attribute=name, subject=shown(subject) or None, **held
            )

    def _says(self, name: str, reason: str | None) -> None:
        reason = None if reason is None else plain(reason, _LONGEST)
        if self.failing.get(name) == reason:
            return
        if reason is None:
            del self.failing[name]
            self._record("attribute-back", attribute=name)
            log.warning("attribute %s: its source is there again", name)
        else:
            self.failing[name] = reason
            self._record("attribute-away", attribute=name, reason=reason)
            log.error(
                "attribute %s: %s; what it said before holds until its validity is over",
                name,
                reason,
            )
        self._changed()


# In a thread, since the loop does not wait for a disk; and in one of its own, since others must not
# wait for one that hangs: in a file there somebody's right may end. Nobody waits for it at the end.
async def _apart(look: Callable[[], Rows | None], name: str) -> Rows | None:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Rows | None] = loop.create_future()

    def answer(rows: Rows | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(rows)
        else:
            done.set_exception(error)

    def work() -> None:
        rows, error = None, None
        try:
            rows = look()
        except Exception as found:
            error = found
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(answer, rows, error)

    threading.Thread(target=work, name=f"attribute {name}", daemon=True).start()
    return await done


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
