"""A private Mosquitto: which program it is, and every line that it is configured with.

It serves one site's mediators on a Unix socket and nobody else (SPEC.md 1.1). What it is told is
generated at each start; nothing is left to a default of its own that decides anything.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sealmq.site.model import Limits

from .credentials import PROBE_PREFIX, Credentials
from .errors import BrokerError

# 1.x knows neither $7$ password hashes nor acknowledges in the order that MQTT asks for.
OLDEST = (2, 0)
# Where the number of messages under way has no limit, it ends whoever publishes the first of QoS 1.
_NOT = "2.1.0"
# How often it writes its state down, in seconds; what it acknowledged since is lost with it.
AUTOSAVE_S = 5
# No limit. With one, 2.0.11 acknowledges what comes at QoS 2 beyond it and loses it without a word,
# and cuts a snapshot of retained messages at the queue's limits: those are for who is away.
IN_FLIGHT = 0
SESSION = "7d"
# Without warnings: since 2.1.1 it warns of each message of QoS 1 and 2 where IN_FLIGHT is 0.
LOGGED = ("log_type error", "log_type notice")
# Of a TCP listener; on a Unix socket it warns at each connection that it cannot.
NO_DELAY = "set_tcp_nodelay true"

CONFIG, PASSWORDS, ACL, SAVED = "mosquitto.conf", "passwords", "acl", "mosquitto.db"
# Debian has it in /usr/sbin, which is not on everybody's PATH.
_PLACES = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/opt/homebrew/sbin"
_ITERATIONS = 101
_INSTALL = (
    "sudo apt-get install mosquitto && sudo systemctl disable --now mosquitto   (the service of "
    "Debian's is not needed), or --broker embedded"
)


@dataclass(frozen=True, slots=True)
class Program:
    """The Mosquitto of this machine; `version` as it says itself, say "2.0.11"."""

    path: str
    version: str


def find() -> Program:
    """The installed one; BrokerError where there is none, or one that is too old."""
    path = shutil.which("mosquitto") or shutil.which("mosquitto", path=_PLACES)
    if path is None:
        raise BrokerError("mosquitto is not installed", _INSTALL)
    try:
        done = subprocess.run(  # noqa: S603 - found above
            [path, "-h"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BrokerError(f"{path} does not run: {error}", _INSTALL) from None
    return Program(path, _version(path, done.stdout))


def _version(path: str, said: str) -> str:
    first = said.partition("\n")[0].strip()[:100]
    found = re.search(r"mosquitto version ((\d+)\.(\d+)[\w.-]*)", first)
    if found is None:
        raise BrokerError(f"{path} does not say its version, but {first!r}", _INSTALL)
    if (int(found[2]), int(found[3])) < OLDEST:
        raise BrokerError(
            f"{path} is version {found[1]}; 2.0 is the oldest that will do",
            "take a newer one from https://mosquitto.org/download, or --broker embedded",
        )
    if found[1] == _NOT:
        raise BrokerError(
            f"{path} is version {_NOT}, which disconnects who publishes at QoS 1 if it is "
            "configured as it has to be",
            "take a newer one from https://mosquitto.org/download, or --broker embedded",
        )
    return found[1]


def hashed(password: str, salt: bytes | None = None) -> str:
    """What stands for a password in Mosquitto's file: PBKDF2-HMAC-SHA512, as mosquitto_passwd.

    That program takes it from its arguments, where others see it, or from a terminal.
    """
    salt = os.urandom(12) if salt is None else salt
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    words = (base64.b64encode(part).decode() for part in (salt, key))
    return "$".join(("", "7", str(_ITERATIONS), *words))


def passwords(credentials: Credentials) -> str:
    """The password file: mediators, and nobody else."""
    return f"{credentials.user}:{hashed(credentials.password)}\n"


def acl(user: str) -> str:
    """The access list: every topic for mediators, which have judged; none for anybody else."""
    return f"user {user}\ntopic readwrite #\n"


def config(folder: Path, at: Path | int, limits: Limits, *, root: bool) -> str:
    """mosquitto.conf of a private broker whose files lie in `folder`.

    at: its Unix socket, of which the name counts: Mosquitto runs in the socket's folder, because
    its own path may have 107 bytes at most; or, for measurements, a port of the loopback.
    root: it is started as root and stays it, as everything of the site does where there are no
    separate users.
    """
    if isinstance(at, Path):
        listens = [f"listener 0 {at.name}"]
    else:
        listens = [f"listener {at} 127.0.0.1", NO_DELAY]
    lines = [
        "# Written by `sealmq up` at each start; changes are lost.",
        *listens,
        "protocol mqtt",
        "max_connections -1",
        *(["user root"] if root else []),
        *served(folder / PASSWORDS, folder / ACL),
        *kept(folder, limits),
        "log_dest stderr",
        "log_timestamp false",
        *LOGGED,
    ]
    return "\n".join(lines) + "\n"


def served(passwords: Path | None, acl: Path) -> list[str]:
    """Who is let in, and to what."""
    return [
        "allow_anonymous false",
        *([] if passwords is None else [f"password_file {passwords}"]),
        f"acl_file {acl}",
        "sys_interval 0",
    ]


def kept(folder: Path, limits: Limits) -> list[str]:
    """What it keeps, and how much of it."""
    return [
        "persistence true",
        # Its own rule: the folder ends with a slash.
        f"persistence_location {folder}/",
        f"persistence_file {SAVED}",
        f"autosave_interval {AUTOSAVE_S}",
        "autosave_on_changes false",
        f"persistent_client_expiration {SESSION}",
        "retain_available true",
        f"max_inflight_messages {IN_FLIGHT}",
        # Of a session whose client is away. Of a connection it counts packets that the socket does
        # not take: beyond it all are thrown away, SUBACK and PINGRESP too. All clients' messages
        # share a connection, and so does a snapshot of all that is retained: hence no small number.
        f"max_queued_messages {limits.queue_messages}",
        # Only of who is away.
        f"max_queued_bytes {limits.queue_kib * 1024}",
        "queue_qos0_messages false",
        # Of a message, one copy for all filters of a client that it matches. Since 2.1 one for each
        # unless told, which mediators get along with, at a cost.
        "allow_duplicate_messages false",
        # As MQTT allows: the mediators have judged every size already.
        "max_packet_size 268435460",
        # No memory_limit: at it whoever publishes is thrown out, and a saved database that is
        # larger would not be read again.
    ]


class Hush:
    """Which lines of its log need not be passed on: they say only that it runs, or who came.

    That somebody else than a mediator asks for entry is told, and then not again for a while:
    `sealmq status` asks so as well.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: float | None = None

    def __call__(self, line: str) -> bool:
        if _STRANGER.fullmatch(line):
            now = self._clock()
            if self._told is not None and now - self._told < _STRANGERS_S:
                return True
            self._told = now
            return False
        return _ORDINARY.match(line) is not None


# Since 2.1 with an address, and a colon.
_STRANGER = re.compile(r"Client <unknown> (\[\S*\] )?disconnected[,:] not authorised\.")
_STRANGERS_S = 600.0
_ORDINARY = re.compile(
    r"\d*:? ?(mosquitto version \S+ (starting|running|terminating)|Config loaded from |Opening "
    r"|New connection from |New client connected |Saving in-memory database"
    r"|Warning: Mosquitto should not be run as root|Info: running mosquitto as user: "
    r"|The 'allow_duplicate_messages' option is now deprecated"
    # A mediator tries what the broker takes.
    rf"|Client {PROBE_PREFIX}"
    r"|Client \S+ (\[\S*\] )?(disconnected\.|closed its connection\.|already connected, closing old"
    r"|disconnected: (connection closed by client|session taken over)\.))"
)
