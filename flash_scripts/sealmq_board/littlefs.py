"""A board's file system: littlefs2 as MicroPython's VfsLfs2 mounts it, the same bytes from the same
files.

Of the geometry the driver checks block size and count alone, so an image fits one partition size.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from littlefs import LittleFS, LittleFSError

from .chips import SECTOR
from .errors import BoardError

# MicroPython's defaults, prog as its ESP32 port has it; the oldest disk version, which each driver
# since MicroPython 1.12 mounts (a newer one raises it at its first write).
_SETTINGS: dict[str, Any] = {
    "block_size": SECTOR,
    "prog_size": 256,
    "read_size": 32,
    "lookahead_size": 32,
    "cache_size": 256,
    "disk_version": 0x00020000,
}
# Of the blocks some stay free, for what the board itself writes and for littlefs' pairs.
_SPARE = 16


def image(files: Mapping[str, bytes], folders: set[str], size: int) -> bytes:
    """A file system of `size` bytes with these files, by absolute path. BoardError: no room."""
    fs = _empty(size)
    for folder in sorted(folders | {up for name in files for up in _above(name)}):
        fs.mkdir(folder)
    try:
        for name in sorted(files):
            with fs.open(name, "wb") as file:
                file.write(files[name])
    except LittleFSError as error:
        raise _too_large(files, size) from error
    if fs.used_block_count + _SPARE > size // SECTOR:
        raise _too_large(files, size)
    fs.unmount()
    return bytes(fs.context.buffer)


def contents(raw: bytes) -> tuple[dict[str, bytes], set[str]]:
    """The files and folders of an image. BoardError: it is none."""
    fs = LittleFS(block_count=len(raw) // SECTOR, mount=False, **_SETTINGS)
    fs.context.buffer = bytearray(raw)
    files: dict[str, bytes] = {}
    folders: set[str] = set()
    try:
        fs.mount()
        for root, below, names in fs.walk("/"):
            folders |= {str(PurePosixPath(root, name)) for name in below}
            for name in names:
                path = str(PurePosixPath(root, name))
                with fs.open(path, "rb") as file:
                    files[path] = file.read()
        fs.unmount()
    except LittleFSError as error:
        raise BoardError(f"this is no littlefs2 image: {error}") from error
    return files, folders


def resized(raw: bytes, size: int) -> bytes:
    """The same files in an image of another size. BoardError: no room."""
    return raw if len(raw) == size else image(*contents(raw), size)


def _empty(size: int) -> LittleFS:
    fs = LittleFS(block_count=size // SECTOR, mount=False, **_SETTINGS)
    fs.format()
    fs.mount()
    return fs


def _above(name: str) -> set[str]:
    return {str(up) for up in PurePosixPath(name).parents} - {"/"}


def _too_large(files: Mapping[str, bytes], size: int) -> BoardError:
    need = sum(len(content) for content in files.values())
    return BoardError(
        f"{len(files)} files of {need:,} bytes do not fit a file system of {size:,} bytes",
        hint="a smaller --set, or a board with more flash",
    )
