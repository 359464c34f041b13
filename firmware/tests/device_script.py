"""Runs small device scripts against a scripted peer, on MicroPython (both widths) and on CPython.

A script sees `c`, a client with the enrolment, and `say`, which prints. What it prints comes back
as a list of lines; a traceback fails the test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from build_mpy import PUBLIC
from peer import Peer
from peer_site import Site
from real_micropython import ROOT

EVERY = ("64", "32", "cpython")
# A board's objects have 32 bits: `make test` tries these. The other width and the oracle say the
# same as long as the device does: they are for `make test-full`. What each connection goes through
# (test_client_connect.py) and code that differs by width run on all in `make test` as well.
WIDTHS = (pytest.param("64", marks=pytest.mark.full), "32")
INTERPRETERS = (*WIDTHS, pytest.param("cpython", marks=pytest.mark.full))
ARCHS = {"64": "x64", "32": "x86"}

PRELUDE = """
import errno, sys
from sealmq_device import Client
from sealmq_spec import errors
say = print
def client(**options):
    options.setdefault("timeout", 3)
    return Client(sys.argv[1], **options)
def caught(what, *args, **kw):
    try:
        return what(*args, **kw)
    except errors.SealError as error:
        say(type(error).__name__, getattr(error, "rule", ""), getattr(error, "reason", ""))
    except OSError as error:
        say("OSError", errno.errorcode.get(error.errno or error.args[0]))
c = client()
"""


_SOURCES = ("firmware", "shared_spec")


def folders(interpreter: str, script: str = "") -> list[Path]:
    """Where an interpreter finds the device's packages: their sources, or what ships, built into
    the folder that SEALMQ_MPY names. A script that reaches into modules which applications do not
    import, or for private attributes, gets the sources: what ships has other names there."""
    built = os.environ.get("SEALMQ_MPY")
    if built and interpreter in ARCHS:
        folder = Path(built) / ARCHS[interpreter]
        reached = re.findall(r"^ *(?:from|import) (sealmq_\w+)\.(\w+)( as)?", script, re.MULTILINE)
        names = re.findall(r"^ *from (sealmq_\w+) import (\w+)$", script, re.MULTILINE)
        for package, name in names:
            if any((ROOT / root / package / f"{name}.py").exists() for root in _SOURCES):
                reached.append((package, name, ""))
        private = re.search(r"[a-z]\._[a-z]", script)
        if not private and all(
            f"{p}.{m}" in PUBLIC and any(folder.glob(f"{p}/{m}.mpy*")) and not inside
            for p, m, inside in reached
        ):
            return [folder]
    return [*(ROOT / root for root in _SOURCES), ROOT / "build" / "micropython" / "lib"]


class Board:
    """A folder with an enrolment, state and boot counter, and the peer that it talks to."""

    def __init__(self, folder: Path, peer: Peer) -> None:
        self.peer = peer
        self.enrolment = folder / "board.json"
        self.state = folder / "board.state"
        self.boot = folder / "board.boot"
        self._script = folder / "script.py"
        self.enrolment.write_text(json.dumps(peer.site.enrolment(peer.port)), encoding="utf-8")

    def run(
        self, interpreter: str, script: str, prelude: str = PRELUDE, heap: str = ""
    ) -> list[str]:
        """The lines that `script` prints. heap: MicroPython's, such as 96k."""
        self._script.write_text(prelude + script, encoding="utf-8")
        words = [str(self._script), str(self.enrolment)]
        if interpreter == "cpython":
            argv = [sys.executable, str(Path(__file__).with_name("cpython") / "run_script.py")]
        else:
            argv = [str(ROOT / "build" / "micropython" / "bin" / f"micropython{interpreter}")]
            argv += ["-X", f"heapsize={heap}"] if heap else []
        done = subprocess.run(
            [*argv, *words],
            env={
                **os.environ,
                "MICROPYPATH": ":".join(
                    (*map(str, folders(interpreter, prelude + script)), ".frozen")
                ),
            },
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.peer.settle()
        return done.stdout.splitlines()

    def provision(self) -> None:
        """Roots in place, so that the next run finds them."""
        assert self.run("64", "c.connect()\nc.disconnect()\n") == []
        self.peer.events.clear()


@contextmanager
def board(folder: Path, site: Site | None = None) -> Iterator[Board]:
    """A board and a serving peer."""
    peer = Peer(site)
    with peer.serving():
        yield Board(folder, peer)
