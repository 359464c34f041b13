"""The address by which clients on other hosts reach this one: chosen for a site that listens on all
addresses, and looked at again later, since hosts get other addresses.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from .model import Mediator
from .values import ANYWHERE

# Nothing is sent there: a UDP socket that is connected only asks the routing table.
_ELSEWHERE = {socket.AF_INET: "198.51.100.1", socket.AF_INET6: "2001:db8::1"}
_IFADDR = 0x8915  # SIOCGIFADDR: the first IPv4 address of an interface, after its name
_NAME_BYTES = 16
_IFREQ_BYTES = 40
_INET6 = "/proc/net/if_inet6"
_GLOBAL = "00"  # an address's scope there

_THEN = (
    "then write the enrolment files anew (`sealmq client add` with -o); boards that are in use "
    "take it with `sealmq board provision --mediator HOST:PORT`"
)


class Chosen(NamedTuple):
    """address: what clients are told. why: how it was found. others: what it could have been."""

    address: str
    why: str
    others: tuple[str, ...] = ()


def choose(host: str) -> Chosen | None:
    """For a listener on all addresses, `host` being 0.0.0.0 or ::. None: this host has no address
    but loopback's.

    The address of the interface of the default route; lacking one, the first that is no loopback.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    own = addresses(family)
    routed = by_route(family)
    if routed is not None:
        return Chosen(routed, "the default route's", tuple(a for a in own if a != routed))
    if not own:
        return None
    why = "there is no default route" if own[1:] else "this host's only one"
    return Chosen(own[0], why, tuple(own[1:]))


def stray(host: str, listen: str) -> str | None:
    """What is wrong with an address that enrolment files carry, as seen from this host; None:
    nothing. listen: where the mediator listens. A name is not looked up, as that may take long.
    """
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        if "." in host or host == "localhost":
            return None
        return f"boards cannot resolve the bare host name {host}"
    if found.is_loopback:
        return f"only this host gets to {host}" if listen in ANYWHERE else None
    family = socket.AF_INET6 if found.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.bind((host, 0))
    except OSError:
        return f"this host does not have the address {host}"
    return None


def warning(mediator: Mediator) -> str | None:
    """The same with what to do about it, in one line; None: nothing is wrong."""
    host, port = mediator.advertise_host, mediator.advertise_port
    wrong = stray(host, mediator.host)
    if wrong is None:
        return None
    now = choose("::" if ":" in host else "0.0.0.0")  # noqa: S104 - nothing listens here
    mend = "" if now is None else f' = "{written(now.address, port)}"'
    return (
        f"enrolment files name {written(host, port)}, and {wrong}: unless something forwards it to "
        f"here, set advertise{mend} under [mediator] and `sealmq reload`, {_THEN}"
    )


def written(host: str, port: int | str) -> str:
    """HOST:PORT, or [IPV6]:PORT."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def by_route(family: socket.AddressFamily) -> str | None:
    """The address that this host has on its default route; None: it has no such route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect((_ELSEWHERE[family], 9))
            return _useful(str(s.getsockname()[0]))
    except OSError:
        return None


def addresses(family: socket.AddressFamily) -> list[str]:
    """One address of each interface, loopback's left out."""
    found = _inet6() if family == socket.AF_INET6 else _inet()
    return list(dict.fromkeys(a for a in map(_useful, found) if a is not None))


def _useful(address: str) -> str | None:
    found = ipaddress.ip_address(address.partition("%")[0])
    useless = found.is_loopback or found.is_unspecified or found.is_link_local
    return None if useless else str(found)


def _inet() -> list[str]:
    import fcntl

    found: list[str] = []
    try:
        names = socket.if_nameindex()
    except OSError:  # it takes netlink, which a unit of systemd's may keep from us
        return found
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in names:
            request = name.encode()[: _NAME_BYTES - 1].ljust(_IFREQ_BYTES, b"\0")
            try:
                answer = fcntl.ioctl(s, _IFADDR, request)
            except OSError:
                continue  # it has none
            at = _NAME_BYTES + 4  # family and port are before it
            found.append(socket.inet_ntop(socket.AF_INET, answer[at : at + 4]))
    return found


def _inet6() -> list[str]:
    try:
        with open(_INET6, encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    return [
        socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))
        for row in rows
        if row[3] == _GLOBAL
    ]
