"""An unmodified broker on loopback, for mediators only: Debian's Mosquitto, else amqtt.

Its files lie in a private folder of its own. As root, Mosquitto runs as the user that its package
has made, to whom the folder then belongs.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import secrets
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from .children import Child, Children, run
from .errors import DemoError

USER = "mediator"
_PATIENCE_S = 15.0
_SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


def kinds() -> list[str]:
    """What can be used here, the preferred one first."""
    found = ["mosquitto"] if _mosquitto() else []
    return [*found, "amqtt"]


class Broker:
    """`kind`: mosquitto or amqtt. `password_file`: for `sealmq up --broker-password-file`."""

    def __init__(self, kind: str, children: Children, password_file: Path) -> None:
        self.kind = kind
        self.port = free_port()
        self.password_file = password_file
        self._children = children
        self._folder = Path(tempfile.mkdtemp(prefix="sealmq-demo-"))
        self.child: Child | None = None

    async def start(self) -> None:
        """Return once it takes connections."""
        password = secrets.token_urlsafe(24)
        private(self.password_file, password + "\n")
        if self.kind == "mosquitto":
            self.child = await self._start_mosquitto(password)
        else:
            self.child = await self._start_amqtt(password)
        await listening(self.child, self.port)

    def clean(self) -> None:
        """Removes its folder, once it has ended."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _start_mosquitto(self, password: str) -> Child:
        names, config = self._folder / "passwd", self._folder / "mosquitto.conf"
        private(names, f"{USER}:{password}\n")
        code, _, error = await run(_tool("mosquitto_passwd"), "-U", names)
        if code:
            raise DemoError(f"mosquitto_passwd: {error.strip()}")
        config.write_text(
            f"listener {self.port} 127.0.0.1\n"
            "allow_anonymous false\n"
            f"password_file {names}\n"
            "persistence false\n"
            "log_dest stderr\n",
            encoding="utf-8",
        )
        user = _hand_over(self._folder)
        return await self._children.start("broker", [_tool("mosquitto"), "-c", config], user=user)

    async def _start_amqtt(self, password: str) -> Child:
        from pwdlib.hashers.argon2 import Argon2Hasher

        names, config = self._folder / "passwd", self._folder / "amqtt.yaml"
        # The password is drawn at random: guessing it needs no slowing down. amqtt serves nobody
        # while it verifies one, and every client's link has to be verified.
        hasher = Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1)
        private(names, f"{USER}:{hasher.hash(password)}\n")
        plugin = "amqtt.plugins.authentication.FileAuthPlugin"
        listener = {"type": "tcp", "bind": f"127.0.0.1:{self.port}"}
        settings = {
            "listeners": {"default": listener},
            "plugins": {plugin: {"password_file": str(names)}},
        }
        # Every JSON text is a YAML text.
        config.write_text(json.dumps(settings), encoding="utf-8")
        command = Path(sys.executable).with_name("amqtt")
        return await self._children.start("broker", [command, "-c", config])


def _hand_over(folder: Path) -> str | None:
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam("mosquitto")
    except KeyError:
        return None
    for path in (folder, *folder.iterdir()):
        os.chown(path, user.pw_uid, user.pw_gid)
    return user.pw_name


def _mosquitto() -> str | None:
    return shutil.which("mosquitto", path=_SBIN)


def _tool(name: str) -> str:
    found = shutil.which(name, path=_SBIN)
    if found is None:
        raise DemoError(f"{name} is missing", "apt-get install mosquitto")
    return found


def private(path: Path, text: str) -> None:
    """A new file that nobody else can read."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)


def free_port() -> int:
    """A port of the loopback that nobody uses now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def listening(child: Child, port: int) -> None:
    """Wait until the child's port takes connections."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _PATIENCE_S
    while loop.time() < end and child.alive:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return
    raise DemoError(f"{child.name} does not listen on port {port}", child.last_words())
