"""What a bridge or a border tells: a small file of its lines for `sealmq peer list`, `border list`
and `status`; and a bridge's answers over its socket.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from sealmq.run import proc, ready
from sealmq.site.layout import Layout
from sealmq.unix import short_path

ROLE = "bridge"
MOST = 1 << 20
"""Of a question, or an answer."""
_WAIT_S = 10.0


class NotRunning(Exception):
    """No bridge answers; with a reason for people."""

    hint = "a site that is up and has peers has one: sealmq status SITE"


class Refused(Exception):
    """It does not answer that; with a reason for people."""

    hint: str | None = None


def runs(layout: Layout) -> bool:
    """Whether there is a bridge that lives."""
    return bool(_said(layout, ROLE))


def _said(layout: Layout, role: str) -> dict[str, Any]:
    said = ready.read_json(layout.run_of(role) / "lines.json") or {}
    pid, start = said.get("pid"), said.get("start")
    alive = type(pid) is int and start is not None and proc.start_of(pid) == start
    return said if alive else {}


def line(layout: Layout, name: str, role: str = ROLE) -> dict[str, Any]:
    """Of a peer, or of what another role calls so. line: "up", or why it is not; since: Unix s,
    when its line was last seen to begin or to end, None: that is not known; waiting: messages;
    dropped: how many, by reason.
    """
    said = _said(layout, role)
    lines = said.get("lines")
    row = lines.get(name) if isinstance(lines, dict) else None
    row = row if isinstance(row, dict) else {}
    dropped = row.get("dropped")
    return {
        "line": str(row.get("line", "beginning")) if said else "not running",
        "since": ready.since_s(row),
        "waiting": row["waiting"] if type(row.get("waiting")) is int else 0,
        "dropped": dropped if isinstance(dropped, dict) else {},
    }


def ask(layout: Layout, op: str, **fields: Any) -> dict[str, Any]:
    """What the judge of the bridge answers (families/between.py). NotRunning, Refused."""
    path = layout.run_of(ROLE) / "ask.sock"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, short_path(path) as short:
            sock.settimeout(_WAIT_S)
            sock.connect(short)
            sock.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
            with sock.makefile("rb") as reading:
                raw = reading.readline(MOST)
        got = json.loads(raw)
    except (OSError, ValueError):
        raise NotRunning("no bridge of this site answers") from None
    if not isinstance(got, dict) or got.pop("ok", None) is not True:
        said = got.get("error") if isinstance(got, dict) else None
        raise Refused(said if isinstance(said, str) else "it does not answer that")
    return got
