"""Which broker a site runs with, and what a mediator is told about it.

`choose` says what the command line and sealmq.toml come to; `Chosen.take` gets hold of what must be
had before anything starts (a port); `Chosen.part` makes the supervisor's part of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sealmq.broker.credentials import Credentials
from sealmq.broker.errors import BadAddress
from sealmq.broker.mosquitto import AUTOSAVE_S, SAVED, Hush, Program, find
from sealmq.broker.process import HOST, LISTEN_FD
from sealmq.broker.promises import EMBEDDED, MOSQUITTO, Promises
from sealmq.broker.target import Target, parse
from sealmq.broker.tls import Files
from sealmq.site.layout import Layout
from sealmq.site.model import Broker, Limits

from .brokers import ExternalBroker, Port, embedded_broker, private_mosquitto
from .child import Start
from .roles import Part, Say

# Kinds of broker that `up` starts itself.
OURS = ("embedded", "mosquitto")

MakeStart = Callable[..., Start]


@dataclass(slots=True)
class Chosen:
    """One kind of broker. `handed` is what the mediator is told, `keep` what it inherits for it."""

    kind: str
    target: Target | None = None
    program: Program | None = None
    autosave_s: int = 30
    limits: Limits = field(default_factory=Limits)
    handed: dict[str, Any] = field(default_factory=dict, repr=False)
    keep: list[int] = field(default_factory=list)
    _port: Port | None = None

    def take(self, port: int) -> None:
        """Get hold of the embedded broker's port (0: a free one)."""
        if self.kind == "embedded":
            self._port = Port(HOST, port)

    def close(self) -> None:
        """Give back what was taken."""
        if self._port is not None:
            self._port.close()
        for fd in self.keep:
            os.close(fd)
        self.keep.clear()

    def part(self, start: MakeStart, layout: Layout, say: Say) -> Part:
        """The part; `handed` is whole when it serves."""
        if self._port is not None:
            return self._embedded(self._port, start, layout, say)
        if self.program is not None:
            return self._mosquitto(self.program, start, layout, say)
        return self._external(layout, say)

    def _embedded(self, port: Port, start: MakeStart, layout: Layout, say: Say) -> Part:
        own = Credentials.draw()
        target = Target(port.host, port.number, own.user, own.password)
        self.handed |= target.handed_over() | EMBEDDED.handed_over()
        secrets = {"user": own.user, "password": own.password, "port": port.number}
        started = start("broker", secrets, fds={LISTEN_FD: port.sock.fileno()})
        return embedded_broker(started, target, port, layout, say)

    def _mosquitto(self, program: Program, start: MakeStart, layout: Layout, say: Say) -> Part:
        own = Credentials.draw()
        target = Target.at_socket(layout.broker_socket, own.user, own.password)
        self.handed |= target.handed_over() | MOSQUITTO.handed_over()
        self.handed["queue"] = self.limits.queue_messages
        self.handed |= {"saved": str(layout.broker_state / SAVED), "autosave_s": AUTOSAVE_S}
        secrets = {"user": own.user, "password": own.password}
        told = secrets | {"program": program.path, "limits": asdict(self.limits)}
        started = start("broker", told, "mosquitto", hush=Hush())
        return private_mosquitto(started, program, target, layout, say)

    def _external(self, layout: Layout, say: Say) -> Part:
        target = self.target
        if target is None:
            raise ValueError("neither a port nor an external broker")
        self.handed |= {**target.handed_over(), "autosave_s": self.autosave_s}
        if target.exposed:
            say(
                f"warning: broker {target.address} is reached without TLS: whoever listens on the "
                "way learns its password, and with a label's keys could then forge its messages; "
                "mqtts:// with certificates from `sealmq broker config mosquitto`"
            )
        if target.tls is not None:
            for end in target.tls.ends():
                say(f"warning: {end}; make a new set with `sealmq broker config`")
            self._hand_over_tls(target.tls)

        def asked(promises: Promises) -> None:
            self.handed |= promises.handed_over()

        return ExternalBroker(target, layout, say, asked)

    # In memory: the mediator's user need not reach the operator's files, and no copy lies about.
    def _hand_over_tls(self, files: Files) -> None:
        for name, data in files.read().items():
            fd = os.memfd_create(f"sealmq-{name}", os.MFD_CLOEXEC)
            self.keep.append(fd)
            os.write(fd, data)
            self.handed[name] = f"/proc/self/fd/{fd}"

    def words(self) -> str:
        """Of it, for a person."""
        if self.program is not None:
            return f"private Mosquitto {self.program.version}, for the mediator only"
        if self.kind == "embedded":
            return "embedded, for the mediator only"
        return "external" if self.target is None or self.target.tls is None else "external, TLS"


def choose(
    told: Broker,
    broker: str | None = None,
    password_file: Path | None = None,
    port: int = 0,
    limits: Limits | None = None,
) -> Chosen:
    """What sealmq.toml has `told`, but for what the command line says: a kind of ours, or a URL."""
    limits = limits or Limits()
    kind, url = told.kind, told.url
    if broker is not None:
        kind, url = (broker, None) if broker in OURS else ("external", broker)
    if url is None:
        if password_file is not None:
            raise BadAddress(
                "a password file for an external broker, and no external broker",
                "give --broker URL as well",
            )
        if kind == "mosquitto" and port:
            raise BadAddress(
                "--broker-port with a private Mosquitto, which listens on a Unix socket",
                "leave it out; it is the embedded broker's",
            )
        program = find() if kind == "mosquitto" else None
        return Chosen(kind, program=program, limits=limits)
    if port:
        raise BadAddress(
            "--broker-port with an external broker", "its port stands in its URL, or is MQTT's own"
        )
    tls = Files(told.ca, told.cert, told.key) if told.ca and told.cert and told.key else None
    if broker is None:
        target = parse(url, told.user, password_file or told.password_file, tls)
    else:
        target = parse(url, None, password_file, tls)
    return Chosen(kind, target, autosave_s=told.autosave)
