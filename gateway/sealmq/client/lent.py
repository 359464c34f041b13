"""An identity lent by a site's key generator, for the operator's own tools beside the gateway.

The tool acts as that client without a new generation, so that a device that uses the same identity
stays provisioned. Who may borrow is for the key generator to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from sealmq.kglink import KgClient, KgDenied, KgError, KgForbidden, KgUnavailable, KgUnknown
from sealmq.run import ready
from sealmq.site.layout import Layout
from sealmq.site.values import ANYWHERE
from sealmq_spec.errors import Denied
from sealmq_spec.identity import Identity

from .client import Client, address
from .door import Renew
from .errors import ClientError
from .state import BootFile
from .values import News, Notice, Options


class GatewayDown(ClientError):
    """The site's processes do not run, or not all of them."""


async def lent_client(
    site: str | os.PathLike[str],
    name: str,
    *,
    options: Options | None = None,
    on_notice: Callable[[Notice], None] | None = None,
    on_state: Callable[[str], None] | None = None,
    on_news: Callable[[News], None] | None = None,
) -> Client:
    """A client that acts as `name` of the site in this folder. Not yet connected.

    Raises GatewayDown, NoSite, LendRefused.
    """
    lent = await borrowed(site, name)
    return Client(
        lent.identity,
        lent.host,
        lent.port,
        state=lent.boot,
        provision=False,
        renew=lent.again,
        options=options,
        on_notice=on_notice,
        on_state=on_state,
        on_news=on_news,
    )


class Lent(NamedTuple):
    """What a client that is lent is made of."""

    identity: Identity
    host: str
    port: int
    boot: BootFile
    again: Renew


async def borrowed(site: str | os.PathLike[str], name: str) -> Lent:
    """The client `name` of the site in this folder. Raises as `lent_client`."""
    layout = Layout.open(site)
    shown = os.fspath(site)
    identity, enrolment = await _lend(layout, name, shown)
    host, port = _address(layout, enrolment, shown)

    async def again() -> Identity:
        return (await _lend(layout, name, shown))[0]

    # The next tool that it is lent to need not be told its boot.
    boot = BootFile(layout.run / f"lent-{identity.client}")
    return Lent(identity, host, port, boot, again)


async def _lend(layout: Layout, name: str, shown: str) -> tuple[Identity, dict[str, Any]]:
    hint = f"sealmq up {shown}"
    try:
        async with await KgClient.connect(layout.kg_socket) as kg:
            enrolment, dump = await kg.lend(name)
    except KgForbidden as error:
        raise LendRefused(str(error), error.hint) from None
    except KgUnavailable as error:
        raise GatewayDown(f"the gateway of {shown} is not up: {error}", hint) from None
    except KgUnknown as error:
        raise LendRefused(str(error), f"sealmq client list {shown}") from None
    except KgDenied as error:
        raise LendRefused(str(error), error.hint) from None
    except KgError as error:
        raise GatewayDown(str(error), error.hint) from None
    identity = Identity.from_enrolment(enrolment)
    if not identity.load(dump):
        raise GatewayDown("the key generator lent what is no identity", hint)
    return identity, enrolment


class LendRefused(Denied):
    """The key generator does not lend this identity: a client by that name is not there, or it is
    disabled, or the caller may not. `hint` as in ClientError."""

    def __init__(self, text: str, hint: str | None) -> None:
        super().__init__(text)
        self.hint = hint


def _address(layout: Layout, enrolment: dict[str, Any], shown: str) -> tuple[str, int]:
    """Where the mediator serves; on this machine if it listens on every address."""
    told = ready.read(layout, "mediator")
    if told is None or not told.ready:
        raise GatewayDown(f"the mediator of {shown} is not up", f"sealmq status {shown}")
    host, _, port = told.address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit():
        return address(enrolment)
    return ANYWHERE.get(host, host), int(port)
