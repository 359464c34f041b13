"""Boards that know purposes, on a real site as `sealmq init` makes it: one reserves what it
publishes, others read it for a purpose, or do not.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from devices import Device, DeviceError, device
from running_site import Site, micropython, until

AIO = Path(__file__).with_name("aio_purposes.py")

every = pytest.mark.parametrize("bits", [pytest.param(64, marks=pytest.mark.full), 32])


_words = itertools.count()


def heard(board: Device, sensor: Device, topic: str) -> list[str]:
    """What a reader has heard on a topic, up to a last word on another one that is for all."""
    word = f"word {next(_words)}"
    sensor.publish(f"{topic}/end", word)
    found: list[dict[str, Any]] = []
    while word not in [m["payload"] for m in found]:
        messages = board.receive(1)
        assert messages, f"no {word}; before it: {found}"
        found += messages
    return [m["payload"] for m in found if m["topic"] == topic]


@every
def test_a_board_says_what_its_data_is_for(shared_closed_site: Site, bits: int) -> None:
    site = shared_closed_site
    topic = f"bench/{bits}"
    with ExitStack() as stack:

        def board(name: str, label: str) -> Device:
            return stack.enter_context(device(site.enrol(f"{name}-{bits}", label), bits))

        sensor = board("sensor", "m1-temp")
        mechanic = board("mechanic", "m1-ctrl")
        analyst = board("analyst", "m1-ctrl")
        sensor.do("reserve", filter=f"{topic}/end", aip=["service", "analytics"])
        for reader, purpose in ((mechanic, "maintenance"), (analyst, "energy")):
            reader.subscribe(f"{topic}/end", purpose)
            reader.subscribe(topic, purpose)
        # Nobody has said yet what it is for.
        sensor.publish(topic, "unreserved")
        assert heard(mechanic, sensor, topic) == heard(analyst, sensor, topic) == []
        # A purpose below the one that is allowed; the other one is not.
        sensor.do("reserve", filter=topic, aip=["service"], pip=["staff-performance"])
        sensor.publish(topic, "reserved")
        assert heard(mechanic, sensor, topic) == ["reserved"]
        assert heard(analyst, sensor, topic) == []
        # In a new connection the subscription is for the same.
        mechanic.do("disconnect")
        mechanic.connect()
        sensor.publish(topic, "after a reconnect")
        assert heard(mechanic, sensor, topic) == ["after a reconnect"]
        # Withdrawn.
        sensor.do("release", filter=topic)
        sensor.publish(topic, "withdrawn")
        assert heard(mechanic, sensor, topic) == []
    commands = site.audit("command", client=f"sensor-{bits}")
    said = [(row["topic"], row["detail"]) for row in commands]
    assert said == [
        (f"{topic}/end", "reserve aip=analytics,service pip="),
        (topic, "reserve aip=service pip=staff-performance"),
        (topic, "release"),
    ]


@every
def test_what_is_not_a_boards_to_say(shared_closed_site: Site, bits: int) -> None:
    """Another machine's data; purposes that there are not; others' subscriptions. The session goes
    on."""
    with device(shared_closed_site.enrol(f"other-{bits}", "m1-temp"), bits) as board:
        for fields, rule in (
            ({"op": "reserve", "filter": "machine/2/temperature"}, "entitled.other-label"),
            ({"op": "reserve", "filter": "machine/+/temperature"}, "entitled.no-grant"),
            ({"op": "reserve", "filter": "mine", "aip": ["contrl"]}, "unknown"),
            (
                {"op": "presubscribe", "client": "monitor", "filter": "#", "purpose": "control"},
                "entitled.not-steward",
            ),
            ({"op": "subscribe", "filter": "machine/1/temperature"}, "subscribe.no-purpose"),
            (
                {"op": "subscribe", "filter": "machine/1/temperature", "purpose": "energy"},
                "subscribe.not-allowed",
            ),
        ):
            with pytest.raises(DeviceError, match=rf"Denied: .*\(rule purposes\.{rule}\)"):
                board.do(**fields)
        own = f"mine/{bits}"
        board.do("presubscribe", client=f"other-{bits}", filter=own, purpose="control")
        board.do("reserve", filter=own, aip=["operation"])
        # Declared, and then not said.
        board.subscribe(own)
        board.publish(own, "heard")
        assert [m["payload"] for m in board.receive(1)] == ["heard"]


@every
def test_the_asyncio_client(shared_closed_site: Site, bits: int) -> None:
    enrolment = shared_closed_site.enrol(f"async-{bits}", "m1-temp")
    board = micropython(AIO, enrolment, f"async/{bits}", bits=bits)
    try:
        said, _ = board.communicate(timeout=60)
    finally:
        board.kill()
    assert said.splitlines() == [
        "refused Denied purposes.entitled.other-label", "heard b'1'", "heard b'2' again", "end {}",
    ]  # fmt: skip
    until(
        "the audit", lambda: len(shared_closed_site.audit("command", client=f"async-{bits}")) >= 2
    )
