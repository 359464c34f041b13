"""Frames, tap and search: what is handed on, recorded and found are the very bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sealmq.demo.capture import load
from sealmq.demo.frames import FrameError, Frames, decode, flip_bit, payload_at
from sealmq.demo.search import forms, search
from sealmq.demo.tap import Line, Tap
from sealmq.mqtt import Publish, build

PACKETS = [
    build.connect("someone"),
    build.publish("a/b", b"x" * 200, 1, packet_id=7),
    build.publish("a/b", b"", 0),
    build.publish("long", bytes(20000)),
    build.pingreq(),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 100_000])
def test_frames_give_whole_packets_at_any_chunking(size: int) -> None:
    stream = b"".join(PACKETS)
    frames = Frames()
    out: list[bytes] = []
    for at in range(0, len(stream), size):
        out += frames.feed(stream[at : at + size])
    assert out == PACKETS
    assert frames.rest == b""
    assert frames.feed(b"\x30\x7f") == []
    assert frames.rest == b"\x30\x7f"


@pytest.mark.parametrize("raw", [b"\x30\xff\xff\xff\xff", b"\x30\xff\xff\xff\x7f"])
def test_frames_refuse_a_length_that_is_none(raw: bytes) -> None:
    with pytest.raises(FrameError):
        Frames().feed(raw)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("size", [1, 64, 300])
def test_a_flipped_bit_is_one_bit_of_the_payload(qos: int, size: int) -> None:
    frame = build.publish("a/b", bytes(size), qos, packet_id=qos)
    assert frame[payload_at(frame) :] == bytes(size)
    changed = flip_bit(frame)
    differ = [i for i in range(len(frame)) if frame[i] != changed[i]]
    assert len(differ) == 1
    assert differ[0] >= payload_at(frame)
    assert bin(frame[differ[0]] ^ changed[differ[0]]).count("1") == 1
    (packet,) = decode([changed], True)
    assert isinstance(packet, Publish)
    assert packet.topic == "a/b"


def test_search_finds_every_form_and_nothing_else() -> None:
    text = "load 0.42 0.40 0.39 #1"
    for form, needle in forms(text).items():
        (found, *_) = search([text, "another text, not there"], {"here": b"\x00\xff" + needle})
        assert (found.text, found.where, found.at) == (text, "here", 2), form
    assert search([text], {"here": text[:-1].encode() + b"2", "there": b""}) == []
    assert search([], {"here": b"anything"}) == []


# A server that answers each packet with it, and what a test does between the taps.
def play(tmp_path: Path, act: Callable[[Tap, int], object]) -> list[bytes]:
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Frames()
        with contextlib.suppress(OSError):
            while data := await reader.read(1000):
                for frame in frames.feed(data):
                    got.append(frame)
                    writer.write(frame)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        tap = Tap(tmp_path / "tap")
        port = await tap.listen()
        tap.server = "127.0.0.1", server.sockets[0].getsockname()[1]
        result = act(tap, port)
        if asyncio.iscoroutine(result):
            await asyncio.wait_for(result, 10)
        await tap.close()
        server.close()

    asyncio.run(run())
    return got


def recorded(tmp_path: Path) -> int:
    """How many bytes the tap has seen on their way to the server."""
    path = tmp_path / "tap" / "0001-to-server.bin"
    return path.stat().st_size if path.exists() else 0


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


async def exchange(port: int, packets: list[bytes], answers: int) -> list[bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    frames = Frames()
    out: list[bytes] = []
    for packet in packets:
        writer.write(packet)
    while len(out) < answers:
        out += frames.feed(await reader.read(1000))
    writer.close()
    return out


def test_a_tap_hands_on_and_records(tmp_path: Path) -> None:
    async def act(tap: Tap, port: int) -> None:
        assert await exchange(port, PACKETS, len(PACKETS)) == PACKETS
        assert tap.lines[0].to_server == PACKETS

    assert play(tmp_path, act) == PACKETS
    (stream,) = load(tmp_path / "tap")
    assert stream.raw_to == b"".join(PACKETS)
    assert stream.raw_from == stream.raw_to
    assert stream.client_id == "someone"
    assert [p.topic for p in stream.published()] == ["a/b", "long"]


def test_a_tap_injects_between_packets_and_changes_one_but_records_the_sent(tmp_path: Path) -> None:
    extra = build.publish("injected", b"1")

    def meddle(line: Line, to_server: bool, packet: bytes) -> bytes:
        return flip_bit(packet) if to_server and packet == PACKETS[1] else packet

    async def act(tap: Tap, port: int) -> None:
        tap.meddle = meddle
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        # Half a packet, then an injection, then the rest: the injection comes first, whole.
        writer.write(PACKETS[1][:9])
        await until(lambda: recorded(tmp_path) == 9)
        await tap.lines[0].inject(True, extra)
        writer.write(PACKETS[1][9:])
        frames = Frames()
        out: list[bytes] = []
        while len(out) < 2:
            out += frames.feed(await reader.read(1000))
        writer.close()
        assert out == [extra, flip_bit(PACKETS[1])]

    assert play(tmp_path, act) == [extra, flip_bit(PACKETS[1])]
    (stream,) = load(tmp_path / "tap")
    assert stream.raw_to == PACKETS[1]


def test_a_tap_without_a_server_closes_the_connection(tmp_path: Path) -> None:
    async def act(tap: Tap, port: int) -> None:
        tap.server = None
        reader, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""

    play(tmp_path, act)
