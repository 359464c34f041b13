"""What is on a board that runs MicroPython, as on_board/look.py tells it; no secret is among it."""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

from .errors import BoardError
from .firmware import OLDEST, PICO
from .mpremote_run import Answer, Copy, Run, first, work
from .ports import Port

# sys.implementation._mpy: the version of .mpy files, their native code's, and its architecture.
_MPY_VERSION = 6
_MPY_NATIVE = 3
_ARCHS = {1: "x86", 2: "x64", 4: "armv6m", 10: "xtensawin", 11: "rv32imc"}
# Cortex-M of a later kind runs what an RP2040's runs.
_ARCHS |= dict.fromkeys(range(5, 9), "armv6m")
_RP2040 = 4
# Before it, MicroPython's own compiler for this processor makes no long jumps, which code of the
# client's size takes.
_RP2040_OLDEST = (1, 26)


class OnIt(NamedTuple):
    """A board that was looked at."""

    name: str
    about: Answer
    free: int
    slots: Answer  # as sealmq_slots.read(); {} where there are none
    versions: dict[str, str]  # slot: version
    slot: str  # in use since the last start; "" where nobody knows
    trying: bool
    nvs: Answer
    app: dict[str, Any] | None  # app.json; None where there is none
    programs: dict[str, str]  # of boot.py and main.py: "ours", "own", "foreign", "" for none
    files: dict[str, str]  # path: SHA-256; of ours, when they were asked for

    @property
    def client(self) -> dict[str, Any]:
        """Number, name and site; {} for none."""
        return self.nvs.get("enrolment") or {}

    @property
    def called(self) -> str:
        """The client's name, for a message."""
        return str(self.client.get("name") or f"client {self.client.get('client')}")

    @property
    def _anew(self) -> str:
        """How this board gets another MicroPython."""
        return PICO if self.about.get("platform") == "rp2" else "sealmq board flash"

    @property
    def arch(self) -> str:
        """Of native code. BoardError: none that the client's files are made for."""
        mpy = int(self.about.get("mpy") or 0)
        version, native, number = mpy & 0xFF, mpy >> 8 & 3, mpy >> 10 & 0x0F
        version_there = self.about.get("version", "?")
        if version != _MPY_VERSION or (number and native != _MPY_NATIVE):
            raise BoardError(
                f"{self.name}: MicroPython {version_there} does not take our .mpy files "
                f"(version {version}.{native}, not {_MPY_VERSION}.{_MPY_NATIVE})",
                hint=f"MicroPython 1.24 to 1.29: {self._anew}",
            )
        if number not in _ARCHS:
            raise BoardError(
                f"{self.name}: no client for its native code (architecture {number})",
                "ESP32, S2, S3, C3, C6 or Pico W",
            )
        release = tuple(int(n) for n in re.findall(r"\d+", str(version_there))[:2])
        oldest = _RP2040_OLDEST if number == _RP2040 else OLDEST
        if release < oldest:
            chip = " on an RP2040" if number == _RP2040 else ""
            raise BoardError(
                f"{self.name}: MicroPython {version_there}{chip}",
                f"{oldest[0]}.{oldest[1]} or later",
                hint=self._anew,
            )
        return _ARCHS[number]


def look(port: Port, digests: bool = False) -> OnIt:
    """Ask the board; stops its program. BoardError."""
    answers = work(port, [Run("look", {"digests": digests})])
    about = first(answers, "machine")
    if not about:
        raise BoardError(f"{port.name}: the board does not say what it is")
    there = first(answers, "slots")
    app = first(answers, "app").get("app")
    return OnIt(
        name=port.name,
        about=about,
        free=int(first(answers, "free").get("free", 0)),
        slots=there.get("slots", {}),
        versions=there.get("versions", {}),
        slot=str(there.get("slot", "")),
        trying=bool(there.get("trying")),
        nvs=first(answers, "enrolled"),
        app=app if isinstance(app, dict) else None,
        programs=dict(first(answers, "programs").get("programs", {})),
        files={a["file"]: a["sha256"] for a in answers if "file" in a},
    )


def sha256(raw: bytes) -> str:
    """In hexadecimal, as the board tells it."""
    return hashlib.sha256(raw).hexdigest()


def missing(there: OnIt, files: dict[str, bytes]) -> dict[str, bytes]:
    """Those that the board does not have as they are."""
    return {p: raw for p, raw in files.items() if there.files.get(p) != sha256(raw)}


def beside(files: dict[str, bytes]) -> list[Run | Copy]:
    """Steps that put files into the root folder, each whole or not at all."""
    if not files:
        return []
    digests = [(path, sha256(raw)) for path, raw in files.items()]
    return [
        Copy({f"{path}.new": raw for path, raw in files.items()}),
        Run("rename", {"files": digests}),
    ]


def into_slot(
    there: OnIt, name: str, files: dict[str, bytes], manifest: bytes, tries: int, wait: int
) -> list[Run | Copy]:
    """Steps that put a client into a slot: first it is no longer complete, last it is again.

    `tries` 0: it is in use from the next start on; else on trial for so many starts of `wait` s.
    """
    absolute = {f"/sealmq/{name}/{path}": raw for path, raw in files.items()}
    keep = sorted(files)
    copies = missing(there, absolute)
    return [
        # The slot that is not active is named by the board itself, which withdraws it.
        Run("place", {"slot": "" if tries else name, "keep": keep}),
        *([Copy(copies)] if copies else []),
        Run("finish", {"slot": name, "manifest": manifest, "tries": tries, "wait": wait}),
    ]
