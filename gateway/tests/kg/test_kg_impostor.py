"""A socket that another user serves is not the key generator's."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sealmq.kglink import KgClient, KgDenied, _may_serve

_SERVE = """
import os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
BECOME
server.listen()
print("ready", flush=True)
sys.stdin.read()
"""


def _credentials(uid: int) -> bytes:
    return b"".join(n.to_bytes(4, sys.byteorder) for n in (1, uid, uid))


def test_root_the_owner_and_we_ourselves_may_serve(tmp_path: Path) -> None:
    (tmp_path / "state" / "kg").mkdir(parents=True)
    path = tmp_path / "run" / "kg" / "kg.sock"
    assert _may_serve(_credentials(0), path)
    assert _may_serve(_credentials(os.geteuid()), path)
    assert not _may_serve(_credentials(65534), path)
    if os.geteuid() == 0:
        os.chown(tmp_path / "state" / "kg", 65534, 65534)
        assert _may_serve(_credentials(65534), path)


def test_a_socket_of_ours_is_spoken_to(tmp_path: Path) -> None:
    path = tmp_path / "kg.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        async def speak() -> None:
            await (await KgClient.connect(path)).close()

        asyncio.run(speak())


def test_another_users_socket_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kg.sock"
    # Root serves as nobody; anybody else serves as itself and lets the client be somebody else.
    become = "os.setuid(65534)" if os.geteuid() == 0 else ""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVE.replace("BECOME", become), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as impostor:
        assert impostor.stdout is not None
        assert impostor.stdout.readline() == b"ready\n"
        if not become:
            monkeypatch.setattr(os, "geteuid", lambda: 65534)

        async def speak() -> None:
            await KgClient.connect(path)

        with pytest.raises(KgDenied, match="not the key generator"):
            asyncio.run(speak())
        assert impostor.stdin is not None
        impostor.stdin.close()
