"""The device's base64url in place: each length, bits that are left over, nothing around it."""

from __future__ import annotations

import base64
import random

import pytest

from real_micropython import VIPER, micropython


@pytest.mark.parametrize("bits", VIPER)
def test_it_is_base64url_at_each_length_and_touches_nothing_else(bits: int) -> None:
    raw = random.Random(7).randbytes(48)
    lines = micropython(bits, "text64_device.py", raw.hex()).split()
    assert len(lines) == len(raw)
    for n, line in enumerate(lines, 1):
        text = base64.urlsafe_b64encode(raw[:n]).rstrip(b"=")
        assert bytes.fromhex(line) == b"\xff" * 3 + text + b"\xff" * (77 - len(text)), n
