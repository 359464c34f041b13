"""The device's Poly1305 where its arithmetic is hardest: carries, and sums around 2**130 - 5.

The oracle is RFC 8439's definition (section 2.5) in big integers. Through an AEAD such sums would
not come up in the age of the universe. RFC 8439's own vectors: test_primitive_vectors.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from poly1305_cases import run
from real_micropython import VIPER

P = (1 << 130) - 5
CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF


def oracle(key: bytes, message: bytes) -> bytes:
    r = int.from_bytes(key[:16], "little") & CLAMP
    h = 0
    for at in range(0, len(message), 16):
        h = (h + int.from_bytes(message[at : at + 16] + b"\1", "little")) * r % P
    return (h + int.from_bytes(key[16:], "little") & (1 << 128) - 1).to_bytes(16, "little")


def sums(rng: random.Random) -> Iterator[tuple[bytes, bytes]]:
    """Messages of two blocks whose sum, before it is multiplied by a small r, is any chosen h."""
    near = [P + d for d in range(-8, 0)] + [*range(8)]
    near += [(1 << 130) - 1 - (1 << i) for i in range(0, 129, 7)] + [1 << i for i in range(130)]
    for h in near:
        # r = 1: h = b0 + b1 mod P, where each block is its 16 bytes plus 2**128.
        rest = (h - 2 * (1 << 128)) % P
        first = min(rest, (1 << 128) - 1)
        second = rest - first
        if second < 1 << 128:
            key = (1).to_bytes(16, "little") + rng.randbytes(16)
            yield key, first.to_bytes(16, "little") + second.to_bytes(16, "little")


@pytest.mark.parametrize("bits", VIPER)
def test_chosen_and_random_sums(bits: int, tmp_path: Path) -> None:
    rng = random.Random(5)
    cases = list(sums(rng))
    full = b"\xff" * 32
    for blocks in (1, 2, 3, 64):
        for key in (full, CLAMP.to_bytes(16, "little") * 2, bytes(32), rng.randbytes(32)):
            cases += [(key, b"\xff" * 16 * blocks), (key, bytes(16 * blocks))]
    for _ in range(500):
        # Bytes from a few extremes, so that limbs are full or empty.
        extreme = bytes(rng.choice(b"\x00\x01\x7f\x80\xfe\xff") for _ in range(32 + 48))
        cases += [(extreme[:32], extreme[32:]), (rng.randbytes(32), rng.randbytes(160))]
    for case, tag in zip(cases, run(bits, cases, tmp_path), strict=True):
        assert tag == oracle(*case), case
