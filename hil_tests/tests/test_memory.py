"""Claim 3: neither mediator nor broker ever holds a plaintext or a root; the same scan finds both
where they belong, so that a scan which finds nothing means something.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sealmq_spec.identity import Identity
from sealmq_spec.keys import topic_key

from devices import device
from running_site import Site

MESSAGES = 1000
TOPIC = "machine/1/temperature"


def spellings(secret: bytes) -> set[bytes]:
    """Raw, hex and base64 (each alignment, both alphabets) of a secret."""
    found = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    for shift in range(3):
        # Characters that depend on the secret alone, whatever stands before and behind it.
        text = base64.b64encode(bytes(shift) + secret)
        start, end = (0, 2, 3)[shift], len(text) - 4
        found.add(text[start:end])
        found.add(text[start:end].replace(b"+", b"-").replace(b"/", b"_"))
    return found


def memory(pid: int) -> Iterator[bytes]:
    """All writable memory of a process, piece by piece, pieces overlapping."""
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as mem:
        for line in maps:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if not found or "[v" in line:
                continue
            at, end = int(found[1], 16), int(found[2], 16)
            while at < end:
                mem.seek(at)
                try:
                    piece = mem.read(min(1 << 22, end - at))
                except OSError:
                    break  # unmapped since
                if not piece:
                    break
                yield piece
                at += len(piece) if at + len(piece) >= end else len(piece) - 256


def found_in(pid: int, wanted: Mapping[str, Iterable[bytes]]) -> set[str]:
    """Names of what occurs in a process's memory."""
    hits: set[str] = set()
    pieces = 0
    for piece in memory(pid):
        pieces += 1
        for name, forms in wanted.items():
            if name not in hits and any(form in piece for form in forms):
                hits.add(name)
    assert pieces > 3, f"only {pieces} pieces of memory of {pid} could be read"
    return hits


def provisioned(enrolment: Path) -> Identity:
    """What a device holds: its enrolment and its state beside it."""
    ident = Identity.from_enrolment(json.loads(enrolment.read_text()))
    # Behind the roots the device keeps the last KG nonce it saw: 12 bytes.
    assert ident.load(enrolment.with_suffix(".state").read_bytes()[:-12])
    return ident


def test_mediator_and_broker_hold_no_plaintext_and_no_root(site: Site) -> None:
    site.up(forked=False)
    marker = secrets.token_hex(16)
    monitor_file = site.enrol("monitor", "monitor")
    sensor_file = site.enrol("m1-temp-sensor", "m1-temp")
    with device(monitor_file, bits=32) as monitor, device(sensor_file) as sensor:
        wanted: dict[str, set[bytes]] = {"plaintext": spellings(marker.encode())}
        for file in (monitor_file, sensor_file):
            ident = provisioned(file)
            assert ident.own is not None
            name = file.parent.name
            wanted[f"R of {name}"] = spellings(ident.own.r)
            wanted[f"R-bar of {name}"] = spellings(ident.own.r_bar)
            wanted[f"ps of {name}"] = spellings(ident.ps)
        ident = provisioned(sensor_file)
        own = ident.own
        assert own is not None
        key = topic_key(ident.site, own.suite, own.label, own.epoch, own.r)
        monitor.subscribe("machine/#")
        got: list[dict[str, object]] = []

        def read() -> None:
            while len(got) < MESSAGES:
                batch = monitor.receive(50, seconds=10)
                assert batch, f"only {len(got)} of {MESSAGES} messages came"
                got.extend(batch)

        reader = threading.Thread(target=read)
        reader.start()
        during: dict[str, set[str]] = {}
        pids = {role: site.pid(role) for role in ("mediator", "broker")}
        for n in range(MESSAGES):
            sensor.publish(TOPIC, f"{marker} {n}")
            if n % 400 == 200:
                for role, pid in pids.items():
                    during[f"{role} at {n}"] = found_in(pid, wanted)
        reader.join(60)
        assert len(got) >= MESSAGES
        assert got[0]["payload"] == f"{marker} 0"
        after = {role: found_in(pid, wanted) for role, pid in pids.items()}
        assert {where: hits for where, hits in (during | after).items() if hits} == {}

        # The scan is able to find: the plaintext in the reader, the topic key in the mediator.
        assert "plaintext" in found_in(monitor.process.pid, wanted)
        assert found_in(pids["mediator"], {"topic key": spellings(key)}) == {"topic key"}
        assert found_in(pids["broker"], {"topic key": spellings(key)}) == set()


def test_the_spellings_find_what_they_should() -> None:
    secret = secrets.token_bytes(32)
    for before in range(4):
        text = bytes(before) + secret + b"tail"
        for form in (
            text,
            text.hex().encode(),
            base64.b64encode(text),
            base64.urlsafe_b64encode(text),
        ):
            assert any(spelling in form for spelling in spellings(secret)), (before, form)
