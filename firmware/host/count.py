"""How many instructions a MicroPython script executes, counted by valgrind (cachegrind).

A count is exact for one interpreter build, but start-up and compiling weigh 1.5 M and more: compare
two runs that differ in one argument only, such as an iteration count. 64-bit only: valgrind cannot
start the 32-bit build everywhere.

    count.py script.py --a 10 --b 110      prints (B - A) and, per iteration, (B - A) / 100
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).resolve().parents[2] / "build" / "micropython"

PATIENCE_S = 600.0  # for a run, also beside much other work
_TOTAL = re.compile(r"^summary: (\d+)$", re.MULTILINE)


class CountError(Exception):
    """The count could not be made; the text says why."""


class Counted(NamedTuple):
    """Instructions of a run, what it printed, and how many of them each C function took by itself
    (those that their library names)."""

    instructions: int
    printed: str
    functions: Mapping[str, int]


def interpreter(home: Path = HOME) -> list[str]:
    """The command behind the 64-bit wrapper: MicroPython's own loader, libraries and program."""
    try:
        stamp = json.loads((home / "64" / "stamp.json").read_text(encoding="utf-8"))
        return [str(part) for part in stamp["argv"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CountError("no 64-bit MicroPython here: run firmware/host/fetch.py") from error


def count(
    script: Path | str,
    args_a: Sequence[object] = (),
    args_b: Sequence[object] | None = None,
    *,
    path: Sequence[Path | str] = (),
    home: Path = HOME,
) -> int:
    """User-space instructions of `script` run with `args_a`; with `args_b`, those more than that.

    `path` becomes MICROPYPATH. Raises CountError when valgrind or the interpreter is missing or
    the script fails.
    """
    first = counted([script, *args_a], path=path, home=home).instructions
    if args_b is None:
        return first
    return counted([script, *args_b], path=path, home=home).instructions - first


def counted(
    words: Sequence[object], *, path: Sequence[Path | str] = (), home: Path = HOME
) -> Counted:
    """The count of the interpreter started with `words` (options, script, arguments). Raises
    CountError."""
    return counted_program(
        [*interpreter(home), *map(str, words)],
        # With -m it is a module: the first word that is no option or its value.
        next((str(w) for w in words if str(w).endswith(".py") or str(w).startswith("bench")), "-c"),
        {"MICROPYPATH": ":".join(map(str, path)) or "."},
    )


def counted_program(
    argv: Sequence[str], name: str, env: Mapping[str, str] | None = None
) -> Counted:
    """The count of any program, called `name` in errors. Raises CountError."""
    with tempfile.TemporaryDirectory(prefix="sealmq-count-") as folder:
        log, out = Path(folder) / "log", Path(folder) / "out"
        tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--vgdb=no", f"--log-file={log}"]
        tool.append(f"--cachegrind-out-file={out}")
        try:
            done = subprocess.run(
                [*tool, *argv],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "LC_ALL": "C", **(env or {})},
                timeout=PATIENCE_S,
            )
        except subprocess.TimeoutExpired as error:
            raise CountError(f"{name} did not end within {PATIENCE_S:.0f} s") from error
        except OSError as error:
            raise CountError(
                f"cannot start valgrind: {error.strerror}; sudo apt install valgrind"
            ) from error
        said, found = (
            path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
            for path in (log, out)
        )
    if done.returncode:
        reason = (done.stderr or said).strip().splitlines() or ["no message"]
        raise CountError(f"{name} failed with status {done.returncode}: {reason[-1]}")
    total = _TOTAL.search(found)
    if total is None:
        raise CountError("valgrind wrote no instruction count")
    return Counted(int(total[1]), done.stdout, _functions(found))


def _functions(text: str) -> dict[str, int]:
    """Of cachegrind's output: lines `fn=NAME`, each followed by lines of `LINE INSTRUCTIONS`."""
    found: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("fn="):
            name = line[3:]
        elif line[:1].isdigit():
            found[name] = found.get(name, 0) + int(line.split()[1])
    return found


def main() -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("script", type=Path)
    parser.add_argument("--a", type=int, help="first argument of the script in the first run")
    parser.add_argument("--b", type=int, help="first argument of the script in the second run")
    parser.add_argument("--path", action="append", default=[], help="a folder for MICROPYPATH")
    parser.add_argument("args", nargs="*", help="further arguments, the same in both runs")
    given = parser.parse_args()
    if (given.a is None) != (given.b is None) or (given.a is not None and given.a == given.b):
        parser.error("give --a and --b, two different numbers, or neither")
    try:
        if given.a is None:
            print(count(given.script, given.args, path=given.path))
            return 0
        more = count(given.script, [given.a, *given.args], [given.b, *given.args], path=given.path)
    except CountError as error:
        print(f"count: {error}", file=sys.stderr)
        return 1
    print(f"{more} more, {more / (given.b - given.a):.1f} each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
