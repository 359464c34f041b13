"""What is asked of the key generator waits for it, and for what its answers rest on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mediator_world import PANEL, World
from reader_scene import Scene
from sealmq.kglink import KgUnavailable
from sealmq.mediator import kg_requests
from sealmq.mediator.core.keyring import Client, Keyring
from sealmq.mediator.kg_requests import KgRequests


class Kg:
    """A key generator that has the panel's generation 2, which came with its label's epoch 2.

    As the owner of the keys does, it tells the keyring of the links before it answers.
    """

    lost = False

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def answer(self, packet: bytes) -> Any:
        linked(self._scene.site.ring)
        return SimpleNamespace(client=PANEL, gen=2, packet=b"", kseq=6)


class Told:
    """Of the audit log."""

    def write(self, event: str, **fields: object) -> None:
        """Nobody looks."""


def linked(ring: Keyring) -> Keyring:
    """With the panel's generations."""
    km = bytes(32).hex()
    rows = [{"gen": gen, "km": km, "pending": gen == 2, "epoch": gen} for gen in (1, 2)]
    ring.set_links(PANEL, rows)
    return ring


def rekeyed(world: World, epoch: int) -> Keyring:
    rows = world.snapshot()
    for row in rows["labels"]:
        if row["name"] == "high":
            row["epoch"] = epoch
    return Keyring(world.site, 9, rows)


def test_an_answer_waits_until_its_epoch_is_known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kg_requests, "PROVISION_S", 0.05)
    scene = Scene()
    audit: Any = Told()
    ask = KgRequests(scene.site, audit)

    async def story() -> None:
        with pytest.raises(KgUnavailable):
            await ask.provision(b"", "here")  # no key generator
        kg: Any = Kg(scene)
        ask.take_kg(kg)
        with pytest.raises(KgUnavailable):
            await ask.provision(b"", "here")  # its epoch 2 is not known here
        monkeypatch.setattr(kg_requests, "PROVISION_S", 30)
        waiting = asyncio.ensure_future(ask.provision(b"", "here"))
        await asyncio.sleep(0)
        assert not waiting.done()
        scene.site.ring = linked(rekeyed(scene.world, 2))
        ask.news()
        assert (await waiting).gen == 2

    asyncio.run(story())


def test_an_answer_waits_until_its_client_is_known_here() -> None:
    """One that was added, or relabelled, a moment ago: its keys come first, and then its table in
    sealmq.toml.
    """
    scene = Scene()
    audit: Any = Told()
    ask, rows = KgRequests(scene.site, audit), scene.world.snapshot()
    older, gone = rows | {"clients": []}, rows | {"clients": [], "kseq": 6}
    config = scene.site.config

    def keys(snapshot: dict[str, Any]) -> None:
        scene.site.ring = Keyring(scene.world.site, 9, snapshot)
        ask.news()

    class Added(Kg):
        async def answer(self, packet: bytes) -> Any:
            return SimpleNamespace(client=PANEL, gen=1, packet=b"", kseq=6)

    async def story() -> None:
        kg: Any = Added(scene)
        ask.take_kg(kg)
        keys(older)
        scene.site.config = replace(config, clients={})
        waiting = asyncio.ensure_future(ask.provision(b"", "here"))
        for known in (older, rows):
            keys(known)
            await asyncio.sleep(0.01)
            assert not waiting.done()
        relabelled = replace(config.clients["panel"], label="low")
        scene.site.config = replace(config, clients={"panel": relabelled})
        ask.news()
        await asyncio.sleep(0.01)
        assert not waiting.done(), "it would be judged as one of its label of before"
        scene.site.config = config
        ask.news()
        assert (await waiting).gen == 1
        keys(older)
        waiting = asyncio.ensure_future(ask.provision(b"", "here"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        keys(gone)
        assert (await waiting).gen == 1, "it has been removed meanwhile"

    asyncio.run(story())


def test_a_later_generation_ends_no_connection() -> None:
    def client(ended: int) -> Client:
        return Client(PANEL, "c", 16, "app", 1, False, {4: bytes(32)}, ended=ended)

    assert client(0).goes_on(3)
    assert client(3).goes_on(4)
    assert not client(3).goes_on(3)
