"""Where a broker is, and as whom a mediator speaks to it.

Its address comes from `--broker` or from [broker] in sealmq.toml; its password from a file, or in
an emergency from the URL, where others can see it; TLS keys and certificates from files.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from .errors import BadAddress
from .tls import Files

_PORTS = {"mqtt": 1883, "mqtts": 8883}
_MOST_PASSWORD = 4096
_SHAPE = "embedded, mosquitto, or mqtt[s]://[USER[:PASSWORD]@]HOST[:PORT]"


@dataclass(frozen=True, slots=True)
class Target:
    """A broker and the mediators' credentials there.

    tls: None for none. unix: its socket, in place of host and port.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Files | None = None
    unix: Path | None = None

    @classmethod
    def at_socket(cls, path: Path, user: str | None = None, password: str | None = None) -> Target:
        """A broker that listens on a Unix socket."""
        return cls("localhost", 0, user, password, unix=path)

    @property
    def address(self) -> str:
        """host:port, or the socket's path; without credentials."""
        if self.unix is not None:
            return str(self.unix)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def exposed(self) -> bool:
        """Whether the password and all that passes cross a network without TLS."""
        if self.tls is not None or self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True

    def context(self) -> ssl.SSLContext | None:
        """What TLS to it is made with; BadAddress when the files are not good for it."""
        return None if self.tls is None else self.tls.context()

    def handed_over(self) -> dict[str, str | int | None]:
        """The `broker` part of what the mediator is handed over."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            **({} if self.unix is None else {"unix": str(self.unix)}),
        }


def parse(
    url: str,
    user: str | None = None,
    password_file: Path | None = None,
    tls: Files | None = None,
) -> Target:
    """The broker that the URL names; what it does not say comes from the other values."""
    parts, host, port = split(url)
    if parts.scheme == "mqtts" and tls is None:
        raise BadAddress(
            "mqtts:// without certificates: the mediator has to show one of its own",
            "[broker] ca, cert and key in sealmq.toml; `sealmq broker config` makes them",
        )
    user = unquote(parts.username) if parts.username else user
    password = unquote(parts.password) if parts.password else None
    if password_file is not None:
        if password is not None:
            raise BadAddress("the password stands in the URL and in a file", "take one of them out")
        password = read_password(password_file)
    if password is not None and user is None:
        raise BadAddress("a password without a user name [MQTT-3.1.2-22]", _SHAPE)
    secure = tls if parts.scheme == "mqtts" else None
    return Target(host, port, user, password, secure)


def split(url: str, shape: str = _SHAPE) -> tuple[SplitResult, str, int]:
    """A broker's URL in its parts, and host and port. BadAddress, with the shape as its hint."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadAddress("the broker's URL is malformed", shape) from None
    if parts.scheme not in _PORTS or not host or parts.path not in ("", "/"):
        raise BadAddress("the broker's URL is not one of ours", shape)
    if parts.query or parts.fragment or port == 0:
        raise BadAddress("the broker's URL says more than an address", shape)
    return parts, host, port or _PORTS[parts.scheme]


def names_password(url: str) -> bool:
    """Whether the URL itself holds a password, which whoever lists processes then sees."""
    try:
        return bool(urlsplit(url).password)
    except ValueError:
        return False


def read_password(path: Path) -> str:
    """The password in a file that only its owner reads, without one trailing line end."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise BadAddress(
            f"the broker's password file {path} cannot be read: {error.strerror}"
        ) from None
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise BadAddress(f"the broker's password file {path} is no regular file")
    with os.fdopen(fd, "rb") as file:
        if mode & 0o077:
            raise BadAddress(
                f"the broker's password file {path} can be read by others "
                f"(mode {mode & 0o777:04o})",
                f"chmod 600 {path}",
            )
        raw = file.read(_MOST_PASSWORD + 1)
    try:
        password = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        password = ""
    if not password or len(raw) > _MOST_PASSWORD or "\n" in password or "\0" in password:
        raise BadAddress(f"the broker's password file {path} does not hold one line of text")
    return password
