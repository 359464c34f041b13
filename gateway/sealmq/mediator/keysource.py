"""Where the keyring comes from: the key generator, or, while it is away, the sealed copy of the
last snapshot.

A mediator can restart without the key generator (SPEC.md 5, point 4): instance numbers are drawn
ahead while that is there, and each is crossed off durably before it is used, so none serves twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from sealmq.kglink import KgClient, KgError, KgUnavailable
from sealmq.site.config import Config, load, loads
from sealmq.store import CacheBlob, Store, StoreError

from .core.keyring import Keyring, SnapshotError

log = logging.getLogger("sealmq.mediator")

_CACHE = "keys"
_AAD = b"sealmq mediator cache 1"
# Instance numbers in reserve: for so many starts while the key generator is away.
_STARTS = 4
_KG_WAIT_S = 5.0


class NoKeys(Exception):
    """Neither the key generator nor a usable copy of its last snapshot is there."""


# A copy may be older than a command that disabled a client; that command has changed sealmq.toml.
def _agreed(snapshot: dict[str, Any], config: Config) -> dict[str, Any]:
    labels = {row["number"]: row["name"] for row in snapshot["labels"]}

    def still(row: dict[str, Any]) -> bool:
        known = config.clients.get(row["name"])
        return (
            known is not None
            and not known.disabled
            and known.label == labels.get(row["label"])
            and known.rotation <= row.get("rotation", 0)
        )

    clients = [
        row if still(row) else row | {"disabled": True, "links": []} for row in snapshot["clients"]
    ]
    # What families were told may have been taken back meanwhile, and no file says so.
    snapshot = snapshot | {"told": []}
    # Who holds a grant was said out of the policy of then: somebody may have been taken out since.
    if snapshot.get("policy") == config.digest:
        return snapshot | {"clients": clients}
    held = {number for number, _ in snapshot.get("holders", [])}
    grants, older = snapshot.get("grants", []), snapshot.get("older_grants", [])
    # Of one that nobody held nobody was told: what lies at the broker under it is still read.
    older = [*older, *(row for row in grants if row["number"] not in held)]
    return snapshot | {"clients": clients, "grants": [], "older_grants": older}


async def in_force(socket: Path, config: Path) -> tuple[Config, KgClient | None]:
    """What the key generator has taken over, and the connection to it; what sealmq.toml says if it
    does not answer within a few seconds. Raises SiteError, OSError, NoKeys.

    So a mistake that somebody has made in the file since keeps no mediator from starting.
    """
    deadline = asyncio.get_running_loop().time() + _KG_WAIT_S
    while True:
        kg: KgClient | None = None
        try:
            kg = await KgClient.connect(socket)
            text = await kg.in_force("")
            return loads(text or "", config), kg
        except KgUnavailable:
            if kg is not None:
                await kg.close()
            if asyncio.get_running_loop().time() > deadline:
                return load(config), None
            await asyncio.sleep(0.1)
        except KgError as error:
            raise NoKeys(f"the key generator refuses this mediator: {error}") from None


class KeySource:
    """Fetches snapshots, keeps the sealed copy, watches for changes.

    `need`: the instance numbers that one start takes.
    """

    def __init__(
        self, socket: Path, mediator: int, store: Store, cache_key: bytes, need: int = 1
    ) -> None:
        self._socket, self._mediator, self._store, self._need = socket, mediator, store, need
        self._identity = store.identity
        self._cipher = ChaCha20Poly1305(cache_key)
        self.site = b""
        self.snapshot: dict[str, Any] = {}
        """The newest one, as Keyring takes it."""
        self._greeted: KgClient | None = None
        self._reserve: list[int] = []

    def ring(self, inst: int) -> Keyring:
        """The newest snapshot under an instance number. Raises SnapshotError."""
        return Keyring(self.site, inst, self.snapshot)

    async def start(self, config: Config, kg: KgClient | None) -> tuple[list[int], KgClient | None]:
        """`need` instance numbers, and the key generator if it is there still.

        Of a copy only clients count that stand in sealmq.toml as they do there. Raises NoKeys.
        """
        try:
            if kg is None:
                raise KgUnavailable("the key generator is away")
            await self._greet(kg, self._need)
            drawn = self._pop(self._need)
            await self.fetch(kg)
            return drawn, kg
        except KgUnavailable as error:
            if kg is not None:
                await kg.close()
            log.warning("%s; starting from the sealed copy of its last snapshot", error)
            return await self._from_copy(config), None
        except (KgError, SnapshotError) as error:
            raise NoKeys(f"the key generator refuses this mediator: {error}") from None

    async def fetch(self, kg: KgClient) -> None:
        """A new snapshot from the key generator; draws instance numbers as needed and renews the
        copy. Raises SnapshotError.
        """
        await self._greet(kg)
        snapshot = await kg.snapshot()
        Keyring(self.site, 1, snapshot)  # a bad one is not kept
        self.snapshot = snapshot
        try:
            await self._keep()
        except StoreError as error:
            # The copy is for times without the key generator. New and disabled clients count now.
            log.error("the copy of the key generator's snapshot is an old one: %s", error)

    async def draw(self) -> int | None:
        """One of the instance numbers in reserve, None if there is none. Raises StoreError: a
        number that is not crossed off on disk is not used.
        """
        if not self._reserve:
            return None
        (inst,) = self._pop(1)
        await self._keep()
        return inst

    def _pop(self, count: int) -> list[int]:
        drawn, self._reserve = self._reserve[:count], self._reserve[count:]
        return drawn

    # Each connection says hello: provisioning requests are bound to the number it says.
    async def _greet(self, kg: KgClient, more: int = 0) -> None:
        most = _STARTS * self._need
        if kg is not self._greeted:
            hello = await kg.hello(self._mediator, self._identity)
            self._greeted, self.site = kg, hello.site
            self._reserve = [*self._reserve, hello.inst][-most - more :]
        while len(self._reserve) < most + more:
            self._reserve.append((await kg.hello(self._mediator, self._identity)).inst)

    async def _keep(self) -> None:
        copy = {"site": self.site.hex(), "reserve": self._reserve, "snapshot": self.snapshot}
        nonce = os.urandom(12)
        sealed = nonce + self._cipher.encrypt(nonce, json.dumps(copy).encode(), _AAD)
        await self._store.commit([CacheBlob(_CACHE, sealed)])

    async def _from_copy(self, config: Config) -> list[int]:
        blob = self._store.cache(_CACHE)
        if blob is None:
            raise NoKeys("the key generator is away, and there is no copy of an earlier snapshot")
        try:
            copy = json.loads(self._cipher.decrypt(blob[:12], blob[12:], _AAD))
        except InvalidTag:
            raise NoKeys("the copy of the key generator's snapshot does not open") from None
        self.site, self._reserve = bytes.fromhex(copy["site"]), list(copy["reserve"])
        self.snapshot = _agreed(copy["snapshot"], config)
        if len(self._reserve) < self._need:
            raise NoKeys("the key generator is away, and all instance numbers in reserve are used")
        drawn = self._pop(self._need)
        await self._keep()
        return drawn

    async def watch(
        self, kg: KgClient | None, connected: Callable[[KgClient | None], None]
    ) -> AsyncIterator[bool]:
        """For each change: True when there is a new snapshot, False when the policy alone changed;
        for ever.

        Tells `connected` when the key generator comes and goes.
        """
        wait = 0.2
        while True:
            try:
                if kg is None:
                    kg = await KgClient.connect(self._socket)
                    connected(kg)
                    await self.fetch(kg)
                    yield True
                connected(kg)
                async for change in kg.changes():
                    wait = 0.2
                    risen = change.kseq > int(self.snapshot["kseq"])
                    if risen:
                        await self.fetch(kg)
                    yield risen
            except (KgError, SnapshotError) as error:
                log.warning("key generator: %s", error)
            connected(None)
            if kg is not None:
                await kg.close()
                kg = None
            await asyncio.sleep(wait)
            wait = min(wait * 2, 5.0)
