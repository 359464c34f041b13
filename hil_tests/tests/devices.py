"""A device under test: MicroPython with the device client, told line by line what to do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running_site import micropython

_SCRIPT = Path(__file__).with_name("device_session.py")


class DeviceError(Exception):
    """The device raised; `kind` is its exception's name."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Device:
    """One MicroPython process with one enrolment. Each call waits for the device's answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def do(self, op: str, **fields: Any) -> dict[str, Any]:
        """One command; DeviceError when the device raised."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            rest = line + self.process.stdout.read()
            raise AssertionError(f"the device died at {op}:\n{rest}") from None
        if "error" in answer:
            raise DeviceError(answer["error"], answer.get("text", ""))
        return answer

    def connect(self) -> None:
        self.do("connect")

    def publish(self, topic: str, payload: str, qos: int = 1, retain: bool = False) -> None:
        self.do("publish", topic=topic, payload=payload, qos=qos, retain=retain)

    def subscribe(self, filt: str, purpose: str | None = None) -> None:
        self.do("subscribe", filter=filt, purpose=purpose)

    def receive(self, count: int, seconds: int = 15) -> list[dict[str, Any]]:
        """The messages that came, at most `count` awaited for at most `seconds`."""
        messages: list[dict[str, Any]] = self.do("receive", count=count, seconds=seconds)[
            "messages"
        ]
        return messages


@contextmanager
def device(
    enrolment: Path, bits: int = 64, connect: bool = True, record: Path | None = None
) -> Iterator[Device]:
    """A device, connected unless told otherwise, ended at the end as if its power were cut.

    record: a file to which it writes digests of what it seals, and under which key and nonce.
    """
    process = micropython(_SCRIPT, enrolment, *(() if record is None else (record,)), bits=bits)
    try:
        made = Device(process)
        if connect:
            made.connect()
        yield made
    finally:
        process.kill()
        process.wait()
