"""What owners keep closed of what crosses.

Whose event it is that comes from another site is said by a level of its topic or by its sender, and
both name clients of that site. A client here that has the same name is somebody else, and must not
decide about the other's.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..api import PeerPolicy, Policy


def closed(config: Policy, peer: PeerPolicy) -> Iterator[str]:
    """As OfPeer."""
    if peer.imports:
        yield (
            f"nobody receives what comes from {peer.name} while owners are in [policy] order: its "
            "owners are clients of another site, and have no say here"
        )
    for label in peer.exports:
        yield f"of {label} goes there what its owners let {peer.client_out(label)} receive"
