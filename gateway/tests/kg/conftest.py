"""One factory site a module to copy from: `sealmq init` costs a tenth of a second."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from kg.helpers import MadeSite, copy_of, make_site
from sealmq.kg.core import Kg
from sealmq.kg.store import KgStore
from sealmq.site import masterkey


@pytest.fixture(scope="package", autouse=True)
def _scrypt_once() -> Iterator[None]:
    """scrypt is to cost a fifth of a second; for the same key and salt, here it does so once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masterkey, "derive", functools.cache(masterkey.derive))
        yield


@pytest.fixture(scope="session")
def factory(tmp_path_factory: pytest.TempPathFactory) -> MadeSite:
    """The factory site. Not to be changed."""
    return make_site(tmp_path_factory.mktemp("factory"))


@pytest.fixture(scope="session")
def key(factory: MadeSite) -> bytes:
    """The role key of every copy."""
    return factory.kg_key


@pytest.fixture
def site(factory: MadeSite, tmp_path: Path) -> MadeSite:
    """A copy to work on."""
    return copy_of(factory, tmp_path)


@pytest.fixture
def store(site: MadeSite, key: bytes) -> Iterator[KgStore]:
    """The copy's store, open for writing."""
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    yield store
    store.close()


@pytest.fixture
def kg(site: MadeSite, store: KgStore) -> Kg:
    """A key generator on it."""
    return Kg(store, site.config)
