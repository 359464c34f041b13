"""The attempts, performed. Each returns what a spectator sees of the result: (state, why).

Attackers hold what they would hold: a client's own keys, or a place on the wire and no key.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sealmq.mqtt import Connect, Packet, Publish, build
from sealmq_spec.envelope import get_m3

from . import plot
from .audit_log import Tail
from .cast import Part
from .errors import DemoError
from .fleet import Fleet
from .frames import CONNECT, PUBLISH, decode, flip_bit
from .places import Places
from .plot import Attempt
from .tap import Line, Tap

SEEN_S = 5.0
_PROOF = 54  # characters of a CONNECT's password that carries a proof (SPEC.md 4.1)
Result = tuple[str, str]


@dataclass
class Stage:
    """Everything that an attack may touch. `mediator_port`: the mediator's own."""

    places: Places
    fleet: Fleet
    network: Tap
    broker: Tap
    tail: Tail
    numbers: dict[str, int]
    mediator_port: int

    async def device_line(self, name: str) -> Line:
        """The live connection of a device, at the network's tap; one that ended comes back."""
        for _ in range(int(SEEN_S * 10)):
            line = self._device_line(f"sealmq-{self.numbers[name]}")
            if line is not None:
                return line
            await asyncio.sleep(0.1)
        raise DemoError(f"{name} has no connection to the mediator")

    def _device_line(self, mine: str) -> Line | None:
        for line in reversed(self.network.lines):
            connect = _connect(line)
            if line.open and connect is not None and connect.client_id == mine:
                return line
        return None

    def reader_line(self, name: str) -> Line:
        """The mediator's live connection to the broker that serves a client."""
        number = str(self.numbers[name])
        for line in reversed(self.broker.lines):
            connect = _connect(line)
            parts = connect.client_id.split("/") if connect is not None else []
            if line.open and len(parts) > 3 and parts[2] == number:
                return line
        raise DemoError(f"the mediator has no connection to the broker for {name}")


# Of a session with a proof; quarantine connections only provision.
def _connect(line: Line) -> Connect | None:
    for packet in decode([f for f in line.to_server[:1] if f[0] & 0xF0 == CONNECT], True):
        if isinstance(packet, Connect):
            quarantine = (
                packet.client_id.startswith("sealmq-") and len(packet.password or b"") < _PROOF
            )
            return None if quarantine else packet
    return None


# (bytes, packet) of the PUBLISHes of a topic, oldest first.
def _publishes(line: Line, to_server: bool, topic: str) -> list[tuple[bytes, Publish]]:
    frames = line.to_server if to_server else line.to_client
    out = []
    for frame in frames:
        if frame[0] & 0xF0 == PUBLISH:
            for packet in decode([frame], to_server):
                if isinstance(packet, Publish) and packet.topic == topic:
                    out.append((frame, packet))
    return out


async def _seen(stage: Stage, attempt: Attempt, event: str) -> Result:
    fields: dict[str, Any] = {"event": event, "client": attempt.who, "rule": attempt.rule}
    if attempt.topic:
        fields["topic"] = attempt.topic
    record = await stage.tail.until(SEEN_S, **fields)
    if record is None:
        return "unseen", f"no {event} of rule {attempt.rule} in the audit log"
    return "refused", f"{attempt.rule}: {record['reason']}"


async def publish(stage: Stage, attempt: Attempt, text: str) -> Result:
    """A client publishes with its own keys."""
    device = stage.fleet[attempt.who]
    start = len(device.events)
    await device.order("publish", topic=attempt.topic, text=text, qos=1)

    def about(event: dict[str, Any]) -> bool:
        return event["ev"] in ("published", "refused") and bool(event["topic"] == attempt.topic)

    at = await device.until("answer to its publish", about, start)
    event = device.events[at - 1]
    if event["ev"] == "published":
        return "accepted", f"{event['text']!r} went through"
    return "refused", f"{event['rule']}: {event['why']}"


async def publish_other(stage: Stage, attempt: Attempt) -> Result:
    return await publish(stage, attempt, "spoofed temperature 20.0 C")


async def first_publish(stage: Stage, attempt: Attempt) -> Result:
    return await publish(stage, attempt, "arm speed 12 degrees a second")


async def publish_taken(stage: Stage, attempt: Attempt) -> Result:
    return await publish(stage, attempt, "spoofed arm speed 99 degrees a second")


async def subscribe_other(stage: Stage, attempt: Attempt) -> Result:
    device = stage.fleet[attempt.who]
    start = len(device.events)
    await device.order("subscribe", topic=attempt.topic)

    def about(event: dict[str, Any]) -> bool:
        return event["ev"] in ("subscribed", "refused") and bool(event["topic"] == attempt.topic)

    at = await device.until("answer to its subscription", about, start)
    event = device.events[at - 1]
    if event["ev"] == "subscribed":
        return "accepted", "the subscription went through"
    return "refused", f"{event['rule']}: {event['why']}"


async def replay_publish(stage: Stage, attempt: Attempt) -> Result:
    line = await stage.device_line(attempt.who)
    frame, _ = await _latest(line, True, attempt.topic)
    await line.inject(True, frame)
    return await _seen(stage, attempt, "packet-refused")


async def replay_connect(stage: Stage, attempt: Attempt) -> Result:
    frame = (await stage.device_line(attempt.who)).to_server[0]
    _, writer = await asyncio.open_connection("127.0.0.1", stage.mediator_port)
    writer.write(frame)
    await writer.drain()
    result = await _seen(stage, attempt, "connect-refused")
    writer.close()
    return result


async def change_m2(stage: Stage, attempt: Attempt) -> Result:
    line = await stage.device_line(attempt.who)
    _change_next(stage.network, line, True, attempt.topic)
    return await _seen(stage, attempt, "packet-refused")


async def replay_m3(stage: Stage, attempt: Attempt) -> Result:
    line = stage.reader_line(attempt.who)
    _, packet = await _latest(line, False, attempt.topic)
    # QoS 0: an identifier of our own making would upset the broker, not the reader.
    return await _by_reader(
        stage, attempt, lambda: line.inject(False, build.publish(packet.topic_raw, packet.payload))
    )


async def change_m3(stage: Stage, attempt: Attempt) -> Result:
    line = stage.reader_line(attempt.who)

    async def act() -> None:
        _change_next(stage.broker, line, False, attempt.topic)

    return await _by_reader(stage, attempt, act)


async def handed(stage: Stage, attempt: Attempt) -> Result:
    """Packets and records as the broker has them, to a stolen identity; then to the control."""
    packets, records = [], set()
    for line in stage.broker.lines:
        for frame in line.to_server:
            if frame[0] & 0xF0 == PUBLISH:
                for packet in decode([frame], True):
                    if isinstance(packet, Publish) and packet.topic == attempt.topic:
                        packets.append((packet.topic, packet.payload))
                    elif isinstance(packet, Publish) and packet.topic.startswith(plot.RECORDS):
                        records.add(packet.payload.hex())
    packets = packets[-3:]
    if not packets:
        raise DemoError(f"the broker has not seen {attempt.topic} yet")
    control = plot.control(bool(records))
    now_ms = max(int(get_m3(payload)[6]) for _, payload in packets) + 1000
    given = {
        "now_ms": now_ms,
        "packets": [(topic, payload.hex()) for topic, payload in packets],
        "records": sorted(records),
    }
    stage.places.handed.write_text(json.dumps(given), encoding="utf-8")
    opened, refused = {}, 0
    for name, identity in (
        (plot.HANDED_TO, attempt.who),
        (plot.handed_to_control(bool(records)), control),
    ):
        part = Part(name, "handed.py", ())
        enrolment = stage.places.clients / f"{identity}.json"
        device = await stage.fleet.script(part, [enrolment, stage.places.handed])
        await device.end()
        opened[identity] = sum(event["ev"] == "opened" for event in device.events)
        if identity == attempt.who:
            refused = sum(event["ev"] == "not-taken" for event in device.events)
    count = len(packets)
    mine = opened[attempt.who]
    why = f"opened {mine} of {count}; {control} opened {opened[control]} of the same"
    if mine == 0 and refused < count:
        return "unseen", f"it refused {refused} of {count}"
    return ("accepted" if mine else "refused"), why


async def _latest(line: Line, to_server: bool, topic: str) -> tuple[bytes, Publish]:
    for _ in range(int(SEEN_S * 10)):
        found = _publishes(line, to_server, topic)
        if found:
            return found[-1]
        await asyncio.sleep(0.1)
    raise DemoError(f"nothing on {topic} has passed the tap")


# The next PUBLISH of the topic on the line gets one wrong bit.
def _change_next(tap: Tap, line: Line, to_server: bool, topic: str) -> None:
    def meddle(of: Line, towards: bool, frame: bytes) -> bytes:
        if of is not line or towards != to_server or frame[0] & 0xF0 != PUBLISH:
            return frame
        if not any(_is_on(topic, packet) for packet in decode([frame], towards)):
            return frame
        tap.meddle = None
        return flip_bit(frame)

    tap.meddle = meddle


def _is_on(topic: str, packet: Packet) -> bool:
    return isinstance(packet, Publish) and packet.topic == topic


async def _by_reader(stage: Stage, attempt: Attempt, act: Callable[[], Awaitable[None]]) -> Result:
    device = stage.fleet[attempt.who]
    start = len(device.events)
    await act()

    def about(event: dict[str, Any]) -> bool:
        return bool(event["ev"] == "not-taken")

    try:
        at = await device.until("refusal", about, start)
    except DemoError as error:
        return "unseen", str(error)
    event = device.events[at - 1]
    return "refused", f"{event['class']}, by the reader itself: {event['why']}"


Doing = Callable[[Stage, Attempt], Awaitable[Result]]

ACTS: dict[str, Doing] = {
    plot.PUBLISH_OTHER.name: publish_other,
    plot.FIRST_PUBLISH.name: first_publish,
    plot.PUBLISH_TAKEN.name: publish_taken,
    plot.SUBSCRIBE_OTHER.name: subscribe_other,
    plot.REPLAY_PUBLISH.name: replay_publish,
    plot.REPLAY_CONNECT.name: replay_connect,
    plot.CHANGE_M2.name: change_m2,
    plot.REPLAY_M3.name: replay_m3,
    plot.CHANGE_M3.name: change_m3,
    plot.HANDED.name: handed,
}
