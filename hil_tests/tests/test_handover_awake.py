"""Epoch hand-over on the embedded broker: real devices, host clients, the operator's own tools."""

from __future__ import annotations

import random
import subprocess
from typing import Any

from devices import Device, device
from handover_cast import Cast, play
from running_site import Site, program, sealmq, until
from wire import CONTROL, RawClient

TOPIC = "machine/1/temperature"


def _rekey(site: Site, handover_s: int, *labels: str) -> None:
    words = [word for label in labels for word in ("--label", label)]
    done = sealmq("rekey", site.path, *words, "--handover", handover_s)
    assert done.returncode == 0, done.stderr


def _receive(reader: Device, count: int) -> list[str]:
    answer: dict[str, Any] = reader.do("receive", count=count, seconds=30)
    assert not answer["refused"], answer
    return [message["payload"] for message in answer["messages"]]


def test_devices_lose_nothing(shared_site: Site) -> None:
    site = shared_site
    with (
        device(site.enrol("m1-temp-sensor", "m1-temp")) as sensor,
        device(site.enrol("m1-temp-lamp", "m1-temp"), bits=32) as lamp,
        device(site.enrol("m1-control-panel", "m1-ctrl")) as panel,
    ):
        lamp.subscribe(TOPIC)
        panel.subscribe(TOPIC)
        for handover_s in (60, 0):
            words = [f"{handover_s} {n}" for n in range(6)]
            for word in words[:3]:
                sensor.publish(TOPIC, word)
            # Nobody has been listening when this happens.
            _rekey(site, handover_s, "m1-temp", "m1-ctrl")
            for word in words[3:]:
                sensor.publish(TOPIC, word)
            assert _receive(lamp, 6) == words
            assert _receive(panel, 6) == words
    ended = [row["client"] for row in site.audit("disconnect") if "keys" in row["reason"]]
    assert not ended


def test_status_shows_a_handover_and_who_is_waited_for(shared_site: Site) -> None:
    # This one never asks for what it is told of.
    raw = RawClient(shared_site.port, shared_site.enrol("control-room-lamp", "ctrl-room-temp"))
    raw.connect(keepalive=0)
    _rekey(shared_site, 600, "ctrl-room-temp")

    def shown() -> bool:
        notes = [p["note"] or "" for p in shared_site.status()["processes"]]
        return any(
            "epoch hand-over of ctrl-room-temp" in note
            and "connections that wait for a new epoch: 1" in note
            for note in notes
        )

    until("the hand-over in the status", shown)
    raw.close()
    until("its end", lambda: not any("wait" in str(p) for p in shared_site.status()["processes"]))


def test_host_clients_lose_nothing(shared_site: Site) -> None:
    async def story(cast: Cast) -> None:
        await cast.reader("m1-temp-display", "m1-temp")
        await cast.reader("monitor", "monitor")
        await cast.publisher("m1-temp-twin", "m1-temp")
        for handover_s in (60, 0):
            await cast.flow(3)
            await cast.rekey_sometime("m1-temp", "monitor", handover_s=handover_s)
        await cast.flow(3)
        await cast.check()

    play(shared_site, random.randrange(1 << 32), story)


def test_an_identity_that_is_lent_goes_on(shared_site: Site) -> None:
    """`sealmq sub` as a client at the label, before and behind a rekey."""
    who = "--client", "m2-temp-sensor"
    command = [program(), "sub", shared_site.path, *who, "-t", "machine/2/#"]
    publish = "pub", shared_site.path, *who, "-t", "machine/2/temperature"
    with subprocess.Popen([*map(str, command), "-C", "3"], stdout=subprocess.PIPE) as sub:
        until("the tool", lambda: shared_site.audit("connect", client="m2-temp-sensor"))
        assert sub.stdout is not None
        for word in ("before", "behind", "more"):
            until(
                f"{word} to be taken",
                lambda word=word: sealmq(*publish, "-m", word, "-q", 1).returncode == 0,  # type: ignore[misc]
            )
            assert sub.stdout.readline().decode().strip() == word
            if word == "before":
                _rekey(shared_site, 0, "m2-temp")
        assert sub.wait(30) == 0
    # It did not have to wait until the mediator gave up waiting.
    assert not shared_site.audit("handover-missed")


def test_the_seventeenth_connection_ends_the_first(shared_site: Site) -> None:
    raw = RawClient(shared_site.port, shared_site.enrol("m2-control-panel", "m2-ctrl"))
    raw.provision()
    wires = []
    for n in range(17):
        raw.client_id = b"panel-%d" % n
        assert raw.connect(keepalive=0) == b"\0\0"
        wires.append(raw.wire)
    assert wires[0].closed()
    for wire in wires[1:]:
        wire.send(b"\xc0\0")
        got = wire.read()
        while got is not None and got[0] != 0xD0:
            assert got[1][2:5] == CONTROL
            got = wire.read()
        assert got is not None, "another one than the oldest was ended"
    # One more of a session that is open ends that one, and no other.
    raw.client_id = b"panel-9"
    raw.connect(keepalive=0)
    assert wires[9].closed()
    wires[1].send(b"\xc0\0")
    assert wires[1].read() is not None
    for wire in (*wires, raw.wire):
        wire.close()
