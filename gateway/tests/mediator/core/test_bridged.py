"""What a mediator makes of messages that a bridge brings from another site, and gives to one
(GATEWAY.md G11).
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from mediator_world import HIGH, LOW, NOW_MS, PANEL, SENSOR, World
from sealmq.aead import make
from sealmq.client.seal import Link, seal_passed
from sealmq.families.duties import SealToLink
from sealmq.families.engine import Engine
from sealmq.families.labels.family import Labels
from sealmq.mediator.core.inbound import check_name
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.core.wrap import (
    Opened,
    for_broker,
    look_m3,
    open_m2,
    open_m3,
    rewrap_for_broker,
    verify_m2,
)
from sealmq.order import Order
from sealmq.site.check import parse
from sealmq_spec.const import LIVE, QUEUED, RETAINED
from sealmq_spec.envelope import get_m3, tail_m1
from sealmq_spec.errors import (
    Denied,
    Malformed,
    NoKey,
    SealError,
    Stale,
    Unauthentic,
    Unsupported,
    WrongEpoch,
)
from sealmq_spec.identity import Identity
from sealmq_spec.keys import inner_key
from sealmq_spec.origin import CRITICAL, Reader, put
from sealmq_spec.reader import Reader as Plain

AWAY = b"away"
THERE, THEIR_EPOCH = 40, 77
HOME, MOUNTED = b"boiler/1", b"@north/boiler/1"
NOW = NOW_MS // 1000


class Joined(World):
    """Label `low` is one that a neighbour exports, and the sensor its bridge."""

    origin: Any = (AWAY.hex(), THERE, [(THEIR_EPOCH, 3)])
    previous: Any = None
    border = False
    """Whether one reads it: the sibling."""

    def snapshot(self) -> dict[str, Any]:
        found = super().snapshot()
        found["labels"][0] |= {"name": "heat@north", "previous": self.previous}
        if self.origin:
            found["labels"][0]["origin"] = self.origin
        found["clients"][0]["kind"] = "gateway"
        if self.border:
            found["clients"][2]["kind"] = "border"
        return found

    def m1(self, **more: Any) -> bytes:
        """As a client of the other site seals it, at its topic."""
        said: dict[str, Any] = {
            "suite": self.low.suite, "low": 0, "epoch": THEIR_EPOCH, "sender": 5, "boot": 9,
            "salt": b"saltsalt", "ctr": 3, "t": NOW, "life": 0, "plain": b"21.5",
        } | more  # fmt: skip
        head = bytes((0x11, 16 * said["suite"] + said["low"])) + said["epoch"].to_bytes(3, "big")
        head += said["sender"].to_bytes(3, "big") + said["boot"].to_bytes(3, "big") + said["salt"]
        head += said["ctr"].to_bytes(3, "big") + said["t"].to_bytes(4, "big")
        head += bytes((said["life"],))
        key = inner_key(AWAY, self.low.suite, said["sender"], said["boot"], said["salt"],
                        self.low.r_bar)  # fmt: skip
        nonce = said["salt"] + b"\0" + said["ctr"].to_bytes(3, "big")
        aad = head + tail_m1(AWAY, THERE, HOME)
        buf = bytearray(said["plain"] + bytes(16))
        make(self.low.suite, key).seal_into(nonce, aad, buf, 0, len(said["plain"]))
        sealed: bytes = head + bytes(buf)
        return sealed


def taken(world: Joined, m1: bytes, flags: int = 2, number: int = SENSOR) -> Opened:
    session = world.session(number)
    link = world.link(session)
    _, m2 = seal_passed(Link(session), MOUNTED, m1, flags, 0)
    verified = verify_m2(link, MOUNTED, m2, flags)
    return open_m2(link, world.ring, world.ring.clients[number], verified, flags, NOW)


def at_broker(world: Joined, opened: Opened) -> bytes:
    label, order = world.ring.labels[LOW], Order(world.ring.inst)
    rest = opened.own, opened.how, MOUNTED, NOW_MS
    return for_broker(world.ring, order, label, opened.body, opened.start, None, *rest)


def reader(world: World, kind: type[Plain] = Reader) -> Plain:
    ident = Identity(world.site, 8, 1, os.urandom(32), "reader", 1)
    ident.gen, ident.own = 1, world.low
    return kind(ident, make)


def test_a_message_of_another_site_is_opened_by_who_has_the_labels_roots() -> None:
    world = Joined()
    m3 = at_broker(world, taken(world, world.m1()))
    message = reader(world).open(MOUNTED, bytearray(m3), NOW_MS)
    assert (message.topic, message.payload) == (MOUNTED.decode(), b"21.5")
    assert (message.label, message.sender, message.how) == (LOW, 5, LIVE)
    with pytest.raises(Unsupported):
        reader(world, Plain).open(MOUNTED, bytearray(m3), NOW_MS)


def test_its_sender_is_no_client_here_and_what_it_says_of_itself_stays_with_it() -> None:
    world = Joined()
    m3 = at_broker(world, taken(world, world.m1(sender=PANEL)))
    seen = look_m3(world.ring, m3)
    inside = open_m3(world.ring, seen, MOUNTED, m3)
    assert inside.sender == 0, "a number of another site is no client's of this one"
    assert inside.epoch == world.low.epoch
    assert inside.passes == {CRITICAL: put(AWAY, THERE, 3)}
    again = rewrap_for_broker(
        world.ring, Order(world.ring.inst), seen, inside, QUEUED, MOUNTED, NOW_MS
    )
    message = reader(world).open(MOUNTED, bytearray(again), NOW_MS)
    assert (message.payload, message.how) == (b"21.5", QUEUED)
    assert world.ring.names(HIGH, LOW, PANEL) == ("heat@north", "")


def test_what_waited_for_its_site_over_a_rekey_comes_as_queued() -> None:
    world = Joined()
    old, world.low = world.low, type(world.low)(LOW, 4, 1, os.urandom(32), os.urandom(32))
    ek = os.urandom(32).hex()
    world.previous = {"epoch": 3, "ek": ek, "handover_end": NOW - 1}
    world.ring = Keyring(world.site, 9, world.snapshot())
    world.low = old
    opened = taken(world, world.m1())
    assert opened.how == QUEUED
    assert get_m3(at_broker(world, opened))[2] == QUEUED


@pytest.mark.parametrize(
    ("more", "flags", "error"),
    [
        ({"epoch": 78}, 2, WrongEpoch),
        ({"suite": 2}, 2, Unsupported),
        ({"sender": 0}, 2, Malformed),
        ({"boot": 0}, 2, Malformed),
        ({"low": 2}, 2, Malformed),
        ({"low": 10, "t": 0}, 2, Malformed),
        ({"low": 3, "plain": b""}, 2, Malformed),
        ({"low": 1}, 2, Malformed),
        ({"low": 0}, 3, Malformed),
        ({"t": NOW - 61}, 2, Stale),
        ({"t": NOW - 129, "life": 7}, 2, Stale),
        ({"t": NOW + 61, "life": 255}, 2, Stale),
    ],
)
def test_what_a_bridge_brings_is_judged(
    more: dict[str, Any], flags: int, error: type[SealError]
) -> None:
    world = Joined()
    with pytest.raises(error):
        taken(world, world.m1(**more), flags)
    assert taken(world, world.m1(low=1, life=7, t=NOW - 128), 3).kind == RETAINED


def test_before_the_keys_have_come_nothing_is_taken() -> None:
    """A bridge is told that they may still come; of a label that is no peer's none will."""
    world = Joined()
    world.origin = None
    rows = world.snapshot()
    world.ring = Keyring(world.site, 9, rows)
    with pytest.raises(WrongEpoch, match="the keys of heat@north have not come"):
        taken(world, world.m1())
    rows["labels"][0]["name"] = "heat"
    world.ring = Keyring(world.site, 9, rows)
    with pytest.raises(NoKey):
        taken(world, world.m1())


def test_only_a_bridge_brings_what_another_has_sealed() -> None:
    world = Joined()
    with pytest.raises(Unauthentic):
        taken(world, world.m1(epoch=world.high.epoch), number=PANEL)


@pytest.mark.parametrize(
    ("topic", "mount", "good"),
    [
        ("@north/a", "@north/", True),
        ("@west/a", "@north/", False),
        ("a", "@north/", False),
        ("@north/", "@north/", False),
        ("@north/!c1", "@north/", False),
        ("@northern/a", "@north/", False),
        ("@north/a", "", False),
    ],
)
def test_a_bridge_publishes_below_its_mount_and_nobody_else_there(
    topic: str, mount: str, good: bool
) -> None:
    if good:
        check_name(topic, topic.encode(), mount)
        return
    with pytest.raises((Denied, Malformed)):
        check_name(topic, topic.encode(), mount)


SITE = """
[site]
name = "south"
id = "00000002"
[labels]
control = ["heat@north"]
water = []
[clients]
panel = { label = "control" }
pump = { label = "water" }
[peers.north]
fingerprint = "%s"
address = "north.example:8884"
import = ["heat"]
export = ["water"]
""" % ("ab" * 32)


def engine() -> Engine:
    made = Engine([Labels()])
    made.load(parse(SITE), [])
    return made


def test_the_policy_lets_a_bridge_publish_below_its_peers_mount_alone() -> None:
    made = engine()
    bridge, out = (made.connection(made.who(n)) for n in ("heat.from.north", "water.to.north"))
    got = bridge.publish("@north/a/b", 1, False, 9, NOW_MS)
    assert (got.allow, got.rule, got.label) == (True, "labels.publish.mounted", None)
    for conn, topic in ((bridge, "a/b"), (bridge, "@west/a"), (out, "@north/a"), (out, "a")):
        assert conn.publish(topic, 1, False, 9, NOW_MS).rule == "labels.publish.not-mounted"
    panel = made.connection(made.who("panel"))
    assert panel.publish("@north/a", 1, False, 9, NOW_MS).rule == "labels.publish.reserved"


def test_the_policy_gives_a_bridge_the_exported_label_sealed_to_its_link_and_nothing_else() -> None:
    made = engine()
    bridge = made.connection(made.who("water.to.north"))
    got = bridge.deliver("pump/1", "water", LIVE, NOW_MS, 9)
    assert (got.allow, got.rule) == (True, "labels.deliver.exported")
    assert got.duties == (SealToLink(),)
    for topic, label in (
        ("pump/1", "control"),
        ("pump/1", "bottom"),
        ("@north/a", "heat@north"),
        ("@north/a", "water"),
    ):
        got = bridge.deliver(topic, label, LIVE, NOW_MS, 9)
        assert (got.allow, got.rule) == (False, "labels.deliver.not-exported")


def test_the_policy_lets_readers_read_what_peers_export_and_a_reload_takes_it_back() -> None:
    made = engine()
    panel, pump = (made.connection(made.who(n)) for n in ("panel", "pump"))
    assert panel.subscribe("@north/#", 1, NOW_MS).rule == "labels.subscribe.mounted"
    assert panel.subscribe("@west/#", 1, NOW_MS).rule == "labels.subscribe.reserved"
    assert panel.deliver("@north/a", "heat@north", LIVE, NOW_MS, 9).allow
    assert not pump.deliver("@north/a", "heat@north", LIVE, NOW_MS, 9).allow
    bridge = made.connection(made.who("heat.from.north"))
    assert not bridge.subscribe("@north/#", 1, NOW_MS).allow
    alone = SITE[: SITE.index("[peers")].replace('"heat@north"', "")
    made.load(parse(alone), [])
    assert panel.subscribe("@north/#", 1, NOW_MS).rule == "labels.subscribe.reserved"
