"""Claim 14: only mediators reach the broker; and what the door keeps out, since no cipher does.

The attacker has a client's credentials, or the broker's side itself.
"""

from __future__ import annotations

import os
import struct
from contextlib import closing
from pathlib import Path

import pytest

from attack_scene import LIVE, TOPIC
from evil_scene import EvilScene
from evil_seals import Sender, m1, m3, m3_head, now_of, outer
from running_site import Site
from wire import Wire, connect, packet, publish, text

NOT_AUTHORISED = (0x20, b"\0\x05")


def _plain(client_id: bytes) -> bytes:
    """CONNECT without credentials."""
    body = text(b"MQTT") + b"\x04\x02" + struct.pack(">H", 60) + text(client_id)
    return packet(0x10, body)


def _broker(site: Site) -> int:
    row = next(p for p in site.status()["processes"] if p["role"] == "broker")
    return int(row["address"].rpartition(":")[2])


def test_nobody_but_a_mediator_comes_in(shared_site: Site) -> None:
    """No credentials, guessed ones, a client's own, under its own name and under a mediator's."""
    raw = shared_site.enrol("m1-temp-sensor", "m1-temp")
    secret = raw.read_text().encode()
    names = [b"intruder", b"sealmq/1/x", b"sealmq/00000000/mediator-1", b""]
    knocks = [_plain(name) for name in names]
    knocks += [
        bytes(connect(name, password, user=user))
        for name in names[:3]
        for user in (b"mediator", b"sealmq", b"sealmq1", b"admin")
        for password in (b"", b"mediator", secret[:60], os.urandom(22).hex().encode())
    ]
    port = _broker(shared_site)
    for knock in knocks:
        with closing(Wire(port)) as wire:
            wire.send(knock + packet(0x82, b"\0\x01" + text(b"#") + b"\0"))
            wire.send(publish(TOPIC, b"from nobody"))
            answer = wire.read()
            assert answer is None or (answer[0] == 0x20 and answer[1][1] != 0), knock
            assert wire.closed()


def test_what_opens_the_door_shows_nowhere(site: Site) -> None:
    """Not on a command line or in an environment, where every user of the machine can look."""
    site.up(forked=False)
    secrets = [f for f in site.path.rglob("*") if f.is_file() and f.stat().st_mode & 0o077]
    for role in ("kg", "broker", "mediator"):
        process = Path(f"/proc/{site.pid(role)}")
        for part in ("cmdline", "environ"):
            said = (process / part).read_bytes().lower()
            assert b"sealmq" in said
            assert b"password=" not in said
            assert b"mqtt://" not in said.replace(b"mqtt://127", b"")
    # What others than its owner may read holds no key and no password.
    for file in secrets:
        assert b"password" not in file.read_bytes() or file.suffix == ".toml", file


@pytest.mark.parametrize("above", ["m1-control-panel", "monitor"])
def test_behind_the_door_a_label_s_keys_forge_it_and_all_below(evil: EvilScene, above: str) -> None:
    """Documented, not prevented: whoever holds a label's keys and reaches the broker's side speaks
    as any client at that label or below it. Hence the door.
    """
    sensor = evil.client("m1-temp-sensor")
    sensor.connect(keepalive=0)
    roots, insider = evil.roots(sensor.ident.own.label), evil.client(above)
    site, ms = insider.ident.site, now_of(evil.listener.raw) * 1000
    name = Sender.of(sensor)._replace(boot=4000, salt=os.urandom(8))
    inner = m1(site, roots, name, TOPIC, b"forged", 1, now_of(sensor))
    head = m3_head(roots, ms)
    cipher = outer(site, roots, int.from_bytes(head[8:11], "big"))
    evil.to_reader(TOPIC, m3(site, head, cipher, TOPIC, inner))
    assert evil.heard() == [(TOPIC, b"forged", LIVE)]
    # Not through a mediator: there the link says who it is.
    insider.connect()
    insider.wire.send(publish(TOPIC, insider.seal(TOPIC, b"forged", flags=0)))
    assert insider.barrier() == []
    assert [n[2] for n in insider.notices] == [5]
    insider.close()
    assert evil.heard() == []


def test_a_broker_without_a_door_is_told(evil: EvilScene) -> None:
    """`sealmq up` says so, each time."""
    assert "lets in anybody" in evil.site.log()
