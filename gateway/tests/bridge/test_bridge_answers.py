"""When a neighbour is answered: once what is to be kept is written, and with what is then."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bridge.crossing_world import m1
from sealmq.bridge import crossing
from sealmq.bridge.crossing import DROPPED, OK, Crossing
from sealmq.bridge.line import ANSWER
from sealmq.bridge.neighbour import Neighbour
from sealmq.bridge.spool import Spool


class Sent:
    """A line that keeps what is sent."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []

    def send_all(self, kind: int, bodies: list[bytes]) -> None:
        self.frames += [(kind, body) for body in bodies]


def test_a_neighbour_is_answered_once_all_that_it_is_answered_for_is_written(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "spool.db", lambda who, one, why: None)
    answers: list[Any] = []
    traffic = SimpleNamespace(take=lambda name, handed, one, answer: answers.append(answer))
    peer = SimpleNamespace(name="north", listen=None)
    made: Any = Neighbour(SimpleNamespace(spool=spool, traffic=traffic), peer)  # type: ignore[arg-type]
    made.line = first = Sent()
    for n in range(5):
        made._message(first, Crossing(n, 2, 1, b"site", 7, bytes(8), "a", m1(n + 1)).pack())
    for n in (0, 1):
        spool.came(b"x", n)
        answers[n](OK, "")
    assert first.frames == [], "nothing is answered before it is on disk"
    spool.write()
    said = [crossing.answer(n, OK) for n in (0, 1)]
    assert first.frames == [(ANSWER, one) for one in said]
    assert made._under_way == 3
    answers[2](DROPPED, "no")
    assert first.frames[2:] == [(ANSWER, crossing.answer(2, DROPPED, "no"))], "nothing is written"
    spool.came(b"x", 3)
    answers[3](OK, "")
    made.line = second = Sent()
    made._due, made._under_way = [], 0
    answers[4](OK, "")
    spool.write()
    assert len(first.frames) == 3, "its line is over"
    assert (second.frames, made._under_way) == ([], 0), "another line has not asked"
    spool.close()
