"""`make evidence`: measure, reduce, and put the tables into the pages."""

from __future__ import annotations

import argparse
import fcntl
import sys
from collections.abc import Sequence

from evidence.collect import noted, run, say
from evidence.pages import PAGES, outdated, read, write
from evidence.parts import PARTS, Part, find
from evidence.place import WORK, EvidenceError
from evidence.reduce import reduce
from evidence.reduced import Reduced, load

_EXAMPLES = """\
examples:
  make evidence                        all parts, hours, on a machine that does nothing else
  make evidence PARTS='device rig'     these alone; of the others what was measured before stays
  python -m evidence --reduce          measure nothing: reduce what is there, and write the pages
  python -m evidence --pages           only the pages, from evidence/reduced.json
  python -m evidence --check           are the tables what was reduced?
  python -m evidence --list            the parts, and when each was measured
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """0: done; 1: something does not hold; 2: usage."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence",
        description="Run the benches, reduce them, and make the tables of the pages anew.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(part.name for part in PARTS)
    parser.add_argument("part", nargs="*", metavar="PART", help=f"{names} (default: all)")
    instead = parser.add_mutually_exclusive_group()
    for flag, what in (
        ("reduce", "measure nothing"),
        ("pages", "measure and reduce nothing"),
        ("check", "change nothing"),
        ("list", "what there is"),
    ):
        instead.add_argument(f"--{flag}", action="store_true", help=what)
    given = parser.parse_args(arguments)
    try:
        chosen = find(given.part)
    except EvidenceError as error:
        parser.error(f"{error}; {error.hint}")
    if given.part and (given.reduce or given.pages or given.check):
        parser.error("parts are for measuring")
    try:
        if given.list:
            return _list()
        if given.check:
            return _check(load())
        return _all(given, chosen)
    except EvidenceError as error:
        print(f"evidence: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("evidence: interrupted; parts that were done stay", file=sys.stderr)
        print("hint: make evidence PARTS=none puts them into the pages", file=sys.stderr)
        return 130


def _all(given: argparse.Namespace, chosen: Sequence[Part]) -> int:
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise EvidenceError("another `make evidence` runs in this tree") from error
        if not (given.reduce or given.pages):
            for number, part in enumerate(chosen, 1):
                say(f"{number} of {len(chosen)}: {part.name}, {part.about}")
                run(part)
        reduced = load() if given.pages else reduce()
        for page in write(reduced):
            say(f"{page} is new")
        return _check(reduced)


def _check(reduced: Reduced) -> int:
    told = [line for page in PAGES for line in outdated(page, read(page), reduced)]
    for line in told:
        print(line)
    say(
        f"{len(told)} to put right"
        if told
        else "every table of the pages is as reduced.json has it"
    )
    return 1 if told else 0


def _list() -> int:
    for part in PARTS:
        note = noted(part)
        when = "never run" if note is None else f"{note['began']} on {note['commit'][:10]}"
        idle = "; needs an idle machine" if part.idle else ""
        print(f"{part.name:10}{part.about}{idle}\n{'':10}{when}, at most {part.minutes} min a step")
    return 0


if __name__ == "__main__":
    sys.exit(main())
