"""Brokers to be tried: Debian's Mosquitto in any configuration, and one that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

from sealmq.broker.mosquitto import hashed
from sealmq.mqtt import Connect, Decoder, MqttError, Packet, Pingreq, Publish, Subscribe, build

MOSQUITTO = "/usr/sbin/mosquitto"
BELOW = "sealmq-doctor/"
PASSWORDS = {name: f"pass-word of {name}" for name in ("ann", "bob", "ops")}
SAFE_ACL = """\
user ann
topic readwrite sealmq-doctor/ann
topic read sealmq-doctor/all
user bob
topic readwrite sealmq-doctor/bob
topic read sealmq-doctor/all
user ops
topic readwrite sealmq-doctor/#
topic read $SYS/#
"""
SAFE = (
    "allow_anonymous false",
    "password_file passwords",
    "acl_file acl",
    "use_username_as_clientid true",
    "check_retain_source true",
    "sys_interval 1",
)
_ANN, _BOB, _ALL = (f'"{BELOW}{word}"' for word in ("ann", "bob", "all"))
_ACCOUNTS = f"""\
below = "{BELOW}"
revoke = "ann"

[[account]]
name = "ann"
password_file = "ann.password"
read = [{_ANN}, {_ALL}]
write = [{_ANN}]

[[account]]
name = "bob"
password_file = "bob.password"
read = [{_BOB}, {_ALL}]
write = [{_BOB}]

[[account]]
name = "ops"
password_file = "ops.password"
read = [{_ANN}, {_BOB}, {_ALL}]
write = [{_ANN}, {_BOB}, {_ALL}]
sys = true
"""


def accounts_file(folder: Path) -> Path:
    """Of the three accounts, as SAFE_ACL has them."""
    for name, password in PASSWORDS.items():
        path = folder / f"{name}.password"
        path.touch(0o600)
        path.write_text(password + "\n")
    path = folder / "accounts.toml"
    path.write_text(_ACCOUNTS)
    return path


class Mosquitto:
    """One on the loopback. `revoke`, `restore`: commands that change its access list."""

    def __init__(
        self, folder: Path, lines: Iterable[str] = SAFE, acl: str = SAFE_ACL, *, tls: str = ""
    ) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.acl = folder / "acl"
        self._write("acl", acl)
        rows = [f"{name}:{hashed(password)}\n" for name, password in PASSWORDS.items()]
        self._write("passwords", "".join(rows))
        conf = [f"listener {self.port} 127.0.0.1", tls, "set_tcp_nodelay true", "user root", *lines]
        config = self._write("mosquitto.conf", "\n".join(conf) + "\n")
        self.log = folder / "mosquitto.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [MOSQUITTO, "-c", config], cwd=folder, stdout=log, stderr=log
            )
        end = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.01)

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.touch(0o600)
        path.write_text(text)
        return path

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def revoking(self, *, told: bool = True) -> tuple[str, str]:
        """Commands that take ann's topics away and give them back; told: and tell the broker."""
        without = self._write("acl.without", self.acl.read_text().replace("user ann", "user xxx"))
        had = self._write("acl.had", self.acl.read_text())
        tell = f"kill -HUP {self._process.pid}" if told else "true"
        return tuple(  # type: ignore[return-value]
            f"sh -c 'cp {source} {self.acl} && {tell}'" for source in (without, had)
        )

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)


Answer = Callable[[Packet], bytes]


def lies(packet: Packet) -> bytes:
    """It lets in, grants and acknowledges everything, and delivers nothing."""
    if isinstance(packet, Connect):
        return build.connack(False, 0)
    if isinstance(packet, Subscribe):
        return build.suback(packet.packet_id, [qos for _, qos in packet.filters])
    if isinstance(packet, Publish):
        return build.puback(packet.packet_id) if packet.qos else b""
    return build.pingresp() if isinstance(packet, Pingreq) else b""


def hangs(packet: Packet) -> bytes:
    """It takes connections, and says nothing."""
    return b""


def grants_and_hangs(packet: Packet) -> bytes:
    """It lets everybody in, and says nothing more."""
    return lies(packet) if isinstance(packet, Connect) else b""


def babbles(packet: Packet) -> bytes:
    """It is no broker."""
    return b"HTTP/1.1 400 Bad Request\r\n\r\n"


def floods(packet: Packet) -> bytes:
    """To who has subscribed it sends what nobody has published."""
    found = lies(packet)
    if isinstance(packet, Subscribe):
        found += build.publish("other/topic", os.urandom(64)) * 5000
    return found


@contextlib.asynccontextmanager
async def serving(answer: Answer, pause_s: float = 0.0) -> AsyncIterator[int]:
    """A broker that answers each packet so, after a pause: its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        decoder = Decoder(1 << 20, "server")
        with contextlib.suppress(OSError, MqttError, asyncio.CancelledError):
            while chunk := await reader.read(65536):
                for packet in decoder.feed(chunk):
                    await asyncio.sleep(pause_s)
                    writer.write(answer(packet))
                    await writer.drain()
        writer.close()
        tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
