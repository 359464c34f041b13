"""Which policy a mediator goes by: the one that the key generator has taken over, after the keys
that were made for it where a family of it seals to grants.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sealmq.kglink import KgUnavailable
from sealmq.mediator import owner as owner_module
from sealmq.mediator.keysource import _agreed
from sealmq.mediator.owner import Owner
from sealmq.site.config import Config, load
from sealmq.site.layout import Layout, prepare

HEAD = '[site]\nname = "s"\nid = "01020304"\n[policy]\norder = '
BY_LABELS, WITH_GRANTS = HEAD + '["labels"]\n', HEAD + '["labels", "allowlist"]\n'


class Keys:
    """A key generator's snapshots: `come` brings the next."""

    def __init__(self, policy: str) -> None:
        self.site = b"\x01\x02\x03\x04"
        self.snapshot: dict[str, Any] = {"kseq": 1, "policy": policy}
        self._next: asyncio.Queue[str] = asyncio.Queue()

    def come(self, policy: str) -> None:
        self._next.put_nowait(policy)

    async def watch(self, kg: Any, connected: Any) -> AsyncIterator[bool]:
        while True:
            policy = await self._next.get()
            self.snapshot = {"kseq": self.snapshot["kseq"] + 1, "policy": policy}
            yield True


class Worker:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def ring(self, keys: Keys, fresh: Any) -> None:
        await asyncio.sleep(0)
        self.told.append(f"keys {keys.snapshot['kseq']}")

    async def config(self, config: Config) -> None:
        self.told.append("policy")
        self.policy = config

    async def ended(self) -> None:
        pass


class Scene:
    """The owner of one worker, whose sealmq.toml has just been edited; the key generator has taken
    that over.
    """

    def __init__(self, layout: Layout, after: str) -> None:
        before = load(layout.config)
        layout.config.write_text(after)
        self.after = load(layout.config)
        self.audit = Log()
        self.keys, self.worker = Keys(before.digest), Worker()
        store: Any = SimpleNamespace(bound=lambda rows, size: None)
        self.owner = Owner(layout, before, store, self.keys, self.audit)  # type: ignore[arg-type]
        self.owner.workers.append(self.worker)  # type: ignore[arg-type]
        self.kg = self.owner.kg = KeyGenerator(self.after)  # type: ignore[assignment]

    async def told(self, most: int) -> list[str]:
        """What the worker has been told, once that is `most`, or nothing more comes."""
        for _ in range(200):
            await asyncio.sleep(0)
        for _ in range(100):
            if len(self.worker.told) >= most:
                break
            await asyncio.sleep(0.01)
        return self.worker.told


class Log:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def write(self, event: str, **fields: Any) -> None:
        self.events.append(event)


class KeyGenerator:
    """Goes by `config`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.asked: list[str] = []
        self.fails = 0

    async def in_force(self, known: str) -> str | None:
        self.asked.append(known)
        if self.fails:
            self.fails -= 1
            raise KgUnavailable("the key generator did not answer in-force in 10 s")
        return None if known == self.config.digest else self.config.text

    async def took(self, kseq: int, policy: str) -> None:
        pass


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "sealmq.toml").write_text(BY_LABELS)
    made = Layout.open(tmp_path)
    prepare(made)
    return made


def run(scene: Scene, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        running = asyncio.create_task(scene.owner.run())
        try:
            async with asyncio.timeout(30):
                await story()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(whole())


def test_it_waits_for_its_keys(layout: Layout) -> None:
    scene = Scene(layout, WITH_GRANTS)

    async def story() -> None:
        for _ in range(200):
            await asyncio.sleep(0)
        assert scene.worker.told == []
        scene.keys.come("of another policy")
        assert await scene.told(1) == ["keys 2"]
        scene.keys.come(scene.after.digest)
        assert (await scene.told(3))[:3] == ["keys 2", "keys 3", "policy"]

    run(scene, story)


def test_a_policy_without_grants_waits_for_nothing(layout: Layout) -> None:
    scene = Scene(layout, BY_LABELS + "# edited\n")

    async def story() -> None:
        assert await scene.told(1) == ["policy"]

    run(scene, story)


def test_it_does_not_wait_for_ever_nor_for_a_key_generator_that_is_away(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_module, "_KEYS_S", 0.01)
    refused = Scene(layout, WITH_GRANTS)

    async def story() -> None:
        assert await refused.told(1) == ["policy"]

    run(refused, story)
    monkeypatch.setattr(owner_module, "_KEYS_S", 1000)
    away = Scene(layout, WITH_GRANTS + "# again\n")
    away.owner.kg = None

    async def alone() -> None:
        away.owner.hang_up()
        assert await away.told(1) == ["policy"]

    run(away, alone)


def test_a_file_that_the_key_generator_has_not_taken_over_is_nobody_s_policy(
    layout: Layout,
) -> None:
    """Nor is it refused twice: it was edited again before a signal of the first edit came."""
    scene = Scene(layout, BY_LABELS + "# edited\n")
    layout.config.write_text("a mistake")

    async def story() -> None:
        assert await scene.told(1) == ["policy"]
        assert scene.worker.policy == scene.owner.config == scene.after
        scene.owner.hang_up()
        scene.keys.come(scene.after.digest)
        assert await scene.told(3) == ["policy", "keys 2"], "it goes by that policy already"
        assert scene.audit.events == []
        assert scene.kg.asked[-1] == scene.after.digest

    run(scene, story)


def test_a_file_is_read_on_a_signal_and_never_else_while_the_key_generator_is_away(
    layout: Layout,
) -> None:
    scene = Scene(layout, BY_LABELS + "# edited\n")
    scene.owner.kg = None

    async def story() -> None:
        scene.keys.come("")
        assert await scene.told(2) == ["keys 2"]
        scene.owner.hang_up()
        assert await scene.told(2) == ["keys 2", "policy"]
        layout.config.write_text("a mistake")
        scene.owner.hang_up()
        assert await scene.told(3) == ["keys 2", "policy"]
        assert scene.audit.events == ["config-refused"]
        assert scene.owner.config == scene.after

    run(scene, story)


def test_it_asks_again_when_the_key_generator_did_not_answer(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_module, "_RETRY_S", 0.01)
    scene = Scene(layout, BY_LABELS + "# edited\n")
    scene.kg.fails = 2

    async def story() -> None:
        assert await scene.told(1) == ["policy"]
        assert len(scene.kg.asked) == 3

    run(scene, story)


def test_of_a_copy_grants_count_while_the_policy_is_the_one_of_then(layout: Layout) -> None:
    """Somebody may have been taken out of one since."""
    config = load(layout.config)
    own, held, over = {"number": 5}, {"number": 6}, {"number": 4}
    then: dict[str, Any] = {"labels": [], "clients": [], "policy": config.digest}
    its = {**then, "grants": [own, held], "older_grants": [over], "holders": [[6, 1]]}
    same = _agreed(its, config)
    assert (same["grants"], same["older_grants"]) == ([own, held], [over])
    other = _agreed({**its, "policy": "another"}, config)
    # Of one that no client held nobody was told: what lies at the broker under it is still read.
    assert (other["grants"], other["older_grants"]) == ([], [over, own])
    assert _agreed({**then, "policy": "another"}, config)["grants"] == []
