"""A virtual board: a chip with its flash, and the ways a host reaches it.

One loop in a thread of its own; everything of a board runs on it and nothing blocks. A test holds
the object; `sealmq vboard run` is a process around it.
"""

from __future__ import annotations

import asyncio
import fcntl
import threading
from pathlib import Path
from typing import IO, Any

from . import folder as folders
from .control import serve
from .errors import BoardError
from .flash import Flash
from .fronts import Front
from .pty import Pty
from .requests import obey
from .rfc2217 import Rfc2217Front
from .soc import Soc
from .tcp import TcpFront

_ANSWER_S = 30.0


class VirtualBoard:
    """start() and stop() it; ctl() from any thread, ctl_here() on the loop."""

    def __init__(
        self,
        folder: Path,
        *,
        pty: bool = True,
        tcp: int | None = None,
        rfc2217: int | None = None,
        download: bool = False,
    ) -> None:
        self.folder = folder
        self.setup = folders.load(folder)
        self.pty: str | None = None
        self.url_tcp: str | None = None
        self.url_rfc2217: str | None = None
        self._want = (pty, tcp, rfc2217)
        self._download = download
        self._fronts: list[Front] = []
        self._full = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._lock_file: IO[str] | None = None

    # -- for whoever has the board in hand (any thread)

    def start(self) -> None:
        """Open the flash and the fronts, switch the power on. BoardError, OSError, FlashError."""
        self._lock_file = (self.folder / "board.json").open(encoding="utf-8")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock_file.close()
            raise BoardError(f"{self.folder} is running already", hint="stop it first") from None
        started = threading.Event()
        failed: list[BaseException] = []
        self._thread = threading.Thread(
            target=self._run,
            args=(started, failed),
            name=f"board {self.folder.name}",
            daemon=True,
        )
        self._thread.start()
        started.wait()
        if failed:
            self._thread.join()
            self._lock_file.close()
            raise failed[0]

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None and self._thread is not None:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        if self._lock_file is not None:
            self._lock_file.close()

    def ctl(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request, see requests.py."""
        if self._loop is None:
            raise BoardError("the board is not started")

        async def ask() -> dict[str, Any]:
            return self.ctl_here(request)

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(_ANSWER_S)

    # -- on the loop

    def ctl_here(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = obey(self.soc, request)
        if request.get("do") == "status":
            ports = {"pty": self.pty, "tcp": self.url_tcp, "rfc2217": self.url_rfc2217}
            terminals = [front for front in self._fronts if isinstance(front, Pty)]
            opened = any(terminal.plugged for terminal in terminals)
            answer.update({**vars(self.setup), **ports, "pty_open": opened})
        return answer

    def received(self, data: bytes) -> None:
        self.soc.received(data)

    def lines(self, dtr: bool, rts: bool) -> None:
        self.soc.lines(dtr, rts)

    def flow(self) -> None:
        if not self._fronts:  # not yet, or no more
            return
        full = any(front.full for front in self._fronts)
        if full != self._full:
            self._full = full
            if full:
                self.soc.child.pause()
            else:
                self.soc.child.resume()

    def _say(self, data: bytes) -> None:
        for front in self._fronts:
            front.send(data)
        self.flow()

    def _run(self, started: threading.Event, failed: list[BaseException]) -> None:
        try:
            asyncio.run(self._main(started))
        except BaseException as error:
            if started.is_set():
                raise
            failed.append(error)  # for the thread that started this one
            started.set()

    async def _main(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._full = False
        with Flash(self.folder / "flash.bin") as flash:
            self.soc = Soc(self.folder, self.setup, flash, self._say, download=self._download)
            control = None
            try:
                await self._open()
                up = asyncio.Event()
                control = asyncio.create_task(serve(self.folder, self.ctl_here, up), name="control")
                await self._either(control, up)
                self.soc.power(True)
                started.set()
                await self._stopping.wait()
            finally:
                fronts, self._fronts = self._fronts, []
                self.soc.close()
                if control is not None:
                    control.cancel()
                    await asyncio.gather(control, return_exceptions=True)
                for front in fronts:
                    front.close()

    @staticmethod
    async def _either(task: asyncio.Task[None], up: asyncio.Event) -> None:
        """Waits until it is up. What the task raises: it never will be."""
        waiting = asyncio.create_task(up.wait())
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()

    async def _open(self) -> None:
        pty, tcp, rfc2217 = self._want
        if pty:
            terminal = Pty(self, asyncio.get_running_loop())
            self._fronts.append(terminal)
            self.pty = terminal.path
        for front, port in ((TcpFront(self), tcp), (Rfc2217Front(self), rfc2217)):
            if port is not None:
                await front.open(port)
                self._fronts.append(front)
                if isinstance(front, Rfc2217Front):
                    self.url_rfc2217 = front.url
                else:
                    self.url_tcp = front.url
