"""Where the mediator's keys come from: what it says to a key generator that came back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sealmq.kglink import KgClient, KgUnavailable
from sealmq.kgtypes import Hello
from sealmq.mediator import keysource
from sealmq.mediator.keysource import KeySource, NoKeys
from sealmq.site.config import loads
from sealmq.site.errors import ConfigError
from sealmq.store import CacheBlob


class Kg:
    """A connection to a key generator, as far as fetching goes."""

    insts = 0

    def __init__(self) -> None:
        self.greeted: list[int] = []

    async def hello(self, mediator: int, store: bytes) -> Hello:
        Kg.insts += 1
        self.greeted.append(mediator)
        return Hello(b"site", Kg.insts)

    async def snapshot(self) -> dict[str, Any]:
        assert self.greeted, "asked before it was greeted"
        return {}


SITE = '[site]\nname = "s"\nid = "00c0ffee"\n'


def test_a_mediator_begins_with_what_is_in_force_and_reads_the_file_only_without_key_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sealmq.toml"
    path.write_text("[polocy]\n")
    closed: list[bool] = []

    class InForce:
        away = False

        async def in_force(self, known: str) -> str:
            assert known == ""
            if self.away:
                raise KgUnavailable("it ended")
            return SITE

        async def close(self) -> None:
            closed.append(True)

    async def connect(socket: Path) -> InForce:
        return InForce()

    monkeypatch.setattr(KgClient, "connect", connect)
    monkeypatch.setattr(keysource, "_KG_WAIT_S", 0.2)

    async def story() -> None:
        config, there = await keysource.in_force(Path("kg.sock"), path)
        assert config.text == SITE
        assert there is not None
        assert closed == []
        InForce.away = True
        with pytest.raises(ConfigError, match="polocy"):
            await keysource.in_force(Path("kg.sock"), path)
        path.write_text(SITE)
        config, found = await keysource.in_force(Path("kg.sock"), path)
        assert (config.text, found) == (SITE, None)
        assert len(closed) >= 2

    asyncio.run(story())


class Nowhere:
    """A store that takes everything."""

    identity = bytes(16)

    async def commit(self, records: list[Any]) -> None:
        return


def test_each_connection_is_greeted_and_inst_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keysource, "Keyring", lambda site, inst, snapshot: (site, inst))
    source = KeySource(Path("kg.sock"), 7, Nowhere(), bytes(32))  # type: ignore[arg-type]

    async def fetch(kg: Kg) -> None:
        await source.fetch(kg)  # type: ignore[arg-type]

    async def story() -> None:
        first, second = Kg(), Kg()
        for kg in (first, first, second, second):
            await fetch(kg)
        assert source.site == b"site"
        # Four numbers in reserve; after the first connection one a connection.
        assert first.greeted == [7] * 4
        assert second.greeted == [7]
        assert await source.draw() == 2

    asyncio.run(story())


class Kept(Nowhere):
    """A store that has what was committed last."""

    blob: bytes | None = None

    async def commit(self, records: list[Any]) -> None:
        (record,) = records
        assert isinstance(record, CacheBlob)
        self.blob = record.blob

    def cache(self, name: str) -> bytes | None:
        return self.blob


def test_a_copy_says_nothing_to_families_and_a_changed_one_says_nothing_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an operator has taken back meanwhile no file says."""
    config = loads('[site]\nname = "s"\nid = "00c0ffee"\n')
    told = [["blinded", "m/kind/X", "00ff"]]
    whole = {"kseq": 1, "policy": config.digest, "labels": [], "clients": [], "told": told}

    class Full(Kg):
        async def snapshot(self) -> dict[str, Any]:
            return whole

    monkeypatch.setattr(keysource, "Keyring", lambda site, inst, snapshot: None)

    async def story() -> None:
        store = Kept()
        source = KeySource(Path("kg.sock"), 7, store, bytes(32))  # type: ignore[arg-type]
        await source.fetch(Full())  # type: ignore[arg-type]
        assert source.snapshot["told"] == told
        assert store.blob is not None
        again = KeySource(Path("kg.sock"), 7, store, bytes(32))  # type: ignore[arg-type]
        await again._from_copy(config)
        assert again.snapshot["told"] == []
        assert store.blob is not None
        store.blob = store.blob[:-20] + bytes((store.blob[-20] ^ 1,)) + store.blob[-19:]
        with pytest.raises(NoKeys, match="does not open"):
            await again._from_copy(config)

    asyncio.run(story())
