"""A running board is told what to do and says how it stands: `sealmq vboard ctl` and `report`."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest

from sealmq_vboard.cli import main
from sealmq_vboard.limits import NOT_MODELLED
from sealmq_vboard.stubs import missing
from vboard_mp import booted
from vboard_tools import until


def test_ctl_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Longer than a socket's path may be.
    folder = tmp_path / ("long" * 30) / "board"
    write = "with open('f', 'w') as f:\n    f.write('x' * 3000)"
    with booted(folder, 64, {"/main.py": ""}) as line:
        line.until(b">>> ")
        assert stat.S_IMODE((folder / "control.sock").stat().st_mode) == 0o600

        def ctl(*words: str) -> str:
            assert main(["ctl", str(folder), *words]) == 0
            return capsys.readouterr().out

        def status() -> dict[str, object]:
            found: dict[str, object] = json.loads(ctl("status", "--json"))
            return found

        assert status()["mode"] == "run"
        ctl("wifi", "off")
        ctl("clock", "+100", "--ppm", "-40")
        assert "Wi-Fi off, clock -40 ppm" in ctl("status")
        ctl("fault", "700", "stuck")
        assert status()["flash"]["faults"] == {"700": "stuck"}  # type: ignore[index]
        ctl("fault", "700", "none")
        ctl("cut", "--after", "5")
        ctl("cut", "--off")
        ctl("cut", "--after", "2", "--inside", "--seed", "7")
        assert "cut is armed, after 2 more writes" in ctl("status")
        line.raw()
        line.begin(write)
        until(lambda: status()["mode"] == "off")
        ctl("power", "on")
        line.until(b">>> ")
        ctl("reset")
        line.until(b">>> ")
        ctl("power", "off")
        ctl("power", "on")
        line.until(b">>> ")
        assert main(["report", str(folder)]) == 0
        told = capsys.readouterr().out
        assert "power cut: program by the program, vfs at 0x" in told
        assert " bytes done\n" in told
        assert all(text in told for text in NOT_MODELLED)
        assert all(name in told for names in missing().values() for name in names)
        ctl("download", "on")
        line.until(b"waiting for download")
        # Rubbish is answered, and hurts nobody.
        with socket.socket(socket.AF_UNIX) as client:
            fd = os.open(folder, os.O_RDONLY)
            client.connect(f"/proc/self/fd/{fd}/control.sock")
            for request in (b"rubbish\n", b"[1]\n", b'{"do": "fly"}\n', b'{"do": "cut"}\n'):
                client.sendall(request)
                assert json.loads(client.recv(4096))["ok"] is False
            os.close(fd)
        assert main(["ctl", str(folder), "cut"]) == 2
        assert "cut needs --after N, or --off" in capsys.readouterr().err
    assert main(["ctl", str(folder), "reset"]) == 1
    assert "is no running board\nhint: sealmq vboard run" in capsys.readouterr().err
    assert main(["report", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] is None
    assert found["missing"] == missing()
