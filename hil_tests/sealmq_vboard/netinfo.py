"""The addresses that a board has here: the host's own, since its sockets are the host's."""

from __future__ import annotations

import fcntl
import socket
import struct
from pathlib import Path

_NOWHERE = "0.0.0.0"  # noqa: S104 - an address to show, nothing is bound to it
_SIOCGIFADDR = 0x8915
_SIOCGIFNETMASK = 0x891B


def addresses() -> tuple[str, str, str, str]:
    """Address, mask, gateway, name server; 127.0.0.1 on a host without a way out."""
    interface, gateway = _route()
    server = _name_server()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            address = _ask(any_socket, _SIOCGIFADDR, interface)
            mask = _ask(any_socket, _SIOCGIFNETMASK, interface)
        except OSError:
            return "127.0.0.1", "255.0.0.0", _NOWHERE, server
    return address, mask, gateway, server


def _route() -> tuple[str, str]:
    """The default route's interface and gateway; loopback if there is none."""
    try:
        lines = Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        lines = []
    for line in lines:
        fields = line.split()
        if fields[1] == "00000000":
            gateway = struct.pack("<I", int(fields[2], 16))
            return fields[0], socket.inet_ntoa(gateway)
    return "lo", _NOWHERE


def _ask(any_socket: socket.socket, what: int, interface: str) -> str:
    request = struct.pack("16s16x", interface.encode())
    return socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), what, request)[20:24])


def _name_server() -> str:
    try:
        for line in Path("/etc/resolv.conf").read_text(encoding="utf-8").splitlines():
            if line.startswith("nameserver") and "." in line:
                return line.split()[1]
    except OSError:
        pass
    return _NOWHERE
