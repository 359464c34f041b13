"""Which files there are in the logs, and that each is read once (batches.py reads them).

What a run was given stands in OUT/ingest: links/ (one for each file, named after its path, size
and time, so that whatever a path is called, Spark sees plain names), documents/ (a copy of each
document of a bench, named after its content: benches overwrite theirs), others/ (links to what else
ends in .json this time), files.jsonl (which of these is which file, and how many bytes are in it),
refused.jsonl (what could not be read this time).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, Any

from pyspark.sql import SparkSession

from . import batches, locks
from .contracts import fingerprint
from .errors import FRESH, ReportError
from .found import DOCUMENT, DOCUMENT_BYTES, File, files, shown, unpacked
from .outputs import SEGMENTS, SUMMARY, replace

PACKED = 12
"""How much smaller gzip makes a log, about."""
_ODD = frozenset("*?[]{}\\")
_SEGMENT = re.compile(r"[a-z]+-[0-9-]+\.jsonl")


class Place:
    """Where things lie in OUT."""

    def __init__(self, out: Path) -> None:
        self.out = out = out.absolute()
        self.links = out / "ingest" / "links"
        self.documents = out / "ingest" / "documents"
        self.others = out / "ingest" / "others"
        self.files = out / "ingest" / "files.jsonl"
        self.refused = out / "ingest" / "refused.jsonl"
        self.state = out / "ingest" / "state.json"


def ingest(spark: SparkSession, logs: Sequence[str], out: Path) -> None:
    """Reads what is new in the logs into OUT/NAME of each contract, each id once. ReportError: what
    an operator can mend."""
    place = _prepared(out)
    with locks.of_java(spark, place.out):
        _link(logs, place)
        batches.read(spark, place.out, place.links, _links(_all_told(place)))


def unread(logs: Sequence[str], out: Path) -> int:
    """Bytes of logs, about, unpacked, that no report into `out` has ended with. ReportError."""
    place = Place(out)
    ended = _age(place.out / SUMMARY)
    found = 0
    for file in files(logs, place.out):
        # What has a younger link was begun by one that was killed.
        links = (_age(folder / file.name) for folder in (place.links, place.others))
        if not file.reason and not any(0 < link <= ended for link in links):
            found += file.bytes * (PACKED if file.name.endswith(".gz") else 1)
    return found


def _age(path: Path) -> int:
    """When it was made, itself and not what it links to, in ns; 0: it is not there."""
    return path.lstat().st_mtime_ns if os.path.lexists(path) else 0


def _prepared(out: Path) -> Place:
    place = Place(out)
    if set(str(place.out)) & _ODD:
        odd = " ".join(sorted(_ODD))
        raise ReportError(
            f"{out}: Spark cannot write to a path with one of {odd}", hint="another --out"
        )
    state = {"version": 3, "contracts": fingerprint(), "out": shown(str(place.out))}
    try:
        for folder in (place.links, place.documents, place.others):
            folder.mkdir(parents=True, exist_ok=True)
        if place.state.exists():
            _same(_read(place.state), state, place)
        else:
            # Whole or not at all, on a full disk as well.
            new = place.state.with_suffix(".new")
            new.write_text(json.dumps(state))
            new.replace(place.state)
    except OSError as error:
        raise ReportError(f"{out}: {error}", hint="a folder that you may write to") from None
    return place


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None


def _same(old: Any, new: dict[str, Any], place: Place) -> None:
    if old == new:
        return
    moved = isinstance(old, dict) and old.get("out") != new["out"]
    why = "was moved here" if moved else "is of another version of SealMQ"
    raise ReportError(f"the report in {place.out} {why}", hint=FRESH)


def _link(logs: Sequence[str], place: Place) -> None:
    """A link for each file that has none. Told in files.jsonl before it is there."""
    gone = set(os.listdir(place.others))
    torn = _torn(place.files)
    with place.files.open("a", encoding="utf-8") as told, place.refused.open("w") as refused:
        # The disk was full: what is told now must not become part of that line.
        told.write("\n" if torn else "")
        for file in files(logs, place.out):
            gone.discard(file.name)
            reason = file.reason or _linked(file, place, told)
            if reason:
                refused.write(_line(file=shown(file.path), reason=reason))
    for name in gone:
        (place.others / name).unlink()


def _torn(path: Path) -> bool:
    """Whether its last line has no end."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _linked(file: File, place: Place, told: IO[str]) -> str:
    link = place.links / file.name
    if file.bytes == 0 or os.path.lexists(link):
        return ""
    if file.name.endswith(DOCUMENT):
        return _document(file, place, told)
    size = file.bytes
    if file.name.endswith(".gz"):
        try:
            size = unpacked(file.path)
        except ValueError as error:
            return str(error)
    _tell(told, file.name, file, size)
    link.symlink_to(file.path)
    return ""


def _document(file: File, place: Place, told: IO[str]) -> str:
    """A copy of what a bench wrote, which stays; of anything else a link, for as long as it is
    there: what is no log of ours is not kept."""
    other = place.others / file.name
    if os.path.lexists(other):
        return ""
    try:
        with open(file.path, "rb") as opened:
            content = opened.read(DOCUMENT_BYTES + 1)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not _of_bench(content):
        _tell(told, file.name, file, file.bytes)
        other.symlink_to(file.path)
        return ""
    copy = place.documents / (hashlib.sha256(content).hexdigest()[:40] + DOCUMENT)
    _tell(told, copy.name, file, len(content))
    if not copy.exists():
        # Whole or not at all. Spark leaves hidden files alone.
        new = copy.with_name("." + copy.name)
        new.write_bytes(content)
        os.utime(new, ns=(file.made_ns, file.made_ns))
        new.replace(copy)
    elif copy.stat().st_mtime_ns < file.made_ns:
        # The same again is as new as its newest file, in whatever order they come.
        os.utime(copy, ns=(file.made_ns, file.made_ns))
    (place.links / file.name).symlink_to(file.path)
    return ""


def _of_bench(content: bytes) -> bool:
    """Whether it has a bench's rows; reading.py judges them."""
    try:
        held = json.loads(content)
    except (ValueError, RecursionError):
        return False
    found = held.get("rows") if isinstance(held, dict) and len(held) == 1 else None
    return isinstance(found, list) and any(isinstance(row, dict) for row in found)


def _tell(told: IO[str], name: str, file: File, size: int) -> None:
    told.write(_line(name=name, file=shown(file.path), bytes=size, made_ns=file.made_ns))
    told.flush()


def _line(**fields: str | int) -> str:
    return json.dumps(fields) + "\n"


def _links(told: Sequence[Any]) -> list[batches.Link]:
    """All segments that a run was ever given, the oldest first."""
    there = {one["name"]: one for one in told}
    segments = [one for name, one in there.items() if not name.endswith(DOCUMENT)]
    segments.sort(key=lambda one: (one["made_ns"], one["name"]))
    return [batches.Link(one["name"], one["bytes"]) for one in segments]


def say_read(place: Place, short: Collection[str]) -> None:
    """For a gateway that deletes its segments once they were read: NAME BYTES of each. short: the
    paths of files that were not read to their end."""
    rows = {
        f"{name} {one['bytes']}\n"
        for one in _all_told(place)
        if _SEGMENT.fullmatch(name := Path(one["file"]).name)
        and one["file"] not in short
        # Of those that are gone there would be ever more.
        and os.path.exists(place.links / one["name"])
    }
    replace(place.out / SEGMENTS, "".join(sorted(rows)), group=True)


def _all_told(place: Place) -> list[Any]:
    """What files.jsonl says of each file."""
    told = map(_told, place.files.read_bytes().splitlines())
    return [one for one in told if one is not None]


# None: a line that a full disk has torn.
def _told(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
