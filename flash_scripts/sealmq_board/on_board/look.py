# What a board is and what is on it. args: digests (True: of all files of ours).
import json
import os
import sys
from binascii import hexlify
from hashlib import sha256

from .common import blob, client, say, space

_TYPING = False
if _TYPING:
    from typing import Any

# How our main.py begins, and did.
OURS = b"# Publishes a reading each `every` seconds"
ROOT_FILES = ("boot.py", "main.py", "sealmq_slots.py", "app.json")


def digest(path: str) -> "tuple[int, str]":
    h = sha256()
    size = 0
    with open(path, "rb") as f:
        while True:
            raw = f.read(512)
            if not raw:
                return size, hexlify(h.digest()).decode()
            h.update(raw)
            size += len(raw)


# Each file below a folder; what is not there is none.
def below(folder: str) -> None:
    try:
        entries = list(os.ilistdir(folder))  # type: ignore[attr-defined]
    except OSError:
        return
    for entry in entries:
        path = folder + "/" + entry[0]
        if entry[1] == 0x4000:
            below(path)
        else:
            file(path)


def file(path: str) -> None:
    try:
        size, sha = digest(path)
    except OSError:
        return
    say(file=path, size=size, sha256=sha)


# app.json holds no secret.
def app() -> None:
    try:
        with open("/app.json") as f:
            say(app=json.load(f))
    except (OSError, ValueError):
        pass


# Whose program that is: "ours", "own" for an operator's with our client, "foreign", "" for none.
def whose(path: str) -> str:
    found = ""
    try:
        with open(path, "rb") as f:
            for line in f:
                if line.startswith(OURS):
                    return "ours"
                if b"sealmq" in line:
                    return "own"
                if line.strip() and not line.strip().startswith(b"#"):
                    found = "foreign"
    except OSError:
        pass
    return found


def slots() -> None:
    try:
        import sealmq_slots as s

        state = s.read()
    except (ImportError, AttributeError, SyntaxError):
        return
    say(slots=state, versions={n: s.version(n) for n in s.NAMES}, slot=s.slot, trying=s.trial)


# The address in place of the enrolment's; "mdns": it is looked for. Where there is no NVS, the
# enrolment says that itself (secrets.py).
def mediator(kept: "Any", raw: bytes) -> str:
    at = blob(kept, "mediator").decode()
    try:
        if not at and json.loads(raw)["mediator"].get("mdns"):
            return "mdns"
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return at


def nvs() -> None:
    try:
        kept = space()
    except OSError:
        return
    raw = blob(kept, "enrolment")
    try:
        boot = kept.get_i32("boot")
    except OSError:
        boot = 0
    say(
        enrolment=client(raw) if raw else None,
        enrolled=bool(raw),
        wifi=bool(blob(kept, "wifi")),
        mediator=mediator(kept, raw),
        state=bool(blob(kept, "state")),
        boot=boot,
    )


def networked() -> bool:
    try:
        import network  # noqa: F401
    except ImportError:
        return False
    return True


def main(args: "dict[str, Any]") -> None:
    import machine

    about: "Any" = sys.implementation
    version = ".".join([str(n) for n in about.version[:3]])
    say(
        name=about.name,
        version=version,
        mpy=getattr(about, "_mpy", 0),
        machine=getattr(about, "_machine", ""),
        platform=sys.platform,
        network=networked(),
        id=hexlify(machine.unique_id()).decode(),
    )
    stat = os.statvfs("/")
    # Littlefs counts some blocks twice: when all but full it has less than none left.
    say(free=stat[0] * stat[3] if 0 <= stat[3] <= stat[2] else 0, size=stat[0] * stat[2])
    slots()
    nvs()
    app()
    say(programs={n: whose("/" + n) for n in ("boot.py", "main.py")})
    if args["digests"]:
        for name in ROOT_FILES:
            file("/" + name)
        below("/sealmq/a")
        below("/sealmq/b")
