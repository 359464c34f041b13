"""An external broker: where it is, as whom a mediator speaks to it, and whether it lets it in.

Any MQTT 3.1.1 broker, unmodified. Its address comes from `--broker` or from [broker] in
sealmq.toml; its password from a file, or in an emergency from the URL, where others can see it.
"""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sealmq.mqtt import Connack, Decoder, MqttError, build

from .credentials import PROBE_PREFIX
from .errors import BadAddress, BrokerError, Refused, Unreachable

DEFAULT_PORT = 1883
PROBE_S = 5.0
_MOST_PASSWORD = 4096
_SHAPE = "mqtt://[USER[:PASSWORD]@]HOST[:PORT]"

# MQTT 3.1.1 section 3.2.2.3.
_CODES = {
    1: "it does not speak MQTT 3.1.1",
    2: "it does not take our client id",
    3: "it is not available",
    4: "user name or password are wrong",
    5: "not authorised",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A broker and the mediators' credentials there."""

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """host:port, without credentials."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def handed_over(self) -> dict[str, str | int | None]:
        """The `broker` part of what the mediator is handed over."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
        }


def parse(url: str, user: str | None = None, password_file: Path | None = None) -> Target:
    """The broker that the URL names; what it does not say comes from `user` and the file."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadAddress("the broker's URL is malformed", _SHAPE) from None
    if parts.scheme == "mqtts":
        raise BadAddress(
            "mqtts: mediators do not speak TLS to a broker yet",
            "mqtt:// to a broker on this host, or through a tunnel to another one",
        )
    if parts.scheme != "mqtt" or not host or parts.path not in ("", "/"):
        raise BadAddress("the broker's URL is not one of ours", _SHAPE)
    if parts.query or parts.fragment or port == 0:
        raise BadAddress("the broker's URL says more than an address", _SHAPE)
    user = unquote(parts.username) if parts.username else user
    password = unquote(parts.password) if parts.password else None
    if password_file is not None:
        if password is not None:
            raise BadAddress("the password stands in the URL and in a file", "take one of them out")
        password = read_password(password_file)
    if password is not None and user is None:
        raise BadAddress("a password without a user name [MQTT-3.1.2-22]", _SHAPE)
    return Target(host, port or DEFAULT_PORT, user, password)


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


async def connack(target: Target, timeout_s: float = PROBE_S) -> int:
    """Connect as a mediator would, and leave: CONNACK's code. Unreachable when there is none."""
    who = f"broker {target.address}"
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(target.host, target.port)
            password = target.password.encode() if target.password is not None else None
            writer.write(
                build.connect(
                    PROBE_PREFIX + os.urandom(4).hex(),
                    username=target.user,
                    password=password,
                )
            )
            decoder = Decoder(16384, "client")
            while chunk := await reader.read(4096):
                for packet in decoder.feed(chunk):
                    if isinstance(packet, Connack):
                        writer.write(build.disconnect())
                        return packet.code
            raise Unreachable(f"{who} closed the connection without a CONNACK")
    except TimeoutError:
        raise Unreachable(f"{who} does not answer within {timeout_s:g} s") from None
    except OSError as error:
        # asyncio puts words of its own in place of the system's.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise Unreachable(f"{who}: {reason}", "is it running, and is the address right?") from None
    except MqttError as error:
        raise Unreachable(f"{who} does not speak MQTT: {error}") from None
    finally:
        if writer is not None:
            writer.close()


async def admitted(target: Target, timeout_s: float = PROBE_S) -> None:
    """Return when the broker lets this mediator in; Unreachable or Refused otherwise."""
    code = await connack(target, timeout_s)
    if code:
        reason = _CODES.get(code, "a code that MQTT does not know")
        raise Refused(
            f"broker {target.address} refuses the mediator: CONNACK {code}, {reason}",
            code,
            "check user and password file" if code in (4, 5) else None,
        )


async def lets_anybody_in(target: Target) -> bool:
    """Whether a client without credentials gets in as well."""
    try:
        return await connack(Target(target.host, target.port)) == 0
    except BrokerError:
        return False
