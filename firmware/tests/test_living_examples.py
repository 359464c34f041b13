"""The two main.py of firmware/README.md, and its ten lines about purposes, run as they stand there;
the hardware is played.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from device_script import PRELUDE, Board, board
from living_script import NETWORK, gives_receipts
from peer_connection import Connection
from real_micropython import ROOT

BITS = ("64", "32")

# `machine` and `network`; the files of the board lie elsewhere. The watchdog ends the program.
HARDWARE = (
    PRELUDE.replace("c = client()\n", "").replace("from sealmq_device import Client\n", "")
    + NETWORK.replace("from sealmq_device.wlan import Wlan\n", "")
    + """
import io, os
class machine:
    class WDT:
        left = 300
        def __init__(self, timeout):
            say("watchdog", timeout)
        def feed(self):
            self.left -= 1
            if not self.left:
                say(len(Radio.log), Radio.log[-1])
                sys.exit()
    class RTC:
        def memory(self, data=None):
            if data is None:
                try:
                    return open(sys.argv[1] + ".rtc", "rb").read()
                except OSError:
                    return b""
            with open(sys.argv[1] + ".rtc", "wb") as f:
                f.write(data)
    def deepsleep(ms):
        say("asleep", ms, Radio.active)
        sys.exit()
sys.modules["machine"] = machine
with open("WIFI", "w") as f:
    f.write('{"ssid": "plant", "key": "right"}')
"""
)


def example(b: Board, title: str) -> str:
    text = (ROOT / "firmware" / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"```python\n(# main.py: {title}.*?)```", text, re.S)
    assert found
    wifi = str(b.enrolment.with_name("wifi.json"))
    hardware = HARDWARE.replace("WIFI", wifi)
    script = found[1].replace("/sealmq.json", str(b.enrolment)).replace("/wifi.json", wifi)
    # It would take ten seconds to the next message.
    return hardware + script.replace("turn(200)", "turn(2)").replace(">= 10:", ">= 0:")


@pytest.mark.parametrize("bits", BITS)
def test_on_mains_power(bits: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        gives_receipts(b)
        said = b.run(bits, example(b, "publishes each ten"), "")
        assert said[0] == "watchdog 150000"
        assert said[1].strip() == "up"
        assert said[2:] == ["2 connect plant"]
        assert b.peer.said("subscribe") == [("machine/1/target", 1)]
        sent = [(name, plain, flags) for name, plain, flags, *_ in b.peer.said("publish")]
        assert sent[0] == ("machine/1/state", b"here", 3)
        assert set(sent[1:]) == {("machine/1/temperature", b"21.5", 2)}


@pytest.mark.parametrize("bits", BITS)
def test_on_a_battery(bits: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        gives_receipts(b)
        script = example(b, "measures at each wake")
        for _ in range(3):
            assert b.run(bits, script, "") == ["asleep 300000 False"]
        sent = [(name, plain) for name, plain, *_ in b.peer.said("publish")]
        assert sent == [("machine/1/temperature", b"21.5")] * 3
        assert [boot for _, boot, _ in b.peer.said("connected")] == [1, 2, 3]


@pytest.mark.parametrize("bits", BITS)
def test_what_a_boards_data_is_for(bits: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            target = b"machine/1/target"
            c.publish(target, c.m3(target, c.m1(target, b"19", c.site.own, 101), c.site.own), 1)
            return False

        b.peer.on_publish = on_publish
        text = (ROOT / "firmware" / "README.md").read_text(encoding="utf-8")
        found = re.search(r"## Purposes\n.*?```python\n(.*?)```", text, re.S)
        assert found
        script = found[1].replace("/sealmq.json", str(b.enrolment))
        assert b.run(bits, script, "") == ["machine/1/target b'19'"]
        assert [command for _, command, _ in b.peer.said("command")] == [
            "!RESERVE/machine/1/temperature{service,safety|staff-performance}",
            "!RESERVE/machine/1/temperature{}",
        ]
        assert b.peer.said("subscribe") == [("!AP/machine/1/target{control}", 1)]
