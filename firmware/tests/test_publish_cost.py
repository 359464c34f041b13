"""What a publish like the last ones may cost, in instructions of 64-bit MicroPython under valgrind.

64 bytes of payload, 21 of topic, AES-256-CCM. The bounds are what was promised: 1.6 times umqtt's
plain publish (12,300), 2.4 times a TLS 1.3 record of mbedTLS (6,400); without the fast publish it
is three times as much. On 64-bit ARM there is no viper, so no such bound.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from count import count
from device_script import board
from real_micropython import ROOT, VIPER

PATHS = (ROOT / "firmware", ROOT / "shared_spec")

if 64 in VIPER:

    @pytest.mark.parametrize(
        ("what", "qos", "bound"),
        [
            ("publish", 0, 19_200),
            pytest.param("publish", 1, 28_000, marks=pytest.mark.full),
            ("seals", 0, 15_300),
        ],
    )
    def test_a_publish_like_the_last(what: str, qos: int, bound: int, tmp_path: Path) -> None:
        with board(tmp_path) as b:
            b.provision()
            script = Path(__file__).with_name("publish_cost.py")
            few, many = ([b.enrolment, f"{what},{qos},{n}"] for n in (103, 303))
            cost = count(script, few, many, path=PATHS) / 200
            b.peer.settle()
        assert 0 < cost < bound
