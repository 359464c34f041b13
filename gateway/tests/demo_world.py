"""The files that a good run of the demo leaves behind, made up, for tests to doctor.

Nothing is sealed here: the payloads only look like m3, which is all that the verdict can see.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from sealmq.demo import plot
from sealmq.demo.acts import PARTS, SETTINGS
from sealmq.demo.capture import label_number
from sealmq.demo.cast import Policy, listens
from sealmq.demo.evidence import Evidence
from sealmq.demo.places import Places
from sealmq.demo.verdict import Verdict, give
from sealmq.families.owners.demo import plot as hers
from sealmq.families.purposes.demo import plot as ours
from sealmq.families.purposes.demo.act import Uses
from sealmq.families.purposes.demo.plot import PERFORMANCE, PULSE, SAFETY
from sealmq.mqtt import build
from sealmq.site.edit import fill

LABELS = {"m1-temp": 16, "m1-ctrl": 17, "m2-temp": 19, "m2-ctrl": 20, "ctrl-room-temp": 22}
NUMBERS = {part.name: number for number, part in enumerate(PARTS, 1)}
MESSAGES = (
    ("m1-temp-sensor", plot.TEMPERATURE_1, "load 0.42 0.40 0.39 #1"),
    ("m1-temp-sensor", plot.TEMPERATURE_1, "load 0.43 0.40 0.39 #2"),
    ("m2-temp-sensor", plot.TEMPERATURE_2, "memory available 7654321 kB #1"),
    ("control-room-temp-sensor", "control-room/temperature", "temperature 47.2 C #1"),
    ("m1-control-panel", plot.ANGLE_1, "arm angle 4 degrees #1"),
    ("m1-control-panel", plot.ANGLE_1, "arm angle 5 degrees #3"),
    ("m1-control-panel", "machine/1/arm/height", "arm height 100 mm #2"),
    ("m1-control-panel", plot.NEW, "arm speed 12 degrees a second #4"),
    ("m2-control-panel", "machine/2/arm/angle", "arm angle 90 degrees #1"),
)
LOST = plot.ANGLE_1, "arm angle 5 degrees #3"  # the one whose m3 was changed on its way
PULSES = tuple(f"pulse {70 + n} beats a minute #{n}" for n in range(1, 7))  # two in each span
HEARTS = tuple(f"heart rate {80 + n} a minute #{n}" for n in range(1, 8))
BEFORE, DURING, AFTER = HEARTS[:3], HEARTS[3:5], HEARTS[5:]  # while alice lets bob receive them
SPOOFED = "spoofed temperature 20.0 C #9"


def m3(label: str, text: str) -> bytes:
    """Something with the header of an m3."""
    number = LABELS[label].to_bytes(3, "big")
    sealed = b"".join(hashlib.sha256(text.encode() + bytes((i,))).digest() for i in range(4))
    return b"\x13\x20" + number + bytes(2) + b"\x01" + bytes(12) + sealed


def _policy() -> str:
    folders = [resources.files(package) for package in ("sealmq.site", "sealmq.families.purposes")]
    parts = [(folder / "templates" / "factory.toml").read_text() for folder in folders]
    head = "\n[clients]\n"
    added = "".join(f'{part.name} = {{ label = "{part.label}" }}\n' for part in PARTS if part.label)
    text = fill("".join(parts), {"officer": "officer"}) + SETTINGS
    assert text.count(head) == 1
    return text.replace(head, head + added)


class World:
    """A run's folder. Change it, then ask for the `verdict`."""

    def __init__(self, folder: Path) -> None:
        self.places = Places(folder / "demo")
        self.places.fresh().close()
        self.places.site.mkdir()
        toml = self.places.site / "sealmq.toml"
        toml.write_text(_policy(), encoding="utf-8")
        self.policy = Policy.read(toml)
        self.uses = Uses(self.policy)
        self.said: dict[str, list[dict[str, Any]]] = {part.name: [] for part in PARTS}
        self.audit: list[dict[str, Any]] = []
        self.handed: list[tuple[str, bytes]] = []
        self.streams: dict[str, tuple[bytes, bytes]] = {}
        self.extra_streams: list[tuple[bytes, bytes]] = []
        self._messages()
        self._consent()
        self._owner()
        self._refusals()
        self.extra_streams.append((build.publish(plot.RECORDS + "16/17", b"record"), b""))
        self.hand_over(records=True)
        for name, events in self.said.items():
            own = {"monitor": {"Replay": 1}, "m1-arm-operator": {"Unauthentic": 1}}
            events.append({"ev": "bye", "refused": own.get(name, {})})

    def verdict(self) -> Verdict:
        """What the demo would say of these files."""
        self.write()
        return give(Evidence.load(self.places))

    # --- to doctor with ---

    def record(self, event: str, **fields: Any) -> None:
        self.audit.append({"id": f"id-{len(self.audit)}", "event": event, "at_ms": 1, **fields})

    def forget(self, gone: Callable[[dict[str, Any]], bool]) -> None:
        """Audit records and events that are `gone` never were."""
        before = len(self.audit) + sum(len(events) for events in self.said.values())
        self.audit = [record for record in self.audit if not gone(record)]
        for events in self.said.values():
            events[:] = [event for event in events if not gone(event)]
        after = len(self.audit) + sum(len(events) for events in self.said.values())
        assert after < before, "nothing was forgotten: the test is wrong"

    def say(self, who: str, ev: str, **fields: Any) -> None:
        self.said.setdefault(who, []).append({"ev": ev, **fields})

    def to_broker(self, who: str, raw: bytes) -> None:
        to, back = self.streams.get(who, (self.hello(who), b"\x20\x02\0\0"))
        self.streams[who] = to + raw, back

    def from_broker(self, who: str, raw: bytes) -> None:
        to, back = self.streams.get(who, (self.hello(who), b"\x20\x02\0\0"))
        self.streams[who] = to, back + raw

    def hello(self, who: str) -> bytes:
        return build.connect(
            f"sealmq/a1b2c3d4/{NUMBERS[who]}/sealmq-{NUMBERS[who]}", clean_session=False
        )

    def consents(self, *purposes: str) -> None:
        """The wearer says so, and is told that it counts."""
        self.say(ours.WEARER, "reserved", topic=PULSE, purposes=list(purposes))
        self.record(
            "command",
            client=ours.WEARER,
            family="purposes",
            topic=PULSE,
            rule="purposes.entitled.label",
            detail=f"reserve aip={','.join(purposes)} pip=",
        )

    # --- what a good run leaves ---

    def _messages(self) -> None:
        counts: dict[tuple[str, str], int] = {}
        for client, topic, text in MESSAGES:
            self._message(client, topic, text)
            counts[client, topic] = counts.get((client, topic), 0) + 1
        for (client, topic), count in counts.items():
            self._counted("publish-accepted", client, topic, count)

    def _message(self, client: str, topic: str, text: str, *consent: str, let: str = "") -> None:
        payload = m3(self.policy.label[client], text)
        self.say(client, "published", topic=topic, text=text)
        self.to_broker(client, build.publish(topic, payload))
        for part in PARTS:
            if not listens(part, topic):
                continue
            if self.policy.reads(part.name, self.policy.label[client]):
                self.from_broker(part.name, build.publish(topic, payload))
                may = self.uses.serves(part, topic, frozenset(consent))
                may &= topic != hers.PULSE or part.name in (hers.OWNER, let)
                if may and (part.name != plot.CHANGE_M3.who or (topic, text) != LOST):
                    self.say(part.name, "read", topic=topic, text=text)

    def _counted(self, event: str, client: str, topic: str, count: int, **more: str) -> None:
        label = self.policy.label[ours.WEARER if topic == PULSE else client]
        self.record(event, client=client, topic=topic, label=label, count=count, **more)

    def _consent(self) -> None:
        both = SAFETY, PERFORMANCE
        for at, purposes in enumerate((both, (SAFETY,), both)):
            self.consents(*purposes)
            for text in PULSES[2 * at : 2 * at + 2]:
                self._message(ours.WEARER, PULSE, text, *purposes)
        self._counted("publish-accepted", ours.WEARER, PULSE, len(PULSES))
        for reader, purpose, count in (
            ("safety-officer", SAFETY, 6),
            ("shift-planner", PERFORMANCE, 1),
            ("shift-planner", PERFORMANCE, 3),
        ):
            self._counted("delivered", reader, PULSE, count, purpose=purpose, under=PULSE)
        other = ours.RESERVE_OTHER
        self.record("packet-refused", client=other.who, rule=other.rule)
        self._told(other, "reserve", "")

    def _owner(self) -> None:
        for let, texts in (("", BEFORE), (hers.FRIEND, DURING), ("", AFTER)):
            if texts != BEFORE:
                do, what = ("let", "assert") if let else ("take-back", "retract")
                self.say(hers.OWNER, do, licensee=hers.FRIEND, id="ab")
                self.record(
                    "command",
                    client=hers.OWNER,
                    family="owners",
                    rule="owners.command.by-owner",
                    detail=f"{what} ab by={hers.OWNER}",
                )
            for text in texts:
                self._message(hers.OWNER, hers.PULSE, text, let=let)
        self._counted("publish-accepted", hers.OWNER, hers.PULSE, len(HEARTS))
        self._counted("delivered", hers.OWNER, hers.PULSE, len(HEARTS))
        self._counted("delivered", hers.FRIEND, hers.PULSE, len(DURING))
        for who, count in ((hers.FRIEND, 3), (hers.FRIEND, 2), ("monitor", len(HEARTS))):
            rule = hers.PRIVATE.rule
            self._counted("deliver-denied", who, hers.PULSE, count, rule=rule)
        other = hers.LET_ONESELF
        self.record("packet-refused", client=other.who, rule=other.rule)
        self._told(other, "let", "")

    def _refusals(self) -> None:
        for attempt, text in ((plot.PUBLISH_OTHER, SPOOFED), (plot.PUBLISH_TAKEN, SPOOFED + "0")):
            self._refused("publish-refused", attempt)
            self._told(attempt, "publish", text)
        self._refused("subscribe-refused", plot.SUBSCRIBE_OTHER)
        self._told(plot.SUBSCRIBE_OTHER, "subscribe", "")
        self._refused("packet-refused", plot.REPLAY_PUBLISH)
        self._refused("packet-refused", plot.CHANGE_M2)
        self.say(plot.CHANGE_M2.who, "notice", rule=plot.CHANGE_M2.rule)
        self._refused("connect-refused", plot.REPLAY_CONNECT)
        new = plot.FIRST_PUBLISH
        self.record("topic-labelled", client=new.who, topic=new.topic, label="m1-ctrl")
        for attempt in (plot.REPLAY_M3, plot.CHANGE_M3):
            refused = {attempt.rule: 1}
            self.say(attempt.who, "not-taken", refused=refused, **{"class": attempt.rule})

    def _refused(self, event: str, attempt: plot.Attempt) -> None:
        topic = {"topic": attempt.topic} if attempt.topic else {}
        self.record(event, client=attempt.who, rule=attempt.rule, **topic)

    def _told(self, attempt: plot.Attempt, what: str, text: str) -> None:
        self.say(
            attempt.who, "refused", what=what, topic=attempt.topic, text=text, rule=attempt.rule
        )

    def hand_over(self, *, records: bool) -> None:
        """Packets of the broker's side, and records, to the lower reader and the control."""
        control = plot.handed_to_control(records)
        self.say(plot.HANDED_TO, "records", labels=[1] * records, refused=5 * records)
        self.say(control, "records", labels=[1, 16, 17] * records, refused=3 * records)
        for client, topic, text in MESSAGES:
            if topic == plot.ANGLE_1:
                packet = m3(self.policy.label[client], text)
                assert label_number(packet) == 17
                self.handed.append((topic, packet))
                self.say(plot.HANDED_TO, "not-taken", topic=topic, **{"class": "NoKey"})
                self.say(control, "opened", topic=topic, text=text)

    def write(self) -> None:
        """The files, once."""
        where = self.places
        for name, events in self.said.items():
            lines = "".join(json.dumps(event) + "\n" for event in events)
            (where.said / f"{name}.jsonl").write_text(lines)
        folder = where.audit / "mediator"
        folder.mkdir(parents=True)
        half = len(self.audit) // 2
        for name, part in (("a.jsonl", self.audit[:half]), ("b.jsonl.open", self.audit[half:])):
            (folder / name).write_text("".join(json.dumps(record) + "\n" for record in part))
        for tap, streams in (
            ("broker", [*self.streams.values(), *self.extra_streams]),
            ("network", [(b"\xc0\x00", b"\xd0\x00")]),
        ):
            (where.capture / tap).mkdir(parents=True)
            for number, (to, back) in enumerate(streams, 1):
                (where.capture / tap / f"{number:04d}-to-server.bin").write_bytes(to)
                (where.capture / tap / f"{number:04d}-from-server.bin").write_bytes(back)
        packets = [(topic, packet.hex()) for topic, packet in self.handed]
        where.handed.write_text(json.dumps({"packets": packets}))
        where.facts.write_text(json.dumps({"numbers": NUMBERS, "broker": "none", "site": {}}))
