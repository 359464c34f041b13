"""What must not happen beside the messages: leaks, tracebacks, secrets in what is written."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sealmq_spec.identity import Identity

FDS = 64
RSS_BYTES = 96 << 20
# A task of the mediator that failed is logged in one line, and so is a record that is none.
_BROKEN = re.compile(
    rb"Traceback \(most recent call last\)|internal error|audit record .*:|^.* failed: \w+\(", re.M
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment."""

    fds: int
    rss: int


def sample(pid: int) -> Sample | None:
    """None when the process has ended."""
    try:
        fds = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return None
    return Sample(fds, pages * 4096)


@dataclass(slots=True)
class Leaks:
    """The same process, at rest, over the rounds. The first sample of each is its measure."""

    first: dict[int, tuple[str, Sample]] = field(default_factory=dict)
    last: dict[int, Sample] = field(default_factory=dict)

    def look(self, pids: dict[str, int]) -> None:
        """Between two rounds."""
        for role, pid in pids.items():
            now = sample(pid)
            if now is not None:
                self.first.setdefault(pid, (role, now))
                self.last[pid] = now

    def grown(self) -> list[str]:
        """Who holds much more than at first."""
        told = []
        for pid, (role, was) in self.first.items():
            now = self.last[pid]
            if now.fds - was.fds > FDS:
                told.append(f"leak: {role} ({pid}) went from {was.fds} to {now.fds} descriptors")
            if now.rss - was.rss > RSS_BYTES:
                told.append(f"leak: {role} ({pid}) went from {was.rss} to {now.rss} bytes")
        return told


def tracebacks(files: Iterable[Path]) -> list[str]:
    """Where a program fell over its own feet, with the lines around."""
    told = []
    for file in files:
        data = file.read_bytes() if file.exists() else b""
        for found in _BROKEN.finditer(data):
            text = data[found.start() : found.start() + 3000].decode(errors="replace")
            told.append(f"log: {file.name}: {text}")
    return told[:5]


def secrets(key: Path, clients: Path, marker: str) -> dict[str, bytes]:
    """Name -> what must not be written anywhere: the site's key, clients' keys, plaintext."""
    found = {"the site's key": key.read_bytes().strip(), "plaintext": marker.encode()}
    for file in clients.glob("*/sealmq.json"):
        ident = Identity.from_enrolment(json.loads(file.read_text()))
        name = file.parent.name
        found[f"ps of {name}"] = ident.ps
        state = file.with_suffix(".state")
        if state.exists() and ident.load(bytes.fromhex(json.loads(state.read_text())["identity"])):
            if ident.own is not None:
                found[f"R of {name}"], found[f"R-bar of {name}"] = ident.own.r, ident.own.r_bar
            found[f"link root of {name}"] = ident.km
    return {name: value for name, value in found.items() if len(value) >= 16}


def leaked(files: Iterable[Path], wanted: dict[str, bytes]) -> list[str]:
    """Secrets that stand in a file, in whatever spelling."""
    told = []
    for file in files:
        data = file.read_bytes()
        for name, value in wanted.items():
            if any(form in data for form in spellings(value)):
                told.append(f"secret: {name} stands in {file.name}")
    return told


def spellings(secret: bytes) -> set[bytes]:
    """Raw, hex, base64 at each alignment and in both alphabets, and as Python shows bytes."""
    forms = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    forms.add(repr(secret)[2:-1].encode())
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + secret)
        middle = text[(0, 2, 3)[shift] : len(text) - 4]
        forms |= {middle, middle.replace(b"+", b"-").replace(b"/", b"_")}
    return forms
