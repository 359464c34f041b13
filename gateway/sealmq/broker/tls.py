"""The mediator's side of mutual TLS with a broker: three files, which the supervisor checks.

The key's file is for its owner only. A mediator of another user gets what is in the files through
descriptors (run/chosen.py); it opens no file of somebody else's. What reads certificates is loaded
when there is one: it takes a tenth of a second, and most sites have none.
"""

from __future__ import annotations

import os
import ssl
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import BadAddress

if TYPE_CHECKING:
    from cryptography import x509

WARN = timedelta(days=30)
_MOST = 64 * 1024
_AGAIN = "`sealmq broker config mosquitto SITE --out DIR` makes a set of them"


@dataclass(frozen=True, slots=True)
class Files:
    """The CA that the broker's certificate is of, and the mediator's certificate and key. PEM."""

    ca: Path
    cert: Path
    key: Path

    def read(self) -> dict[str, bytes]:
        """What is in them; BadAddress when they do not fit together or are not for us alone."""
        found = {
            "ca": _read(self.ca),
            "cert": _read(self.cert),
            "key": _read(self.key, secret=True),
        }
        _match(self, found)
        return found

    def context(self) -> ssl.SSLContext:
        """For a connection: the broker shows a certificate of the CA for its host, and we ours."""
        self.read()
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
            context.load_cert_chain(self.cert, self.key, password="")
        except (OSError, ValueError) as error:
            raise BadAddress(f"{self.cert}: not good for TLS: {error}", _AGAIN) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def ends(self, now: datetime | None = None) -> list[str]:
        """What ends within 30 days, or has ended, in words."""
        now = datetime.now(UTC) if now is None else now
        said = []
        for path in (self.ca, self.cert):
            end = _certificate(path, _read(path)).not_valid_after_utc
            if end <= now:
                said.append(f"{path} has ended on {end:%Y-%m-%d}")
            elif end - now < WARN:
                said.append(f"{path} ends on {end:%Y-%m-%d}")
        return said


def _read(path: Path, *, secret: bool = False) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise BadAddress(f"{path} cannot be read: {error.strerror}", _AGAIN) from None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise BadAddress(f"{path} is no regular file", _AGAIN)
    with os.fdopen(fd, "rb") as file:
        if secret and found.st_mode & 0o077:
            raise BadAddress(
                f"{path} can be read by others (mode {found.st_mode & 0o777:04o})",
                f"chmod 600 {path}",
            )
        if secret and found.st_uid not in (0, os.geteuid()):
            raise BadAddress(
                f"{path} belongs to user {found.st_uid}, who can read the mediator's key",
                f"chown root {path}",
            )
        return file.read(_MOST)


def _certificate(path: Path, pem: bytes) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise BadAddress(f"{path} holds no certificate in PEM", _AGAIN) from None


def _match(files: Files, found: dict[str, bytes]) -> None:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
    )

    ca, cert = _certificate(files.ca, found["ca"]), _certificate(files.cert, found["cert"])
    try:
        key = load_pem_private_key(found["key"], None)
    except (ValueError, TypeError):
        raise BadAddress(f"{files.key} holds no unencrypted key in PEM", _AGAIN) from None
    whole = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(*whole) != cert.public_key().public_bytes(*whole):
        raise BadAddress(f"{files.key} is not the key of {files.cert}", _AGAIN)
    now = datetime.now(UTC)
    for path, one in ((files.ca, ca), (files.cert, cert)):
        if one.not_valid_after_utc <= now:
            raise BadAddress(
                f"{path} has ended on {one.not_valid_after_utc:%Y-%m-%d}",
                "make a new set with `sealmq broker config`, into another folder",
            )
