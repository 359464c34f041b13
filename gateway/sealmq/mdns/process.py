"""`python -m sealmq.mdns.process SITE`: announces a site by mDNS, started by `sealmq up`.

It reads packets that anybody in the network may send, so it has nothing: no secret, no file of the
site but its own folder below run/. What it announces comes with the pipe (run/secrets.py).
"""

from __future__ import annotations

import ipaddress
import logging
import os
import pwd
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ifaddr
from zeroconf import Error, InterfaceChoice, IPVersion, ServiceInfo, Zeroconf

from sealmq import logs
from sealmq.run import ready
from sealmq.run.errors import BadHandOver
from sealmq.run.ready import Ready
from sealmq.run.secrets import receive
from sealmq.site.layout import Layout
from sealmq.site.values import ANYWHERE

from . import SERVICE, VERSION

log = logging.getLogger("sealmq.mdns")

ROLE = "mdns"
# A board without a network at boot gets its addresses later, and others after that.
_LOOK_S = 5.0


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
            f"{self.name.replace('.', '-')}.{SERVICE}",
            port=self.port,
            properties={"v": VERSION, "site": self.site},
            server=server,
            addresses=addresses,
        )

    def begin(self) -> Zeroconf:
        """Where the mediator is reached. OSError, Error."""
        at: Any = [self.listen] if self.listen not in ANYWHERE else InterfaceChoice.All
        version = IPVersion.V6Only if ":" in self.listen else IPVersion.V4Only
        made = Zeroconf(interfaces=at, ip_version=version)
        try:
            made.register_service(self.service(), allow_name_change=True)
        except BaseException:
            made.close()
            raise
        return made


def announce(told: Told, stop: threading.Event) -> None:
    """Until `stop`; anew when this host gets other addresses, and when it failed."""
    running: Zeroconf | None = None
    at: frozenset[str] | None = None
    failed = ""
    while True:
        now = _addresses()
        if running is not None and now != at:
            running.close()
            running = None
        if running is None:
            try:
                running, at, failed = told.begin(), now, ""
            except (OSError, Error) as error:
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
        ready.write(layout, mine, user=pwd.getpwuid(os.geteuid()).pw_name)
        announce(told, stop)
        ready.forget(layout, ROLE)
    except (BadHandOver, OSError) as error:
        print(f"mdns: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
