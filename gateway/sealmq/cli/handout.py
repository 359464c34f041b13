"""In which form enrolments leave the gateway: a file each (SPEC.md 7.1), a QR code each, or all in
one archive that only the factory opens. None of them is ever shown on a screen.
"""

from __future__ import annotations

import importlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .enrolment import ROOM
from .errors import OperatorError, UsageError

Enrolment = dict[str, Any]

# A code of 400 bytes at any error correction, as SVG or PNG.
_CODE_ROOM = 65536
# What a member has in the archive beside its text, and the archive beside its members.
_MEMBER, _ARCHIVE = 1024, 65536
_RECIPIENTS = 65536
_EXTRA = "pip install 'sealmq[factory]'"


class Form(NamedTuple):
    """How enrolments are written. `files`: their contents, a file each, or one for all of them."""

    suffix: str
    one_for_all: bool
    files: Callable[[Sequence[Enrolment]], list[bytes]]
    room: Callable[[int], int]


def as_file(enrolment: Enrolment) -> bytes:
    """An enrolment file."""
    return json.dumps(enrolment, indent=1).encode() + b"\n"


FILES = Form(".sealmq.json", False, lambda all_: [as_file(one) for one in all_], lambda _: ROOM)


def codes(suffix: str) -> Form:
    """QR codes of what stands in an enrolment file, without its spaces. suffix: .svg or .png"""
    segno = _library("segno", "QR codes")

    def code(enrolment: Enrolment) -> bytes:
        text = json.dumps(enrolment, separators=(",", ":"))
        drawn, out = segno.make_qr(text, error="m"), io.BytesIO()
        drawn.save(out, kind=suffix[1:], scale=4)
        return out.getvalue()

    return Form(suffix, False, lambda all_: [code(one) for one in all_], lambda _: _CODE_ROOM)


def archive(recipients: Sequence[str]) -> Form:
    """One tar file of all enrolment files, encrypted with age (age-encryption.org) for these
    recipients: keys, or files that hold one in each line. UsageError: one is none.
    """
    pyrage = _library("pyrage", "sealed archives")
    keys = [_key(pyrage, text) for one in recipients for text in _listed(one)]

    def sealed(all_: Sequence[Enrolment]) -> list[bytes]:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for enrolment in all_:
                data = as_file(enrolment)
                member = tarfile.TarInfo(f"{enrolment['name']}{FILES.suffix}")
                member.size, member.mode, member.mtime = len(data), 0o600, int(time.time())
                tar.addfile(member, io.BytesIO(data))
        return [pyrage.encrypt(packed.getvalue(), keys)]

    return Form(".tar.age", True, sealed, lambda count: _ARCHIVE + count * (_MEMBER + ROOM // 4))


def _listed(recipient: str) -> list[str]:
    if recipient.startswith(("age1", "ssh-")):
        return [recipient]
    path = Path(recipient)
    try:
        with path.open(encoding="utf-8") as file:
            lines = [line.strip() for line in file.read(_RECIPIENTS).splitlines()]
    except UnicodeDecodeError:
        raise UsageError(f"--seal-to {recipient}: not UTF-8", _KEYS) from None
    except OSError as error:
        raise UsageError(f"--seal-to {recipient}: {error.strerror}", _KEYS) from None
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise UsageError(f"--seal-to {recipient}: no key stands in it", _KEYS)
    return found


def _key(pyrage: Any, text: str) -> Any:
    if text.startswith("AGE-SECRET-KEY-"):
        raise UsageError("--seal-to: a secret key", "the public one, age1...: age-keygen -y FILE")
    kind = pyrage.ssh if text.startswith("ssh-") else pyrage.x25519
    try:
        return kind.Recipient.from_str(text)
    except pyrage.RecipientError:
        raise UsageError(f"--seal-to: {text[:40]!r} is no key of a recipient", _KEYS) from None


_KEYS = "age1... (age-keygen makes one), ssh-ed25519 ..., or a file with one in each line"


def _library(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise OperatorError(f"{what} need {name}, which is not installed", hint=_EXTRA) from None
