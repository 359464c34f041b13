"""What an allowlist keeps closed of what crosses: a bridge needs a rule as any client, a reader one
that names the peer.
"""

from __future__ import annotations

from collections.abc import Iterator

from sealmq.kinds import GATEWAY

from ..api import PeerPolicy, Policy
from ..filters import crosses
from . import settings


def closed(config: Policy, peer: PeerPolicy) -> Iterator[str]:
    """As OfPeer."""
    rules = settings.read(config)
    mount = f"@{peer.name}/#"
    for label in peer.imports:
        client, here = peer.client_in(label), peer.label_in(label)
        if not any(
            rule.about(client, here, GATEWAY) and any(crosses(mount, p) for p in rule.publish)
            for rule in rules
        ):
            yield (
                f"no rule lets the bridge bring {here}: "
                f'[[families.allowlist.rule]] clients = ["{client}"] publish = ["{mount}"]'
            )
    if peer.imports and not any(crosses(mount, p) for rule in rules for p in rule.read):
        yield (
            f"no rule lets anybody read what comes from {peer.name}: "
            f'[[families.allowlist.rule]] clients = ["..."] read = ["{mount}"]'
        )
    for label in peer.exports:
        client = peer.client_out(label)
        if not any(rule.about(client, label, GATEWAY) and rule.read for rule in rules):
            yield (
                f"no rule lets the bridge take {label} there: "
                f'[[families.allowlist.rule]] clients = ["{client}"] read = ["..."]'
            )
