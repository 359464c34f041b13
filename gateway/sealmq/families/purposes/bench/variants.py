"""The variants of the bench: modes and stores of the family, in the order of the paper's tables."""

from __future__ import annotations

from typing import Any

from load_sites import Variant

from .. import MANIFEST


def _of(name: str, mode: str, store: str, **more: Any) -> Variant:
    return Variant(name, MANIFEST.name, {"mode": mode, "store": store}, **more)


VARIANTS = {
    v.name: v
    for v in (
        Variant("mosquitto", broker="mosquitto"),
        Variant("labels"),
        _of("fos", "fos", "cache"),
        _of("fop-cache", "fop", "cache"),
        _of("hybrid", "hybrid", "cache"),
        _of("fop", "fop", "tree"),
        # With 16 at a time, a flat store would be busy for a minute.
        _of("fop-flat", "fop", "flat", bursts=(1,)),
    )
}
