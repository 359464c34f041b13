"""Every (key, nonce) that the taps see, as lines of shared_spec/nonce.schema.json, in segments.

RUN-nonces-NUMBER.jsonl, made as those of the results are; but synced at a segment's end, since a
tap must not hold up what it reads along. What cannot be written ends the run as failed, not a tap.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

from .errors import RigError, words
from .nonces import Pair
from .results import Segment

VERSION = 1


class Pairs:
    """Thread-safe. boards: names by client number. lines_each: of a segment."""

    def __init__(
        self, folder: Path | None, run: str, boards: Mapping[int, str], *, lines_each: int = 5000
    ) -> None:
        """folder: None: they go nowhere."""
        self._folder, self._run, self._boards, self._each = folder, run, boards, lines_each
        self._lock = threading.Lock()
        self._number = self._segments = 0
        self._file: Segment | None = None
        self._failed: OSError | None = None

    def add(self, pair: Pair) -> None:
        """One packet came by."""
        with self._lock:
            if self._folder is None or self._failed is not None:
                return
            try:
                self._write(self._folder, pair)
            except OSError as error:
                self._failed = error

    def close(self) -> None:
        """The last segment gets its name; what still comes is too late. RigError: not everything
        could be written.
        """
        with self._lock:
            self._folder = None
            try:
                if self._failed is None:
                    self._end()
            except OSError as error:
                self._failed = error
            if self._failed is not None:
                raise RigError(f"the nonces could not be written: {words(self._failed)}")

    def _write(self, folder: Path, pair: Pair) -> None:
        if self._file is None:
            self._segments += 1
            self._file = Segment(folder, f"{self._run}-nonces-{self._segments}")
        self._number += 1
        row: dict[str, str | int] = {
            "v": VERSION,
            "id": f"{self._run}-n{self._number}",
            "run": self._run,
            "at_ms": pair.at_ms,
            "layer": pair.layer,
            "key": pair.key,
            "nonce": pair.nonce,
            "digest": pair.digest,
        }
        if (board := self._boards.get(pair.client)) is not None:
            row["board"] = board
        self._file.append(json.dumps(row).encode() + b"\n", sync=False)
        if self._number % self._each == 0:
            self._end()

    def _end(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
