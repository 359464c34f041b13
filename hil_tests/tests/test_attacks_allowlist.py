"""Claim 33: a client publishes and reads what a rule allows it by its own name, and nothing else,
whatever it calls itself, however it asks, and from the next message after a rule has gone.

The attacker has clients of the site, whose labels would do; what got through is what an honest
reader above everything hears.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sealmq_spec.envelope import get_m3
from sealmq_spec.errors import NoKey
from sealmq_spec.reader import Reader

from attack_scene import LIVE, QOS1, Scene, answer, notices, with_will
from attack_scene import scene as scene_of
from running_site import Site, ran, until
from wire import CONTROL, Cipher, RawClient, mono, packet, publish, text

SENSOR, PANEL = "m1-temp-sensor", "m1-control-panel"
ANGLE, HEIGHT = b"machine/1/arm/angle", b"machine/1/arm/height"
REFUSED, GRANTED = (0x90, b"\0\x07\x80"), (0x90, b"\0\x07\0")
PUBLISH, SUBSCRIBE = "allowlist.publish.not-allowed", "allowlist.subscribe.not-allowed"
SHARED = "allowlist.subscribe.shared"
SIBLING, SIGNED = "m1-temp-sibling", b"signed/will"
# What the reader above everything must not read, though its label opens it.
RULES = """
[[families.allowlist.rule]]
labels = ["m1-temp"]
publish = ["private/x", "unread/%c", "kept/#", "signed/#", "news/x"]

[[families.allowlist.rule]]
clients = ["m1-control-panel"]
read = ["news/#"]

[[families.allowlist.rule]]
labels = ["m1-ctrl"]
read = ["private/#"]

[[families.allowlist.rule]]
clients = ["m1-control-panel"]
sealed = ["private/#"]

[[families.allowlist.rule]]
clients = ["m1-control-panel"]
read = ["signed/#"]
from = ["m1-temp-sensor"]

[[families.allowlist.rule]]
clients = ["monitor"]
read = ["signed/#"]
"""
NEWS = '\n[[families.allowlist.rule]]\nclients = ["m1-control-panel"]\nread = ["news/#"]\n'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("rules")
    site = Site(folder, policy="allowlist")
    site.toml.write_text(site.toml.read_text() + RULES)
    site.up("--broker", "mosquitto")
    with scene_of(site) as made:
        yield made
    site.down()


@pytest.fixture
def ruled(running: Scene) -> Scene:
    running.heard()
    return running


def connected(scene: Scene, name: str, client_id: bytes = b"") -> RawClient:
    raw = scene.client(name)
    raw.client_id = client_id or raw.client_id
    assert raw.connect(keepalive=0) == b"\0\0"
    return raw


def asked(raw: RawClient, filt: str) -> tuple[int, bytes]:
    token, _ = raw.session.token(filt, 0)
    raw.wire.send(packet(0x82, b"\0\x07" + text(token.encode()) + b"\0"))
    return answer(raw)


def rules(raw: RawClient) -> set[str]:
    return {notice[3] for notice in notices(raw)}


def test_a_client_identifier_is_nobodys_name(ruled: Scene) -> None:
    """It is the client's own to choose: another's name, a wildcard, a path."""
    for chosen in (b"m1-temp-sibling", b"+", b"#", b"m1-temp-sibling/#", b"%c"):
        raw = connected(ruled, SENSOR, chosen)
        for topic in (b"state/m1-temp-sibling", b"state/" + chosen.strip(b"+#/")):
            raw.publish(topic, b"forged")
            assert rules(raw) == {PUBLISH}, (chosen, topic)
        assert asked(raw, "settings/m1-temp-sibling/pace") == REFUSED
        assert rules(raw) == {SUBSCRIBE}
        raw.publish(b"state/m1-temp-sensor", chosen)
        assert rules(raw) == set()
        assert ruled.heard() == [(b"state/m1-temp-sensor", chosen, LIVE)]
        ruled.cut(raw)


def test_a_mark_of_a_pattern_is_no_name_of_a_level(ruled: Scene) -> None:
    raw = connected(ruled, SENSOR)
    for topic in (b"state/%c", b"state/%l", b"state/m1-temp", b"state/", b"state"):
        raw.publish(topic, b"x")
        assert rules(raw) == {PUBLISH}, topic
    for filt in ("settings/%c/x", "settings/%l/x", "state/+"):
        assert asked(raw, filt) == REFUSED, filt
    assert ruled.heard() == []


def test_a_group_takes_in_nobody_who_may_not_read_all_that_it_shares(ruled: Scene) -> None:
    """What such a member is sent would be lost to the others."""
    panel = connected(ruled, PANEL)
    for filt in ("$share/g/#", "$share/g/machine/#", "$share/g/+/1/temperature"):
        assert asked(panel, filt) == REFUSED, filt
        assert rules(panel) == {SHARED}
    assert asked(panel, "$share/g/machine/2/#") == REFUSED
    assert rules(panel) == {SUBSCRIBE}
    assert asked(panel, "$share/g/machine/1/+") == GRANTED


def test_a_wide_filter_brings_nothing_that_no_rule_allows_live_or_retained(ruled: Scene) -> None:
    sensor, panel = connected(ruled, SENSOR), connected(ruled, PANEL)
    for raw, topic in ((sensor, b"kept/x"), (panel, ANGLE)):
        sealed = raw.seal(topic, b"kept", flags=3, kind=1)
        raw.wire.send(publish(topic, sealed, QOS1 | 1, 1))
        raw.acknowledged()
    arm = connected(ruled, "m1-arm-operator")
    arm.subscribe("#")
    sensor.publish(b"unread/m1-temp-sensor", b"secret")
    # What is live comes after what is retained.
    panel.publish(HEIGHT, b"3")
    assert rules(sensor) | rules(panel) == set()
    assert topics(arm, HEIGHT) == [ANGLE, HEIGHT]
    assert ruled.heard() == [(ANGLE, b"kept", LIVE), (HEIGHT, b"3", LIVE)]


def topics(raw: RawClient, last: bytes) -> list[bytes]:
    """Of the messages that come, up to one on the topic `last`."""
    found: list[bytes] = []
    while last not in found:
        got = raw.next(f"a message on {last!r}")
        if got[0] & 0xF0 == 0x30:
            name = got[1][2 : 2 + int.from_bytes(got[1][:2], "big")]
            if name == CONTROL:
                raw.control(got)
            elif not name.startswith(b"@sm1/"):
                found.append(name)
    return found


def test_a_will_needs_a_rule_when_it_is_left_and_when_it_fires(ruled: Scene) -> None:
    raw = ruled.client(SENSOR)
    will = raw.seal(b"machine/9/x", b"x", flags=2, kind=2, life=255)
    assert raw.connect(will=text(b"machine/9/x") + text(will), flags=0xCE) == b"\0\x05"
    raw = ruled.client(SENSOR)
    with_will(raw, b"news/x", b"last")
    panel = connected(ruled, PANEL)
    panel.subscribe("news/#")
    before = ruled.site.toml.read_text()
    ruled.site.edit(', "news/x"]', "]")
    ran("reload", ruled.site.path)
    try:
        ruled.cut(raw)
        until("its refusal", lambda: ruled.site.audit(rule=PUBLISH, topic="news/x"))
        assert [got for got in panel.barrier() if got[0] & 0xF0 == 0x30] == []
    finally:
        ruled.site.toml.write_text(before)
        ran("reload", ruled.site.path)


def test_a_reader_gets_nothing_of_a_sender_that_no_rule_of_its_own_names(ruled: Scene) -> None:
    """Live, retained or as a will; one with the same label, whom others may read."""
    sibling = ruled.client(SIBLING)
    with_will(sibling, SIGNED, b"forged")
    for topic, flags in ((b"signed/kept", 3), (b"signed/live", 2)):
        sealed = sibling.seal(topic, b"forged", flags=flags, kind=flags & 1)
        sibling.wire.send(publish(topic, sealed, QOS1 | flags & 1, 1))
        sibling.acknowledged()
    panel = connected(ruled, PANEL)
    for filt in ("$share/g/signed/#", "$share/g/signed/live"):
        assert asked(panel, filt) == REFUSED, filt
        assert rules(panel) == {SHARED}
    panel.subscribe("signed/#")
    sibling.publish(b"signed/live", b"forged")
    assert rules(sibling) == set()
    ruled.cut(sibling)
    others: set[bytes] = set()

    def fired() -> bool:
        others.update(topic for topic, *_ in ruled.heard())
        return SIGNED in others

    until("the will", fired)
    assert {b"signed/kept", b"signed/live"} <= others
    sensor = connected(ruled, SENSOR)
    sensor.publish(b"signed/kept", b"true")
    sensor.publish(b"signed/last", b"true")
    assert rules(sensor) == set()
    assert topics(panel, b"signed/last") == [b"signed/kept", b"signed/last"]


def test_a_right_that_a_reload_takes_ends_with_the_next_message(ruled: Scene) -> None:
    sensor, panel = connected(ruled, SENSOR), connected(ruled, PANEL)
    panel.subscribe("news/#")
    panel.subscribe("#")

    def reads() -> bool:
        sensor.publish(b"news/x", b"new")
        ruled.heard()  # what was sent before has passed
        return any(got[0] & 0xF0 == 0x30 for got in panel.barrier())

    assert reads()
    before = ruled.site.toml.read_text()
    ruled.site.edit(NEWS, "")
    ran("reload", ruled.site.path)
    try:
        assert not reads()
        assert rules(sensor) == set(), "its publisher is not concerned"
        assert asked(panel, "news/x") == REFUSED
    finally:
        ruled.site.toml.write_text(before)
        ran("reload", ruled.site.path)
    until("it to read again", reads)


def test_who_has_the_labels_key_does_not_open_what_is_sealed_to_another(ruled: Scene) -> None:
    """The panels have one label; the network shows the one what the other is sent."""
    one, other = connected(ruled, PANEL), connected(ruled, "m1-reader")
    readers = {}
    for raw in (one, other):
        readers[raw] = Reader(raw.ident, Cipher)
        readers[raw].session = raw.session
        raw.subscribe("private/x")
    sensor = connected(ruled, SENSOR)
    sensor.publish(b"private/x", b"for each alone")
    sent = {raw: _message(raw, readers[raw]) for raw in (one, other)}
    assert [get_m3(m3)[1] for m3 in sent.values()] == [1, 0]
    with pytest.raises(NoKey):
        readers[other].open(b"private/x", bytearray(sent[one]), one.session.now_ms(mono()))
    for raw, m3 in sent.items():
        opened = readers[raw].open(b"private/x", bytearray(m3), raw.session.now_ms(mono()))
        assert opened.payload == b"for each alone"


def _message(raw: RawClient, reader: Reader) -> bytes:
    """The m3 of the next message; records before it are taken."""
    while True:
        got = raw.next("a message")
        if got[1][2:5] != CONTROL:
            return got[1][2 + int.from_bytes(got[1][:2], "big") :]
        op, what = raw.control(got)
        if op == 5:
            assert isinstance(what, bytes)
            reader.add(what)
