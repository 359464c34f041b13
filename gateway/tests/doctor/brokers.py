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
from dataclasses import dataclass, field
from pathlib import Path

from free_ports import free_port
from sealmq.broker.mosquitto import hashed
from sealmq.mqtt import (
    Connect,
    Decoder,
    Disconnect,
    MqttError,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    build,
)

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
        self.port = free_port()
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

    def revoking(self, file: str = "acl", *, told: bool = True) -> tuple[str, str]:
        """Commands that take ann out of a file and put her back; told: and tell the broker."""
        had = (self.folder / file).read_text()
        without = (
            had.replace("user ann", "user xxx") if file == "acl" else had.replace("ann:", "xxx:")
        )
        old, new = self._write(f"{file}.had", had), self._write(f"{file}.without", without)
        tell = f"kill -HUP {self._process.pid}" if told else "true"
        take, give = (
            f"sh -c 'cp {source} {self.folder / file} && {tell}'" for source in (new, old)
        )
        return take, give

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)


# --- brokers of our own ---

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


_MAY_READ = {"ann": {"ann", "all"}, "bob": {"bob", "all"}, "ops": {"ann", "bob", "all"}}
_MAY_WRITE = {"ann": {"ann"}, "bob": {"bob"}, "ops": {"ann", "bob", "all"}}


@dataclass
class _Session:
    filters: set[str] = field(default_factory=set)
    waiting: list[tuple[str, bytes]] = field(default_factory=list)
    writer: asyncio.StreamWriter | None = None
    clean: bool = True

    def give(self, topic: str, payload: bytes, retained: bool = False) -> None:
        if self.writer is None or self.writer.is_closing():
            self.waiting.append((topic, payload))
        else:
            self.writer.write(build.publish(topic, payload, 1, retained, packet_id=1))


class JudgesOnce:
    """As EMQX is said to (emqx#3487): it judges at SUBSCRIBE and PUBLISH alone, so what was granted
    or retained stays. `revoked`: a file; once it is there, ann may do nothing. A client has its
    user's name as its id. deaf: of this topic it delivers the first messages and no more, which it
    acknowledges all the same; (topic, how many).
    """

    def __init__(self, revoked: Path, deaf: tuple[str, int] = ("", 0)) -> None:
        self._revoked = revoked
        self._deaf, self._heard = deaf
        self._sessions: dict[str, _Session] = {}
        self._retained: dict[str, bytes] = {}

    def _may(self, user: str, topic: str, rights: dict[str, set[str]]) -> bool:
        if user == "ann" and self._revoked.exists():
            return False
        return topic.removeprefix(BELOW) in rights[user] and topic.startswith(BELOW)

    def _published(self, user: str, topic: str, payload: bytes, retain: bool) -> None:
        if not self._may(user, topic, _MAY_WRITE):
            return
        if retain:
            self._retained[topic] = payload
        if topic == BELOW + self._deaf:
            self._heard -= 1
            if self._heard < 0:
                return
        for session in self._sessions.values():
            if topic in session.filters:
                session.give(topic, payload)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        decoder = Decoder(1 << 20, "server")
        user, will = "", None
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while chunk := await reader.read(65536):
                for packet in decoder.feed(chunk):
                    if isinstance(packet, Connect):
                        user, will = packet.username or "", packet.will
                        if PASSWORDS.get(user, "").encode() != (packet.password or b"-"):
                            writer.write(build.connack(False, 5))
                            writer.close()
                            return
                        self._connected(user, packet.clean_session, writer)
                    elif isinstance(packet, Disconnect):
                        will = None
                    else:
                        self._take(user, packet, writer)
        session = self._sessions.get(user)
        if session and session.clean and session.writer is writer:
            del self._sessions[user]
        if will is not None:
            self._published(user, will.topic, will.payload, will.retain)
        writer.close()

    def _connected(self, user: str, clean: bool, writer: asyncio.StreamWriter) -> None:
        if clean:
            self._sessions.pop(user, None)
        writer.write(build.connack(user in self._sessions, 0))
        session = self._sessions.setdefault(user, _Session())
        session.writer, session.clean = writer, clean
        while session.waiting:
            session.give(*session.waiting.pop(0))

    def _take(self, user: str, packet: Packet, writer: asyncio.StreamWriter) -> None:
        session = self._sessions[user]
        if isinstance(packet, Publish):
            self._published(user, packet.topic, packet.payload, packet.retain)
            writer.write(build.puback(packet.packet_id))
        elif isinstance(packet, Pingreq):
            writer.write(build.pingresp())
        elif isinstance(packet, Subscribe):
            asked = [filt for filt, _ in packet.filters]
            sys = user == "ops"
            granted = [
                filt for filt in asked if self._may(user, filt, _MAY_READ) or (sys and "$" in filt)
            ]
            codes = [1 if filt in granted else 0x80 for filt in asked]
            writer.write(build.suback(packet.packet_id, codes))
            session.filters |= {*granted}
            for filt in granted:
                if found := self._retained.get(filt):
                    session.give(filt, found, retained=True)
                if filt.startswith("$"):
                    session.give("$SYS/version", b"1")


@contextlib.asynccontextmanager
async def listening(broker: JudgesOnce) -> AsyncIterator[int]:
    """Its port."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
