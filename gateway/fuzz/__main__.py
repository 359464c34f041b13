"""`python -m fuzz [TARGET...]`: exit code 0 when nothing breaks, 1 with the input saved."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from .runner import Limits, Run, run
from .target import NAMES, load

_BUILD = Path(__file__).resolve().parents[2] / "build" / "fuzz"


def _say(text: str) -> None:
    print(text, flush=True)


def _replay(name: str, path: Path) -> int:
    """One saved input again, with its traceback."""
    target = load(name)
    try:
        target.one(path.read_bytes())
    finally:
        target.close()
    _say(f"fuzz: {name}: {path} breaks nothing")
    return 0


def _reported(done: Run, out: Path) -> bool:
    if done.good:
        _say(f"fuzz: {done.name}: {done.inputs:,} inputs, {done.edges:,} edges, nothing found")
        return True
    for line in done.text:
        _say(f"  | {line}")
    where = done.found or "no input was saved; see above"
    _say(f"fuzz: {done.name}: BROKEN after {done.inputs:,} inputs (exit {done.code}): {where}")
    if done.found:
        _say(f"fuzz: again with: python -m fuzz {done.name} --replay {done.found}")
    return False


def main(argv: list[str] | None = None) -> int:
    """Runs all targets, or those named."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--inputs", type=int, default=50_000, help="for each target")
    parser.add_argument("--timeout", type=int, default=30, help="seconds for one input")
    parser.add_argument("--rss", type=int, default=640, help="MiB for a target's process")
    parser.add_argument("--seed", type=int, default=0, help="the same inputs again; 0: new ones")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--out", type=Path, default=_BUILD, help="corpora and findings")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="try one input again")
    options = parser.parse_args(argv)
    names = options.targets or list(NAMES)
    if options.replay:
        return _replay(names[0], options.replay)
    if importlib.util.find_spec("atheris") is None:
        print(
            "fuzz: error: atheris is not installed; there are builds of it for CPython on x86_64\n"
            "fuzz: hint: run make setup there; the hypothesis tests try the same targets anywhere",
            file=sys.stderr,
        )
        return 1
    limits = Limits(options.inputs, options.timeout, options.rss, options.seed)
    one = partial(run, folder=options.out, limits=limits, say=_say)
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        good = [_reported(done, options.out) for done in pool.map(one, names)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
