"""A bridge that turns bad: while SITE/bad is there, it hands over each message again and again."""

from __future__ import annotations

import sys
from pathlib import Path

from sealmq.bridge import crossing, neighbour, process
from sealmq.bridge.crossing import Crossing
from sealmq.bridge.line import MESSAGE

SITE = Path(sys.argv[1])


class Bad(neighbour.Neighbour):
    def _answer(self, body: bytes) -> None:
        seq, _, _ = crossing.read_answer(body)
        waiting = self._answered.get(seq)
        super()._answer(body)
        if waiting is not None and self.line is not None and (SITE / "bad").exists():
            one = waiting.message
            again = Crossing(
                1 << 60, one.flags, one.hops, one.site, one.number, one.token, one.topic, one.m1
            ).pack()
            for _ in range(3):
                self.line.send(MESSAGE, again)


process.Neighbour = Bad  # type: ignore[attr-defined]

if __name__ == "__main__":
    sys.exit(process.main())
