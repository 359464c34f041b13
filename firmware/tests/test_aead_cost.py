"""What the device's AES-CCM may cost, in instructions of 64-bit MicroPython counted by valgrind.

The bounds leave a few percent to what was measured; a change that exceeds one is felt in every
message. On 64-bit ARM there is no viper, so no such bound: these tests are not defined there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from count import count
from real_micropython import ROOT, VIPER

PATHS = (ROOT / "firmware", ROOT / "shared_spec", ROOT / "build" / "micropython" / "lib")


def each(what: str, n: int, aad: int, start: int = 0, suite: int = 1) -> float:
    """Instructions of one call: the difference of two runs."""
    script = Path(__file__).with_name("aead_cost.py")
    more = 100 if n < 4096 else 20
    few, many = ([times, what, suite, n, aad, start] for times in (103, 103 + more))
    return count(script, few, many, path=PATHS) / more


if 64 in VIPER:

    @pytest.mark.parametrize(
        ("what", "n", "aad", "start", "bound"),
        [
            ("seal", 64, 46, 0, 7_800),
            pytest.param("seal", 64, 46, 3, 9_000, marks=pytest.mark.full),
            pytest.param("seal", 0, 64, 0, 6_500, marks=pytest.mark.full),
            # 750 of them for a copy
            pytest.param("open", 64, 46, 0, 9_500, marks=pytest.mark.full),
            pytest.param("seal", 1024, 46, 0, 33_500, marks=pytest.mark.full),
            pytest.param("open", 1024, 46, 0, 35_000, marks=pytest.mark.full),
            pytest.param("seal", 4096, 46, 0, 120_000, marks=pytest.mark.full),
            # No cliff: a byte of a long message costs no more than one of a short one.
            ("seal", 16384, 46, 0, 470_000),
        ],
    )
    def test_ccm_message(what: str, n: int, aad: int, start: int, bound: int) -> None:
        assert 0 < each(what, n, aad, start) < bound

    @pytest.mark.full
    def test_new_ccm_key() -> None:
        assert 0 < each("new", 0, 0) < 6_000
