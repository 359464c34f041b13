"""A bundle: the folder NAME.board/ (0700) of one board, which `build` makes and `flash` writes.

nvs.bin      the NVS partition with this board's secret; overwritten and removed behind `flash`
vfs.bin      the file system, without secrets
bundle.json  what they are for, and their digests

From the same inputs the same bytes: no time, no folder's name, no order of a set gets into them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from . import private
from .chips import CHIPS, HOST_ARCHS, NVS_SIZE, VFS_SIZE, Chip
from .errors import BoardError

FORMAT = 1
NVS, VFS, ABOUT = "nvs.bin", "vfs.bin", "bundle.json"
# Which board got it, written by `flash`: no second board may get the same secret.
GIVEN = "given.json"
_LARGEST = 1 << 25


class Bundle(NamedTuple):
    """A bundle that was read and checked."""

    path: Path
    about: dict[str, Any]
    nvs: bytes
    vfs: bytes

    @property
    def chip(self) -> Chip:
        """The chip that it was made for."""
        return CHIPS[self.about["chip"]]

    @property
    def client(self) -> str:
        """Whose it is, for a message."""
        client = self.about["client"]
        return f"client {client['number']}" + (f" ({client['name']})" if client["name"] else "")


def write(
    target: Path,
    about: dict[str, Any],
    nvs: bytes,
    vfs: bytes,
    replace: bool,
    known: Collection[str],
) -> None:
    """Make the folder, whole or not at all. BoardError: there is one, and not `replace`.

    known: what a bundle of before may call this secret.
    """
    if target.is_symlink() or (target.exists() and not (replace and _is_one(target))):
        raise BoardError(
            f"{target} is there already" + (" and is no bundle" if replace else ""),
            hint="another -o NAME.board" + ("" if replace else ", or --replace"),
        )
    if not target.parent.is_dir():
        raise BoardError(f"{target.parent} is no folder", hint=f"mkdir -p {target.parent}")
    about = about | {"format": FORMAT, "sha256": {NVS: _digest(nvs), VFS: _digest(vfs)}}
    prefix = f".{target.name}."
    draft = private.draft(target.parent, prefix)
    old = None
    try:
        private.write(draft / NVS, nvs)
        private.write(draft / VFS, vfs)
        text = json.dumps(about, indent=1, sort_keys=True) + "\n"
        private.write(draft / ABOUT, text.encode())
        if target.exists():
            with held(target):
                if mac := _given_before(target, known):
                    note_given(draft, mac)
                old = private.draft(target.parent, prefix)
                os.rename(target, old)
        os.rename(draft, target)
    except BaseException:
        # Which board got the secret is known to the one of before alone.
        if old is not None and not target.exists():
            os.rename(old, target)
        private.remove(draft)
        raise
    if old is not None:
        private.remove(old)


def read(path: Path) -> Bundle:
    """A bundle to be written to a board. BoardError: it is none, used up or not as it was made."""
    about = _about(path)
    if not (path / NVS).exists():
        raise BoardError(
            f"{path} is used up: its {NVS} was written to a board and removed",
            hint="`sealmq board build --replace` makes it again from the enrolment file",
        )
    mode = private.others_can_read(path / NVS)
    if mode is not None:
        raise BoardError(
            f"{path / NVS} holds a secret and others can read it (mode {mode:04o})",
            hint=f"chmod 600 {path / NVS}; if somebody has read it: sealmq client rotate",
        )
    parts = {}
    for name in (NVS, VFS):
        raw = _read(path / name)
        if _digest(raw) != about["sha256"][name]:
            raise BoardError(
                f"{path / name} is not as it was built (its digest differs)",
                hint="build the bundle again: sealmq board build --replace",
            )
        parts[name] = raw
    return Bundle(path, about, parts[NVS], parts[VFS])


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """No other run takes, or makes anew, the same bundle meanwhile. BoardError: one does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        raise BoardError(f"{path} is no bundle", hint="`sealmq board build` makes one") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = os.path.samestat(os.fstat(fd), path.stat())
        except (BlockingIOError, FileNotFoundError):
            free = False
        if not free:
            raise BoardError(
                f"{path} is being flashed by another run", hint="wait until that one ends"
            )
        yield
    finally:
        os.close(fd)


def given_to(path: Path) -> str:
    """The MAC of the board that this bundle was written to, or begun to be; empty when none was.

    BoardError: it was given to some board, and which is no longer to be read.
    """
    try:
        mac = json.loads(_read(path / GIVEN))["mac"]
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError, TypeError):
        mac = None
    if not isinstance(mac, str) or not mac:
        raise BoardError(
            f"{path / GIVEN} is damaged: the bundle was begun on a board, unknown on which",
            hint="a new secret for this client: sealmq client rotate; then build with it",
        )
    return mac


def note_given(path: Path, mac: str) -> None:
    """Remember the board before anything is written to it."""
    draft = path / f".{GIVEN}"
    draft.unlink(missing_ok=True)
    private.write(draft, json.dumps({"mac": mac}).encode() + b"\n")
    os.replace(draft, path / GIVEN)


def use_up(path: Path) -> None:
    """Overwrite and remove the secret."""
    private.shred(path / NVS)


# The board that the same secret was given to; empty when none was.
def _given_before(target: Path, known: Collection[str]) -> str:
    try:
        same = _about(target).get("enrolment") in known
    except BoardError:
        same = False
    return given_to(target) if same else ""


def _about(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(_read(path / ABOUT))
        sound = (
            about["format"] == FORMAT
            and about["chip"] in CHIPS
            and about["arch"] in (CHIPS[about["chip"]].arch, *HOST_ARCHS)
            and isinstance(about["client"]["number"], int)
            and isinstance(about["client"]["name"], str)
            and isinstance(about["client"]["site"], str)
            and all(isinstance(about["sha256"][name], str) for name in (NVS, VFS))
        )
    except FileNotFoundError:
        raise BoardError(
            f"{path} is no bundle: it has no {ABOUT}", hint="`sealmq board build` makes one"
        ) from None
    except (ValueError, KeyError, TypeError):
        sound, about = False, {}
    if not sound:
        raise BoardError(
            f"{path / ABOUT} is of no format that this version knows",
            hint="build the bundle again: sealmq board build --replace",
        )
    checked: dict[str, Any] = about
    return checked


def _is_one(path: Path) -> bool:
    return (path / ABOUT).is_file()


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(_LARGEST + 1)
    if len(raw) > _LARGEST:
        raise BoardError(f"{path} is longer than {_LARGEST:,} bytes")
    return raw


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def sizes() -> dict[str, int]:
    """Of the two images as `build` makes them."""
    return {NVS: NVS_SIZE, VFS: VFS_SIZE}
