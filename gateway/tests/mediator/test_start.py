"""A worker's mediator as it is built at the start, before any broker is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core_world import CONFIG, TOPIC
from mediator_world import World
from sealmq.audit import Audit
from sealmq.families.labels.family import Labels
from sealmq.families.records import Record, TopicLabel
from sealmq.mediator import running
from sealmq.mediator.locks import RowLocks
from sealmq.mediator.running import build
from sealmq.mediator.shared import Begin
from sealmq.mediator.single import SingleStore
from sealmq.site.check import parse
from sealmq.site.config import Config
from sealmq.site.layout import Layout
from sealmq.store import Store


class Scene:
    """A worker that is built for this configuration, over a store with these records."""

    def __init__(self, folder: Path, config: Config, *records: Record) -> None:
        self._folder, self._config, self._records = folder, config, records
        self.lost = ""
        self.topics: list[TopicLabel] = []

    def build(self) -> list[dict[str, Any]]:
        """Builds and closes it. Its audit log."""
        world, layout = World(), Layout.of(self._folder / "site")
        layout.state_of("mediator").mkdir(parents=True)
        store = Store.open(layout.mediator_db)
        folder = self._folder / "audit"
        audit = Audit(folder, "mediator", 1, world.ring.site.hex(), strict=True)
        broker = {"host": "127.0.0.1", "port": 1}
        begin = Begin(layout, self._config, world.ring, 0, 1, broker, False)
        shared: Any = SimpleNamespace(
            store=SingleStore(store), locks=RowLocks(), kg=None, passed=None, took=None,
            marked=None, live=None,
        )  # fmt: skip

        async def story() -> None:
            await store.commit(self._records)
            made = await build(begin, shared, audit)
            self.lost = made.mediator.site.engine.lost
            await made.mediator.close()

        try:
            asyncio.run(story())
            self.topics = store.topics()
        finally:
            audit.close()
            store.close()
        return [json.loads(line) for file in folder.iterdir() for line in file.open()]


def test_a_topic_that_is_forgotten_at_the_start_stands_in_the_audit_log(tmp_path: Path) -> None:
    """As one that a reload forgets: sealmq.toml was edited while the site was down."""
    config = parse(f'{CONFIG}[topics]\n"{TOPIC}" = "none"\n')
    it = Scene(tmp_path, config, TopicLabel(TOPIC, "low", "sensor", 1))
    rows = it.build()
    assert it.topics == []
    assert [row["topic"] for row in rows if row["event"] == "topic-reset"] == [TOPIC]


class Void(Labels):
    """One that cannot say which rows of earlier bearers of a name are void."""

    def noted(self, since: Mapping[str, int]) -> bool:
        return True

    def bearers(self, since: Mapping[str, int], rows: Any) -> list[Record]:
        raise KeyError("rows")


def test_a_family_that_cannot_say_which_rows_are_void_keeps_no_mediator_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "load_families", lambda order: [Void()])
    it = Scene(tmp_path, parse(CONFIG))
    rows = it.build()
    assert "'labels' has failed at bearers, KeyError" in it.lost
    assert [r["question"] for r in rows if r["event"] == "family-fault"] == ["bearers"]
