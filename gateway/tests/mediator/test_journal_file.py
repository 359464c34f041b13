"""The journal's file after a power cut: what was synced is read, what is torn is not."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sealmq.mediator.journal_file import (
    Entry,
    Segment,
    folder_of,
    pack,
    read,
    retained_elsewhere,
)

ENTRIES = [
    Entry(1_800_000_000_000, b"a/b", b"payload", 1, False),
    Entry(1_800_000_000_001, b"kept", b"x" * 300, 2, True),
    Entry(1_800_000_000_002, b"kept", b"", 1, True),
]
RAW = [pack(*entry) for entry in ENTRIES]
QUICK = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "1", 1)
    segment.write(RAW[0] + RAW[1])
    segment.write(RAW[2])
    segment.end(unlink=False)
    assert list(read(tmp_path / "1")) == ENTRIES


@QUICK
@given(cut=st.integers(0, len(b"".join(RAW))), tail=st.binary(max_size=40))
def test_a_torn_end_costs_only_what_is_torn(tmp_path: Path, cut: int, tail: bytes) -> None:
    """Cut anywhere, with rubbish behind: whole entries are read, and nothing else."""
    path = tmp_path / "torn"
    path.write_bytes(b"".join(RAW)[:cut] + tail)
    whole = sum(len(b"".join(RAW[: n + 1])) <= cut for n in range(len(RAW)))
    found = list(read(path))
    # Rubbish may by chance be what was cut off, byte for byte.
    assert found[:whole] == ENTRIES[:whole]
    assert found == ENTRIES[: len(found)]


@QUICK
@given(at=st.integers(0, len(b"".join(RAW)) - 1), bit=st.integers(0, 7))
def test_a_changed_bit_ends_the_reading(tmp_path: Path, at: int, bit: int) -> None:
    path = tmp_path / "changed"
    raw = bytearray(b"".join(RAW))
    raw[at] ^= 1 << bit
    path.write_bytes(raw)
    found = list(read(path))
    assert found == ENTRIES[: len(found)]
    assert len(found) < len(ENTRIES)


@pytest.mark.parametrize("size", [0xFFFF_FFFF, 0x7FFF_FFFF, 100_000_000])
def test_a_torn_length_takes_no_memory(tmp_path: Path, size: int) -> None:
    path = tmp_path / "long"
    path.write_bytes(RAW[0] + size.to_bytes(4, "big") + bytes(40))
    tracemalloc.start()
    try:
        assert list(read(path)) == ENTRIES[:1]
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_of_other_workers_journals_the_newest_retained_of_each_topic_is_known(
    tmp_path: Path,
) -> None:
    """A clear counts, what is not retained does not; a torn end, and one's own, is left out."""

    def write(worker: int, *rows: Entry, tail: bytes = b"") -> Path:
        folder = folder_of(tmp_path, worker)
        folder.mkdir(exist_ok=True)
        data = b"".join(pack(*row) for row in rows) + tail
        (folder / f"{len(list(folder.iterdir())) + 1:08d}.seg").write_bytes(data)
        return folder

    own = write(0, Entry(99, b"a", b"x", 1, True))
    write(1, Entry(5, b"a", b"x", 1, True), Entry(7, b"b", b"x", 1, False))
    write(1, Entry(6, b"a", b"", 1, True), tail=pack(9, b"a", b"x", 1, True)[:-1])
    write(2, Entry(4, b"a", b"x", 1, True), Entry(8, b"c", b"x", 0, True))
    assert retained_elsewhere(own) == {b"a": 6, b"c": 8}
