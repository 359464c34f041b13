"""What a policy family offers the benches (manifest.Bench), by its name."""

from __future__ import annotations

from load_cpu import LoadError

from sealmq.families import registry
from sealmq.families.manifest import Bench, BenchSite, BenchWhole, Manifest


def benches() -> dict[str, tuple[Manifest, Bench]]:
    """Of all families that have one of a site, by name."""
    return {m.name: (m, m.bench) for m in registry.manifests() if m.bench and m.bench.site}


def wholes() -> dict[str, BenchWhole]:
    """Those that families have of their own, by name."""
    found = [(m, m.bench.whole) for m in registry.manifests() if m.bench]
    return {m.name: m.load(whole) for m, whole in found if whole is not None}


def site_of(family: str) -> BenchSite:
    """How a site under it is made, and what its clients say."""
    found = benches().get(family)
    if found is None or found[1].site is None:
        raise LoadError(f"the policy family {family!r} has no bench")
    return found[0].load(found[1].site)
