"""What makes a board this client: its enrolment file (SPEC.md 7.1) and its Wi-Fi. Both are secret,
and no message here says more of them than where they are and which field is wrong."""

from __future__ import annotations

import argparse
import getpass
import hashlib
import io
import ipaddress
import json
import re
import sys
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

from . import private
from .errors import BoardError, UsageError, plain
from .nvs_image import LARGEST

SUFFIX = ".sealmq.json"
"""Enrolment files are named NAME.sealmq.json."""
# 10,000 enrolments are 20 MB.
_LARGEST_ARCHIVE = 1 << 28
_LARGEST_IDENTITY = 65536


class Enrolment(NamedTuple):
    """An enrolment file, and what of it is no secret."""

    raw: bytes
    site: str  # hex
    client: int
    name: str
    host: str
    port: int

    @property
    def unreachable(self) -> str:
        """Why no real board gets to its mediator's address; "" where one may."""
        try:
            here = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            here = self.host == "localhost"
            if not here and "." not in self.host:
                return "a bare host name, which no board resolves"
        return "the board itself for a real board" if here else ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the enrolment comes from: its file, or an archive that is encrypted for us."""
    parser.add_argument(
        "--enrolment", metavar="FILE", help="the file of `sealmq client add` or `rotate`"
    )
    parser.add_argument(
        "--archive",
        metavar="FILE",
        help="in its place: what `sealmq client add --seal-to` wrote; with --identity and --client",
    )
    parser.add_argument(
        "--identity",
        metavar="FILE",
        help="age's identity, or an SSH key without a passphrase, which opens it",
    )
    parser.add_argument("--client", metavar="NAME", help="which client of the archive")


def given(args: argparse.Namespace) -> Enrolment | None:
    """The enrolment that was named; None: none was. BoardError."""
    of_archive = (args.archive, args.identity, args.client)
    if not any(of_archive):
        return load(args.enrolment) if args.enrolment else None
    if args.enrolment or not all(of_archive):
        raise UsageError(
            "an enrolment comes from one place",
            "--enrolment FILE, or --archive FILE --identity FILE --client NAME",
        )
    return of(args.archive, args.identity, args.client)


def digest(who: Enrolment) -> str:
    """Which secret it is, of which client: 32 random bytes are among what this is the digest of.

    The rest of the file, the mediator's address say, is none of it.
    """
    ps = json.loads(who.raw)["ps"]
    return hashlib.sha256(f"{who.site} {who.client} {ps}".lower().encode()).hexdigest()


def digests(who: Enrolment) -> tuple[str, str]:
    """`digest`, and what earlier versions wrote in its place: that of the whole file."""
    return digest(who), hashlib.sha256(who.raw).hexdigest()


def of(archive: str, identity: str, client: str) -> Enrolment:
    """One enrolment of an archive. BoardError."""
    found = of_archive(archive, identity)
    if client not in found:
        raise BoardError(
            f"{archive} holds no enrolment of client {client}",
            hint=f"age -d -i {identity} {archive} | tar -t",
        )
    return _of_member(found[client], client, archive)


def of_archive(archive: str, identity: str) -> dict[str, bytes]:
    """The enrolment files of an archive, by client, as they stand in it. BoardError.

    It is opened in memory, and nothing of it gets to a disk.
    """
    try:
        import pyrage
    except ImportError:
        raise BoardError(
            "sealed archives need pyrage, which is not installed",
            hint="pip install 'sealmq[factory]'",
        ) from None
    keys = _identities(pyrage, Path(identity))
    try:
        packed = pyrage.decrypt(_read(Path(archive), _LARGEST_ARCHIVE), keys)
    except pyrage.DecryptError:
        raise BoardError(
            f"{identity} does not open {archive}",
            hint="it was encrypted for another key, or it is no archive of `sealmq client add "
            "--seal-to`, or not all of it is there",
        ) from None
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as tar:
            for member in tar:
                name = member.name.removesuffix(SUFFIX)
                if name == member.name or not member.isreg() or member.size > LARGEST:
                    continue
                if (content := tar.extractfile(member)) is not None:
                    found.setdefault(name, content.read())
    except tarfile.TarError:
        raise BoardError(f"what {archive} holds is no tar file") from None
    return found


def all_of(archive: str, identity: str, names: list[str] | None) -> list[Enrolment]:
    """Those of these clients, or all, in their order. BoardError: one is not in it, or is none."""
    found = of_archive(archive, identity)
    wanted = list(found) if names is None else names
    if lacking := [name for name in wanted if name not in found]:
        raise BoardError(
            f"{archive} holds no enrolment of {len(lacking)} of {len(wanted)} clients, the first "
            f"is {lacking[0]}",
            hint="is it the archive of this CSV file?",
        )
    return [_of_member(found[name], name, archive) for name in wanted]


def _of_member(raw: bytes, client: str, archive: str) -> Enrolment:
    try:
        return parsed(raw)
    except ValueError as error:
        raise BoardError(f"{client}{SUFFIX} in {archive} is no enrolment file: {error}") from None


def _identities(pyrage: Any, path: Path) -> list[Any]:
    raw = _read(path, _LARGEST_IDENTITY)
    mode = private.others_can_read(path)
    if mode is not None:
        raise BoardError(
            f"{path} opens secrets and others can read it (mode {mode:04o})",
            hint=f"chmod 600 {path}",
        )
    try:
        if b"-----BEGIN" in raw:
            return [pyrage.ssh.Identity.from_buffer(raw)]
        lines = [line.strip() for line in raw.decode().splitlines()]
        found = [line for line in lines if line and not line.startswith("#")]
        if found:
            return [pyrage.x25519.Identity.from_str(line) for line in found]
    except (pyrage.IdentityError, UnicodeDecodeError):
        pass
    raise BoardError(
        f"{path} is no identity",
        "what age-keygen writes, or an SSH key (ed25519, RSA) without a passphrase",
    )


def load(path: str) -> Enrolment:
    """An enrolment file. BoardError: others can read it, or it is none."""
    file = Path(path)
    raw = _read(file, LARGEST)
    mode = private.others_can_read(file)
    if mode is not None:
        raise BoardError(
            f"{path} holds a secret and others can read it (mode {mode:04o})",
            hint=f"chmod 600 {path} (on a stick without modes: copy it first); if somebody has "
            "read it: sealmq client rotate",
        )
    try:
        return parsed(raw)
    except ValueError as error:
        raise BoardError(
            f"{path} is no enrolment file: {error}", hint="`sealmq client add` writes one"
        ) from None


def parsed(raw: bytes) -> Enrolment:
    """The fields of SPEC.md 7.1, checked. ValueError: one is wrong; its content is not told."""
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    _that(fields.get("sealmq") == 1, "sealmq", "1")
    _that(_hex(fields.get("site"), 4), "site", "4 bytes in hexadecimal")
    _that(_hex(fields.get("ps"), 32), "ps", "32 bytes in hexadecimal")
    _that(_number(fields.get("client"), 1 << 32), "client", "a number")
    _that(isinstance(fields.get("name", ""), str), "name", "a text")
    _that(fields.get("suite", 1) in (1, 2), "suite", "1 or 2")
    mediator = fields.get("mediator")
    if not isinstance(mediator, dict):
        raise ValueError("its member mediator is missing or no object")
    _that(_number(mediator.get("number"), 1 << 32), "mediator.number", "a number")
    host, port = mediator.get("host"), mediator.get("port")
    _that(isinstance(host, str) and bool(host), "mediator.host", "a name or an address")
    _that(_number(port, 1 << 16) and port != 0, "mediator.port", "1 to 65535")
    # One that a board holds may call itself anything.
    name = plain(fields.get("name", ""))
    return Enrolment(raw, fields["site"], fields["client"], name, str(host), int(port or 0))


def wifi(path: str) -> bytes:
    """The blob of a Wi-Fi file; `-` is stdin, `ask` asks here. BoardError: it is none."""
    if path == "ask":
        if not sys.stdin.isatty():
            raise UsageError("--wifi ask without a terminal", hint="--wifi FILE, or - for stdin")
        try:
            fields: Any = {"ssid": input("Wi-Fi name: "), "key": getpass.getpass("Wi-Fi key: ")}
        except EOFError:
            raise BoardError("no Wi-Fi was typed", hint="again, or --wifi FILE") from None
    else:
        raw = sys.stdin.buffer.read(LARGEST + 1) if path == "-" else _read(Path(path), LARGEST)
        mode = None if path == "-" else private.others_can_read(Path(path))
        if mode is not None:
            # Often a password that a whole house knows: told, not refused.
            print(
                f"sealmq board: warning: others can read {path} (mode {mode:04o})\n"
                f"hint: chmod 600 {path}",
                file=sys.stderr,
            )
        try:
            fields = json.loads(raw)
        except ValueError:
            raise BoardError(f"{path} is not JSON", '{"ssid": "...", "key": "..."}') from None
    right = '{"ssid": 1 to 32 bytes, "key": empty, or 8 to 63 characters, or 64 hexadecimal digits}'
    if not isinstance(fields, dict) or set(fields) != {"ssid", "key"}:
        raise BoardError(f"{path} is no Wi-Fi file: it has other members", right)
    ssid, key = fields["ssid"], fields["key"]
    if not is_text(ssid) or not 1 <= len(ssid.encode()) <= 32:
        raise BoardError("the Wi-Fi name (ssid) is not of 1 to 32 bytes", right)
    if not isinstance(key, str) or not _wifi_key(key):
        raise BoardError("the Wi-Fi key is none of WPA", right)
    # As it is: of a character beyond U+FFFF the board's JSON would make two others.
    return json.dumps({"ssid": ssid, "key": key}, ensure_ascii=False).encode()


def is_text(value: object) -> bool:
    """Whether it is a text, and UTF-8 has all of it."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def address(word: str) -> tuple[str, int]:
    """host:port of an operator. UsageError: it is none."""
    # Of IPv6 without brackets the last group would be the port.
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]{1,253})):([0-9]{1,5})", word)
    if not found:
        raise UsageError(f"{word[:300]!r} is no address", "host:port, of IPv6 [host]:port")
    host, port = found[1] or found[2], found[3]
    if not 0 < int(port) < 65536:
        raise UsageError(f"port {port}", "1 to 65535")
    return host, int(port)


MDNS = "mdns"
"""In place of an address: the board looks for its site by itself, where that announces itself."""


def mediator(word: str) -> str:
    """HOST:PORT as an operator gave it, or MDNS; so it lies on a board. UsageError."""
    if word == MDNS:
        return word
    host, port = address(word)
    return f"{host}:{port}"


def _wifi_key(key: str) -> bool:
    if re.fullmatch("[0-9a-fA-F]{64}", key):
        return True
    return not key or (8 <= len(key) <= 63 and key.isascii() and key.isprintable())


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise BoardError(f"{path} is longer than {most:,} bytes")
    return raw


def _that(holds: bool, field: str, right: str) -> None:
    if not holds:
        raise ValueError(f"its member {field} is missing or not {right}")


def _hex(value: object, size: int) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(f"[0-9a-fA-F]{{{2 * size}}}", value))


def _number(value: object, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end
