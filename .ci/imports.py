"""Runs the import contracts of pyproject.toml whose modules exist; names those that still wait.

import-linter refuses a contract about a module that is not written yet. A contract that waits is
printed each time, so that none falls silent unseen.
"""

import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path


def exists(module: str) -> bool:
    """Whether the module can be found; a pattern with `*` may match nothing."""
    if "*" in module:
        return True
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    config = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    command = [
        str(Path(sys.executable).parent / "lint-imports"),
        "--no-logo",
        "--cache-dir",
        "build/imports",
    ]
    for contract in config["tool"]["importlinter"]["contracts"]:
        named = contract.get("modules", []) + contract.get("source_modules", [])
        missing = [m for m in named + contract.get("forbidden_modules", []) if not exists(m)]
        if missing:
            print(f"imports: contract {contract['id']} waits for {', '.join(missing)}")
        else:
            command += ["--contract", contract["id"]]
    return subprocess.run(command, cwd=root, check=False).returncode  # noqa: S603 - our own words


if __name__ == "__main__":
    sys.exit(main())
