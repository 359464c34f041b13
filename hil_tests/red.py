#!/usr/bin/env python3
"""The red list: each defence of the protocol is taken out, and the tests that attack it must fail.

    hil_tests/red.py --list              what there is
    hil_tests/red.py --check             every patch applies exactly once, every test exists; fast
    hil_tests/red.py                     runs all; minutes
    hil_tests/red.py NAME...             runs these; `--claim 9` those of a claim
    hil_tests/red.py --table             the table of SECURITY.md, from the last results

A run works on a copy of the tree in build/red/tree, which one run has for itself. First the tests
run there as they are and must pass; then, for each defence, with its patch. A defence counts as
attacked only if each of its tests fails in its body: a site that does not start proves nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFENCES = ROOT / "hil_tests/defences"
RESULTS = DEFENCES / "results.json"
WORK = ROOT / "build/red"
# How long tests may take: this, and so much more for each.
PATIENCE_S, PATIENCE_A_TEST_S = 300, 60
# How long fixtures may take to end what they started.
TEARDOWN_S = 60


class Wrong(Exception):
    """The list does not fit the tree; the text says where."""


@dataclass(frozen=True)
class Patch:
    """Text that stands in a file exactly once, and what takes its place."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The file's text without the defence."""
        if (n := text.count(self.old)) != 1:
            raise Wrong(f"{self.file}: this stands there {n} times, not once:\n{self.old}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Defence:
    """One entry: a defence, the claim that it serves, who attacks, and the tests that notice."""

    name: str
    claim: int
    attacker: str
    tests: tuple[str, ...]
    patches: tuple[Patch, ...]


def claims() -> dict[int, str]:
    """What each claim says, in a line."""
    found = tomllib.loads((DEFENCES / "claims.toml").read_text())["claims"]
    return {int(number): str(text) for number, text in found.items()}


def defences() -> list[Defence]:
    """The whole list, by claim."""
    found = []
    for file in sorted(DEFENCES.glob("claim*.toml")):
        if file.name == "claims.toml":
            continue
        for row in tomllib.loads(file.read_text())["defence"]:
            patches = tuple(Patch(p["file"], p["old"], p["new"]) for p in row.pop("patch"))
            tests = tuple(row.pop("tests"))
            found.append(Defence(**row, tests=tests, patches=patches))
    names = [d.name for d in found]
    if len(set(names)) < len(names):
        raise Wrong(f"a name stands twice: {sorted(n for n in names if names.count(n) > 1)}")
    return sorted(found, key=lambda d: d.claim)


# --- check ---


def check(chosen: list[Defence]) -> list[str]:
    """What does not fit any more."""
    faults = []
    for one in chosen:
        for patch in one.patches:
            try:
                if not (file := ROOT / patch.file).is_file():
                    raise Wrong(f"{patch.file}: there is no such file")
                if patch.applied(text := file.read_text()) == text:
                    raise Wrong(f"{patch.file}: the patch changes nothing")
            except Wrong as wrong:
                faults.append(f"{one.name}: {wrong}")
        faults += [f"{one.name}: no test {t}" for t in one.tests if not _exists(t)]
        if not one.tests:
            faults.append(f"{one.name}: no test")
    without = sorted(set(claims()) - {one.claim for one in chosen})
    return faults + [f"claim {n} has no defence in the list" for n in without]


def _exists(test: str) -> bool:
    file, _, name = test.partition("::")
    path = ROOT / file
    name = name.partition("[")[0]
    found = rf"^(?:async )?def {re.escape(name)}\("
    return path.is_file() and bool(re.search(found, path.read_text(), re.M))


# --- run ---


def run(chosen: list[Defence]) -> dict[str, str]:
    """Takes each defence out in turn; what became of it by name: red, GREEN or BROKEN."""
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Wrong("another run is going on in this tree; wait for its end") from None
        tree = _copy()
        tests = sorted({test for one in chosen for test in one.tests})
        _say(f"{len(tests)} tests as they are")
        outcomes = _pytest(tree, tests)
        bad = [test for test in tests if outcomes.get(test) != "passed"]
        if bad:
            raise Wrong("these do not pass with all defences in place:\n" + "\n".join(bad))
        results = {}
        for n, one in enumerate(chosen, 1):
            begun = time.monotonic()
            became = results[one.name] = _without(tree, one)
            keep({one.name: became})
            took = time.monotonic() - begun
            _say(f"[{n}/{len(chosen)}] claim {one.claim} {one.name}: {became} {took:.0f} s")
        return results


def _say(text: str) -> None:
    print(f"red: {text}", flush=True)


def _copy() -> Path:
    """The tree as it stands, without what was built; programs and packages are shared."""
    tree = WORK / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(  # noqa: S603 - arguments of our own
        [shutil.which("git") or "git", "ls-files", "-zco", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    (tree / "build").mkdir()
    for part in ("venv", "micropython"):
        (tree / "build" / part).symlink_to((ROOT / "build" / part).resolve())
    return tree


def _without(tree: Path, one: Defence) -> str:
    before = {patch.file: (tree / patch.file).read_text() for patch in one.patches}
    try:
        for patch in one.patches:
            _write(tree / patch.file, patch.applied((tree / patch.file).read_text()))
        outcomes = _pytest(tree, list(one.tests))
    except Wrong as wrong:
        _say(f"{one.name}: {wrong}")
        return "BROKEN"
    finally:
        for file, text in before.items():
            _write(tree / file, text)
    found = {outcomes.get(test, "missing") for test in one.tests}
    if found == {"failed"}:
        return "red"
    return "GREEN" if "passed" in found else "BROKEN"


def _write(file: Path, text: str) -> None:
    """Compiled copies go: their time stamps have whole seconds, and sizes may be equal."""
    file.write_text(text)
    for old in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        old.unlink()


def _pytest(tree: Path, tests: list[str]) -> dict[str, str]:
    """passed, failed or error for each test that ended; for one with parameters the worst of them.

    What takes too long is interrupted, and has no outcome.
    """
    report = WORK / "report.xml"
    report.unlink(missing_ok=True)
    parts = [str(tree / part) for part in ("gateway", "shared_spec", "firmware")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(parts)}
    log = WORK / "output.txt"
    with log.open("w") as out:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, tests of our own list
            [tree / "build/venv/bin/python", "-m", "pytest", "-q", f"--junitxml={report}", *tests],
            cwd=tree,
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        _end_in_time(process, PATIENCE_S + PATIENCE_A_TEST_S * len(tests))
    if not report.exists():
        raise Wrong(f"pytest gave no report; see {log}")
    worst: dict[str, str] = {}
    order = ("passed", "skipped", "error", "failed")
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by our own pytest
        name = case.get("name", "")
        file = case.get("classname", "").replace(".", "/") + ".py"
        tags = [tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None]
        outcome = tags[0] if tags else ""
        outcome = {"": "passed", "failure": "failed"}.get(outcome, outcome)
        for test in (f"{file}::{name}", f"{file}::{name.partition('[')[0]}"):
            known = worst.get(test)
            if known is None or _worse(outcome, known, order):
                worst[test] = outcome
    return worst


def _end_in_time(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Waits; then interrupts, so that fixtures end what they started; then kills."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(TEARDOWN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _worse(a: str, b: str, order: tuple[str, ...]) -> bool:
    return order.index(a) > order.index(b)


# --- results ---


def results() -> dict[str, str]:
    """The committed results of earlier runs."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def keep(fresh: dict[str, str]) -> None:
    """Puts results beside those of other runs; what left the list goes."""
    names = [one.name for one in defences()]
    known = results() | fresh
    rows = {name: known[name] for name in names if name in known}
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


def table() -> str:
    """Markdown: claim, attacker, test, result."""
    known, said = results(), claims()
    lines = ["| claim | attacker | attacking test | without the defence |", "|---|---|---|---|"]
    for one in defences():
        for test in one.tests:
            file, _, name = test.partition("::")
            shown = f"`{Path(file).name}::{name}`"
            result = known.get(one.name, "not run")
            claim = f"{one.claim}: {said[one.claim]}"
            lines.append(f"| {claim} | {one.attacker} | {shown} | {result}: {one.name} |")
    return "\n".join(lines)


def main() -> int:
    """Exit code 0: all red, or nothing to run; 1: some stay green, or the list does not fit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="defences to take out; all if none"
    )
    parser.add_argument("--claim", type=int, help="those of this claim")
    parser.add_argument("--list", action="store_true", help="print names, claims and tests")
    parser.add_argument("--check", action="store_true", help="do patches and tests still fit?")
    parser.add_argument("--table", action="store_true", help="print the table of SECURITY.md")
    args = parser.parse_args()
    try:
        every = defences()
        unknown = set(args.names) - {one.name for one in every}
        if unknown:
            raise Wrong(f"not in the list: {', '.join(sorted(unknown))}; see --list")
        chosen = [
            one
            for one in every
            if (not args.names or one.name in args.names) and args.claim in (None, one.claim)
        ]
        if args.table:
            print(table())
        elif args.list:
            for one in chosen:
                print(f"{one.claim:2} {one.name}\n   " + "\n   ".join(one.tests))
        elif args.check:
            faults = check(chosen)
            for fault in faults:
                print(f"red: {fault}", file=sys.stderr)
            return 1 if faults else 0
        else:
            fresh = run(chosen)
            rest = [name for name, result in fresh.items() if result != "red"]
            _say(f"{len(fresh) - len(rest)} of {len(fresh)} red")
            for name in rest:
                _say(f"{fresh[name]}: {name}")
            return 1 if rest else 0
    except Wrong as wrong:
        print(f"red: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
