"""The kinds of clients that sealmq.toml knows; the first is what a client is that says none."""

from __future__ import annotations

KINDS = ("device", "app", "gateway", "assessor")
