"""The kinds of clients that sealmq.toml knows; the first is what a client is that says none."""

from __future__ import annotations

GATEWAY = "gateway"
"""A bridge's client: what is there for a peer, and for nobody else (BRIDGE.md)."""
BORDER = "border"
"""One of a border's two clients: what its table in sealmq.toml lists, and nothing else
(BRIDGE.md)."""
OF_THE_SITE = (GATEWAY, BORDER)
"""Kinds that [peers] and [borders] make, and no operator: never enrolled, never lent."""
MADE = "border/"
"""What all borders publish stands below this, at every site: so a topic, which its message is
sealed to, says how many borders the message has passed."""
SUITE_OF = {"app": "chacha"}
"""Of the link of a new client, where nothing else is said and it is not ccm."""
KINDS = ("device", "app", *OF_THE_SITE, "assessor")
