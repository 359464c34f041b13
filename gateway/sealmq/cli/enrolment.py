"""Files that hold clients' secrets: their room is taken beforehand, their mode is 0600, and they
are whole before they have their name. What stands in them: handout.py.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sealmq.site import values
from sealmq.site.layout import Layout, sync_folder

from .errors import OperatorError, UsageError

# More than an enrolment has; bytes.
ROOM = 4096


class Room(NamedTuple):
    """Where an enrolment file will be, and the draft beside it that has the space for it.

    It is not kept open: 10,000 clients are more files than a process may have open.
    """

    path: Path
    draft: Path


def path_for(given: str, layout: Layout) -> Path:
    """Where the file is to go; refused before anything is changed."""
    if given == "-":
        raise UsageError("an enrolment holds a secret and is not printed", hint="-o FILE")
    path = Path(given).absolute()
    if values.is_inside(path, layout.root):
        raise OperatorError(
            f"{path} lies inside the site, whose copy would then reveal the client's secret",
            hint="-o FILE, in a folder outside the site",
        )
    if path.exists() or path.is_symlink():
        raise OperatorError(f"{path} is there already", hint="remove it first, or give -o FILE")
    if not path.parent.is_dir():
        raise OperatorError(f"{path.parent} is no folder", hint=f"mkdir -p {path.parent}")
    return path


@contextlib.contextmanager
def reserve(path: Path, size: int = ROOM) -> Iterator[Room]:
    """Take the room for the file before anything is changed, so that a full disk is told then.

    OperatorError: nothing can be written there. The room is given back at the end.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = _new(draft)
    except OSError as error:
        raise _no_room(path, error) from None
    try:
        try:
            _all(fd, bytes(size))
        except OSError as error:
            raise _no_room(path, error) from None
        yield Room(path, draft)
    finally:
        draft.unlink(missing_ok=True)


def write(room: Room, data: bytes, instead: str) -> None:
    """The name appears when the file is whole and on disk; what appeared meanwhile is kept.

    instead: what gets the file when this fails all the same, since the secret is the client's now.
    """
    write_all([(room, data)], instead)


def write_all(files: Sequence[tuple[Room, bytes]], instead: str) -> None:
    """The same for several."""
    for room, data in files:
        try:
            _fill(room, data)
        except OSError as error:
            raise _not_written(room.path, error, instead) from None
    for folder in {room.path.parent for room, _ in files}:
        try:
            sync_folder(folder)
        except OSError as error:
            raise _not_written(folder, error, instead) from None


# A new file takes the room of the draft. What has the draft's name by now may be somebody else's,
# who has it open, and its inode's number may be the old one's.
def _fill(room: Room, data: bytes) -> None:
    room.draft.unlink()
    _all(_new(room.draft), data)
    _name(room.draft, room.path)


def _new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)


def _all(fd: int, data: bytes) -> None:
    """Write all of a new file, on disk; closes it."""
    with os.fdopen(fd, "wb", buffering=0) as file:
        os.fchmod(fd, 0o600)
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
        os.fsync(fd)


def _not_written(path: Path, error: OSError, instead: str) -> OperatorError:
    reason = error.strerror or type(error).__name__
    return OperatorError(
        f"the client's secret is made and counts, but {path} cannot be written: {reason}",
        hint=f"get the file elsewhere: {instead} -o FILE",
    )


# A stick's file base (FAT) knows no second name of a file: EPERM.
def _name(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)
    except PermissionError:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.replace(draft, path)


def _no_room(path: Path, error: OSError) -> OperatorError:
    return OperatorError(
        f"{path} cannot be written: {error.strerror}; nothing was changed",
        hint="-o FILE, in a folder that can be written and has space",
    )
