"""The variants of the purposes bench: modes and stores of the family, in the order of the paper's
tables."""

from __future__ import annotations

from load_sites import Variant

VARIANTS = {
    v.name: v
    for v in (
        Variant("mosquitto", broker="mosquitto"),
        Variant("labels"),
        Variant("fos", "fos", "cache"),
        Variant("fop-cache", "fop", "cache"),
        Variant("hybrid", "hybrid", "cache"),
        Variant("fop", "fop", "tree"),
        Variant("fop-flat", "fop", "flat", bursts=(1,)),
    )
}
