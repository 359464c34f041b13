"""What the key generator's process loads of the toy family, and nobody else."""

from __future__ import annotations

from typing import Any


def snapshot_extra(config: Any) -> dict[str, Any]:
    return {"limit": config.families.get("toy", {}).get("limit", 3), "labels": len(config.labels)}
