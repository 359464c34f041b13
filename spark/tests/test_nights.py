"""Nights of any kind say what one report over all says: late, repeated and contradicting lines;
segments that grow, are packed, renamed, copied, deleted, or read while they are half there; reports
of some days; runs that are killed at any change of a file."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from audit_table import NOON, OTHER_SITE, SITE, ms
from lines_made import HIL, NONCE
from sealmq_spark import batches, job, outputs, state, tables
from sealmq_spark.tables import Days
from test_grow import reported

DAY_MS = 86_400_000
_CHANGES: tuple[tuple[Any, str], ...] = (
    (Path, "rename"), (Path, "replace"), (Path, "write_text"), (Path, "symlink_to"),
    (Path, "mkdir"), (shutil, "rmtree"), (os, "link"), (state.State, "commit"),
    (batches._Batch, "_keep"), (tables.Tables, "_put"), (tables.Tables, "_whole"),
)  # fmt: skip
_SOME = (Days(), Days(date(2027, 3, 2), date(2027, 3, 4)), Days(until=date(2027, 3, 2)))


class Killed(BaseException):
    """Stands for kill -9: nothing handles it."""


class World:
    """The logs as a report sees them in a night, and in `every` all that was ever whole."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.logs, self.every, self._rng = folder / "logs", folder / "every", rng
        self.every.mkdir(parents=True)
        self.logs.mkdir()
        self._numbers, self._ages = count(1), count(1_000_000_000, 7)
        self._lines: list[dict[str, Any]] = []
        self._half: dict[Path, bytes] = {}

    def night(self) -> None:
        """What comes, and what becomes of what is there."""
        old = sorted(path for path in self.logs.rglob("*.jsonl*") if path not in self._half)
        self.whole()
        for _ in range(self._rng.randrange(1, 4)):
            self._comes(self._text(self._rng.randrange(3, 40)))
        for path in self._rng.sample(old, min(len(old), 2)):
            self._changes(path)

    def whole(self) -> None:
        """What was read half is there."""
        for path, text in self._half.items():
            self._put(path, text)
        self._half = {}

    def _comes(self, text: bytes) -> None:
        name = f"s{next(self._numbers)}.jsonl"
        (self.every / name).write_bytes(text)
        match self._rng.randrange(4):
            case 0:
                self._put(self.logs / f"{name}.gz", gzip.compress(text))
            case 1:
                self._half[self.logs / name] = text
                self._put(self.logs / name, text[: self._rng.randrange(len(text))])
            case _:
                self._put(self.logs / name, text)

    def _changes(self, path: Path) -> None:
        packed = path.suffix == ".gz"
        match self._rng.randrange(5):
            case 0 if not packed:
                more = self._text(3)
                (self.every / f"s{next(self._numbers)}.jsonl").write_bytes(more)
                self._put(path, path.read_bytes() + more)
            case 1 if not packed:
                self._put(path.with_name(f"{path.name}.gz"), gzip.compress(path.read_bytes()))
                path.unlink()
            case 2:
                path.rename(path.with_name(f"r{path.name}"))
            case 3:
                shutil.copy(path, path.with_name(f"c{path.name}"))
            case _:
                path.unlink()

    def _put(self, path: Path, text: bytes) -> None:
        path.write_bytes(text)
        os.utime(path, (next(self._ages),) * 2)

    def _text(self, number: int) -> bytes:
        new = [self._line() for _ in range(number)]
        self._lines += new
        new += self._rng.sample(self._lines, min(len(self._lines), 5))
        new += [{**line, "at_ms": line["at_ms"] + 1} for line in self._rng.sample(self._lines, 2)]
        self._rng.shuffle(new)
        return "".join(json.dumps(line) + "\n" for line in new).encode()

    def _line(self) -> dict[str, Any]:
        rng, number = self._rng, next(self._numbers)
        at = ms(NOON) // DAY_MS * DAY_MS + rng.randrange(5) * DAY_MS
        at += rng.choice((0, DAY_MS - 60_000, rng.randrange(DAY_MS)))
        if rng.random() < 0.1:
            nonce = {"nonce": f"{rng.randrange(9):024x}", "at_ms": at}
            return NONCE | nonce | {"id": f"{NONCE['run']}-n{number}"}
        if rng.random() < 0.1:
            return HIL | {"id": f"{HIL['run']}-{number}", "at_ms": at}
        site, minute = rng.choice((SITE, OTHER_SITE)), {"minute_ms": at // 60_000 * 60_000}
        about = {"client": rng.choice(("panel", "eve")), "topic": rng.choice(("t", "u"))}
        event = rng.choice(
            (
                {"event": "delivered", **about, "label": "low", "count": 2, **minute},
                {"event": "delivered", **about, "label": "low", "purpose": "p", "count": 3}
                | minute,
                {"event": "publish-accepted", **about, "label": "low", "count": 4, **minute},
                {"event": "topic-labelled", **about, "label": "low"},
                {"event": "start", "name": rng.choice(("factory", "lab"))},
                {"event": "log-lost", "count": 9},
            )
        )
        ident = f"{site}-mediator-1-1800000000000-{number}"
        head = {"v": 1, "id": ident, "at_ms": at, "site": site, "role": "mediator", "inst": 1}
        return head | event


@contextmanager
def killed(at: int, before: bool) -> Iterator[None]:
    """Killed before or after this change of a file."""
    done = count(1)

    def wrapped(act: Callable[..., Any]) -> Callable[..., Any]:
        def run(*of: Any, **more: Any) -> Any:
            mine = next(done) == at
            if mine and before:
                raise Killed
            found = act(*of, **more)
            if mine:
                raise Killed
            return found

        return run

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in _CHANGES:
            patch.setattr(owner, name, wrapped(getattr(owner, name)))
        yield


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_nights_of_any_kind_say_what_one_report_says(
    seed: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"nights {seed}")
    monkeypatch.setattr(batches, "_FILES", rng.choice((3, 32)))
    monkeypatch.setattr(batches, "EACH", rng.choice((12_000, 4 << 30)))
    world, out, kills = World(tmp_path, rng), tmp_path / "out", 0
    for _ in range(4):
        world.night()
        with killed(rng.randrange(1, 120), rng.random() < 0.5):
            try:
                with outputs.opened(out):
                    job.run(spark, [str(world.logs)], out, days=rng.choice(_SOME))
            except Killed:
                kills += 1
        with outputs.opened(out):
            job.run(spark, [str(world.logs)], out, days=rng.choice(_SOME))
    assert kills, "no run was killed"
    world.whole()
    for days in rng.sample(_SOME, 2):
        with outputs.opened(out):
            grown = reported(spark, world.logs, out, days)
        fresh = reported(spark, world.every, tmp_path / f"once {days.until}", days)
        for name in ("kept", "headline", "sites", "tables", "began", "ended", "exit", "why"):
            assert grown[0][name] == fresh[0][name], name
        for name in fresh[1].keys() - {"lists", "quarantine"}:
            assert grown[1][name] == fresh[1][name], name
