"""How a line reads frames, however they are cut; without a socket."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from sealmq.bridge.line import _PIECE, _READ, ANSWER, MESSAGE, MOST, Line, LineLost

SIZES = (0, 1, 5, 100, 4096, 4096, 17_000, _READ - 5, _READ, 5, 300_000, MOST, 0, 64)


class Transport:
    """Says what was asked of it."""

    def __init__(self) -> None:
        self.aborted, self.paused, self.written = False, False, b""
        self.pieces: list[int] = []

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: bytes) -> None:
        self.written += data
        self.pieces.append(len(data))


def begun() -> tuple[Line, Any]:
    line, transport = Line(), Transport()
    line.connection_made(transport)  # type: ignore[arg-type]
    return line, transport


def feed(line: Line, data: bytes) -> None:
    while data:
        room = line.get_buffer(-1)
        assert len(room) > 0
        piece = data[: len(room)]
        room[: len(piece)] = piece
        line.buffer_updated(len(piece))
        data = data[len(piece) :]


def framed(size: int, kind: int, body: bytes = b"") -> bytes:
    return size.to_bytes(4, "big") + bytes((kind,)) + body


@pytest.mark.parametrize("cut", [1, 3, 4096, 16_384, 262_144, 10_000_000, None])
def test_frames_are_read_whole_however_they_come(cut: int | None) -> None:
    draw = random.Random(7)
    sizes = SIZES if cut != 1 and cut != 3 else SIZES[:5]
    sent = [(n % 9 + 1, draw.randbytes(size)) for n, size in enumerate(sizes)]
    raw = b"".join(framed(len(body), kind, body) for kind, body in sent)

    async def scene() -> None:
        line, transport = begun()
        got: list[tuple[int, bytes]] = []
        at = 0
        while at < len(raw):
            size = cut or draw.choice((1, 7, 1000, 16_000, 90_000))
            feed(line, raw[at : at + size])
            at += size
            if line._frames:
                got += await line.receive_some()
                assert not transport.paused
        assert got == sent
        line.abort()

    asyncio.run(scene())


def test_a_line_with_a_frame_that_is_too_long_is_ended() -> None:
    async def scene() -> None:
        line, transport = begun()
        feed(line, framed(1, MESSAGE, b"x") + framed(MOST + 1, MESSAGE))
        assert transport.aborted
        feed(line, b"on its way")
        assert await line.receive() == (MESSAGE, b"x")
        with pytest.raises(LineLost, match=f"a frame of {MOST + 1} bytes"):
            await line.receive()

    asyncio.run(scene())


def test_who_only_says_that_a_long_frame_comes_takes_no_memory() -> None:
    async def scene() -> None:
        line, transport = begun()
        most = []
        for piece in (framed(MOST, MESSAGE), bytes(1000), bytes(_READ), bytes(_READ)):
            feed(line, piece)
            most.append(len(line._raw))
        assert most[:2] == [_READ, _READ]
        assert most[3] <= 2 * (2 * _READ + 1005) + _READ
        feed(line, bytes(MOST - 1000 - 2 * _READ))
        assert await line.receive() == (MESSAGE, bytes(MOST))
        assert not transport.aborted
        line.abort()

    asyncio.run(scene())


def test_what_is_sent_in_parts_is_one_frame() -> None:
    async def scene() -> None:
        line, transport = begun()
        line.send(MESSAGE, b"ab", b"", b"c" * 300)
        line.send(MESSAGE)
        assert line.backlog == 312
        await asyncio.sleep(0)
        assert transport.written == framed(302, MESSAGE, b"ab" + b"c" * 300) + framed(0, MESSAGE)
        line.send_all(ANSWER, [b"a", b"", b"ccc"])
        assert line.backlog == 19
        transport.written = b""
        await asyncio.sleep(0)
        assert transport.written == b"".join(framed(len(b), ANSWER, b) for b in (b"a", b"", b"ccc"))
        assert not line.backlog
        line.abort()

    asyncio.run(scene())


def test_large_messages_of_one_turn_leave_in_pieces() -> None:
    async def scene() -> None:
        line, transport = begun()
        for n in range(28):
            line.send(MESSAGE, b"head", bytes((n,)) * 16_427)
        await asyncio.sleep(0)
        bodies = (b"head" + bytes((n,)) * 16_427 for n in range(28))
        assert transport.written == b"".join(framed(len(b), MESSAGE, b) for b in bodies)
        assert max(transport.pieces) <= _PIECE + 16_436
        assert len(transport.pieces) == 4
        line.abort()

    asyncio.run(scene())
