"""`python -m sealmq.mdns.process SITE`: announces a site by mDNS, started by `sealmq up`.

It reads packets that anybody in the network may send, so it has nothing: no secret, no file of the
site but its own folder below run/. What it announces comes with the pipe (run/secrets.py).
"""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ifaddr
from zeroconf import Error, InterfaceChoice, IPVersion, ServiceInfo, Zeroconf

from sealmq import logs
from sealmq.run import proc, ready
from sealmq.run.errors import BadHandOver
from sealmq.run.ready import Ready, Tried
from sealmq.run.secrets import receive
from sealmq.site.layout import Layout
from sealmq.site.values import ANYWHERE

from . import SERVICE, VERSION

log = logging.getLogger("sealmq.mdns")

ROLE = "mdns"
# A board without a network at boot gets its addresses later, and others after that.
_LOOK_S = 5.0
# Of a name: DNS takes 63 bytes, some of them for a number where another site has the same one.
_LONGEST = 58
# What zeroconf raises where this host has no address, or none of that version, just now: the last.
_PASSES = (OSError, Error, RuntimeError)


@dataclass(frozen=True, slots=True)
class Told:
    """What is announced: host and port as enrolment files have them. listen: where it is announced,
    which is where the mediator listens.
    """

    name: str
    site: str
    host: str
    port: int
    listen: str

    @classmethod
    def of(cls, handed: dict[str, Any]) -> Told:
        """What `sealmq up` hands over. BadHandOver."""
        try:
            return cls(**handed)
        except TypeError:
            raise BadHandOver("what is to be announced is not whole", "sealmq up SITE") from None

    def service(self) -> ServiceInfo:
        """Its records."""
        try:
            addresses = [ipaddress.ip_address(self.host).packed]
            server = f"sealmq-{self.site}.local."
        except ValueError:
            addresses, server = [], f"{self.host.rstrip('.')}."
        return ServiceInfo(
            SERVICE,
            # A dot would be a border between labels to some who read it.
            f"{self.name.replace('.', '-')[:_LONGEST]}.{SERVICE}",
            port=self.port,
            properties={"v": VERSION, "site": self.site},
            server=server,
            addresses=addresses,
        )

    def begin(self) -> Zeroconf:
        """Where the mediator is reached. OSError, Error, RuntimeError."""
        listen = self.listen if self.listen in ANYWHERE else _address(self.listen)
        at: Any = InterfaceChoice.All if listen in ANYWHERE else [listen]
        version = IPVersion.V6Only if ":" in listen else IPVersion.V4Only
        made = Zeroconf(interfaces=at, ip_version=version)
        try:
            made.register_service(self.service(), allow_name_change=True)
        except BaseException:
            made.close()
            raise
        return made


# An interface is chosen by its address; a name that leads to several: by the first, as many have.
def _address(host: str) -> str:
    rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return min((str(row[4][0]) for row in rows), key=lambda address: ":" in address)


def announce(told: Told, stop: threading.Event, each: Callable[[], object] = lambda: None) -> None:
    """Until `stop`; anew when this host gets other addresses, and when it failed. each: is called
    whenever that is looked at.
    """
    running: Zeroconf | None = None
    at: frozenset[str] | None = None
    failed = ""
    while True:
        each()
        try:
            now = _addresses()
            if running is not None and now != at:
                running.close()
                running = None
            if running is None:
                running, at, failed = told.begin(), now, ""
        except _PASSES as error:
            if str(error) != failed:
                failed = str(error)
                log.warning("cannot be announced now: %s", failed or type(error).__name__)
        if stop.wait(_LOOK_S):
            break
    if running is not None:
        running.unregister_all_services()
        running.close()


def _addresses() -> frozenset[str]:
    return frozenset(str(ip.ip) for adapter in ifaddr.get_adapters() for ip in adapter.ips)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 1 with one line on stderr otherwise."""
    arguments = sys.argv[1:] if arguments is None else arguments
    logs.begin("mdns: ")
    if len(arguments) != 1:
        print("usage: python -m sealmq.mdns.process SITE", file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        layout = Layout(Path(arguments[0]))
        told = Told.of(receive())
        # It is a hint: that a site serves does not depend on it.
        mine = Ready(ROLE, os.getpid(), SERVICE.rstrip("."), True)
        user, file = proc.name_of(os.geteuid()), Tried("run/mdns/ready.json", log.error)
        said = False

        def tell() -> None:
            nonlocal said
            said = said or file.put(lambda: ready.write(layout, mine, user=user))

        announce(told, stop, tell)
        ready.forget(layout, ROLE)
    except (BadHandOver, OSError) as error:
        print(f"mdns: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
