"""Which sites are announced here. All of it is the word of whoever sent it."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from typing import Any

from zeroconf import (
    DNSQuestionType,
    InterfaceChoice,
    IPVersion,
    ServiceBrowser,
    ServiceInfo,
    Zeroconf,
)

from . import SERVICE

MOST = 64
"""More are not looked at: whoever floods a network hides others anyway."""
_SITE = re.compile(r"[0-9a-f]{8}")
_HOST = re.compile(r"[A-Za-z0-9.:_-]{1,253}")


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """One announcement. name: what it calls itself, not escaped; site: the site's id, hexadecimal;
    host and port: where its mediator is said to be.
    """

    site: str
    host: str
    port: int
    name: str


def find(seconds: float, interface: str | None = None, site: str | None = None) -> list[Found]:
    """What is heard within so many seconds, of one site (its id) or all, each once.

    interface: an address of this host; None: all. OSError: there is no such.
    """
    names: set[str] = set()
    lock = threading.Lock()

    class Names:
        def add_service(self, zc: Zeroconf, kind: str, name: str) -> None:
            with lock:
                if len(names) < MOST:
                    names.add(name)

        def update_service(self, zc: Zeroconf, kind: str, name: str) -> None:
            self.add_service(zc, kind, name)

        def remove_service(self, zc: Zeroconf, kind: str, name: str) -> None:
            with lock:
                names.discard(name)

    at = InterfaceChoice.All if interface is None else [interface]
    version = IPVersion.V6Only if interface and ":" in interface else IPVersion.V4Only
    found: set[Found] = set()
    zc = Zeroconf(interfaces=at, ip_version=version)
    try:
        # Answers to all: one to us alone gets to any program of this host that has the port.
        ask = DNSQuestionType.QM
        heard: Any = Names()
        browser = ServiceBrowser(zc, SERVICE, listener=heard, question_type=ask)
        time.sleep(seconds)
        browser.cancel()
        end = time.monotonic() + seconds
        for name in sorted(names):
            info = ServiceInfo(SERVICE, name)
            left_ms = 1000 * (end - time.monotonic())
            if not info.load_from_cache(zc) and left_ms > 0:
                info.request(zc, left_ms, question_type=ask)
            found.update(_of(info))
    finally:
        zc.close()
    return sorted(one for one in found if site in (None, one.site))


def _of(info: ServiceInfo) -> list[Found]:
    raw = info.properties.get(b"site") or b""
    site = raw.decode("ascii", "replace").lower()
    port = info.port or 0
    hosts = info.parsed_addresses() or [(info.server or "").rstrip(".")]
    if not _SITE.fullmatch(site) or not 0 < port < 65536:
        return []
    name = info.name.removesuffix(f".{SERVICE}")
    return [Found(site, host, port, name) for host in hosts if _HOST.fullmatch(host)]
