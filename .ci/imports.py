"""Runs the import contracts of pyproject.toml. A contract about a module that does not exist is an
error: after a rename it would hold nothing.

Beside the contracts: no modules of the gateway import each other in a circle, and no policy family
imports another one's; nor for types alone (TYPE_CHECKING).
"""

import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import grimp

FAMILIES = "sealmq.families"


def exists(module: str) -> bool:
    """Whether the module can be found; a pattern with `*` may match nothing."""
    if "*" in module:
        return True
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def in_circles(graph: grimp.ImportGraph) -> list[str]:
    """The modules of a package that stand in a circle of imports, or between two."""
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # What imports nothing that is left, or is imported by nothing that is left, is in no circle.
    while left:
        wanted = set().union(*left.values())
        out = [m for m, imports in left.items() if m not in wanted or not imports & left.keys()]
        if not out:
            break
        for module in out:
            del left[module]
        left = {module: imports & left.keys() for module, imports in left.items()}
    return sorted(left)


def from_other_families(graph: grimp.ImportGraph) -> list[str]:
    """What modules of one policy family import of another's: "importer imports imported". A family
    is a package in FAMILIES."""
    families = {m for m in graph.find_children(FAMILIES) if graph.find_children(m)}
    owner = {m: f for f in families for m in (f, *graph.find_descendants(f))}
    return sorted(
        f"{module} imports {imported}"
        for module, family in owner.items()
        for imported in graph.find_modules_directly_imported_by(module)
        if owner.get(imported, family) != family
    )


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    config = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in config["tool"]["importlinter"]["contracts"]:
        named = contract.get("modules", []) + contract.get("source_modules", [])
        missing = [m for m in named + contract.get("forbidden_modules", []) if not exists(m)]
        if missing:
            print(
                f"imports: the contract {contract['id']!r} names {', '.join(missing)}, which does "
                "not exist; mend its name in pyproject.toml"
            )
            return 1
    graph = grimp.build_graph("sealmq")
    if circle := in_circles(graph):
        print(f"imports: in a circle: {', '.join(circle)}; let one way go through a third module")
        return 1
    if across := from_other_families(graph):
        print(f"imports: {', '.join(across)}; what several families need stands in {FAMILIES}")
        return 1
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo"]
    command += ["--cache-dir", "build/imports"]
    return subprocess.run(command, cwd=root, check=False).returncode  # noqa: S603 - our own words


if __name__ == "__main__":
    sys.exit(main())
