"""What a publish on a topic of earlier ones may cost, in instructions of 64-bit MicroPython under
valgrind: 21 bytes of topic, AES-256-CCM.

The bounds are what was promised beside umqtt over TLS 1.3 with AES in the processor (28,400
instructions at 64 bytes, 63,800 at 1 KiB, 172,000 and 627,000 at 4 and 16 KiB; a record of 64 bytes
6,270): 0.6 of it at 64 bytes, less than 1.3 and 1.5 above; two seals 2.2 records. On 64-bit ARM
there is no viper, so no such bound.
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
        ("what", "qos", "size", "bound"),
        [
            ("publish", 0, 64, 17_000),
            pytest.param("publish", 1, 64, 25_000, marks=pytest.mark.full),
            pytest.param("publish", 0, 256, 28_000, marks=pytest.mark.full),
            pytest.param("publish", 0, 1024, 81_000, marks=pytest.mark.full),
            pytest.param("publish", 0, 4096, 255_000, marks=pytest.mark.full),
            ("publish", 0, 16384, 965_000),
            ("seals", 0, 64, 13_700),
        ],
    )
    def test_a_publish_like_the_last(
        what: str, qos: int, size: int, bound: int, tmp_path: Path
    ) -> None:
        with board(tmp_path) as b:
            b.provision()
            script = Path(__file__).with_name("publish_cost.py")
            more = 200 if size < 4096 else 20
            few, many = ([b.enrolment, f"{what},{qos},{size},{n}"] for n in (103, 103 + more))
            cost = count(script, few, many, path=PATHS) / more
            b.peer.settle()
        assert 0 < cost < bound
