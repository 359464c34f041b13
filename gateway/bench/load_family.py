"""What a policy family offers the benches (manifest.Bench), by its name."""

from __future__ import annotations

from load_cpu import LoadError

from sealmq.families import registry
from sealmq.families.manifest import Bench, BenchSite, Manifest


def benches() -> dict[str, tuple[Manifest, Bench]]:
    """Of all families that have one, by name."""
    return {m.name: (m, m.bench) for m in registry.manifests() if m.bench is not None}


def site_of(family: str) -> BenchSite:
    """How a site under it is made, and what its clients say."""
    found = benches().get(family)
    if found is None:
        raise LoadError(f"the policy family {family!r} has no bench")
    manifest, bench = found
    return manifest.load(bench.site)
