"""The device's AEADs on real MicroPython against CPython's `cryptography`.

Every case is run by the 64-bit and by the 32-bit interpreter. The cases of one test go through one
process, which keeps one object a key, so that each message meets what the last one left behind.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from aead_cases import CCM, CHACHA, PLAIN, Case, oracle, run, sealed
from real_micropython import BITS, VIPER, micropython

SIZES = (0, 1, 15, 16, 17, 63, 64, 65, 255, 1000, 1023, 1024, 1025, 1040, 2047, 2048, 4096)
LONGEST = 65536
AADS = (0, 1, 13, 14, 15, 30, 46, 47, 60, 1000)

both_widths = pytest.mark.parametrize("bits", BITS)
viper_widths = pytest.mark.parametrize("bits", VIPER)
both_suites = pytest.mark.parametrize("suite", [CCM, CHACHA], ids=("ccm", "chacha"))
backends = pytest.mark.parametrize(
    "suite",
    [CCM, CHACHA, CCM + PLAIN, CHACHA + PLAIN],
    ids=("ccm", "chacha", "ccm-plain", "chacha-plain"),
)

PLAINS = [
    pytest.param(suite + PLAIN, marks=pytest.mark.full, id=f"{name}-plain")
    for name, suite in (("ccm", CCM), ("chacha", CHACHA))
]


def messages(
    suite: int, sizes: tuple[int, ...] = SIZES, aads: tuple[int, ...] = AADS
) -> Iterator[Case]:
    """Every size with every length of associated data, at every alignment, keys interleaved."""
    rng = random.Random(suite)
    keys = [rng.randbytes(32) for _ in range(3)]
    for i, (n, a) in enumerate((n, a) for n in sizes for a in aads):
        start = (i + i // 4) % 8
        buf = rng.randbytes(start + n + 16 + i % 5)
        yield Case("seal", suite, keys[i % 3], rng.randbytes(12), rng.randbytes(a), buf, start, n)


@both_widths
@backends
def test_seals_and_opens_like_cryptography(bits: int, suite: int, tmp_path: Path) -> None:
    # Without viper those of 4,096 bytes take as long as all others, and prove nothing else.
    sizes = SIZES if suite < PLAIN else SIZES[:-1]
    seals_and_opens(bits, list(messages(suite, sizes)), tmp_path)


@both_widths
@both_suites
@pytest.mark.parametrize("aads", [(46,), pytest.param(AADS, marks=pytest.mark.full)], ids=len)
def test_the_longest_messages(bits: int, suite: int, aads: tuple[int, ...], tmp_path: Path) -> None:
    seals_and_opens(bits, list(messages(suite, (LONGEST, 4096 + 3), aads)), tmp_path)


@pytest.mark.full
@both_widths
@backends
def test_long_messages(bits: int, suite: int, tmp_path: Path) -> None:
    seals_and_opens(bits, list(messages(suite, SIZES[-1:])), tmp_path)


def seals_and_opens(bits: int, cases: list[Case], tmp_path: Path) -> None:
    """Each is sealed as `cryptography` does it, and what that has sealed is opened."""
    calls = [call for case in cases for call in (case, sealed(case))]
    answers = run(bits, calls, tmp_path)
    for case, seal, opened in zip(cases, answers[::2], answers[1::2], strict=True):
        # Whole buffers: nothing in front of the message or behind the tag may change.
        assert seal == ("None", sealed(case).buf), (case.n, len(case.aad), case.start)
        got, buf = opened
        end = case.start + case.n
        assert got == "True", (case.n, len(case.aad), case.start)
        assert buf == case.buf[:end] + sealed(case).buf[end:]


def flips(case: Case, rng: random.Random) -> Iterator[Case]:
    """`case`, a call to open, with one bit changed at a time."""

    def flip(data: bytes, low: int, high: int) -> bytes:
        changed = bytearray(data)
        changed[rng.randrange(low, high)] ^= 1 << rng.randrange(8)
        return bytes(changed)

    end = case.start + case.n
    yield replace(case, nonce=flip(case.nonce, 0, 12))
    if case.aad:
        yield replace(case, aad=flip(case.aad, 0, len(case.aad)))
        yield replace(case, aad=case.aad[:-1])
    yield replace(case, aad=case.aad + b"\0")
    if case.n:
        yield replace(case, buf=flip(case.buf, case.start, end))
        yield replace(case, buf=flip(case.buf, end - 1, end))
    for byte in range(16):
        yield replace(case, buf=flip(case.buf, end + byte, end + byte + 1))


@pytest.mark.parametrize(
    ("bits", "suite"),
    [
        pytest.param(bits, suite + plain, marks=[pytest.mark.full] * (bits == 32 and plain > 0))
        for bits in BITS
        for suite in (CCM, CHACHA)
        for plain in (0, PLAIN)
    ],
)
def test_one_changed_bit_is_refused_and_wiped(bits: int, suite: int, tmp_path: Path) -> None:
    rng = random.Random(99)
    calls: list[tuple[Case, str]] = []
    for case in list(messages(suite, (0, 1, 15, 16, 17, 64, 255, 1024, 1025, 2049)))[::3]:
        genuine = sealed(case)
        calls += [(forged, "False") for forged in flips(genuine, rng)]
        calls.append((genuine, "True"))
    answers = run(bits, [case for case, _ in calls], tmp_path)
    for (case, expected), (got, buf) in zip(calls, answers, strict=True):
        assert got == expected
        if expected == "False":
            end = case.start + case.n
            assert buf == case.buf[: case.start] + bytes(case.n) + case.buf[end:]


@both_widths
@pytest.mark.parametrize(
    "suite", [pytest.param(CCM, id="ccm"), pytest.param(CHACHA, id="chacha"), *PLAINS]
)
def test_associated_data_of_any_length(bits: int, suite: int, tmp_path: Path) -> None:
    # 237 to 239, 301 to 303, 1325 to 1327, 2669 to 2671: where the shared buffer is full, with or
    # without a payload's first piece; 65279: the longest.
    rng = random.Random(7)
    key = rng.randbytes(32)
    cases = [
        Case("seal", suite, key, rng.randbytes(12), rng.randbytes(a), bytes(n + 16), 0, n)
        for n in (0, 1024)
        for a in (
            *range(2, 50),
            *range(237, 240),
            *range(301, 304),
            *range(1325, 1328),
            *range(2669, 2672),
            4096,
            16384,
            65279,
        )
    ]
    for case, answer in zip(cases, run(bits, cases, tmp_path), strict=True):
        assert answer == ("None", oracle(case)), (case.n, len(case.aad))


@both_widths
@both_suites
def test_a_megabyte(bits: int, suite: int) -> None:
    case = Case("seal", suite, bytes(range(32)), bytes(12), b"aad", bytes(2**20 + 19), 3, 2**20)
    assert micropython(bits, "aead_megabyte.py", suite, heap="4M").split() == [
        hashlib.sha256(sealed(case).buf).hexdigest(),
        "True",
        hashlib.sha256(bytes(3 + 2**20)).hexdigest(),
    ]


@both_widths
@backends
def test_wrong_lengths_raise_before_anything_happens(bits: int, suite: int, tmp_path: Path) -> None:
    good = Case("seal", suite, bytes(32), bytes(12), b"aad", bytes(range(64)), 8, 40)
    wrong = [
        *(replace(good, nonce=bytes(n)) for n in (0, 11, 13)),
        replace(good, aad=bytes(65280)),
        *(replace(good, n=n) for n in (-1, 41, 64, 2**24, 2**29)),
        *(replace(good, start=start) for start in (-1, -8, 9, 64, 2**29)),
        replace(good, start=2**29, n=2**29),
        replace(good, buf=bytes(15), start=0, n=0),
        replace(good, buf=b"", start=0, n=0),
        *(replace(good, key=bytes(n)) for n in (0, 16, 31, 33)),
        replace(good, suite=0),
        replace(good, suite=3),
    ]
    calls = [replace(case, op=op) for case in wrong for op in ("seal", "open")]
    for case, answer in zip(calls, run(bits, calls, tmp_path), strict=True):
        assert answer == ("ValueError", case.buf), case


@viper_widths
@both_suites
def test_a_message_allocates_nothing(bits: int, suite: int) -> None:
    assert micropython(bits, "aead_heap.py", suite) == "nothing allocated\n"


@viper_widths
def test_ccm_is_right_after_the_hardware_failed(bits: int) -> None:
    aead = AESCCM(bytes(32), tag_length=16)
    expected = [aead.encrypt(bytes(12), bytes(64), aad).hex() for aad in (b"first", b"second")]
    assert micropython(bits, "aead_broken.py").split() == expected
