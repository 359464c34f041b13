# What a client keeps: its enrolment (given once), its state (roots, link root) and its boot counter.
# The port that the client knows: enrolment(), state(), put_state(blob), boot(), put_boot(n). State
# is replaced in one step; a boot counter may tear, since the mediator puts a lost one right.
import json
import os
from binascii import crc32

from sealmq_spec.errors import Malformed

_TYPING = False
if _TYPING:
    from typing import Any

_MAGIC = b"SMb1"


# Three files side by side: NAME.json, NAME.state, NAME.boot. OSError when the file system fails.
class FileStore:
    def __init__(self, path: str) -> None:
        self._path = path
        base = path[:-5] if path.endswith(".json") else path
        self._state = base + ".state"
        self._boot = base + ".boot"

    # The parsed enrolment file (SPEC.md 7.1).
    def enrolment(self) -> "dict[str, Any]":
        with open(self._path, "rb") as f:
            raw = f.read()
        try:
            found = json.loads(raw)
        except (ValueError, UnicodeError):
            found = None
        if not isinstance(found, dict):
            raise Malformed("the enrolment file is no JSON object")
        return found

    # Empty when there is none.
    def state(self) -> bytes:
        return _read(self._state)

    # Written beside, synced, renamed: a power cut leaves the old one or the new one.
    def put_state(self, blob: bytes) -> None:
        fresh = self._state + ".new"
        with open(fresh, "wb") as f:
            f.write(blob)
            f.flush()
        os.rename(fresh, self._state)

    # The last number stored; 0 when there is none or it is torn. No nonce depends on it.
    def boot(self) -> int:
        raw = _read(self._boot)
        if len(raw) != 11 or raw[:4] != _MAGIC or crc32(raw[:7]).to_bytes(4, "big") != raw[7:]:
            return 0
        return int.from_bytes(raw[4:7], "big")

    # One write of 11 bytes, in place: littlefs makes it one step, elsewhere the checksum tells.
    def put_boot(self, boot: int) -> None:
        raw = _MAGIC + boot.to_bytes(3, "big")
        with open(self._boot, "wb") as f:
            f.write(raw + crc32(raw).to_bytes(4, "big"))
            f.flush()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return bytes(f.read())
    except OSError as error:
        if error.errno == 2:  # ENOENT
            return b""
        raise
