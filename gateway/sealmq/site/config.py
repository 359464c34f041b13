"""sealmq.toml, read and checked once, also by the policy families; what is not known is refused.

`load` and `loads` give a frozen Config or raise ConfigError with the key, its line and a hint.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from .agreed import agreed
from .check import parse
from .errors import ConfigError
from .model import (
    BOTTOM,
    BUILT_IN,
    KINDS,
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
    "fingerprinted",
    "load",
    "loads",
]


def load(path: Path) -> Config:
    """Read and check a sealmq.toml. ConfigError: it is wrong; OSError: it cannot be read."""
    return fingerprinted(path)[0]


def fingerprinted(path: Path) -> tuple[Config, str]:
    """As `load`, and the file's SHA-256 in hex, by which others know that it is the same one."""
    raw = path.read_bytes()
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"it is not UTF-8: byte {error.start}") from None
    return loads(text, path), hashlib.sha256(raw).hexdigest()


def loads(text: str, path: Path | None = None) -> Config:
    """Check the text of a sealmq.toml. `path`: of the file it stands for."""
    return agreed(parse(text, path), text, path)
