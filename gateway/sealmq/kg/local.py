"""The key generator without its process: for `sealmq` commands while the site is down.

The store's lock keeps this and the process apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sealmq.site import masterkey
from sealmq.site.layout import Layout, give_back
from sealmq.site.model import Config

from .core import Kg
from .seal import Vault
from .store import KgStore


def create(
    layout: Layout, config: Config, key: bytes, kept: Mapping[str, bytes] | None = None
) -> None:
    """A new store that holds what sealmq.toml says, and what families are given to keep. `key`: the
    role key, 32 bytes.
    """
    store = KgStore.create(layout.kg_db, Vault(key, config.site.id), config.site.id)
    try:
        kg = Kg(store, config)
        kg.apply(config)
        for family, said in (kept or {}).items():
            kg.keep(family, said)
    finally:
        store.close()


@contextmanager
def opened(layout: Layout, config: Config, key_file: Path | None = None) -> Iterator[Kg]:
    """A key generator on the site's store, as it was left.

    StoreBusy when its process runs; KeyFileError and StoreBroken say what is wrong with the key.
    """
    keys = masterkey.role_keys(layout, config, key_file)
    store = KgStore.open(layout.kg_db, keys.kg, config.site.id)
    try:
        yield Kg(store, config)
    finally:
        store.close()
        give_back(layout)
