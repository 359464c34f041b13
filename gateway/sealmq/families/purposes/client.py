"""What a host client says and asks about purposes: authenticated commands for the family.

The texts are those of shared_spec/PURPOSES.md; who may say what is the gateway's policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sealmq_spec import purposes
from sealmq_spec.errors import Malformed
from sealmq_spec.purposes import access, check_purpose

from . import MANIFEST

if TYPE_CHECKING:
    from sealmq.client import Client

__all__ = ["Purposes", "access", "check_purpose"]


class Purposes:
    """What `client` says about purposes. Each call raises Denied, ... when it is refused.

    Example:
        async with Client.from_enrolment("officer.sealmq.json", state="officer.state") as client:
            await Purposes(client).reserve("machine/#", aip=["service"], pip=["analytics"])
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def reserve(
        self,
        filter: str,
        aip: Iterable[str] = (),
        pip: Iterable[str] = (),
        *,
        within: float | None = None,
    ) -> None:
        """Say for which purposes data under a filter may be used (aip) and for which not (pip).

        It takes the place of the reservation that clients have made of this filter. With an empty
        aip it allows nothing; `release` takes it away (HivePBAC, section III).
        """
        await self._say(purposes.reserve(filter, aip, pip), within)

    async def release(self, filter: str, *, within: float | None = None) -> None:
        """Take away what clients have reserved of this filter."""
        await self._say(purposes.release(filter), within)

    async def presubscribe(
        self, client: str, filter: str, purpose: str | None, *, within: float | None = None
    ) -> None:
        """Say for which purpose a client subscribes to a filter that it names without one.

        For clients that know nothing of purposes; None takes it away.
        """
        if purpose is not None:
            check_purpose(purpose)  # "" is no purpose, and no way to take one away
        await self._say(purposes.presubscribe(client, filter, purpose or ""), within)

    async def set(self, name: str, value: str, *, within: float | None = None) -> None:
        """A setting of the site, "mode" or "strict"; "" is again what sealmq.toml says."""
        await self._say(purposes.setting(name, value), within)

    async def query(self, what: str, arg: str = "", *, within: float | None = None) -> str:
        """Ask the gateway: "mode", "reservations" that cross a filter, "eip" of a topic, or
        "presubs" of a client. What it answers: PURPOSES.md P4."""
        reply = await self._say(purposes.query(what, arg), within)
        try:
            return reply.decode()
        except UnicodeDecodeError:
            raise Malformed("the gateway's answer is no UTF-8") from None

    async def _say(self, text: str, within: float | None) -> bytes:
        return await self._client.command(MANIFEST.name, text.encode(), within=within)
