"""The first publish on a topic labels it, durably, before anybody is told (SPEC.md 6.1, step 5)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from devices import DeviceError, device
from running_site import Site

NEW = "machine/1/vibration"


def test_kill_right_behind_the_puback_loses_no_label(site: Site) -> None:
    site.up()
    sensor = site.enrol("m1-temp-sensor", "m1-temp")
    other = site.enrol("m2-temp-sensor", "m2-temp")
    with device(sensor) as first:
        first.publish(NEW, "0.1")
        killed = site.kill("mediator")
    site.back("mediator", killed)
    with device(other) as second:
        with pytest.raises(DeviceError, match="other-label") as refused:
            second.publish(NEW, "0.2")
        assert refused.value.kind == "Denied"
    with device(sensor) as again:
        again.publish(NEW, "0.3")
    assert site.audit("topic-labelled", topic=NEW)[0]["label"] == "m1-temp"


def test_a_reader_above_reads_and_one_beside_does_not(shared_site: Site) -> None:
    site = shared_site
    with (
        device(site.enrol("monitor", "monitor"), bits=32) as monitor,
        device(site.enrol("m2-control-panel", "m2-ctrl")) as beside,
        device(site.enrol("m1-temp-sensor", "m1-temp")) as sensor,
    ):
        monitor.subscribe("machine/#")
        beside.subscribe("machine/#")
        sensor.publish("machine/1/temperature", "21.5")
        (message,) = monitor.receive(1)
        assert (message["topic"], message["payload"]) == ("machine/1/temperature", "21.5")
        assert beside.receive(1, seconds=1) == []


def test_the_fsync_comes_before_the_message_moves_and_before_the_puback(
    site: Site, tmp_path: Path
) -> None:
    strace = shutil.which("strace")
    assert strace, "strace is missing: make setup"
    trace = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,write,writev,sendto,sendmsg"
    # With the filter in the kernel other calls cost nothing.
    site.up(
        under=(
            strace,
            "-f",
            "--seccomp-bpf",
            "-y",
            "-xx",
            "-s",
            "96",
            "-e",
            calls,
            "-o",
            str(trace),
        )
    )
    with device(site.enrol("m1-temp-sensor", "m1-temp")) as sensor:
        sensor.publish(NEW, "0.1")
    pid = site.pid("mediator")
    site.down()
    calls_made = completed(trace.read_text())
    loop = [c for c in calls_made if c.thread == pid]
    topic = NEW.encode().decode("latin-1")
    # To the broker, m3 begins with 13; what the client sent begins with 12 and is only read.
    move = next(c for c in loop if re.search(topic + r"..\x13", c.text, re.DOTALL))
    ack = next(c for c in loop if c.begun > move.begun and re.search('"\x40\x02', c.text))
    welcome = [c for c in loop if c.begun < move.begun and re.search('"\x20\x02\x00\x00', c.text)][
        -1
    ]
    labels = [
        c
        for c in calls_made
        if c.name in ("fsync", "fdatasync") and "mediator.db" in c.text and welcome.begun < c.begun
    ]
    assert labels, "nothing was synced behind the welcome"
    assert labels[0].ended < move.begun < ack.begun
    assert all(c.thread != pid for c in labels), "the event loop itself waited for the disk"


class Call(NamedTuple):
    """A system call: the lines of the trace on which it began and ended."""

    thread: int
    name: str
    begun: int
    ended: int
    text: str


def completed(trace: str) -> list[Call]:
    """Every call of a trace made with -f -xx, its strings as characters."""
    calls: list[Call] = []
    open_calls: dict[int, tuple[int, str]] = {}
    for at, raw in enumerate(trace.splitlines()):
        line = re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), raw)
        found = re.match(r"(\d+) +(?:<\.\.\. )?(\w+)(?:\(| resumed>)", line)
        if not found:
            continue
        thread, name = int(found[1]), found[2]
        if line.endswith("<unfinished ...>"):
            open_calls[thread] = (at, line)
        elif " resumed>" in line:
            begun, start = open_calls.pop(thread)
            calls.append(Call(thread, name, begun, at, start + line))
        else:
            calls.append(Call(thread, name, at, at, line))
    return sorted(calls, key=lambda c: c.begun)
