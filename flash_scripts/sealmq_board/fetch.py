"""Firmware from a path or a URL. What comes over the network counts only with the digest that was
asked for, and gets into the cache under that name, whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import os
import re
import ssl
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

from .errors import BoardError, UsageError

LARGEST = 1 << 25
_TIMEOUT = 20.0  # seconds without a byte
_WHOLE = 600.0  # seconds for all of it
_REDIRECTS = 3
_PIECE = 1 << 16


def load(
    where: str,
    sha256: str | None,
    told: Callable[[int, int], None] = lambda done, all_: None,
    cache: Path | None = None,
    timeout: float = _TIMEOUT,
) -> bytes:
    """The firmware's bytes; `told(done, all)` while it is fetched, `all` being 0 if unknown.

    UsageError: the digest is no digest, or lacks for a URL. BoardError: it cannot be had, or is
    another one.
    """
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise UsageError("--sha256 is no SHA-256", "64 hexadecimal digits")
    want = sha256.lower() if sha256 else ""
    if "://" not in where:
        raw = _from_disk(Path(where))
        if want and _digest(raw) != want:
            raise _another(where, raw, want)
        return raw
    if not want:
        raise UsageError(
            "--firmware with a URL needs --sha256",
            hint="take the digest from a source other than that server; a file needs none",
        )
    kept = (cache or _cache()) / f"{want}.bin"
    if kept.is_file():
        raw = _from_disk(kept)
        if _digest(raw) == want:
            return raw
        kept.unlink()
    raw = _from_network(where, told, timeout)
    if _digest(raw) != want:
        raise _another(where, raw, want)
    _keep(kept, raw)
    return raw


def _from_disk(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise BoardError(f"{path} is longer than {LARGEST:,} bytes", "a firmware .bin")
    return raw


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sealmq" / "firmware"


def _keep(path: Path, raw: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, draft = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(fd)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _from_network(url: str, told: Callable[[int, int], None], timeout: float) -> bytes:
    end = time.monotonic() + max(_WHOLE, timeout)
    try:
        for _ in range(_REDIRECTS + 1):
            parts = _allowed(url)
            link = _connection(parts, timeout)
            try:
                target = parts.path or "/"
                link.request("GET", f"{target}?{parts.query}" if parts.query else target)
                answer = link.getresponse()
                if answer.status not in (301, 302, 303, 307, 308):
                    return _body(answer, url, told, end)
                url = urllib.parse.urljoin(url, answer.getheader("Location", ""))
            finally:
                link.close()
    except TimeoutError:
        raise BoardError(f"{url} stopped answering", hint="try again") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise BoardError(
            f"{url} cannot be fetched: {reason}",
            hint="try again, or fetch it with a browser and give its path",
        ) from None
    raise BoardError(f"{url} redirects more than {_REDIRECTS} times")


# Also each address that a redirect names. The digest decides; https keeps what is fetched private.
def _allowed(url: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise UsageError(f"{url!r} is no URL") from None
    if parts.scheme == "https" and host:
        return parts
    if parts.scheme == "http" and _loopback(host):
        return parts
    raise BoardError(f"{url} is not fetched", "https://..., or a path")


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _connection(parts: urllib.parse.SplitResult, timeout: float) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=timeout)


def _body(
    answer: http.client.HTTPResponse, url: str, told: Callable[[int, int], None], end: float
) -> bytes:
    if answer.status != 200:
        raise BoardError(f"{url}: {answer.status} {answer.reason}", hint="check the address")
    size = answer.length or 0
    if size > LARGEST:
        raise BoardError(f"{url} has {size:,} bytes", f"at most {LARGEST:,}")
    raw = bytearray()
    while piece := answer.read1(_PIECE):
        raw += piece
        if len(raw) > LARGEST:
            raise BoardError(f"{url} has more than {LARGEST:,} bytes")
        if time.monotonic() > end:
            raise BoardError(f"{url} is too slow", hint="fetch it otherwise and give its path")
        told(len(raw), size)
    if size and len(raw) < size:
        raise BoardError(f"{url} ended after {len(raw):,} of {size:,} bytes", hint="try again")
    return bytes(raw)


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _another(where: str, raw: bytes, want: str) -> BoardError:
    return BoardError(
        f"{where} is not what was asked for: its SHA-256 is {_digest(raw)}, not {want}",
        hint="it was damaged or replaced, or the digest is of another version; nothing was written",
    )
