"""The broker's process: `python -m sealmq.broker.process SITE`, started by the supervisor.

It gets its credentials through the pipe and its listening socket from the supervisor, which keeps
the port while this process is away: nobody else can take it and be handed the mediator's password.
Everything lives in memory; the mediators publish anew after a restart what has to stand here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from typing import Any

from sealmq import logs, loops
from sealmq.run import secrets
from sealmq.run.errors import BadHandOver, RunError

from .credentials import Credentials
from .errors import BrokerError

LISTEN_FD = "SEALMQ_LISTEN_FD"
HOST = "127.0.0.1"
# The version that embedded.py is written for; here, since that module takes long to import.
AMQTT = "0.12.1"
# Descriptors that are not connections.
_SPARE_FDS = 64

log = logging.getLogger("sealmq.broker")


def quiet_logs() -> None:
    """Ours from INFO on, amqtt's from WARNING on, to stderr."""
    logs.begin(level=logging.WARNING)
    log.setLevel(logging.DEBUG if os.environ.get("SEALMQ_DEBUG") else logging.INFO)


def listening_socket(port: int) -> socket.socket:
    """The supervisor's socket, or, without a supervisor, one of our own on the loopback."""
    given = os.environ.pop(LISTEN_FD, "")
    if given.isdecimal():
        return socket.socket(fileno=int(given))
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((HOST, port))
    return sock


def credentials_of(handed: dict[str, Any]) -> Credentials:
    """The credentials of what was handed over."""
    user, password = handed.get("user"), handed.get("password")
    if not isinstance(user, str) or not isinstance(password, str) or not user or len(password) < 16:
        raise BadHandOver("the broker's secrets are user and password (from 16 characters)")
    return Credentials(user, password)


def _port_of(handed: dict[str, Any]) -> int:
    port = handed.get("port")
    if not isinstance(port, int) or not 0 <= port < 65536:
        raise BadHandOver("the broker is told a port from 0 to 65535")
    return port


async def serve(credentials: Credentials, sock: socket.socket) -> None:
    """Serve mediators until SIGTERM."""
    # Late: amqtt takes most of the start-up time, and the rest of this module does not need it.
    import amqtt

    from .embedded import MediatorBroker, config
    from .gate import Gate

    if amqtt.__version__ != AMQTT:
        raise BrokerError(
            f"amqtt {amqtt.__version__} is installed; this broker is made for {AMQTT}",
            f"pip install amqtt=={AMQTT}",
        )
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    loop.add_signal_handler(signal.SIGINT, over.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # nothing to reload
    most = max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FDS)
    host, port = sock.getsockname()[:2]
    broker = MediatorBroker(config(credentials, f"{host}:{port}"))
    gate = Gate(broker, credentials, most)
    await broker.start()
    await gate.open(sock)
    log.info("listening on %s:%d for mediators only, at most %d connections", host, port, most)
    await over.wait()
    await gate.close()
    await broker.shutdown()
    log.info("stopped")


def main() -> int:
    """Run the process; its exit code."""
    quiet_logs()
    try:
        handed = secrets.receive()
        credentials = credentials_of(handed)
        sock = listening_socket(_port_of(handed))
        loops.run(serve(credentials, sock))
    except (RunError, BrokerError, OSError) as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
