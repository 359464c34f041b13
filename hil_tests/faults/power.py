"""A power cut: files go back to what was synced (fsync(2)), contents as of each file's last sync,
names as of the folder's.

Recording begins with everything that is there, taken while all processes stand still; from then on
the shim keeps a copy at each sync.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from .place import Place, frozen, send
from .shim import Shim

_CONT = 18


def arm(place: Place) -> None:
    """From now on what is not synced will be lost."""
    pids = place.pids()
    frozen(pids)
    try:
        base(place.shim)
        place.shim.record(True)
    finally:
        for pid in pids.values():
            send(pid, _CONT)


def base(shim: Shim) -> None:
    """What is on disk now counts as synced."""
    shutil.rmtree(shim.shadow)
    shim.shadow.mkdir()
    for folder, _, _ in os.walk(shim.root):
        rows = []
        with os.scandir(folder) as entries:
            for entry in entries:
                rows.append(f"{entry.inode()} {entry.name}\n")
                if entry.is_file(follow_symlinks=False):
                    shutil.copy2(entry.path, shim.shadow / f"i-{entry.inode()}")
        (shim.shadow / f"d-{os.stat(folder).st_ino}").write_text("".join(rows))


def roll_back(shim: Shim, lenient: Iterable[Path] = ()) -> list[str]:
    """Files and names as they were synced; says what was changed.

    lenient: folders whose renames count at once. Journalling file systems commit a rename with the
    next sync of whatever file, and Mosquitto relies on that: it syncs its new store, renames it,
    and never syncs the folder.
    """
    told: list[str] = []
    kept = {path.resolve() for path in lenient}
    for name, _, _ in list(os.walk(shim.root)):
        folder = Path(name)
        if folder.exists():
            _folder(shim, folder, folder.resolve() in kept, told)
    return told


def _folder(shim: Shim, folder: Path, lenient: bool, told: list[str]) -> None:
    listing = shim.shadow / f"d-{folder.stat().st_ino}"
    now = {entry.name: entry.inode() for entry in os.scandir(folder)}
    if listing.exists() and not lenient:
        rows = (line.split(" ", 1) for line in listing.read_text().splitlines())
        synced = {name: int(inode) for inode, name in rows if name not in (".", "..")}
    else:
        synced = dict(now)
    for name in set(now) - set(synced):
        path = folder / name
        told.append(f"- {path.relative_to(shim.root)}")
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name, inode in synced.items():
        path = folder / name
        if name in now and not stat.S_ISREG(path.lstat().st_mode):
            continue  # a folder has its own turn; a socket holds nothing
        _content(shim, path, inode, told)


def _content(shim: Shim, path: Path, inode: int, told: list[str]) -> None:
    kept = shim.shadow / f"i-{inode}"
    data = kept.read_bytes() if kept.exists() else b""
    old = path.read_bytes() if path.exists() else None
    if old == data:
        return
    if old is None and not kept.exists():
        return  # a socket or a folder that is gone: nothing to bring back
    told.append(f"{'+' if old is None else '~'} {path.relative_to(shim.root)}")
    path.write_bytes(data)
    path.chmod(0o600)
    with contextlib.suppress(OSError):
        times = kept.stat()
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
