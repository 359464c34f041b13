# Writes what only this board may know. args: enrolment, wifi, mediator (bytes, HOST:PORT or mdns;
# None: as it is, b"": none), replace. What is there already is not written again.
import json

from .common import Files, blob, client, say, space

_TYPING = False
if _TYPING:
    from typing import Any


def put(nvs: "Any", key: str, value: "bytes | None") -> None:
    if value is None or value == blob(nvs, key):
        return
    if value:
        nvs.set_blob(key, value)
    else:
        nvs.erase_key(key)
    nvs.commit()
    if blob(nvs, key) != value:
        raise ValueError("the board does not give back %s as it was written" % key)
    say(written=key)


# An enrolment with another address of its mediator, HOST:PORT, or one that says to look for it.
# None: it is no enrolment.
def with_address(raw: bytes, at: bytes) -> "bytes | None":
    try:
        found = json.loads(raw)
        mediator = found["mediator"]
        mediator["mdns"] = at == b"mdns"
        if not mediator["mdns"]:
            host, _, port = at.decode().rpartition(":")
            mediator["host"] = host
            mediator["port"] = int(port)
    except (ValueError, KeyError, TypeError):
        return None
    return json.dumps(found).encode()


def main(args: "dict[str, Any]") -> None:
    nvs = space()
    raw = args["enrolment"]
    at = args["mediator"]
    if at and isinstance(nvs, Files):
        raw = with_address(raw or blob(nvs, "enrolment"), at)
        if raw is None:
            say(no_enrolment=at.decode())
            return
        at = None
    if raw is not None:
        old = blob(nvs, "enrolment")
        before = client(old) if old else None
        now = client(raw)
        other = (
            before and now and (before["client"], before["site"]) != (now["client"], now["site"])
        )
        if other and not args["replace"]:
            say(other=before)
            return
        if old and old != raw:
            # Keys of the one that it was, and where its mediator was. No nonce depends on them, nor
            # on the boot counter, which stays. At the same site the mediator is where it was said
            # to be.
            moved = before and now and before["site"] != now["site"]
            for key in ("state", "found", "mediator") if moved else ("state", "found"):
                try:
                    nvs.erase_key(key)
                    nvs.commit()
                except OSError:
                    pass  # there are none
    put(nvs, "wifi", args["wifi"])
    put(nvs, "mediator", at)
    put(nvs, "enrolment", raw)
    say(secrets=True)
