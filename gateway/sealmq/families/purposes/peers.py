"""What purposes keep closed of what crosses, until sealmq.toml says what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..api import Policy
from ..filters import crosses
from . import settings

if TYPE_CHECKING:
    from sealmq.site.model import Peer


def closed(config: Policy, peer: Peer) -> Iterator[str]:
    """As OfPeer."""
    said = settings.read(config).settings
    mount = f"@{peer.name}/#"
    if peer.imports and said.strict and not any(crosses(mount, filt) for filt in said.reserve):
        yield (
            f"what comes from {peer.name} is for no purpose yet: "
            f'[families.purposes.reserve] "{mount}" = {{ aip = ["PURPOSE"] }}'
        )
    for label in peer.exports:
        client = peer.client_out(label)
        if (client, "#") not in said.presubscribe:
            yield (
                f"{label} goes there for no purpose yet: "
                f'[families.purposes.presubscribe] "{client}" = {{ "#" = "PURPOSE" }}'
            )
