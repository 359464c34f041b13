"""Where somebody's broker is. What is not this machine's own is tried only where its address, not
only its name, is said: a name leads elsewhere tomorrow.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
from collections.abc import Collection
from pathlib import Path

from sealmq.broker.errors import BadAddress, Unreachable
from sealmq.broker.target import split
from sealmq.site.reading import open_plain

from .probe import Where

_SHAPE = "mqtt[s]://HOST[:PORT]; accounts stand in the file of --as"
_RESOLVE_S = 10.0


async def reach(
    url: str,
    addresses: Collection[str],
    cafile: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
) -> Where:
    """The broker of this URL. `addresses`: those besides the loopback's that may be tried.

    BadAddress: the URL, a file, or an address that was not said. Unreachable: no such name.
    """
    parts, host, port = split(url, _SHAPE)
    if parts.username is not None or parts.password is not None:
        raise BadAddress("the broker's URL names a user, where others see it", _SHAPE)
    context = bare = None
    if parts.scheme == "mqtts":
        context, bare = _context(cafile, cert, key), _context(cafile, None, None)
        bare = context if cert is None else bare
    elif cafile or cert or key:
        raise BadAddress("certificates with mqtt://, which has no TLS", "mqtts://")
    found = await _resolved(host, port)
    may = {_plain(address) for address in addresses}
    for address in found:
        if not ipaddress.ip_address(address).is_loopback and _plain(address) not in may:
            raise BadAddress(
                f"{host} is {address}, which is not this machine",
                f"is that broker yours to try? Then: --address {address}",
            )
    return Where(host, await _answering(found, port), port, context, bare)


# `localhost` is two addresses, of which a broker may listen at one.
async def _answering(found: list[str], port: int) -> str:
    for address in found if len(found) > 1 else ():
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_RESOLVE_S / len(found)):
                _, writer = await asyncio.open_connection(address, port)
            writer.close()
            return address
    return found[0]


async def _resolved(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_S):
            rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        raise Unreachable(f"there is no host {host!r}", "is the name right?") from None
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


def _plain(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise BadAddress(f"--address {address}: that is no address", "say 192.0.2.7") from None


def _context(cafile: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    if (cert is None) != (key is None):
        raise BadAddress("--cert and --key go together")
    if key is not None:
        _check_key(key)
    try:
        context = ssl.create_default_context(cafile=cafile)
        if cert is not None:
            context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadAddress(f"the certificates are not good for TLS: {reason}") from None
    return context


def _check_key(key: Path) -> None:
    try:
        with open_plain(key) as file:
            found = os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise BadAddress(f"{key}: {error.strerror or error}") from None
    if found & 0o077:
        raise BadAddress(
            f"{key} can be read by others (mode {found & 0o777:04o})", f"chmod 600 {key}"
        )
