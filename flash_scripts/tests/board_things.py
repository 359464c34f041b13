"""What the tests of boards need: an enrolment, a client set, the command line as a program."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sealmq_board import cli

SECRET = "5ec2e7" + "ab" * 28 + "01"
WIFI_KEY = "correct horse battery"
SITE = "0a0b0c0d"


def enrolment(folder: Path, client: int = 7, other: dict[str, Any] | None = None) -> Path:
    """An enrolment file, mode 0600; `other` replaces members."""
    fields = {
        "sealmq": 1,
        "site": SITE,
        "client": client,
        "name": f"m{client}",
        "ps": SECRET[:-2] + f"{client:02x}",
        "suite": 1,
        "mediator": {"number": 1, "host": "10.1.2.3", "port": 1883},
    }
    path = folder / f"m{client}.sealmq.json"
    path.write_text(json.dumps(fields | (other or {})))
    path.chmod(0o600)
    return path


def wifi(folder: Path) -> Path:
    """A Wi-Fi file, mode 0600."""
    path = folder / "wifi.json"
    path.write_text(json.dumps({"ssid": "workshop", "key": WIFI_KEY}))
    path.chmod(0o600)
    return path


def client_sets(folder: Path) -> Path:
    """Sets as `make firmware` makes them, with little in them."""
    for place in ("everything/xtensawin", "everything/rv32imc", "x64", "x86"):
        for name, size in (
            ("sealmq_device/__init__.mpy", 24_000),
            ("sealmq_device/nvs.mpyz", 584),
            ("sealmq_device/living.mpyz", 700),
            ("sealmq_device/finding.mpyz", 1_400),
            ("sealmq_spec/__init__.mpy", 38),
        ):
            path = folder / place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes((7 * n + len(place)) % 251 for n in range(size)))
    return folder


def command(*words: str | Path, **other: Any) -> subprocess.CompletedProcess[str]:
    """`sealmq board` as a program of its own."""
    return subprocess.run(
        [sys.executable, "-m", "sealmq_board", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        **other,
    )


def built(folder: Path, client: int = 7, *more: str) -> Path:
    """A bundle for a virtual board."""
    folder.mkdir(exist_ok=True)
    sets = client_sets(folder / "sets")
    target = folder / f"m{client}.board"
    words = ["--enrolment", str(enrolment(folder, client)), "--files", str(sets), "--arch", "x64"]
    with contextlib.redirect_stdout(io.StringIO()):
        code = cli.main(["build", *words, "--topic", "a/b", "-o", str(target), *more])
    if code:
        raise RuntimeError("it was not built")
    return target


def mode(path: Path) -> int:
    """The permission bits."""
    return os.stat(path).st_mode & 0o7777
