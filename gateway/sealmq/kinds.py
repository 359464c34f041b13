"""The kinds of clients that sealmq.toml knows; the first is what a client is that says none."""

from __future__ import annotations

GATEWAY = "gateway"
"""A bridge's client: what is there for a peer, and for nobody else (BRIDGE.md)."""
KINDS = ("device", "app", GATEWAY, "assessor")
