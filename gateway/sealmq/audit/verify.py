"""Whether an audit log is as its processes wrote it: every line, every segment, in their order.

Told apart: a line that was changed, one that was put in, one that is missing or stands elsewhere, a
segment that is missing; and what a process that was killed leaves, which is no fault. What nothing
can show is in THREATS.md, claim 52.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from sealmq.formats import newer
from sealmq.site.reading import open_plain

from .chain import Chain, Ratchet, SegmentSeal, run_key
from .events import VERSION
from .reading import LONGEST, Log, order, record_of
from .segment import CLOSED, OPEN

_SEAL = re.compile(rb',"mac":"([0-9a-f]{32})"\}\n\Z')
# Each line begins with its format (log.py).
_OTHER = re.compile(rb'\{"v":([1-9][0-9]{0,5}),')
_CHAIN = re.compile(r"([0-9a-f]{32})\.(\d{1,9})")
# More than a segment has (log.py): a number that a stranger has written must not make us count on.
_MOST_LINES = 1 << 16
_MOST_CHAINS = 1 << 20
_MOST_FAULTS = 1000
_MOST_SEGMENTS = 1 << 20
_NOTED = ("log-opened", "log-ended", "log-expired", "log-recovered")


@dataclass(frozen=True, slots=True)
class Fault:
    """What was found, in which segment (its file's name), and at which line of it, if at one."""

    segment: str
    line: int | None
    what: str

    def __str__(self) -> str:
        at = "" if self.line is None else f", line {self.line}"
        return f"{self.segment}{at}: {self.what}"


@dataclass
class Report:
    """Of one process: its role, and its folder's name, of which borders have several. heads: closed
    segments, each with its lines and SHA-256 of all it holds.
    """

    role: str
    name: str = ""
    segments: int = 0
    lines: int = 0
    unsealed: int = 0
    """Segments from before logs were sealed: nothing vouches for them."""
    expired: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """Of each run (reading.order) the last segment that the log itself says was deleted."""
    faults: list[Fault] = field(default_factory=list)
    left_out: int = 0
    """Faults that are not listed, since there are so many."""
    notes: list[str] = field(default_factory=list)
    heads: dict[str, tuple[int, str]] = field(default_factory=dict)

    def gone(self, name: str) -> bool:
        """Whether a segment was deleted since it was old, as those before it in its run."""
        found = order(name)
        return 0 < found[3] <= self.expired.get(found[:3], 0)

    def fault(self, segment: str, line: int | None, what: str) -> None:
        """One more."""
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(Fault(segment, line, what))
        else:
            self.left_out += 1


@dataclass
class _Segment:
    """One file. sealed: how many lines it has by its seals; found: what lines of `_NOTED` say.
    doubts: (line of the file, the number that it bears) of lines whose seal is wrong. ill: lines of
    `_NOTED` whose seal is right, and whose fields are not. newer: by line of the file, the format
    of those that say that a newer SealMQ has written them.
    """

    name: str
    file: str
    torn: int = 0
    alive: bool = False
    lines: int = 0
    sealed: int = 0
    found: list[dict[str, Any]] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)
    doubts: list[tuple[int, int]] = field(default_factory=list)
    ill: list[int] = field(default_factory=list)
    newer: dict[int, int] = field(default_factory=dict)
    ended: bool = False

    @property
    def run(self) -> tuple[str, int, int]:
        return order(self.name)[:3]

    @property
    def number(self) -> int:
        return order(self.name)[3]

    @property
    def open(self) -> bool:
        return self.file.endswith(OPEN)


class _Found:
    """What the sealed lines of a role's folder say of its segments."""

    def __init__(self, folder: Path, report: Report) -> None:
        self.folder, self.report = folder, report
        self.parts: dict[str, _Segment] = {}
        self.ends: list[_Segment] = []
        self.began = False
        self.there: set[str] = set()

    def said(self, event: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Records of this event, each with the file in which it stands."""
        for part in self.parts.values():
            for record in part.found:
                if record["event"] == event:
                    yield part.file, record


def verify(folder: Path, role: str, audit_key: bytes, keep_ms: int = 0, now_ms: int = 0) -> Report:
    """Of a role's folder. audit_key: the site's (masterkey.py). keep_ms: how old a segment has to
    be before it is deleted (retention.py), 0: none is; now_ms: Unix ms. OSError: it cannot be read.
    """
    report = Report(role, folder.name)
    found = _Found(folder, report)
    names = Log(folder, role).names
    found.there = set(names)
    for _, run in groupby(names, lambda name: order(name)[:3]):
        _run(found, list(run), audit_key)
    _expired(found, keep_ms, now_ms)
    _lengths(found)
    _whole(found)
    _ends(found)
    for part in found.parts.values():
        _doubts(report, part)
    return report


# Whoever takes a process over can seal that anything was old, and is believed what can be true: of
# a run that began so long ago. A clock that he claims to have had does not go beyond ours.
def _expired(found: _Found, keep_ms: int, now_ms: int) -> None:
    report = found.report
    for by, record in found.said("log-expired"):
        for name in record["notes"]:
            role, began, inst, number = order(name)
            if role != report.role:
                continue
            if not keep_ms or min(record["at_ms"], now_ms) - began < keep_ms:
                what = f"it says that {name} was deleted as old; sealmq.toml, as it stands now, "
                report.fault(by, record["line"], f"{what}keeps it longer")
                continue
            last = report.expired.get((role, began, inst), 0)
            report.expired[role, began, inst] = max(number, last)
    left = sum(report.gone(name) for name in found.there)
    if gone := sum(report.expired.values()) - left:
        report.notes.append(f"{gone} segments were deleted as old")


def _run(found: _Found, names: list[str], audit_key: bytes) -> None:
    report = found.report
    for name in names:
        if order(name)[3] > _MOST_SEGMENTS:
            report.fault(name, None, "no process has written so many segments")
    names = [name for name in names if order(name)[3] <= _MOST_SEGMENTS]
    chains = [
        chain
        for name in dict.fromkeys(_named(found.folder, names))
        if (chain := _chain(audit_key, report.role, name)) is not None
    ]
    parts = [part for name in names if (part := _read(found, name, chains)) is not None]
    if not parts:
        return
    if any(part.sealed for part in parts):
        found.began = True
        found.parts |= {part.name: part for part in parts}
        found.ends.append(parts[-1])
        return
    # Without one good seal: from before there were any, empty, or somebody else's.
    for part in parts:
        if not part.lines:
            report.notes.append(f"{part.file} is empty")
        elif part.newer:
            _newer(report, part)
        elif part.doubts or found.began:
            report.fault(part.file, None, "no line of it is sealed with a key of this site")
        else:
            report.unsealed += 1


def _named(folder: Path, names: list[str]) -> Iterator[str]:
    """The chains that the segments' first lines name: of one, unless somebody has changed them."""
    for name in names:
        with contextlib.suppress(FileNotFoundError), _opened(folder, name) as file:
            for line in (file.readline(LONGEST), file.readline(LONGEST)):
                chain = _record(line).get("chain")
                if isinstance(chain, str):
                    yield chain


def _chain(audit_key: bytes, role: str, name: str) -> Ratchet | None:
    """The first key of a chain, which each of its segments' follows from."""
    found = _CHAIN.fullmatch(name)
    if found is None or int(found[2]) > _MOST_CHAINS:
        return None
    chains = Ratchet(run_key(audit_key, role, found[1]))
    for _ in range(int(found[2])):
        chains.step()
    return Ratchet(chains.make(b"chain"))


# By the chain that has sealed the most of it: whoever puts a line on top names another one.
def _read(found: _Found, name: str, chains: list[Ratchet]) -> _Segment | None:
    try:
        file = _opened(found.folder, name)
    except FileNotFoundError:
        return None
    with file:
        part = _Segment(name, _file(file))
        part.alive = part.open and _locked(file.fileno())
        lines = file.readlines()
    if lines and not lines[-1].endswith(b"\n"):
        part.torn = len(lines.pop())
    part.lines = len(lines)
    versions = enumerate(map(_version, lines), 1)
    part.newer = {at: version for at, version in versions if version > VERSION}
    found.report.segments += 1
    found.report.lines += len(lines)
    if not part.open:
        digest = hashlib.sha256(b"".join(lines)).hexdigest()
        found.report.heads[part.file] = (len(lines), digest)
    best, misplaced = part, list[tuple[int, int]]()
    for chain in chains:
        tried = replace(part, found=[], missing=set(), doubts=[], ill=[])
        seal = Chain("", chain.copy()).segment(name, part.number)
        late = _lines(tried, lines, seal)
        if best is part or tried.sealed > best.sealed:
            best, misplaced = tried, late
    if not chains and any(_SEAL.search(line) for line in lines):
        best.doubts = [(1, 1)]
    for at, number in misplaced:
        what = f"line {number} of the log stands here, after later ones"
        found.report.fault(best.file, at, what)
    return best


def _opened(folder: Path, name: str) -> BinaryIO:
    try:
        return open_plain(folder / f"{name}{OPEN}", 1 << 16)
    except FileNotFoundError:
        return open_plain(folder / f"{name}{CLOSED}", 1 << 16)


def _file(file: BinaryIO) -> str:
    return Path(file.name).name


# Its process lives: it has the lock (segment.py).
def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _lines(part: _Segment, lines: list[bytes], seal: SegmentSeal) -> list[tuple[int, int]]:
    """Goes through a segment; (line of the file, its number) of those that come too late."""
    keys: list[SegmentSeal] = []
    # Of lines that have not come: they may stand further down.
    passed: set[int] = set()
    last, late = 0, []
    for at, line in enumerate(lines, 1):
        if at in part.newer:
            continue
        record = _record(line)
        number, mac = record.get("line"), _SEAL.search(line)
        if type(number) is not int or mac is None or not 0 < number <= _MOST_LINES:
            part.doubts.append((at, last + 1))
            continue
        # Each key is made once, whatever numbers a stranger has written.
        while len(keys) < number:
            keys.append(seal.copy())
            seal.skip()
        body, wanted = line[: mac.start()] + b"}", mac[1].decode()
        comes = number > last or number in passed
        if not comes or not hmac.compare_digest(keys[number - 1].look(body), wanted):
            part.doubts.append((at, number))
            continue
        if number > last:
            passed |= set(range(last + 1, number))
            last = number
        else:
            passed.discard(number)
            late.append((at, number))
        if record.get("event") in _NOTED:
            if record_of(line) is None:
                part.ill.append(at)
                continue
            part.found.append(record)
            part.ended = part.ended or record["event"] == "log-ended"
    part.sealed, part.missing = last, passed
    return late


def _version(line: bytes) -> int:
    """Of which format the line says that it is; 0: it does not."""
    found = _OTHER.match(line)
    return int(found[1]) if found else 0


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) and record.get("v") == VERSION else {}


def _lengths(found: _Found) -> None:
    for part in found.parts.values():
        after = found.parts.get(f"{part.name.rpartition('-')[0]}-{part.number + 1:06d}")
        if after is None:
            continue
        for record in after.found:
            if record["event"] == "log-opened":
                _length(found.report, part, record["lines"], after.file)


def _length(report: Report, part: _Segment, told: int, by: str) -> None:
    """told: how many lines it had when it was closed, by a sealed line elsewhere."""
    # The last ones may have been changed, too (_doubts).
    part.missing |= set(range(part.sealed + 1, min(told, _MOST_LINES) + 1))
    if part.sealed > told:
        what = f"{by} says that it had {told} lines, and more stand there"
        report.fault(part.file, told + 1, what)
    part.sealed = max(part.sealed, told)


def _whole(found: _Found) -> None:
    """Whether a segment is missing: a number of its run, or one that a sealed line names."""
    report = found.report
    missing: dict[str, str] = {}
    highest: dict[tuple[str, int, int], int] = {}
    for part in found.parts.values():
        for number in range(highest.get(part.run, 0) + 1, part.number):
            missing[f"{part.name.rpartition('-')[0]}-{number:06d}"] = f"{part.file} comes after it"
        highest[part.run] = part.number
    for by, record in found.said("log-opened"):
        for name in record.get("notes", ()):
            missing.setdefault(name, f"{by} names it")
    for by, record in found.said("log-recovered"):
        name = str(record["segment"]).removesuffix(CLOSED)
        if name in found.parts:
            _recovered(report, found.parts[name], by, record)
        missing.setdefault(name, f"{by} has closed it")
    for name, why in sorted(missing.items()):
        if name not in found.there and not report.gone(name) and order(name)[0] == report.role:
            report.fault(f"{name}{CLOSED}", None, f"the segment is missing; {why}")


def _recovered(report: Report, part: _Segment, by: str, record: dict[str, Any]) -> None:
    _length(report, part, record["lines"], by)
    cut = record["dropped_bytes"]
    if record.get("count"):
        what = (
            f"{record['count']} whole lines came after one that cannot be read, and were cut off "
            f"by {by}; a process that is killed leaves none"
        )
        report.fault(part.file, record["lines"] + 1, what)
    else:
        torn = f", in the middle of a line ({cut} bytes)" if cut else ""
        report.notes.append(f"{part.file}: its process was killed after line {part.sealed}{torn}")


def _ends(found: _Found) -> None:
    """How each run ends."""
    notes = found.report.notes
    closed = {str(record["segment"]) for _, record in found.said("log-recovered")}
    for part in found.ends:
        if part.ended or part.file in closed:
            continue
        if part.alive:
            notes.append(f"{part.file} is being written: {part.sealed} lines so far")
        elif part.open:
            torn = f", in the middle of a line ({part.torn} bytes)" if part.torn else ""
            notes.append(
                f"{part.file}: its process was killed after line {part.sealed}{torn}; the next one "
                "will close it"
            )
        else:
            notes.append(
                f"{part.file} is the last of its process, which has not said that it ends: it has "
                "had nothing to write since, was killed between two segments, or what came after "
                "was taken away"
            )


# A line with a wrong seal is the one whose number is missing, or one that was put in.
def _doubts(report: Report, part: _Segment) -> None:
    for at, number in part.doubts:
        if number in part.missing:
            part.missing.discard(number)
            report.fault(part.file, at, f"line {number} of the log was changed")
        elif number > part.sealed:
            report.fault(part.file, at, "its seal is wrong: it was changed, or put in")
        else:
            report.fault(part.file, at, "no line of the log: it was put in")
    for low, high in _ranges(part.missing):
        lines = f"line {low}" if low == high else f"lines {low} to {high}"
        verb = "is" if low == high else "are"
        report.fault(part.file, low, f"{lines} of the log {verb} missing")
    for at in part.ill:
        report.fault(part.file, at, "it is sealed, and SealMQ writes no such record")
    _newer(report, part)
    part.doubts = []


# This version cannot verify lines of a newer format.
def _newer(report: Report, part: _Segment) -> None:
    for at, version in part.newer.items():
        what, _ = newer("it", version, VERSION)
        report.fault(part.file, at, what)


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    low = high = -1
    for number in sorted(numbers):
        if number != high + 1 or low < 0:
            if low >= 0:
                yield low, high
            low = number
        high = number
    if low >= 0:
        yield low, high


def anchor(site: str, at_ms: int, reports: Iterable[Report]) -> dict[str, Any]:
    """What the closed segments hold now, to be kept where whoever takes this machine cannot reach
    it: `differs` then shows what was changed since, by root with the site's key, too.
    """
    return {
        "sealmq-audit-anchor": 1,
        "site": site,
        "at_ms": at_ms,
        "roles": {one.name: one.heads for one in reports},
    }


def differs(report: Report, heads: Mapping[str, Any]) -> None:
    """Adds what is not as an earlier `anchor` of the role has it."""
    for file, told in sorted(heads.items()):
        name, now = file.removesuffix(CLOSED), report.heads.get(file)
        if order(name)[0] != report.role:
            report.fault(file[:100], None, f"the anchor names it, and it is none of {report.role}")
        elif now is None and not report.gone(name):
            report.fault(file, None, "the segment is missing; the anchor has it")
        elif now is not None and list(now) != told:
            report.fault(file, None, "it is another one than when the anchor was made")
