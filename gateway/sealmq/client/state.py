"""What a client keeps over a restart: its provisioned identity and its boot (SPEC.md 5, 7.2).

The file is replaced in one step (write, fsync, rename), readable by its owner only, and used by one
process at a time. Losing it is safe: the client provisions again and is told its boot.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any, Protocol

from sealmq.formats import newer
from sealmq.site.layout import write_atomically
from sealmq_spec.const import U24
from sealmq_spec.identity import Identity
from sealmq_spec.records import Roots

from .errors import StateBusy, StateError

_VERSION = 1
_MAX = 65536


def own_roots(identity: Identity) -> Roots | None:
    """The roots that provisioning gave, typed, or None."""
    own: Any = identity.own
    return own if isinstance(own, Roots) else None


def own_epoch(identity: Identity) -> int:
    """The epoch of these roots, 0 without any."""
    own = own_roots(identity)
    return 0 if own is None else own.epoch


class State(Protocol):
    """Where a client keeps what outlives it. Each method may raise StateError and may block."""

    def open(self, identity: Identity) -> tuple[int, bytes]:
        """Fill `identity` with stored roots, if there are any: (stored boot, last KG nonce)."""

    def save(self, identity: Identity, boot: int, kg_nonce: bytes) -> None:
        """Store, durably."""

    def close(self) -> None:
        """The client ends."""


class StateFile:
    """The state of one client at `path`; `path` with ".lock" behind it is the lock."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock: int | None = None

    def open(self, identity: Identity) -> tuple[int, bytes]:
        """Lock, and fill `identity`: (stored boot, last KG nonce). (0, b"") when there is no file.

        StateBusy: another process uses it. StateError: the file is not this client's state.
        """
        try:
            self._take_lock()
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise StateError(f"{self.path}: {error.strerror or error}") from None
        if not data:
            return 0, b""
        try:
            return self._read(identity, data)
        except (KeyError, TypeError, ValueError):
            raise StateError(
                f"{self.path} is not the state of client {identity.client} of site "
                f"{identity.site.hex()}",
                "name another file; a state file that is lost is made anew",
            ) from None

    def save(self, identity: Identity, boot: int, kg_nonce: bytes) -> None:
        """Replace the file. StateError when it cannot be written."""
        text = json.dumps(
            {
                "sealmq_state": _VERSION,
                "site": identity.site.hex(),
                "client": identity.client,
                "boot": boot,
                "kg_nonce": kg_nonce.hex(),
                "identity": identity.dump().hex() if own_roots(identity) else "",
            }
        )
        try:
            write_atomically(self.path, text.encode() + b"\n", 0o600)
        except OSError as error:
            raise StateError(f"{self.path}: {error.strerror or error}") from None

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise StateBusy(
                f"{self.path} is in use by another process",
                "one client, one state file; several programs as one client: sealmq agent",
            ) from None
        self._lock = fd

    def _read(self, identity: Identity, data: bytes) -> tuple[int, bytes]:
        if len(data) > _MAX:
            raise ValueError("too large")
        d = json.loads(data)
        version = d["sealmq_state"]
        if type(version) is int and version > _VERSION:
            raise StateError(*newer(self.path, version, _VERSION))
        boot, blob = d["boot"], bytes.fromhex(d["identity"])
        if version != _VERSION or type(boot) is not int or not 0 <= boot <= U24:
            raise ValueError("version or boot")
        if d["site"] != identity.site.hex() or d["client"] != identity.client:
            raise ValueError("another client's")
        # A blob that does not verify is no harm: the client provisions again.
        identity.load(blob)
        return boot, bytes.fromhex(d["kg_nonce"])


class BootFile:
    """The last boot alone, at `path`, and nothing secret: for a client that is given its roots at
    each start. So its messages of one second are in their order over a restart (SPEC.md 6.2, step
    7). Where the file cannot be written, or is lost, it begins from 1; no nonce depends on that.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def open(self, identity: Identity) -> tuple[int, bytes]:
        """(the last boot, nothing); 0 without a file that says one."""
        with contextlib.suppress(OSError, ValueError), self.path.open("rb") as file:
            return min(max(int(file.read(16)), 0), U24 - 1), b""
        return 0, b""

    def save(self, identity: Identity, boot: int, kg_nonce: bytes) -> None:
        """Remember boot, and nothing of the identity."""
        with contextlib.suppress(OSError):
            write_atomically(self.path, b"%d\n" % boot, 0o644)

    def close(self) -> None:
        """Nothing is held."""
