"""Frames of a line, however they are cut; and when a neighbour is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.crossing_world import m1
from sealmq.bridge import crossing
from sealmq.bridge.crossing import DROPPED, OK, Crossing
from sealmq.bridge.line import ANSWER, MESSAGE, MOST, PING, Line
from sealmq.bridge.neighbour import Neighbour
from sealmq.bridge.spool import Spool

FRAMES = [(PING, b""), (MESSAGE, bytes(range(256)) * 5), (ANSWER, b"\0" * 9), (PING, b"")]


class Transport:
    """What a line writes."""

    def __init__(self) -> None:
        self.wrote, self.ended = b"", False

    def set_write_buffer_limits(self, high: int) -> None: ...

    def write(self, data: bytes) -> None:
        self.wrote += data

    def abort(self) -> None:
        self.ended = True


def line() -> tuple[Line, Any]:
    made, transport = Line(), Transport()
    made.connection_made(transport)  # type: ignore[arg-type]
    return made, transport


@pytest.mark.parametrize("piece", [1, 2, 4, 5, 6, 7, 640, 1285, 1286, 5000])
def test_frames_are_the_same_however_they_are_cut(piece: int) -> None:
    async def run() -> None:
        from_, to = line(), line()
        for kind, body in FRAMES:
            from_[0].send(kind, body)
        from_[0].send_all(ANSWER, [b"a", b"", b"ccc"])
        await asyncio.sleep(0)
        wrote = from_[1].wrote
        for at in range(0, len(wrote), piece):
            to[0].data_received(wrote[at : at + piece])
        more = [(ANSWER, b"a"), (ANSWER, b""), (ANSWER, b"ccc")]
        assert await to[0].receive_some() == [*FRAMES, *more]
        assert not to[1].ended

    asyncio.run(run())


@pytest.mark.parametrize("before", [b"", b"\0"])
def test_a_frame_that_is_too_large_ends_the_line(before: bytes) -> None:
    async def run() -> None:
        made, transport = line()
        made.data_received(before)
        made.data_received(((MOST + 1).to_bytes(4, "big") + b"\6")[len(before) :])
        assert transport.ended

    asyncio.run(run())


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
