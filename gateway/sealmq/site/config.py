"""sealmq.toml, read and checked once, also by the policy families; what is not known is refused.

`load` and `loads` give a frozen Config or raise ConfigError with the key, its line and a hint.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from sealmq.kinds import KINDS

from .agreed import agreed
from .check import parse
from .errors import ConfigError
from .model import (
    BOTTOM,
    BUILT_IN,
    NONE,
    SUITES,
    TOP,
    Broker,
    Client,
    Config,
    Creation,
    Label,
    Limits,
    Mediator,
    Policy,
    Site,
)

__all__ = [
    "BOTTOM",
    "BUILT_IN",
    "KINDS",
    "NONE",
    "SUITES",
    "TOP",
    "Broker",
    "Client",
    "Config",
    "ConfigError",
    "Creation",
    "Label",
    "Limits",
    "Mediator",
    "Policy",
    "Site",
    "load",
    "loads",
    "read",
]


def load(path: Path) -> Config:
    """Read and check a sealmq.toml. ConfigError: it is wrong; OSError: it cannot be read."""
    return loads(read(path), path)


def read(path: Path) -> str:
    """Its text. ConfigError: it is none, or others may write it; OSError."""
    with path.open("rb") as file:
        _check_writers(os.fstat(file.fileno()), path)
        raw = file.read()
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"it is not UTF-8: byte {error.start}") from None


# Whoever can write the policy decides everything; ssh takes its own configuration no other way.
def _check_writers(found: os.stat_result, path: Path) -> None:
    folder = path.parent.stat()
    allowed = {0, os.geteuid(), folder.st_uid}
    if found.st_uid not in allowed:
        raise ConfigError(
            f"it belongs to user {found.st_uid}, who is neither root nor the site's owner",
            f"look at what it says, and then: sudo chown --reference {path.parent} {path}",
        )
    for what, one in ((path, found), (path.parent, folder)):
        mode = stat.S_IMODE(one.st_mode)
        if mode & stat.S_ISVTX and what is path.parent:
            continue  # nobody puts another file in the place of one that is not his
        # A group that is its owner's own has nobody else in it.
        who = "everybody" if mode & stat.S_IWOTH else f"group {one.st_gid}"
        if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and one.st_gid != _own_group(one.st_uid)):
            raise ConfigError(
                f"{who} may write {'it' if what is path else 'its folder'} (mode {mode:04o})",
                f"look at what it says, and then: chmod go-w {what}",
            )


def _own_group(uid: int) -> int | None:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return None


def loads(text: str, path: Path | None = None) -> Config:
    """Check the text of a sealmq.toml. `path`: of the file it stands for."""
    try:
        return agreed(parse(text, path), text, path)
    except ConfigError:
        raise
    except Exception as error:
        # A defect of ours, whose text could quote the file. As any mistake there it must leave in
        # force what is in force, and end no process.
        wrong = ConfigError(
            f"it cannot be checked: internal error ({type(error).__name__})",
            "take back what was changed last, and report this: it is a defect of SealMQ",
        )
        if path is not None:
            wrong.path = str(path)
        raise wrong from error
