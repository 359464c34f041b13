"""One file of the journal: m3 as they went to the broker, with checksums, appended and synced.

An entry: u32 length, u32 CRC-32 of the rest, then u64 stamp (Unix ms, ahead of a clock that was set
back), u8 flags (QoS, RETAIN at bit 2, at bit 3 whether it is said whose it is), u16 length of the
topic, u32 client and u32 generation if it is, topic, payload. What a crash left torn at the end is
not read. Whoever changes this raises the store's FORMAT (store/tables.py), which is checked before
a journal is opened.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from sealmq.site.layout import sync_folder, write_atomically
from sealmq.site.reserve import leave

_OUTER = struct.Struct(">II")
_INNER = struct.Struct(">QBH")
_WHOSE = struct.Struct(">II")
_SAID = 8
# How many workers the last start had.
_MARK = "workers"


class Entry(NamedTuple):
    """What was published. An empty payload with RETAIN is a clear. client, gen: whose it is, and
    under which of its generations; 0, None: that is not said.
    """

    ms: int
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    client: int = 0
    gen: int | None = None


def pack(
    ms: int,
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    client: int = 0,
    gen: int | None = None,
) -> bytes:
    """An entry's bytes."""
    flags, whose = qos | retain << 2, b""
    if gen is not None:
        flags, whose = flags | _SAID, _WHOSE.pack(client, gen)
    body = _INNER.pack(ms, flags, len(topic)) + whose + topic + payload
    return _OUTER.pack(len(body), crc32(body)) + body


def read(path: Path) -> Iterator[Entry]:
    """The entries of a file, up to the first that is torn. Raises OSError."""
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size
        while len(head := file.read(_OUTER.size)) == _OUTER.size:
            size, check = _OUTER.unpack(head)
            # A torn length may say anything, and reading would take that much memory first.
            if not _INNER.size <= size <= left:
                return
            body = file.read(size)
            if len(body) != size or crc32(body) != check:
                return
            ms, flags, length = _INNER.unpack_from(body)
            at = _INNER.size
            client, gen = 0, None
            if flags & _SAID:
                if size < at + _WHOSE.size:
                    return
                client, gen = _WHOSE.unpack_from(body, at)
                at += _WHOSE.size
            topic, payload = body[at : at + length], body[at + length :]
            yield Entry(ms, topic, payload, flags & 3, bool(flags & 4), client, gen)


class Ahead(NamedTuple):
    """What of a file lies ahead of the clock. until: the latest time of publishing (Unix s);
    topics: those of which it has a retained message that does.
    """

    until: int
    topics: set[bytes]


class Segment:
    """One file. `waiting` is for the thread that writes; the rest belongs to the event loop.

    `first`, `last`: numbers of its entries (0, 0: of an earlier run). `opened`: when the first
    came. `open`: entries that the broker has not acknowledged. `quiet`: since when it takes no more
    entries and the broker has acknowledged no other one (both loop time). `again`: the broker was
    lost since, and these entries have not been published once more. `shares`: bytes by client.
    `bad`: it could not be read. `ahead`: what is not published before the clock has come there.
    """

    __slots__ = ("_fd", "_size", "again", "ahead", "bad", "first", "last", "open", "opened", "path",
                 "quiet", "shares", "size", "waiting")  # fmt: skip

    def __init__(self, path: Path, first: int) -> None:
        self.path, self.first, self.last = path, first, 0
        self.waiting: list[bytes] = []
        self.shares: dict[int, int] = {}
        self.size = 0
        self.open = 0
        self.opened = self.quiet = 0.0
        self.again = self.bad = False
        self.ahead: Ahead | None = None
        self._fd = -1
        self._size = 0

    def write(self, data: bytes) -> None:
        """Appends and syncs, in the writing thread. Raises OSError; the same data comes again."""
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            sync_folder(self.path.parent)
        leave(self.path.parent)
        at = 0
        view = memoryview(data)
        while at < len(data):
            at += os.pwrite(self._fd, view[at:], self._size + at)
        os.fdatasync(self._fd)
        self._size += len(data)

    def end(self, unlink: bool) -> None:
        """Closes the file, in the writing thread, and removes it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if unlink:
            self.path.unlink(missing_ok=True)


def without_retain(path: Path, topics: Collection[bytes]) -> None:
    """Takes RETAIN from the entries of these topics, and what is nothing without it: something
    newer was retained there. The old file or the new one is there, whatever happens; one that
    cannot be read stays. Raises OSError.
    """
    try:
        entries = list(read(path))
    except OSError:
        return
    rows = []
    for entry in entries:
        if entry.retain and entry.topic in topics:
            if not entry.payload or not entry.qos:
                continue
            entry = entry._replace(retain=False)
        rows.append(pack(*entry))
    leave(path.parent)
    write_atomically(path, b"".join(rows), 0o600)


# --- several workers ----------------------------------------------------------------------------


def folder_of(state: Path, worker: int) -> Path:
    """The journal of a worker, in the mediator's folder."""
    return state / (f"journal-{worker}" if worker else "journal")


def retained_elsewhere(folder: Path) -> dict[bytes, int]:
    """Of each topic on which the journals of the other workers have a retained message or a clear:
    the newest one's stamp. `folder`: one worker's journal. They may be written meanwhile.
    """
    found: dict[bytes, int] = {}
    for other in folder.parent.glob("journal*"):
        for path in other.glob("*.seg") if other != folder else ():
            with contextlib.suppress(OSError):
                for entry in read(path):
                    if entry.retain:
                        found[entry.topic] = max(found.get(entry.topic, 0), entry.ms)
    return found


def gather(state: Path, workers: int) -> bool:
    """Before a start with another number of workers: what any of them has in its journal goes to
    that of worker 0, in the order in which it was written. Whether there was any. Raises OSError.
    """
    mark = state / _MARK
    before = mark.read_text() if mark.exists() else "1"
    if before == str(workers):
        return False
    to = folder_of(state, 0)
    folders = [to, *state.glob("journal-*")]
    segments = [path for folder in folders for path in folder.glob("*.seg")]
    segments = [path for path in segments if path.stem.isdecimal()]
    last = max((int(path.stem) for path in segments), default=0)
    if segments:
        to.mkdir(mode=0o700, exist_ok=True)
    for path in sorted(segments, key=_first):
        last += 1
        os.rename(path, to / f"{last:08d}.seg")
    for folder in folders:
        if folder.exists():
            sync_folder(folder)
    return bool(segments)


def gathered(state: Path, workers: int) -> None:
    """So many workers go on from here. Raises OSError."""
    mark = state / _MARK
    if workers > 1 or mark.exists():
        write_atomically(mark, str(workers).encode(), 0o600)


# A run of a mediator begins new segments: none has entries of before and after a change.
def _first(path: Path) -> tuple[int, str]:
    return next((entry.ms for entry in read(path)), 0), path.stem
