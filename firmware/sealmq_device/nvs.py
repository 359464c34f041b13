# The port of store.py in an ESP32's NVS: Client(NvsStore()). NVS writes a new value beside the old
# one and then gives that up, so a power cut leaves one of the two.
from micropython import const

from sealmq_spec.const import U24
from sealmq_spec.errors import Malformed

from .store import parsed

_TYPING = False
if _TYPING:
    from typing import Any

# What stands there, in the partition "nvs"; firmware/README.md has the same table.
NAMESPACE = "sealmq"
ENROLMENT = "enrolment"  # blob: the enrolment file, byte by byte
MEDIATOR = "mediator"  # blob: HOST:PORT, in place of the enrolment's; mdns: to be looked for
STATE = "state"  # blob: what put_state was given
BOOT = "boot"  # i32: the boot counter
# And `found`, a blob of finding.py: HOST:PORT of the last session.

# MicroPython raises OSError with ESP-IDF's codes below zero.
_NOT_FOUND = const(-0x1102)
_TYPE_MISMATCH = const(-0x1103)
_INVALID_LENGTH = const(-0x110C)
_SIZES = (256, 1024, 4000)  # NVS does not say how long a blob is; a longer one than that is none


class NvsStore:
    def __init__(self) -> None:
        from esp32 import NVS

        self._nvs: "Any" = NVS(NAMESPACE)

    # The parsed enrolment (SPEC.md 7.1).
    def enrolment(self) -> "dict[str, Any]":
        raw = self.get(ENROLMENT)
        if not raw:
            raise Malformed(
                "NVS holds no enrolment (namespace %s, key %s)" % (NAMESPACE, ENROLMENT)
            )
        found = parsed(raw)
        at = self.get(MEDIATOR)
        mediator = found.get("mediator")
        if at == b"mdns" and isinstance(mediator, dict):
            mediator["mdns"] = True
        elif at:
            try:
                host, _, port = at.decode().rpartition(":")
                number = int(port)
            except ValueError:
                host, number = "", 0
            if not host or not 0 < number < 65536:
                raise Malformed(
                    "NVS: the mediator's address is %r, not HOST:PORT; provision it anew" % at
                )
            if isinstance(mediator, dict):  # else the client says what is wrong with it
                mediator["host"] = host
                mediator["port"] = number
        return found

    def state(self) -> bytes:
        return self.get(STATE)

    def put_state(self, blob: bytes) -> None:
        self.put(STATE, blob)

    # The last number stored; 0 when there is none. No nonce depends on it.
    def boot(self) -> int:
        try:
            boot: int = self._nvs.get_i32(BOOT)
        except OSError as error:
            _none(error)
            return 0
        return boot if 0 <= boot <= U24 else 0

    def put_boot(self, boot: int) -> None:
        self._nvs.set_i32(BOOT, boot)
        self._nvs.commit()

    def put(self, key: str, blob: bytes) -> None:
        self._nvs.set_blob(key, blob)
        self._nvs.commit()

    # A blob; empty when there is none.
    def get(self, key: str) -> bytes:
        for size in _SIZES:
            buf = bytearray(size)
            try:
                return bytes(buf[: self._nvs.get_blob(key, buf)])
            except OSError as error:
                if error.errno != _INVALID_LENGTH:
                    _none(error)
                    break
        return b""


# Raises it, unless it says that there is no such value.
def _none(error: OSError) -> None:
    if error.errno != _NOT_FOUND and error.errno != _TYPE_MISMATCH:
        raise error
