# In front of each script: how it answers. The program that it interrupted leaves little memory.
import gc
import json

_TYPING = False
if _TYPING:
    from typing import Any

gc.collect()

MARK = "\x1esealmq "


def say(**answer: "Any") -> None:
    print(MARK + json.dumps(answer))


# A blob of NVS; b"" where there is none.
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
