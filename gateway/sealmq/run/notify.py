"""What systemd is told (sd_notify(3)): one datagram a message, and nothing without systemd."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(message: str) -> None:
    """Say READY=1, STOPPING=1, STATUS=..., WATCHDOG=1, more_time() to whoever started us so that it
    listens.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    # systemd may have gone; that must not stop the site.
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
    ):
        sock.sendto(message.encode(), address)


def more_time(seconds: float) -> str:
    """That a start or an end goes on and may take so long from now; systemd never waits less than
    its unit says.
    """
    return f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"


def watchdog_s() -> float | None:
    """How often WATCHDOG=1 is due: half of what systemd waits, in seconds; None without it."""
    text = os.environ.get("WATCHDOG_USEC", "")
    pid = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    if not text.isdecimal() or int(text) == 0 or pid != str(os.getpid()):
        return None
    return int(text) / 2_000_000


def in_journal() -> bool:
    """Whether our stderr goes to systemd's journal (systemd.exec(5), JOURNAL_STREAM)."""
    told = os.environ.get("JOURNAL_STREAM", "")
    with contextlib.suppress(OSError):
        found = os.fstat(2)
        return told == f"{found.st_dev}:{found.st_ino}"
    return False
