"""Assertions as the family keeps them."""

from __future__ import annotations

import json
from typing import Any

from ..records import ASSERTION

AT_MS = 1_800_000_000_000


def assertion(n: int, owner: str, licensee: str, **more: Any) -> tuple[str, bytes]:
    """Key and value of one as the family keeps it."""
    row: dict[str, Any] = {
        "authorizer": owner,
        "licensees": [licensee],
        "owner": owner,
        "app": "BENCH",
        "type": "VALUE",
        "actions": ["RECEIVE"],
        "condition": "",
        "at": AT_MS,
        **more,
    }
    return f"{ASSERTION}{n:012x}", json.dumps(row, separators=(",", ":")).encode()
