# What a client keeps: its enrolment (given once), its state (roots, link root), its boot counter.
# The port that the client knows: enrolment(), state(), put_state(blob), boot(), put_boot(n). State
# is replaced in one step; a boot counter may tear, since the mediator puts a lost one right.
# flush() is fsync in MicroPython, on littlefs, on FAT and on a host.
import json
import os

from sealmq_spec.errors import Malformed

_TYPING = False
if _TYPING:
    from typing import Any

_ENOENT = 2
_BOOT = 6  # bytes of a boot file


# Three files side by side: NAME.json, NAME.state, NAME.boot. OSError when the file system fails.
class FileStore:
    def __init__(self, path: str) -> None:
        self._path = path
        base = path[:-5] if path.endswith(".json") else path
        self._state = base + ".state"
        self._boot = base + ".boot"
        self._open: "Any" = None  # the boot file, from boot() on: opening costs more than writing

    # The parsed enrolment file (SPEC.md 7.1).
    def enrolment(self) -> "dict[str, Any]":
        with open(self._path, "rb") as f:
            return parsed(f.read())

    # Empty when there is none. FAT knows no rename over a file: there the old one goes first, and a
    # power cut after that leaves the new one under the name it was written by.
    def state(self) -> bytes:
        return _read(self._state) or _read(self._state + ".new")

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
        whole = len(raw) == _BOOT
        # What has another length is cut to nothing: written in place, a longer one would stay torn.
        self._open = open(self._boot, "r+b" if whole else "wb")
        number = int.from_bytes(raw, "big")
        boot = number >> 24
        return boot if whole and number & 0xFFFFFF == boot ^ 0xFFFFFF else 0

    # One write, in place: littlefs makes it one step, elsewhere the check tells. u24 boot, u24 its
    # complement: no shorter file, no erased or half-erased one looks like that.
    def put_boot(self, boot: int) -> None:
        f = self._open
        f.seek(0)
        f.write((boot << 24 | boot ^ 0xFFFFFF).to_bytes(_BOOT, "big"))
        f.flush()


# The bytes of an enrolment, wherever they were. Malformed.
def parsed(raw: bytes) -> "dict[str, Any]":
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Malformed("the enrolment file is no JSON object")
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            raw: bytes = f.read()
            return raw
    except OSError as error:
        if error.errno == _ENOENT:
            return b""
        raise
