# What this board was given: its enrolment and its Wi-Fi, in NVS, where `sealmq board` puts them, or
# in the files /sealmq.json and /wifi.json. So a program is the same for both.
import json

from sealmq_spec.errors import Misuse, Unavailable

from .store import FileStore, _read

_TYPING = False
if _TYPING:
    from typing import Any


# None on another chip, or in a set of files without it.
def _nvs() -> "Any":
    try:
        from .nvs import NvsStore

        return NvsStore()
    except (ImportError, OSError):
        return None


# The store that a client uses unless told.
def given() -> "Any":
    nvs = _nvs()
    return nvs if nvs and nvs.get("enrolment") else FileStore("/sealmq.json")


# ssid and key; None: it was given none.
def wifi() -> "tuple[str, str] | None":
    nvs = _nvs()
    raw = (nvs and nvs.get("wifi")) or _read("/wifi.json")
    if not raw:
        return None
    try:
        found = json.loads(raw)
        return found["ssid"], found["key"]
    except (ValueError, KeyError, TypeError):
        raise Misuse('the Wi-Fi that was given is not {"ssid": ..., "key": ...}') from None


# For a program that takes its own turns: brings the station up and waits. A board without Wi-Fi
# goes on with what network it has. Unavailable: there is no address in so many seconds.
def online(seconds: int = 30) -> None:
    known = wifi()
    if known is None:
        return
    import time

    import network

    station = network.WLAN(network.STA_IF)
    if not station.isconnected():
        station.active(True)
        station.connect(*known)
    for _ in range(10 * seconds):
        if station.isconnected():
            return
        time.sleep(0.1)
    raise Unavailable("Wi-Fi: no address in %d s" % seconds)
