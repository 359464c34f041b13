"""The rig's broker: an unmodified Mosquitto on the loopback, where the tap listens too."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from .errors import RigError
from .processes import until

_WAIT_S = 20.0


def find() -> str:
    """The program. RigError."""
    found = shutil.which(
        "mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin"
    )
    if found is None:
        raise RigError("mosquitto is not installed", "apt-get install mosquitto, or make setup")
    return found


class Mosquitto:
    """Keeps what it has over `kill` and `start`, as of its last save."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self._program = find()
        self.port = free_port()
        self._log = folder / "mosquitto.log"
        self._config = folder / "mosquitto.conf"
        root = "user root\n" if os.geteuid() == 0 else ""
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\n{root}"
            f"persistence true\npersistence_location {folder}/\nautosave_interval 2\n"
            "max_queued_messages 100000\nset_tcp_nodelay true\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For `sealmq up --broker`."""
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Runs, and takes connections."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - found above
                [self._program, "-c", str(self._config)], stdout=log, stderr=log
            )
        until("the rig's broker to listen", self._listens, _WAIT_S)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL, and it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_WAIT_S)

    def stop(self) -> None:
        """SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_WAIT_S)
            except subprocess.TimeoutExpired:
                self.kill()


def free_port() -> int:
    """A port of the loopback that nobody listens on right now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port
