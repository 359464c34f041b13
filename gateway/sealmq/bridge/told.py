"""What a bridge tells of its line: a small file of its own, for `sealmq peer list` and `status`."""

from __future__ import annotations

from typing import Any

from sealmq.run import proc, ready
from sealmq.site.layout import Layout


def role_of(peer: str) -> str:
    """What the bridge to this peer is called among the site's processes."""
    return f"bridge-{peer}"


def line(layout: Layout, peer: str) -> dict[str, Any]:
    """line: "up", or why it is not; waiting: messages; dropped: how many, by reason."""
    said = ready.read_json(layout.run_of(role_of(peer)) / "line.json") or {}
    pid, start = said.get("pid"), said.get("start")
    alive = type(pid) is int and start is not None and proc.start_of(pid) == start
    dropped = said.get("dropped")
    return {
        "line": str(said.get("line", "")) if alive else "not running",
        "waiting": said["waiting"] if type(said.get("waiting")) is int else 0,
        "dropped": dropped if isinstance(dropped, dict) else {},
    }
