"""What purposes keep closed of what crosses, until sealmq.toml says what it is for."""

from __future__ import annotations

from collections.abc import Iterator

from ..api import PeerPolicy, Policy
from ..filters import crosses
from . import settings


def closed(config: Policy, peer: PeerPolicy) -> Iterator[str]:
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
