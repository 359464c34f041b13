"""The file: a header in clear, then parts sealed piece by piece, so that nothing of it is believed
before all of it has been read.

    "sealmq backup 1\\n" ‖ site 4 ‖ made 8 (Unix s) ‖ salt of the site 16 ‖ random 32
    pieces of 64 KiB, the last one shorter: AES-256-GCM, nonce = number 11 ‖ 1 for the last, else 0

The key is HKDF-SHA256(role key "backup", salt = random, info = the header), one for each file, so
no nonce repeats under it. A piece that is changed, moved, left out or added does not open, nor does
a file that ends before its last piece, nor a header that is another one. What is sealed: of each
part its name's length 1, its name, its length 8, itself.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sealmq.site.errors import SiteError
from sealmq.site.masterkey import SALT_BYTES

MAGIC = b"sealmq backup 1\n"
PIECE = 64 * 1024
_TAG = 16
_HEAD = struct.Struct(f">16s4sQ{SALT_BYTES}s32s")
_NAME_MOST = 16


class BackupError(SiteError):
    """No backup can be made, or this one cannot be taken; `hint` says what to do."""


class NoRoom(BackupError):
    """The disk is full."""


class NotSealed(BackupError):
    """The file does not begin as a backup does."""


@dataclass(frozen=True, slots=True)
class Header:
    """What stands in clear before the parts, and is authenticated with them."""

    site: bytes
    made_s: int
    salt: bytes
    random: bytes

    def pack(self) -> bytes:
        return _HEAD.pack(MAGIC, self.site, self.made_s, self.salt, self.random)

    def key(self, role_key: bytes) -> bytes:
        """Of this one file."""
        kdf = HKDF(algorithm=SHA256(), length=32, salt=self.random, info=self.pack())
        return kdf.derive(role_key)


def header(source: BinaryIO) -> Header:
    """Read it; nothing of it is proved yet. NotSealed."""
    head = source.read(_HEAD.size)
    if len(head) != _HEAD.size or head[: len(MAGIC)] != MAGIC:
        raise NotSealed("is no backup", "nothing was changed")
    return Header(*_HEAD.unpack(head)[1:])


def write(target: BinaryIO, head: Header, role_key: bytes, parts: Mapping[str, Path]) -> None:
    """Seal the parts, files that nobody changes meanwhile."""
    target.write(head.pack())
    cipher = AESGCM(head.key(role_key))
    number, waiting = 0, b""
    for piece in _content(parts):
        waiting += piece
        while len(waiting) > PIECE:
            target.write(cipher.encrypt(_nonce(number, False), waiting[:PIECE], None))
            number, waiting = number + 1, waiting[PIECE:]
    target.write(cipher.encrypt(_nonce(number, True), waiting, None))


def read(source: BinaryIO, head: Header, role_key: bytes, parts: Mapping[str, Path]) -> set[str]:
    """Open what follows the header into files (0600, new); the names of the parts that it holds.

    Only once this returns is anything in these files to be believed. BackupError.
    """
    stream = _Stream(_opened(source, AESGCM(head.key(role_key))))
    found = set()
    while length := stream.take(1):
        name = stream.exactly(length[0]).decode("ascii", "replace")
        size = int.from_bytes(stream.exactly(8), "big")
        if name not in parts or name in found:
            raise BackupError(f"has a part {name!r}", "use the sealmq that made it")
        found.add(name)
        fd = os.open(parts[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            while size:
                piece = stream.take(min(size, PIECE))
                if not piece:
                    raise _torn()
                file.write(piece)
                size -= len(piece)
    return found


def _content(parts: Mapping[str, Path]) -> Iterator[bytes]:
    for name, path in parts.items():
        text = name.encode("ascii")
        if not 0 < len(text) <= _NAME_MOST:
            raise ValueError(f"a part's name has 1 to {_NAME_MOST} bytes: {name}")
        size = path.stat().st_size
        yield bytes((len(text),)) + text + size.to_bytes(8, "big")
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                size -= len(piece)
                yield piece
        if size:
            raise BackupError(f"{path} was changed while it was read", "try again")


def _opened(source: BinaryIO, cipher: AESGCM) -> Iterator[bytes]:
    number, piece = 0, source.read(PIECE + _TAG)
    while True:
        after = source.read(PIECE + _TAG) if len(piece) == PIECE + _TAG else b""
        try:
            yield cipher.decrypt(_nonce(number, not after), piece, None)
        except (InvalidTag, ValueError):
            raise _torn(first=number == 0) from None
        if not after:
            return
        number, piece = number + 1, after


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes((last,))


def _torn(first: bool = False) -> BackupError:
    if first:
        return BackupError(
            "does not open: it was sealed under another key file, or it is torn or changed",
            "nothing was changed; give the site's key file (--key-file), or another backup",
        )
    return BackupError(
        "is damaged: it is cut off, torn or changed", "nothing was changed; take another backup"
    )


class _Stream:
    """Bytes out of pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def take(self, most: int) -> bytes:
        """At least one byte and at most so many; b"" at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        out, self._rest = self._rest[:most], self._rest[most:]
        return out

    def exactly(self, count: int) -> bytes:
        out = b""
        while len(out) < count:
            more = self.take(count - len(out))
            if not more:
                raise _torn()
            out += more
        return out
