"""A worker's mediator as it is built at the start, before any broker is there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core_world import CONFIG, TOPIC
from mediator_world import World
from sealmq.audit import Audit
from sealmq.families.records import TopicLabel
from sealmq.mediator.locks import RowLocks
from sealmq.mediator.running import build
from sealmq.mediator.shared import Begin
from sealmq.mediator.single import SingleStore
from sealmq.site.check import parse
from sealmq.site.layout import Layout
from sealmq.store import Store


def test_a_topic_that_is_forgotten_at_the_start_stands_in_the_audit_log(tmp_path: Path) -> None:
    """As one that a reload forgets: sealmq.toml was edited while the site was down."""
    world, layout = World(), Layout.of(tmp_path / "site")
    layout.state_of("mediator").mkdir(parents=True)
    store = Store.open(layout.mediator_db)
    audit = Audit(tmp_path / "audit", "mediator", 1, world.ring.site.hex(), strict=True)
    config = parse(f'{CONFIG}[topics]\n"{TOPIC}" = "none"\n')
    begin = Begin(layout, config, world.ring, 0, 1, {"host": "127.0.0.1", "port": 1}, False)
    shared: Any = SimpleNamespace(
        store=SingleStore(store), locks=RowLocks(), kg=None, passed=None, took=None, marked=None,
        live=None,
    )  # fmt: skip

    async def story() -> None:
        await store.commit([TopicLabel(TOPIC, "low", "sensor", 1)])
        running = await build(begin, shared, audit)
        await running.mediator.close()

    try:
        asyncio.run(story())
        assert store.topics() == []
    finally:
        audit.close()
        store.close()
    lines = [line for file in (tmp_path / "audit").iterdir() for line in file.open()]
    rows = [json.loads(line) for line in lines]
    assert [row["topic"] for row in rows if row["event"] == "topic-reset"] == [TOPIC]
