"""What the vault seals opens in its own place only."""

from __future__ import annotations

import pytest

from sealmq.kg.errors import StoreBroken
from sealmq.kg.seal import Vault

KEY = bytes(range(32))
SITE = b"\x01\x02\x03\x04"
SECRET = b"0123456789abcdef" * 2


def test_opens_what_it_sealed() -> None:
    vault = Vault(KEY, SITE)
    blob = vault.seal("epochs.secret", (16, 1), SECRET)
    assert Vault(KEY, SITE).open("epochs.secret", (16, 1), blob) == SECRET
    assert SECRET not in blob
    assert len(blob) == 1 + 28 + 32 + 16


def test_no_two_blobs_are_alike() -> None:
    vault = Vault(KEY, SITE)
    blobs = {vault.seal("a.b", (1,), SECRET) for _ in range(100)}
    assert len(blobs) == 100
    assert len({blob[1:17] for blob in blobs}) == 100
    assert len({blob[29:] for blob in blobs}) == 100


@pytest.mark.parametrize(
    ("key", "site", "column", "row"),
    [
        (bytes(32), SITE, "a.b", (1, 2)),
        (KEY, b"\x01\x02\x03\x05", "a.b", (1, 2)),
        (KEY, SITE, "a.c", (1, 2)),
        (KEY, SITE, "a.b", (2, 1)),
        (KEY, SITE, "a.b", (1,)),
        (KEY, SITE, "a.b", (1, 2, 0)),
    ],
)
def test_nowhere_else(key: bytes, site: bytes, column: str, row: tuple[int, ...]) -> None:
    blob = Vault(KEY, SITE).seal("a.b", (1, 2), SECRET)
    with pytest.raises(StoreBroken):
        Vault(key, site).open(column, row, blob)


def test_every_byte_counts() -> None:
    vault = Vault(KEY, SITE)
    blob = vault.seal("a.b", (1,), SECRET)
    for i in range(len(blob)):
        changed = bytearray(blob)
        changed[i] ^= 1
        with pytest.raises(StoreBroken) as caught:
            vault.open("a.b", (1,), bytes(changed))
        assert SECRET.hex() not in str(caught.value)
    for n in range(len(blob)):
        with pytest.raises(StoreBroken):
            vault.open("a.b", (1,), blob[:n])


def test_it_does_not_show_its_key() -> None:
    vault = Vault(KEY, SITE)
    assert KEY.hex() not in repr(vault)
    assert not hasattr(vault, "__dict__")
    with pytest.raises(ValueError, match="32 bytes"):
        Vault(KEY[:31], SITE)
