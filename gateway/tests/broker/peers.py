"""A real broker process, and real peers (paho) that speak to it."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

from sealmq.broker.credentials import Credentials
from sealmq.mqtt import Connack, Decoder, Packet, Will, build
from sealmq.run import secrets

WAIT_S = 30.0


def until(true: Callable[[], bool], what: str) -> None:
    """Wait until it is so; fail, saying what, when it never is."""
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.01)


@dataclass
class BrokerProcess:
    """`python -m sealmq.broker.process`, as the supervisor starts it."""

    credentials: Credentials
    port: int
    process: subprocess.Popen[bytes]
    log_file: str

    @classmethod
    def start(cls, port: int = 0) -> BrokerProcess:
        credentials = Credentials.draw()
        sock = socket.create_server(("127.0.0.1", port))
        fd, log_file = tempfile.mkstemp(prefix="sealmq-broker-", suffix=".log")
        handed = {"user": credentials.user, "password": credentials.password, "port": 0}
        with secrets.handed_over(handed) as pipe, sock, os.fdopen(fd, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "sealmq.broker.process", "."],
                env=os.environ | {secrets.FD: str(pipe), "SEALMQ_LISTEN_FD": str(sock.fileno())},
                pass_fds=[pipe, sock.fileno()],
                stderr=log,
            )
            made = cls(credentials, sock.getsockname()[1], process, log_file)
        until(lambda: "listening" in made.log() or process.poll() is not None, "broker to listen")
        assert process.poll() is None, made.log()
        return made

    def log(self) -> str:
        with open(self.log_file) as file:
            return file.read()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(WAIT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            os.unlink(self.log_file)


@dataclass
class Peer:
    """One paho client and what it got."""

    client: paho.Client
    codes: queue.Queue[tuple[int, bool]] = field(default_factory=queue.Queue)
    messages: queue.Queue[paho.MQTTMessage] = field(default_factory=queue.Queue)
    acked: queue.Queue[int] = field(default_factory=queue.Queue)
    subacks: queue.Queue[list[int]] = field(default_factory=queue.Queue)
    lost: queue.Queue[int] = field(default_factory=queue.Queue)

    def connect(self, port: int, keepalive: int = 60) -> int:
        """Connect; CONNACK's code as MQTT 3.1.1 numbers it, or -1 when there was none."""
        self.client.connect("127.0.0.1", port, keepalive)
        self.client.loop_start()
        code, self.present = self.codes.get(timeout=WAIT_S)
        return code

    def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        """Subscribe; SUBACK's code."""
        self.client.subscribe(topic_filter, qos)
        [code] = self.subacks.get(timeout=WAIT_S)
        return code

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> None:
        """Publish; returns once it is acknowledged (QoS 0: sent)."""
        mid = self.client.publish(topic, payload, qos, retain).mid
        while self.acked.get(timeout=WAIT_S) != mid:
            pass

    def get(self) -> paho.MQTTMessage:
        return self.messages.get(timeout=WAIT_S)

    def nothing_more(self) -> bool:
        """Whether nothing has come, seen by a message of its own that comes behind everything."""
        mark = os.urandom(8).hex()
        assert self.subscribe(f"mark/{mark}") == 0
        self.publish(f"mark/{mark}", b"", qos=0)
        return self.get().topic == f"mark/{mark}"

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class Raw:
    """A mediator's connection, packet by packet."""

    def __init__(
        self, broker: BrokerProcess, name: str, *, clean: bool = False, will: Will | None = None
    ) -> None:
        self.sock = socket.create_connection(("127.0.0.1", broker.port), WAIT_S)
        self.decoder = Decoder(2 * 1024 * 1024, "client")
        self.packets: list[Packet] = []
        self.send(
            build.connect(
                name,
                clean_session=clean,
                will=will,
                username=broker.credentials.user,
                password=broker.credentials.password.encode(),
            )
        )
        connack = self.get()
        assert isinstance(connack, Connack)
        assert connack.code == 0

    def send(self, packet: bytes) -> None:
        self.sock.sendall(packet)

    def get(self) -> Packet:
        while not self.packets:
            chunk = self.sock.recv(65536)
            assert chunk, "the broker closed the connection"
            self.packets += self.decoder.feed(chunk)
        return self.packets.pop(0)

    def cut(self) -> None:
        """Go away without DISCONNECT."""
        self.sock.close()


def resident_mib(broker: BrokerProcess) -> float:
    with open(f"/proc/{broker.process.pid}/status") as file:
        [line] = [line for line in file if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


class MakePeer(Protocol):
    """Makes a peer with a mediator's credentials, or with what is given."""

    def __call__(
        self,
        broker: BrokerProcess | None,
        client_id: str = "",
        *,
        user: str | None = None,
        password: str | None = None,
        clean: bool = True,
        will: tuple[str, bytes] | None = None,
    ) -> Peer: ...


# CONNACK's codes 0 to 5 as paho's version-2 callbacks show them.
_CONNACK = {
    "Success": 0,
    "Unsupported protocol version": 1,
    "Client identifier not valid": 2,
    "Server unavailable": 3,
    "Bad user name or password": 4,
    "Not authorized": 5,
}


def listen(peer: Peer) -> None:
    """Fill the peer's queues."""

    def on_connect(
        client: paho.Client, data: object, flags: paho.ConnectFlags, code: ReasonCode, props: object
    ) -> None:
        peer.codes.put((_CONNACK[str(code)], flags.session_present))

    def on_subscribe(
        client: paho.Client, data: object, mid: int, codes: list[ReasonCode], props: object
    ) -> None:
        peer.subacks.put([code.value for code in codes])

    def on_disconnect(
        client: paho.Client, data: object, flags: object, code: ReasonCode, props: object
    ) -> None:
        peer.lost.put(code.value)
        peer.codes.put((-1, False))

    peer.client.on_connect = on_connect
    peer.client.on_subscribe = on_subscribe
    peer.client.on_disconnect = on_disconnect
    peer.client.on_message = lambda client, data, message: peer.messages.put(message)
    peer.client.on_publish = lambda client, data, mid, code, props: peer.acked.put(mid)
