# In front of each script: how it answers. The program that it interrupted leaves little memory.
import gc
import json
import os

_TYPING = False
if _TYPING:
    from typing import Any

gc.collect()

# A watchdog that runs cannot be stopped, and its board is worked on now. So a board that nobody
# starts again starts by itself, in an hour.
try:
    import machine

    machine.WDT(timeout=3_600_000)
except (ImportError, AttributeError, ValueError):
    pass  # this chip's is never as long

MARK = "\x1esealmq "


def say(**answer: "Any") -> None:
    print(MARK + json.dumps(answer))


# Files in the place of NVS, where a chip has none; the client finds them there. An address of the
# mediator that is the board's own stands in the enrolment.
class Files:
    PATHS = {
        "enrolment": "/sealmq.json",
        "wifi": "/wifi.json",
        "state": "/sealmq.state",
        "found": "/sealmq.found",
    }

    def get_blob(self, key: str, buf: bytearray) -> int:
        with open(self.PATHS.get(key, "/-"), "rb") as f:
            raw = f.read()
        if len(raw) > len(buf):
            raise OSError(-0x110C)
        buf[: len(raw)] = raw
        return len(raw)

    def set_blob(self, key: str, raw: bytes) -> None:
        path = self.PATHS[key]
        with open(path + ".new", "wb") as f:
            f.write(raw)
        os.rename(path + ".new", path)

    def erase_key(self, key: str) -> None:
        os.remove(self.PATHS.get(key, "/-"))

    def commit(self) -> None:
        pass

    def get_i32(self, key: str) -> int:
        with open("/sealmq.boot", "rb") as f:
            return int.from_bytes(f.read(3), "big")


# What this board keeps for itself.
def space() -> "Any":
    try:
        from esp32 import NVS
    except ImportError:
        return Files()
    return NVS("sealmq")


# A blob of it; b"" where there is none.
def blob(nvs: "Any", key: str) -> bytes:
    for size in (256, 1024, 4000):
        buf = bytearray(size)
        try:
            return bytes(buf[: nvs.get_blob(key, buf)])
        except OSError as error:
            if error.errno != -0x110C:  # longer than that
                break
    return b""


# The client's number, name and site in an enrolment file; no secret is among them.
def client(raw: bytes) -> "dict[str, Any] | None":
    try:
        found = json.loads(raw)
        return {name: found.get(name) for name in ("client", "name", "site")}
    except (ValueError, AttributeError):
        return None
