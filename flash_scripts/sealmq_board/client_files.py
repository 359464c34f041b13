"""What goes onto a board besides its secret: the client's .mpy set in its slot, and boot files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .chips import HOST_ARCHS
from .errors import BoardError

# An installed package has them beside it; a checkout where `make firmware` leaves them. Sets in
# another folder are named with --files.
_PACKED = Path(__file__).resolve().with_name("files")
_ROOT = Path(__file__).resolve().parents[2]
BUILT = _PACKED / "firmware" if _PACKED.is_dir() else _ROOT / "build" / "firmware"
BOARD = _PACKED / "board" if _PACKED.is_dir() else _ROOT / "firmware" / "board"
_MAKE = "make firmware (in a checkout) builds it, in a minute; --files names another folder"

SLOT = "/sealmq/a"
OTHER_SLOT = "/sealmq/b"
SLOTS = "/sealmq/slots"
MANIFEST = "MANIFEST"
BOOT_FILES = ("boot.py", "main.py", "sealmq_slots.py")


def client_set(name: str, arch: str, built: Path = BUILT, ours: bool = False) -> dict[str, bytes]:
    """The files of a set as they lie below a slot, by relative path. ours: for our main.py.
    BoardError: not built, or not for that."""
    # The interpreters of a host have one set, with everything.
    folder = built / arch if arch in HOST_ARCHS else built / name / arch
    if arch in HOST_ARCHS and name != "everything":
        raise BoardError(
            f"the set {name} is not made for {arch}",
            "everything, the only one for a virtual board",
            hint="without --set",
        )
    if not folder.is_dir():
        sets = sorted(each.parent.name for each in built.glob(f"*/{arch}"))
        if sets:
            raise BoardError(
                f"there is no set {name} for {arch} in {built}",
                ", ".join(sets),
                hint=f"one of these; {_MAKE}",
            )
        raise BoardError(f"there is no {folder}", hint=_MAKE)
    files = below(folder)
    for needed in ("sealmq_device/__init__.mpy", "sealmq_spec/__init__.mpy"):
        if needed not in files:
            raise BoardError(f"{folder} has no {needed}", hint="make firmware")
    if ours and "sealmq_device/living.mpyz" not in files:
        raise BoardError(
            f"the set {name} has no living, which our main.py runs on",
            hint="--set everything, or a program of your own with --main",
        )
    return files


_FINDING = "sealmq_device/finding.mpyz"


def check_finds(
    what: str,
    files: Iterable[str],
    hint: str = "--set everything, or --mediator HOST:PORT (sealmq find says where)",
) -> None:
    """Whether a client of these files looks for its mediator by mDNS. BoardError: it does not."""
    if _FINDING not in files:
        raise BoardError(f"{what} has no mDNS", hint=hint)


def below(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by relative path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def manifest(files: dict[str, bytes]) -> bytes:
    """The list that a slot is checked by: path, size, SHA-256 a line."""
    lines = [
        f"{name} {len(files[name])} {hashlib.sha256(files[name]).hexdigest()}\n"
        for name in sorted(files)
    ]
    return "".join(lines).encode()


def version(listed: bytes) -> str:
    """What a board calls the client with this manifest (sealmq_slots.version)."""
    return hashlib.sha256(listed).hexdigest()[:8]


def file_system(
    client: dict[str, bytes], app: dict[str, Any], main: Path | None
) -> tuple[dict[str, bytes], set[str]]:
    """The board's files by absolute path, and empty folders. BoardError: one is missing."""
    files = {f"{SLOT}/{name}": content for name, content in client.items()}
    files[f"{SLOT}/{MANIFEST}"] = manifest(client)
    files[SLOTS] = as_json({"active": "a", "trial": "", "tries": 0})
    files["/app.json"] = as_json(app)
    for name in BOOT_FILES:
        path = main if main and name == "main.py" else BOARD / name
        if not path.is_file():
            hint = "check the path" if main else "boards are built in a checkout of SealMQ"
            raise BoardError(f"there is no {path}", hint=hint)
        files[f"/{name}"] = path.read_bytes()
    return files, {OTHER_SLOT}


def as_json(value: object) -> bytes:
    """As it lies on a board."""
    # Of an escaped character beyond U+FFFF the board would make two others.
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode() + b"\n"
