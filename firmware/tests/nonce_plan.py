"""Lives of boards for the tests of the nonce plan: each is one process of MicroPython, from power
on to power off, that keeps a record of what it seals (nonce_device.py).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from peer import Peer
from peer_connection import Connection
from real_micropython import ROOT
from sealmq_spec import const
from sealmq_spec.envelope import nonce_link, nonce_m1, tail_m1, tail_m2
from sealmq_spec.keys import inner_key, link_key

FOLDERS = (ROOT / "firmware", ROOT / "shared_spec", ROOT / "build" / "micropython" / "lib")
FILES = ("board.json", "board.state", "board.boot")
# All that a board seals: publishes of both QoS, retained, a will, tokens, control packets, proofs.
BUSY = (
    "connect", "publish", "retain", "subscribe", "command", "ask", "disconnect",
    "will", "connect", "publish", "unsubscribe", "resend",
)  # fmt: skip
CUT_SHORT = 9  # the exit status of a life; each ends like that


def twice(lines: Iterable[str]) -> list[str]:
    """(key, nonce) pairs under which different things were sealed."""
    under: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        which, what = line.split()
        under[which].add(what)
    return [which for which, sealed in under.items() if len(sealed) > 1]


def heard(c: Connection, topic: bytes, flags: int, payload: bytes, m1: bytes) -> list[str]:
    """Lines of a record about a PUBLISH that came in, as its publisher would have written them."""
    s = c.site
    own = s.epochs[int.from_bytes(m1[2:5], "big")]
    km = s.km[c.gen]
    outer = link_key(s.id, const.USE_PUBLISH, s.suite, s.mediator, c.boot, c.salt, km)
    inner = inner_key(s.id, own.suite, s.client, c.boot, c.salt, own.r_bar)
    tail = tail_m2(s.id, s.client, s.mediator, flags, topic)
    return [
        _line(outer + nonce_link(c.salt, payload), payload[9:] + payload[:9] + tail),
        _line(inner + nonce_m1(m1, 0), m1[27:] + m1[:27] + tail_m1(s.id, own.label, topic)),
    ]


def _line(which: bytes, what: bytes) -> str:
    return f"{sha256(which).hexdigest()[:32]} {sha256(what).hexdigest()[:32]}"


@dataclass
class Life:
    """A process that was started, and what it says at its end; empty when its power was cut."""

    process: subprocess.Popen[str]
    word: str

    def end(self) -> dict[str, Any]:
        """Waits for it. A traceback, or another end than that of power, fails the test."""
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == CUT_SHORT, f"{self.word}: {out}{err}"
        said: dict[str, Any] = json.loads(out) if out else {}
        return said


class Boards:
    """Boards of one client, their flash, and the record that all of them share."""

    def __init__(self, peer: Peer, folder: Path, bits: int) -> None:
        self.peer = peer
        self.bits = bits
        self.folder = folder
        self.record = folder / "record"
        self.flash = folder / "flash"
        self.flash.mkdir()
        self.enrolment = self.flash / FILES[0]
        self.enrolment.write_text(json.dumps(peer.site.enrolment(peer.port)), encoding="utf-8")
        self.lives = 0
        self.heard: list[str] = []

    def start(
        self,
        *acts: str,
        files: Path | None = None,
        script: str = "nonce_device.py",
        **hardware: Any,
    ) -> Life:
        """Power on; files: another folder than the board's own."""
        self.lives += 1
        told = {
            "enrolment": str((files or self.flash) / FILES[0]),
            "record": str(self.record),
            "word": f"life {self.lives} ",
            "acts": acts or BUSY,
            **hardware,
        }
        program = ROOT / "build" / "micropython" / "bin" / f"micropython{self.bits}"
        paper = self.folder / f"life{self.lives}.json"
        paper.write_text(json.dumps(told))
        process = subprocess.Popen(
            [program, "-X", "heapsize=2M", Path(__file__).with_name(script), paper],
            env={**os.environ, "MICROPYPATH": ":".join((*map(str, FOLDERS), ".frozen"))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return Life(process, told["word"])

    def live(self, *acts: str, **hardware: Any) -> dict[str, Any]:
        """One whole life; what it says."""
        said = self.start(*acts, **hardware).end()
        self.peer.settle()
        return said

    def copy(self, name: str) -> Path:
        """The flash as it is now."""
        to = self.folder / name
        shutil.copytree(self.flash, to)
        return to

    def put_back(self, copy: Path) -> None:
        """The flash as it was."""
        shutil.rmtree(self.flash)
        shutil.copytree(copy, self.flash)

    def sealed(self) -> list[str]:
        """The record's lines, and those of what was listened to."""
        own = self.record.read_text().splitlines() if self.record.exists() else []
        return own + self.heard

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        """Keeps a record of all messages that come in, too."""
        unseal = Connection.unseal

        def unsealed(
            c: Connection, topic: bytes, flags: int, payload: bytes
        ) -> tuple[int, bytes, bytes]:
            found = unseal(c, topic, flags, payload)
            self.heard += heard(c, topic, flags, payload, found[1])
            return found

        patch.setattr(Connection, "unseal", unsealed)

    def judge(self, what: str, least: int) -> None:
        """No (key, nonce) twice, in at least so many seals; the counts are printed."""
        lines = self.sealed()
        pairs = len({line.split()[0] for line in lines})
        print(f"{what}, {self.bits} bit: {self.lives} lives, {len(lines)} seals, {pairs} pairs")
        assert len(lines) >= least
        assert twice(lines) == []


@contextmanager
def boards(folder: Path, bits: int) -> Iterator[Boards]:
    """Boards and the peer that they talk to."""
    peer = Peer()
    with peer.serving():
        yield Boards(peer, folder, bits)
