"""What runs on the board: real MicroPython, one process for each boot.

The interpreter's side lies in device/. It says what it wants over a socket that keeps messages
apart, and waits for the answer; so a write to the flash that the power fails in never returns.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import partitions
from .connections import Connections
from .console import Console
from .flash import Flash, FlashError, FlashFault, PowerLost
from .live import Live
from .netinfo import addresses
from .nvs import NOT_INITIALIZED, Nvs, NvsError

_DEVICE = Path(__file__).parent / "device"
# Exit statuses of device/vb_host.py.
_RESET, _SOFT, _SOFT_RAW, _SLEEP, _BROKEN, _BROKEN_RAW = 100, 101, 102, 103, 105, 106
# machine.reset_cause().
_PWRON, _HARD, _WDT, _DEEPSLEEP, _SOFT_CAUSE = 1, 2, 3, 4, 5
_EIO, _EINVAL = 5, 22
# What MicroPython has for itself on an ESP32 without PSRAM once it has started, in bytes; objects
# of a 64-bit interpreter are twice as large. And what the stubs in device/ take away from it.
_HEAP = {32: 160 * 1024, 64: 320 * 1024}
_STUBS = {32: 61 * 1024, 64: 87 * 1024}
_HEAP_BEGINS = {32: 64 * 1024, 64: 128 * 1024}
_US = 1_000_000
_NO_AP, _WRONG_KEY = 201, 202
_FOR_EVER_S = 1e9
# A wait that a program began just when Ctrl-C came is ended by another signal, one of so many.
_WAKES, _WAKE_S = 200, 0.05


class Child:
    """start() a boot, kill() it; `ended` says that it is over by itself: reset, sleep, watchdog or
    crash: …. All on one loop's thread."""

    def __init__(
        self,
        folder: Path,
        flash: Flash,
        console: Callable[[bytes], None],
        ended: Callable[[str], None],
    ) -> None:
        self._flash = flash
        self._ended = ended
        self._path = folder / "flash.bin"
        self._config = json.loads((folder / "board.json").read_text(encoding="utf-8"))
        self._loop = asyncio.get_running_loop()
        self._live = Live()
        self._console = Console(console, self._interrupt)
        self._connections = Connections()
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._channel: socket.socket | None = None
        self._sleeping: asyncio.TimerHandle | None = None
        self._lost = True  # since the last end the power was away
        self._cause = _PWRON
        self._repl = "friendly"
        self._broken = False
        self._memory = b""
        self._watchdog_ms = 0
        self._sleep_ms = 0
        self._starting = False
        self._rtc_us = 0  # at _rtc_at
        self._rtc_at = time.time_ns()
        self._rtc_moved = 0
        self._nvs: Nvs | None = None
        self.heap: tuple[int, int] | None = None

    # -- for the board

    def start(self) -> None:
        """Boot."""
        if self._lost:
            self._lost = False
            self._cause = _PWRON
            self._memory = b""
            self._set_rtc(0)
        self._watchdog_ms = 0
        self._repl = "friendly"
        self._console.fresh()
        self._partitions = partitions.read(self._flash.read)
        try:
            self._nvs = self._start_nvs()
        except PowerLost:
            return  # in the middle of putting NVS right; whoever cut it has stopped the board
        self._spawn()

    def _start_nvs(self) -> Nvs | None:
        for part in self._partitions:
            if part.label == "nvs":
                nvs = Nvs(self._flash, part.at, part.size)
                try:
                    nvs.start()
                except FlashFault:
                    return None
                return nvs
        return None

    def write(self, data: bytes) -> None:
        if self._process is not None:
            self._console.write(data, self._starting)

    def kill(self) -> None:
        """No power: at once, and nothing of it is heard afterwards."""
        self._lost = True
        if self._sleeping is not None:
            self._sleeping.cancel()
            self._sleeping = None
        if self._process is not None:
            self._process.kill()
            self._gone()
        self._connections.vanish()

    def pause(self) -> None:
        self._console.pause(True)

    def resume(self) -> None:
        self._console.pause(False)

    def close(self) -> None:
        self.kill()
        self._connections.close()
        self._console.close()
        self._live.close()

    def ctl(self, request: dict[str, Any]) -> dict[str, Any]:
        """{"do": "wifi", "on"}, {"do": "clock", "move" seconds, "ppm"}."""
        do = request.get("do")
        if do == "wifi":
            self._live.wifi = bool(request["on"])
            if not self._live.wifi:
                self._connections.out_of_reach()
        elif do == "clock":
            if request.get("ppm") is not None:
                self._set_rtc(self._rtc())
                self._live.ppm = int(request["ppm"])
            self._live.move(int(float(request.get("move") or 0) * _US))
        else:
            return {"ok": False, "error": f"no such request: {do!r}"}
        return {"ok": True, **self.status()}

    def status(self) -> dict[str, Any]:
        return {
            "wifi_on": self._live.wifi,
            "asleep": self._sleeping is not None,
            "cause": self._cause,
            "clock_ppm": self._live.ppm,
            "silent_connections": self._connections.silent,
            "heap_free_at_start": self.heap[0] if self.heap else None,
        }

    # -- one boot

    def _spawn(self, broken: bool = False) -> None:
        self._broken = broken
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        bits = int(self._config["bits"])
        heap = int(self._config.get("heap") or _HEAP[bits]) + _STUBS[bits]
        with theirs:
            script = [str(_DEVICE / "start.py"), str(theirs.fileno()), str(_DEVICE)]
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter the folder names
                [self._interpreter(), "-X", f"heapsize={heap}", *script],
                stdin=self._console.slave,
                stdout=self._console.slave,
                stderr=self._console.slave,
                pass_fds=(theirs.fileno(), self._live.fd),
                env={"PATH": os.environ.get("PATH", ""), "HOME": "/"},
                start_new_session=True,
            )
        self._channel = ours
        self._starting = True
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._over)
        self._loop.add_reader(ours.fileno(), self._asked)

    def _says(self) -> dict[str, Any]:
        now = time.time_ns()
        chip = str(self._config["chip"])
        return {
            "live": self._live.fd,
            "flash": str(self._path.resolve()),
            "partitions": self._partitions,
            "mac": list(bytes.fromhex(str(self._config["mac"]).replace(":", ""))),
            "cause": self._cause,
            "repl": self._repl,
            "broken": self._broken,
            "platform": "esp32",
            "machine": f"SealMQ virtual board with {chip.upper()}",
            "build": f"SEALMQ_VBOARD_{chip.upper()}",
            "ip": addresses(),
            "rtc_us": self._rtc(),
            "at_ns": now,
            "watchdog": self._watchdog_ms,
            "heap_begins": _HEAP_BEGINS[int(self._config["bits"])],
        }

    def _interpreter(self) -> str:
        named = self._config.get("micropython") or os.environ.get("SEALMQ_MICROPYTHON")
        if named:
            return str(named)
        root = Path(__file__).resolve().parents[2]
        return str(root / "build" / "micropython" / "bin" / f"micropython{self._config['bits']}")

    def _interrupt(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._loop.call_later(_WAKE_S, self._wake_up, self._process, _WAKES)

    def _wake_up(self, process: subprocess.Popen[bytes], times: int) -> None:
        """SIGINT is noted and taken at the next jump (vb_ctrl_c.py); a wait has none."""
        if process is self._process and times and self._console.interrupting:
            process.send_signal(signal.SIGUSR1)
            self._loop.call_later(_WAKE_S, self._wake_up, process, times - 1)

    def _gone(self) -> int:
        """Clears away the process, which has ended or is about to. Its exit status."""
        if self._process is None or self._channel is None:
            return 0
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._channel.fileno())
        status = self._process.wait()
        os.close(self._pidfd)
        self._channel.close()
        self._process = self._channel = None
        return status

    def _over(self) -> None:
        status = self._gone()
        self._console.rest()
        if status in (_SOFT, _SOFT_RAW):
            self._connections.say_good_bye()
            self._cause = _SOFT_CAUSE
            self._repl = "raw" if status == _SOFT_RAW else "friendly"
            self._spawn()
            return
        died = status in (-signal.SIGINT, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
        if status in (_BROKEN, _BROKEN_RAW) or (died and self._console.interrupting):
            # Interrupted where it must not be (vb_repl.py): it goes on at the prompt.
            self._console.calm()
            self._connections.say_good_bye()
            self._spawn(broken=True)
            return
        self._connections.vanish()
        if status == _SLEEP:
            self._cause = _DEEPSLEEP
            seconds = self._sleep_ms / 1000 if self._sleep_ms else _FOR_EVER_S
            self._sleeping = self._loop.call_later(seconds, self._wake)
        elif status == _RESET:
            self._cause = _HARD
            self._ended("reset")
        elif status == -signal.SIGALRM:
            self._cause = _WDT
            self._ended("watchdog")
        else:
            self._cause = _HARD
            self._ended(f"crash: exit status {status}")

    def _wake(self) -> None:
        self._sleeping = None
        self._ended("sleep")

    # -- the clock: microseconds since 2000

    def _rtc(self) -> int:
        passed = (time.time_ns() - self._rtc_at) // 1000
        passed += passed * self._live.ppm // 1_000_000
        return self._rtc_us + passed + self._live.moved_us - self._rtc_moved

    def _set_rtc(self, us: int) -> None:
        self._rtc_us = us
        self._rtc_at = time.time_ns()
        self._rtc_moved = self._live.moved_us

    # -- what the interpreter asks for

    def _asked(self) -> None:
        channel = self._channel
        if channel is None:
            return
        try:
            message, files, _, _ = socket.recv_fds(channel, 65536, 1)
        except BlockingIOError:
            return
        if not message:
            self._loop.remove_reader(channel.fileno())
            return
        if message[:1] in b"Ss":
            (number,) = struct.unpack("<I", message[1:])
            if files:
                self._connections.add(number, files[0])
            else:
                self._connections.closed(number)
            return
        if message in (b"i", b"R", b"F"):
            if message == b"i":
                self._console.calm()
            else:
                self._repl = "raw" if message == b"R" else "friendly"
            return
        try:
            status, data = self._answer(message[:1], message[1:])
        except PowerLost:
            return  # and so it waits for ever, or has been killed
        if self._channel is channel:
            channel.send(struct.pack("<i", status) + data)

    def _answer(self, verb: bytes, rest: bytes) -> tuple[int, bytes]:
        if verb == b"P":
            return self._on_flash(self._flash.program, struct.unpack_from("<I", rest)[0], rest[4:])
        if verb == b"E":
            return self._on_flash(self._flash.erase, *struct.unpack("<II", rest))
        if verb == b"N":
            return self._on_nvs(rest[:1], *rest[1:].split(b"\0", 2))
        if verb == b"C":
            return -self._join(*rest.decode("utf-8", "replace").split("\0", 1)), b""
        if verb == b"B":
            return 0, json.dumps(self._says()).encode()
        if verb == b"m":
            return 0, self._memory
        if verb == b"M":
            self._memory = rest
        elif verb == b"T":
            self._set_rtc(struct.unpack("<q", rest)[0])
        elif verb == b"W":
            self._watchdog_ms = struct.unpack("<q", rest)[0]
        elif verb == b"Z":
            self._sleep_ms = struct.unpack("<q", rest)[0]
        elif verb == b"H":
            free, taken = rest.split()
            self.heap = (int(free), int(taken))
            self._starting = False
            return (1 if self._console.early else 0), b""
        else:
            print(f"sealmq vboard: what is {verb!r}?", file=sys.stderr)
            return -_EINVAL, b""
        return 0, b""

    def _on_flash(self, what: Callable[..., None], *arguments: Any) -> tuple[int, bytes]:
        try:
            what(*arguments)
        except PowerLost:
            raise
        except FlashFault:
            return -_EIO, b""
        except FlashError:
            return -_EINVAL, b""
        return 0, b""

    def _on_nvs(self, verb: bytes, space: bytes, key: bytes, rest: bytes) -> tuple[int, bytes]:
        if self._nvs is None:
            return -NOT_INITIALIZED, b""
        try:
            return self._nvs.ask(verb, space, key, rest)
        except NvsError as error:
            return -error.code, b""
        except FlashFault:
            return -0x0006, b""

    def _join(self, ssid: str, key: str) -> int:
        """0, or the reason why the station does not get into that network."""
        if not self._live.wifi:
            return _NO_AP
        for network in self._config.get("wifi") or ():
            if network["ssid"] == ssid:
                return 0 if network.get("key", "") == key else _WRONG_KEY
        return _NO_AP
