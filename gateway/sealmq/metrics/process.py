"""`python -m sealmq.metrics.process SITE`: serves /metrics and /healthz, started by `sealmq up`.

It has no secret and can do nothing to the site. It outlives a supervisor that is killed, so that
/healthz says so, until another one comes or OUTLIVES_S are over.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST

from sealmq import logs
from sealmq.run import proc, ready
from sealmq.run.errors import BadHandOver
from sealmq.run.ready import Ready, Tried
from sealmq.run.secrets import receive
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout
from sealmq.site.model import Metrics
from sealmq.site.reach import written

from .exposition import text
from .health import Watch

log = logging.getLogger("sealmq.metrics")

ROLE = "metrics"
OUTLIVES_S = 600.0
_POLL_S = 1.0
# Of those that connect and say nothing, or much.
_PATIENCE_S = 5.0
_AT_ONCE = 8
_PR_SET_NO_NEW_PRIVS = 38


class Handler(BaseHTTPRequestHandler):
    """One request a connection."""

    server: Server
    server_version = "sealmq"
    sys_version = ""
    timeout = _PATIENCE_S

    def setup(self) -> None:
        """All of a request has to come within _PATIENCE_S; `timeout` is of each read alone."""
        super().setup()
        self._late = threading.Timer(_PATIENCE_S, _cut, (self.request,))
        self._late.daemon = True
        self._late.start()

    def finish(self) -> None:
        """It is answered, or too late."""
        self._late.cancel()
        super().finish()

    def do_GET(self) -> None:
        """/metrics and /healthz, asked by a name of this machine."""
        self._late.cancel()
        if not _here(self.headers.get("Host", "")):
            # A page in a browser whose name was made to lead here reads nothing.
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"ask 127.0.0.1 or localhost\n")
        elif self.path == "/metrics":
            self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, text(self.server.watch.look()))
        elif self.path == "/healthz":
            found = self.server.watch.look().problems
            body = json.dumps({"healthy": not found, "problems": found}).encode() + b"\n"
            code = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
            self._answer(code, "application/json", body)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"/metrics or /healthz\n")

    def _answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *words: Any) -> None:
        """A scrape is nothing to write down."""


class Server(ThreadingHTTPServer):
    """At most _AT_ONCE connections; more wait in the kernel, until `stop`."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, at: Metrics, watch: Watch, stop: threading.Event) -> None:
        self.watch, self._stop = watch, stop
        self.address_family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__((at.host, at.port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, once there is a place."""
        while not self._places.acquire(timeout=0.2):
            if self._stop.is_set():
                self.shutdown_request(request)
                return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be had
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Likewise."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Of a peer that went away or was too slow nothing is said; of ours one line."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.error("a request was not answered: %r", error)


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has gone by itself
        request.shutdown(socket.SHUT_RDWR)


def _here(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.strip("[]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def serve(layout: Layout, at: Metrics, supervisor: int) -> None:
    """Until SIGTERM, or nobody needs it any more. SiteError: the port is taken."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    watch = Watch(layout, (supervisor, proc.start_of(supervisor)), time.time)
    server = _bound(at, watch, stop)
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    told = Ready(ROLE, os.getpid(), written(at.host, at.port), True)
    user, file = proc.name_of(os.geteuid()), Tried("run/metrics/ready.json", log.error)

    def tell() -> None:
        ready.write(layout, told, user=user)

    said, alone = file.put(tell), 0.0
    while not stop.wait(_POLL_S) and not watch.succeeded() and alone < OUTLIVES_S:
        said = said or file.put(tell)
        alone = 0.0 if watch.supervised() else alone + _POLL_S
    stop.set()
    server.shutdown()
    server.server_close()
    if watch.supervised():
        ready.forget(layout, ROLE)


# The one of a supervisor that was killed lets go of the port as soon as it sees the next one.
def _bound(at: Metrics, watch: Watch, stop: threading.Event) -> Server:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return Server(at, watch, stop)
        except OSError as error:
            if time.monotonic() > end or stop.is_set():
                raise SiteError(
                    f"cannot listen on {written(at.host, at.port)}: {error.strerror}",
                    "change [metrics] listen in sealmq.toml",
                ) from None
        time.sleep(0.1)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 1 with one line on stderr otherwise."""
    arguments = sys.argv[1:] if arguments is None else arguments
    supervisor = os.getppid()
    logs.begin("metrics: ")
    os.umask(0o077)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if len(arguments) != 1:
        print("usage: python -m sealmq.metrics.process SITE", file=sys.stderr)
        return 2
    try:
        layout = Layout.open(Path(arguments[0]))
        serve(layout, _handed(receive()), supervisor)
    except (SiteError, BadHandOver, OSError) as error:
        print(f"metrics: {error}", file=sys.stderr)
        return 1
    return 0


def _handed(told: dict[str, object]) -> Metrics:
    host, port = told.get("host"), told.get("port")
    if not isinstance(host, str) or type(port) is not int:
        raise BadHandOver("the hand-over does not say where metrics are served")
    return Metrics(host, port)


if __name__ == "__main__":
    sys.exit(main())
