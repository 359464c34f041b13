"""ChaCha20-Poly1305 in viper against CPython's `cryptography`: every way in which a message can lie
across words, blocks of 64 and of 16 bytes, up to what hosts publish; seeded, so that a failure
repeats."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aead_cases import CHACHA, Case, oracle, run, sealed
from real_micropython import VIPER

MOST = 16384

viper_widths = pytest.mark.parametrize("bits", VIPER)


def case(rng: random.Random, n: int, start: int, a: int) -> Case:
    """A message of n bytes at buf[start:], between bytes that must stay."""
    buf = rng.randbytes(start + n + 16 + rng.randrange(8))
    return Case(
        "seal", CHACHA, rng.randbytes(32), rng.randbytes(12), rng.randbytes(a), buf, start, n
    )


def extreme(rng: random.Random, made: Case) -> Case:
    """The same with key, nonce and message of few different bytes: full and empty words."""
    few = rng.choice((b"\x00", b"\xff", b"\x00\xff", b"\x7f\x80\xff", b"\x00\x01\xfe"))
    key, nonce, buf = (bytes(rng.choices(few, k=size)) for size in (32, 12, len(made.buf)))
    return replace(made, key=key, nonce=nonce, buf=buf)


def short(rng: random.Random) -> Iterator[Case]:
    """Every size up to two blocks of key stream and a bit, at each of eight alignments."""
    for n in range(134):
        for start in range(8):
            yield case(rng, n, start, rng.randrange(48))


def long(rng: random.Random, count: int) -> Iterator[Case]:
    """Sizes around whole blocks, small ones more often, and the longest at every alignment."""
    for _ in range(count):
        blocks = int(2 ** rng.uniform(1, 8))
        n = min(MOST, max(0, 64 * blocks + rng.randrange(-18, 19)))
        yield case(rng, n, rng.randrange(8), rng.randrange(200))
    for start in range(8):
        yield case(rng, MOST - rng.randrange(2), start, start)


def check(bits: int, cases: list[Case], rng: random.Random, folder: Path) -> None:
    """Each sealed, opened, and opened once more with one bit changed."""
    calls: list[Case] = []
    expected: list[tuple[str, bytes]] = []
    for made in cases:
        end = made.start + made.n
        before, behind = made.buf[: made.start], made.buf[end + 16 :]
        genuine = sealed(made)
        calls.append(made)
        expected.append(("None", before + oracle(made) + behind))
        calls.append(genuine)
        expected.append(("True", made.buf[:end] + genuine.buf[end:]))
        changed = bytearray(genuine.buf)
        changed[rng.randrange(made.start, end + 16)] ^= 1 << rng.randrange(8)
        calls.append(replace(genuine, buf=bytes(changed)))
        expected.append(("False", before + bytes(made.n) + bytes(changed[end:])))
    for call, got, want in zip(calls, run(bits, calls, folder), expected, strict=True):
        assert got == want, (call.op, call.n, call.start, len(call.aad), call.key.hex())


@viper_widths
def test_short_messages(bits: int, tmp_path: Path) -> None:
    rng = random.Random(20)
    check(bits, list(short(rng)), rng, tmp_path)


@viper_widths
def test_long_messages(bits: int, tmp_path: Path) -> None:
    rng = random.Random(bits)
    check(bits, list(long(rng, 30)), rng, tmp_path)


@viper_widths
def test_extreme_words(bits: int, tmp_path: Path) -> None:
    rng = random.Random(bits)
    check(bits, [extreme(rng, made) for made in list(short(rng))[::5]], rng, tmp_path)


@pytest.mark.full
@viper_widths
@pytest.mark.parametrize("seed", range(4))
def test_many_messages(bits: int, seed: int, tmp_path: Path) -> None:
    rng = random.Random(1000 + seed)
    cases = [*short(rng), *long(rng, 200)]
    check(
        bits, [extreme(rng, made) if rng.random() < 0.3 else made for made in cases], rng, tmp_path
    )
