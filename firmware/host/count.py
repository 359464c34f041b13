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

HOME = Path(__file__).resolve().parents[2] / "build" / "micropython"

_TOTAL = re.compile(r"I +refs: +([0-9,]+)")


class CountError(Exception):
    """The count could not be made; the text says why."""


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
    first, _ = counted([script, *args_a], path=path, home=home)
    if args_b is None:
        return first
    return counted([script, *args_b], path=path, home=home)[0] - first


def counted(
    words: Sequence[object], *, path: Sequence[Path | str] = (), home: Path = HOME
) -> tuple[int, str]:
    """Instructions of the interpreter started with `words` (options, script, arguments), and what
    it printed. Raises CountError."""
    env = {**os.environ, "LC_ALL": "C", "MICROPYPATH": ":".join(map(str, path)) or "."}
    return _run(list(map(str, words)), env, home)


def _run(words: Sequence[str], env: Mapping[str, str], home: Path) -> tuple[int, str]:
    with tempfile.TemporaryDirectory(prefix="sealmq-count-") as name:
        log = Path(name) / "log"
        tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--vgdb=no", f"--log-file={log}"]
        tool.append("--cachegrind-out-file=/dev/null")
        argv = [*tool, *interpreter(home), *words]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
        except OSError as error:
            raise CountError(f"cannot start valgrind: {error.strerror}; install it") from error
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if done.returncode:
        reason = (done.stderr or text).strip().splitlines() or ["no message"]
        # The script, or with -m its module: the first word that is no option or its value.
        script = next((w for w in words if w.endswith(".py") or w.startswith("bench")), words[0])
        raise CountError(f"{script} failed with status {done.returncode}: {reason[-1]}")
    found = _TOTAL.search(text)
    if found is None:
        raise CountError("valgrind printed no instruction count")
    return int(found[1].replace(",", "")), done.stdout


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
