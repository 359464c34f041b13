"""Ours and Mosquitto's way beside each other: real processes, started together and measured in
turns."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import bench_print
from bench_print import Row
from load_brokers import HOST, answers, free_port
from load_cpu import LoadError

from sealmq.broker import issuing, mosquitto
from sealmq.broker.errors import BrokerError

START_S = 120.0
INFLIGHT = 16
# Of our processes: the one that `--python` names, else the bench's own.
_python = [sys.executable]
SIZES = (16, 64, 256, 1024, 4096, 16384)
OURS, THEIRS = "sealmq", "mosquitto-tls"
_LOGS = "log"


class Way(Protocol):
    """A way that messages take, in processes of its own."""

    def __init__(self, folder: Path) -> None: ...
    def start(self) -> None:
        """LoadError."""

    def stop(self) -> None:
        """May be called at any time."""


W = TypeVar("W", bound=Way)
Cost = TypeVar("Cost")
Taken = dict[tuple[str, int], list[Cost]]
"""(variant, size) -> what it cost in each round that counts."""


@contextlib.contextmanager
def _started(ways: Mapping[str, type[W]]) -> Iterator[dict[str, W]]:
    with tempfile.TemporaryDirectory(prefix="sealmq-bench-") as name, contextlib.ExitStack() as end:
        made: dict[str, W] = {}
        for variant, kind in ways.items():
            folder = Path(name) / variant
            folder.mkdir()
            way = made[variant] = kind(folder)
            end.callback(way.stop)
            way.start()
        yield made


def in_turns(
    ways: Mapping[str, type[W]], sizes: Sequence[int], rounds: int, cost: Callable[[W, int], Cost]
) -> Taken[Cost]:
    """What `cost` says of each way and size, one after the other in each round. The first round
    warms up and is thrown away. LoadError.
    """
    taken: Taken[Cost] = {}
    with _started(ways) as made:
        for turn in range(rounds + 1):
            for size in sizes:
                for variant, way in made.items():
                    found = cost(way, size)
                    if turn:
                        taken.setdefault((variant, size), []).append(found)
    return taken


def rows_of(
    taken: Taken[Cost], us: Callable[[Cost], float], measure: str, ratio_measure: str
) -> list[Row]:
    """The medians of all, and of each size how many times theirs ours is, round by round."""
    rows = [
        row(measure, variant, statistics.median(map(us, costs)), "us", len(costs), size)
        for (variant, size), costs in taken.items()
    ]
    for (variant, size), costs in taken.items():
        if variant != OURS:
            continue
        both = zip(costs, taken[THEIRS, size], strict=True)
        ratios = [us(ours) / us(theirs) for ours, theirs in both]
        found = row(ratio_measure, OURS, statistics.median(ratios), "times", len(ratios), size)
        found["params"] |= {"least": min(ratios), "most": max(ratios)}
        rows.append(found)
    return rows


def with_load(rows: list[Row]) -> list[Row]:
    """They say how busy the machine was."""
    for one in rows:
        one["params"]["load"] = round(os.getloadavg()[0], 2)
    return rows


class Processes:
    """What was started in a folder; its output is there, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[subprocess.Popen[bytes]] = []

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """It ends with `stop`."""
        with (self.folder / _LOGS).open("ab") as log:
            made = subprocess.Popen(  # noqa: S603 - our own command line
                words, stdout=log, stderr=log, start_new_session=True
            )
        self.all.append(made)
        return made

    def until(self, look: Callable[[], bool], what: str) -> None:
        """LoadError: one has ended, or it takes too long."""
        end = time.monotonic() + START_S
        while not look():
            if any(one.poll() is not None for one in self.all) or time.monotonic() > end:
                last = (self.folder / _LOGS).read_text(errors="replace").strip()[-500:]
                raise LoadError(f"{what}: {last}")
            time.sleep(0.1)

    def stop(self) -> None:
        """May be called at any time."""
        for one in self.all:
            if one.poll() is None:
                one.send_signal(signal.SIGTERM)
        for one in self.all:
            try:
                one.wait(30)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        self.all.clear()


def run_by(python: str | None) -> None:
    """Which interpreter runs our processes; None: the bench's own. LoadError: none with SealMQ."""
    if python is None:
        return
    _python[0] = str(Path(python).absolute())
    try:
        ran("--version")
    except (OSError, LoadError) as error:
        why = f"--python {python}: it runs no SealMQ: {error}"
        raise LoadError(why, "make install PREFIX=build/shipped PYTHON3=/usr/bin/python3") from None


def row(measure: str, variant: str, value: float, unit: str, n: int, size: int) -> Row:
    """As `bench_print.row`, of the interpreter that runs our processes."""
    found = bench_print.row(measure, variant, value, unit, n, size)
    found["params"]["python"] = _version(_python[0])
    return found


@cache
def _version(python: str) -> str:
    asks = "import platform; print(platform.python_version())"
    words = [python, "-c", asks]
    done = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603 - as asked
    return done.stdout.strip()


def sealmq(*words: str) -> list[str]:
    """A command line of ours."""
    return [_python[0], "-m", "sealmq.cli", *words]


def ran(*words: str) -> str:
    """What a command of ours prints. LoadError: it fails."""
    done = subprocess.run(  # noqa: S603 - our own command line
        sealmq(*words), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LoadError(f"sealmq {words[0]}: {done.stderr.strip()[-500:]}")
    return done.stdout


def factory(site: str) -> None:
    """A new site of the example, which runs a Mosquitto of its own. LoadError."""
    words = ("--policy", "labels", "--example", "factory", "--key-file", f"{site}.key")
    ran("init", site, *words, "--listen", f"{HOST}:{free_port()}")
    path = Path(site, "sealmq.toml")
    text = path.read_text()
    path.write_text(re.sub(r'(?m)^kind = "embedded"', 'kind = "mosquitto"', text))


def plain_client(user: tuple[str, str] | None = None) -> Any:
    """Of paho's, not connected, with INFLIGHT messages under way at most. user: with a password."""
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    made = Client(CallbackAPIVersion.VERSION2, client_id=f"bench-{secrets.token_hex(4)}")
    made.max_inflight_messages_set(INFLIGHT)
    if user is not None:
        made.username_pw_set(*user)
    return made


class Mosquittos:
    """Mosquittos in one folder, and bridges between them over TLS 1.3."""

    def __init__(self, folder: Path) -> None:
        """LoadError: there is no Mosquitto."""
        try:
            self._program = mosquitto.find().path
        except BrokerError as error:
            raise LoadError(str(error), error.hint or "") from None
        self._folder, self.processes = folder, Processes(folder)
        ca = issuing.new_ca("bench")
        pair = issuing.server(ca, ["localhost", HOST])
        files = {"ca.pem": ca.cert_pem, "server.pem": pair.cert_pem, "server.key": pair.key_pem}
        for name, content in files.items():
            (folder / name).write_text(content.decode())
            (folder / name).chmod(0o600)

    def start(self, listens: str = "", bridge: str = "", to: int = 0) -> int:
        """Its port. `listens`: "tls" or "". `bridge`: Mosquitto's words for what crosses to the
        one at port `to`. LoadError.
        """
        port = free_port()
        user = "user root\n" if os.geteuid() == 0 else ""
        conf = f"{user}allow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\n"
        conf += f"listener {port} {HOST}\n"
        if listens == "tls":
            conf += f"certfile {self._folder / 'server.pem'}\n"
            conf += f"keyfile {self._folder / 'server.key'}\ntls_version tlsv1.3\n"
        if bridge:
            conf += f"connection bridge{port}\naddress {HOST}:{to}\ntopic {bridge}\n"
            conf += f"bridge_cafile {self._folder / 'ca.pem'}\nbridge_tls_version tlsv1.3\n"
            conf += "bridge_protocol_version mqttv311\ntry_private false\nnotifications false\n"
        path = self._folder / f"{port}.conf"
        path.write_text(conf)
        self.processes.begin(self._program, "-c", str(path))
        self.processes.until(lambda: answers(port), "mosquitto")
        return port
