"""ESPHome's Noise beside ours: what noise_device.c costs, a device in C with libsodium.

Its peer is a Python library that is not ours and that Home Assistant's own client uses: so that it
is the real protocol, and what is sent is what it would be.
"""

from __future__ import annotations

import platform
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import debs
from apt_sources import mirrors
from bench_rows import Row, each, row
from bench_runs import BenchError, Rig
from bench_wire import DIRECTIONS, Relay
from build_mpy import ROOT
from count import counted_program
from mqtt_frames import ConnectionClosed, exactly
from mqtt_server import Reading, payload
from steps import FetchError, run

SOURCE = Path(__file__).with_name("noise_device.c")
VARIANT = "esphome-c"
_SODIUM = ROOT / "build" / "bench" / "libsodium"
_PROTOCOL = b"Noise_NNpsk0_25519_ChaChaPoly_SHA256"
_PROLOGUE = b"NoiseAPIInit\0\0"
_PSK = bytes(range(32))
_HEAD = 4
_PATIENCE_S = 60.0
_LOCK = threading.Lock()
# Of (connections, messages sent, messages received) the few and the many.
_RUNS = {"connect": ((1, 0, 0), (11, 0, 0)), "publish": ((1, 0, 0), (1, 200, 0))}
_RUNS["receive"] = ((1, 0, 0), (1, 0, 200))


class NoisePeer:
    """The initiator, as Home Assistant is. It checks all that comes, and sends the messages that
    `run` says. `seen`: connections that went as they should have."""

    def __init__(self, run: tuple[int, int, int], size: int) -> None:
        self._run, self._size = run, size
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.seen = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @contextmanager
    def serving(self) -> Iterator[Self]:
        self._thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._thread.join(_PATIENCE_S)

    def _accept(self) -> None:
        with suppress(OSError, ConnectionClosed):
            while True:
                sock = self._listener.accept()[0]
                with sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    sock.settimeout(_PATIENCE_S)
                    self._serve(sock)

    def _serve(self, sock: socket.socket) -> None:
        connections, sent, received = self._run
        noise = self._shake(sock)
        last = self.seen == connections - 1
        for number in range(sent + 1 if last else 1):
            message = noise.decrypt(_frame(sock))
            if message[_HEAD:] != payload(number, self._size):
                raise ConnectionClosed(f"message {number} is another")
        with closing(Reading(sock)) as reading:
            for number in range(1, received + 1 if last else 1):
                reading.wait()
                head = bytes((0, 25)) + self._size.to_bytes(2, "big")
                _send(sock, noise.encrypt(head + payload(number, self._size)))
        self.seen += 1

    def _shake(self, sock: socket.socket) -> Any:
        from noise.connection import NoiseConnection  # only who measures this needs it

        noise = NoiseConnection.from_name(_PROTOCOL)
        noise.set_as_initiator()
        noise.set_psks(_PSK)
        noise.set_prologue(_PROLOGUE)
        noise.start_handshake()
        _send(sock, b"")
        hello = _frame(sock)
        if hello[:1] != b"\1":
            raise ConnectionClosed("the device chose another protocol")
        _send(sock, b"\0" + bytes(noise.write_message()))
        noise.read_message(_frame(sock)[1:])
        return noise


def _send(sock: socket.socket, body: bytes) -> None:
    sock.sendall(b"\1" + len(body).to_bytes(2, "big") + body)


def _frame(sock: socket.socket) -> bytes:
    head = exactly(sock, 3)
    if head[0] != 1:
        raise ConnectionClosed("not a frame")
    return exactly(sock, int.from_bytes(head[1:], "big"))


def program(folder: Path) -> Path:
    """noise_device.c, compiled into `folder` if it is not there. Raises BenchError."""
    with _LOCK:
        return _compiled(folder / "noise_device")


def _compiled(target: Path) -> Path:
    if target.exists():
        return target
    try:
        import noise.connection  # noqa: F401 - whether it is there
    except ImportError as error:
        raise BenchError("the Python library noiseprotocol is missing: run `make setup`") from error
    if shutil.which("cc") is None:
        raise BenchError("there is no C compiler: sudo apt install gcc libc6-dev")
    sodium = _libsodium()
    library = next(sodium.glob("usr/lib/*/libsodium.a"))
    words = ["cc", "-O2", f"-I{sodium}/usr/include", "-o", *map(str, (target, SOURCE, library))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines() or ["no message"]
        raise BenchError(f"{SOURCE.name} does not compile: {reason[0]}")
    return target


def _libsodium() -> Path:
    """Debian's, unpacked into build/bench: its headers and the library to link."""
    if not _SODIUM.exists():
        fresh = _SODIUM.with_suffix(".part")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        try:
            arch = run("architecture", ["dpkg", "--print-architecture"]).strip()
            codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
            debs.unpack("libsodium-dev", arch, mirrors(codename), fresh)
        except FetchError as error:
            raise BenchError(f"libsodium: {error.line()}") from error
        debs.replace_folder(fresh, _SODIUM)
    return _SODIUM


def noise(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """Instructions of `noise_STAGE`."""
    few, many = _RUNS[measure.removeprefix("noise_")]
    counts = []
    for run_ in (few, many):
        with NoisePeer(run_, size).serving() as peer:
            words = [str(program(rig.folder)), *map(str, (peer.port, *run_, size))]
            counts.append(counted_program(words, SOURCE.stem).instructions)
        _went(peer, run_)
    times = sum(few), sum(many)
    cost = each(counts[0], counts[1], *times)
    return [row(measure, variant, size, cost, "instructions", times[1] - times[0])]


def wire_noise(rig: Rig, measure: str, variant: str, size: int) -> list[Row]:
    """Both directions of one stage, `wire_noise_STAGE`."""
    few, many = _RUNS[measure.removeprefix("wire_noise_")]
    found = []
    for run_ in (few, many):
        with NoisePeer(run_, size).serving() as peer, Relay(peer.port).relaying() as relay:
            words = [str(program(rig.folder)), *map(str, (relay.port, *run_, size))]
            done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE_S)
            if done.returncode:
                raise BenchError(done.stderr.strip() or f"{SOURCE.stem} failed")
            found.append(relay.counts())
        _went(peer, run_)
    times = sum(few), sum(many)
    return [
        row(
            measure, variant, size, each(found[0][way], found[1][way], *times), "bytes",
            times[1] - times[0], {"direction": direction},
        )
        for way, direction in enumerate(DIRECTIONS)
    ]  # fmt: skip


def _went(peer: NoisePeer, run_: tuple[int, int, int]) -> None:
    if peer.seen != run_[0]:
        raise BenchError(f"of {run_[0]} Noise connections {peer.seen} went as they should")
