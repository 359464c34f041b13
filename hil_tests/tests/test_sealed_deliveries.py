"""Claim 12: what is sealed to a reader's link opens for that client, in that boot session, and for
nobody else who has the label's keys. A family that the test makes demands it, in a started site.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from sealmq_spec.const import M3_HEAD
from sealmq_spec.envelope import get_m3
from sealmq_spec.errors import NoKey, Replay, SealError, Unauthentic
from sealmq_spec.reader import Reader

from attack_scene import CLEAN, KEPT, LIVE, QOS1, TOPIC, again
from devices import device
from evil_scene import EvilScene, evil_scene
from installed_family import installed
from running_site import Reading, Site, publish, sealmq, until
from test_attacks_nonces import twice
from wire import CONTROL, Cipher, RawClient, mono

# [families.sealing]: of each client's deliveries, "link" and "item".
FAMILY = """\
from sealmq.families.api import Change, Family, PutTlv, SealToLink, allow
from sealmq.families.manifest import Manifest, Ref

DUTIES = {"link": SealToLink(), "item": PutTlv(40, b"noted")}
SETTINGS = ("sealing",)


class Sealing(Family):
    name = "sealing"
    rules = {"sealing.yes": "The family has nothing against it."}
    duties = {"deliver": frozenset({PutTlv, SealToLink})}
    tlvs = frozenset({40})

    def configure(self, config):
        self._of = dict(config.families.get("sealing", {}))
        return Change([SETTINGS])

    def connect(self, ask):
        return allow("sealing.yes", "yes")

    publish = subscribe = connect

    def deliver(self, ask):
        duties = tuple(DUTIES[word] for word in self._of.get(ask.who.client, ()))
        return allow("sealing.yes", "yes", deps=(SETTINGS,), duties=duties)


MANIFEST = Manifest(name="sealing", family=Ref(":Sealing"))
"""
# They have one label. What the one gets is sealed to its link, what the other gets is not.
SEALED, OTHER = "m1-control-panel", "m1-reader"
FILTER = "machine/1/#"
RECORD, GRANT = 5, 8


def _prepared(site: Site) -> None:
    site.edit('order = ["labels"]\n', 'order = ["labels", "sealing"]\n')
    rows = f'monitor = ["link", "item"]\n{SEALED} = ["link"]\nm1-temp-sibling = ["link"]\n'
    rows += 'm1-device = ["link"]\n'
    site.toml.write_text(f"{site.toml.read_text()}\n[families.sealing]\n{rows}")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvilScene]:
    """A site with the family, an attacker's broker, and a record of all that is sealed."""
    folder = tmp_path_factory.mktemp("sealing")
    with installed(folder / "installed", "sealing", FAMILY), evil_scene(folder, _prepared) as made:
        yield made


class Reads:
    """A raw client that is connected, and what it opens with. qos: of its subscription to FILTER;
    None: the session has it already.
    """

    def __init__(self, raw: RawClient, flags: int = CLEAN, qos: int | None = 0) -> None:
        self.raw = raw
        raw.connect(keepalive=0, flags=flags)
        self.reader = Reader(raw.ident, Cipher, known_tlv=(40,))
        self.reader.session = raw.session
        # Bodies of op 8, after op.
        self.grants: list[bytes] = []
        if qos is not None:
            raw.subscribe(FILTER, qos)

    def next(self) -> tuple[int, bytes, bytes]:
        """First byte, topic and m3 of the next message; records and grants are taken."""
        while True:
            first, body = self.raw.next("a message")
            if first & 0xF0 != 0x30:
                continue
            if body[2:5] == CONTROL:
                op, what = self.raw.control((first, body))
                if op == RECORD:
                    assert isinstance(what, bytes)
                    self.reader.add(what)
                elif op == GRANT:
                    assert isinstance(what, bytes)
                    self.reader.add_grant(what)
                    self.grants.append(what)
                continue
            size = 2 + int.from_bytes(body[:2], "big")
            return first, body[2:size], body[size + (2 if first & 6 else 0) :]

    def opens(self, m3: bytes) -> bytes:
        """The payload."""
        now = self.raw.session.now_ms(mono())
        opened: bytes = self.reader.open(TOPIC, bytearray(m3), now).payload
        return opened

    def until(self, payload: bytes) -> bytes:
        """The m3 of this message; what the mediator publishes again after a restart came before."""
        while True:
            m3 = self.next()[2]
            try:
                if self.opens(m3) == payload:
                    return m3
            except Replay:
                continue


def _sensor(scene: EvilScene) -> RawClient:
    raw = scene.client("m1-temp-sensor")
    raw.connect(keepalive=0)
    return raw


@pytest.mark.parametrize("bits", [pytest.param(64, marks=pytest.mark.full), 32])
def test_host_client_and_device_read_what_is_sealed_to_them(
    scene: EvilScene, bits: int, tmp_path: Path
) -> None:
    """And `sealmq explain` says so."""
    site = scene.site
    witness = Reads(scene.client(SEALED))
    folder = tmp_path / "out"
    folder.mkdir()
    reading = Reading(site, folder, "-t", FILTER, "-q", "1")
    with device(scene.enrolment("m1-device"), bits=bits) as board:
        board.subscribe(FILTER)
        for n in range(3):
            publish(site, "m1-temp-sensor", TOPIC.decode(), f"21.{n}", "-q", "1")
        got = [message["payload"] for message in board.receive(3)]
    assert got == ["21.0", "21.1", "21.2"]
    lines = until("what was published", lambda: [*reading.lines()][2:] and reading.lines())
    assert [line.split()[-1] for line in lines] == got
    reading.end()
    m3 = witness.next()[2]
    assert get_m3(m3)[1] == 1
    words = sealmq("explain", site.path, "deliver", "--client", "monitor", "-t", TOPIC.decode())
    assert "sealed to the reader's own link" in words.stdout, words
    words = sealmq("explain", site.path, "deliver", "--client", OTHER, "-t", TOPIC.decode())
    assert "own link" not in words.stdout


def test_nobody_else_of_the_label_opens_what_was_captured(scene: EvilScene) -> None:
    one, other, sensor = Reads(scene.client(SEALED)), Reads(scene.client(OTHER)), _sensor(scene)
    sensor.publish(TOPIC, b"for one")
    _, _, m3 = one.next()
    _, _, plain = other.next()
    with pytest.raises(NoKey):
        other.opens(m3)
    assert (get_m3(m3)[1], get_m3(plain)[1]) == (1, 0)
    forged = bytearray(m3)
    forged[2:5] = other.raw.ident.client.to_bytes(3, "big")
    with pytest.raises(Unauthentic):
        other.opens(bytes(forged))
    with pytest.raises(Unauthentic):
        other.opens(plain[:8] + m3[8:])
    assert one.opens(m3) == b"for one"
    # What is not sealed to a link opens for both: the label's key is all that it takes.
    assert other.opens(plain) == b"for one"
    sensor.publish(TOPIC, b"the next")
    _, _, plain = other.next()
    assert one.opens(plain) == b"the next"


def test_packets_that_the_network_hands_to_another_reader_open_for_nobody(scene: EvilScene) -> None:
    one, two, sensor = (
        Reads(scene.client(SEALED)),
        Reads(scene.client("m1-temp-sibling")),
        _sensor(scene),
    )
    sensor.publish(TOPIC, b"swapped")
    (_, _, for_one), (_, _, for_two) = one.next(), two.next()
    for reader, m3 in ((one, for_two), (two, for_one)):
        with pytest.raises(NoKey):
            reader.opens(m3)
    assert one.opens(for_one) == two.opens(for_two) == b"swapped"


def test_a_broker_that_swaps_what_kept_sessions_get_reaches_each_under_its_own_link(
    scene: EvilScene,
) -> None:
    one = Reads(scene.client(SEALED), KEPT, 1)
    two = Reads(scene.client("m1-temp-sibling"), KEPT, 1)
    sensor = _sensor(scene)
    sensor.publish(TOPIC, b"honest")
    first, mine = one.next()[2], two.next()[2]
    assert (one.opens(first), two.opens(mine)) == (b"honest", b"honest")
    m3 = scene.evil.seen(TOPIC)[-1]
    for reads in (one, two):
        # What the mediator made for a reader, and what came to the other one's link.
        for number, payload in enumerate((first, mine, m3), 50):
            scene.evil.tell(reads.raw.client_id.decode(), TOPIC, payload, QOS1, number)
        came = reads.next()[2]
        assert get_m3(came)[1:4:2] == (1, reads.raw.ident.client)
        assert came not in (first, mine)
        with pytest.raises(Replay):
            reads.opens(came)


def test_what_comes_again_after_a_reconnect_is_sealed_anew(scene: EvilScene) -> None:
    """In the same boot session the window drops it; in a new one only the new seal opens."""
    raw, sensor = scene.client(SEALED), _sensor(scene)
    reads = Reads(raw, KEPT, 1)
    sensor.publish(TOPIC, b"once")
    m3 = reads.next()[2]
    assert reads.opens(m3) == b"once"
    scene.cut(raw)

    again(raw, 1, KEPT)
    same_boot = reads.next()[2]
    assert same_boot[8:M3_HEAD] != m3[8:M3_HEAD]
    with pytest.raises(Replay):
        reads.opens(same_boot)
    scene.cut(raw)

    later = scene.client(SEALED)
    later.client_id = raw.client_id
    after = Reads(later, KEPT, None)
    new_boot = after.next()[2]
    assert len({m3[8:M3_HEAD], same_boot[8:M3_HEAD], new_boot[8:M3_HEAD]}) == 3
    for old in (m3, same_boot):
        with pytest.raises(SealError):
            after.opens(old)
    assert after.opens(new_boot) == b"once"


def test_what_was_captured_before_a_restart_opens_nothing_and_no_nonce_comes_again(
    scene: EvilScene,
) -> None:
    raw, sensor = scene.client(SEALED), _sensor(scene)
    reads = Reads(raw)
    sensor.publish(TOPIC, b"before")
    before = reads.next()[2]
    assert reads.opens(before) == b"before"
    scene.site.back("mediator", scene.site.kill("mediator"))

    again(raw, 1)
    raw.subscribe(FILTER)
    sensor = _sensor(scene)
    sensor.publish(TOPIC, b"after")
    after = reads.until(b"after")
    assert get_m3(after)[5] > get_m3(before)[5], "another instance"
    with pytest.raises(Replay):
        reads.opens(before)
    lines = [line for file in scene.sealed.iterdir() for line in file.read_text().splitlines()]
    assert len(lines) > 100
    assert twice(lines) == []
    scene.gather()


def test_what_a_mediator_made_for_a_reader_comes_back_from_no_broker(scene: EvilScene) -> None:
    one, sensor = Reads(scene.client(SEALED)), _sensor(scene)
    sensor.publish(TOPIC, b"sealed")
    m3 = one.next()[2]
    scene.evil.tell(one.raw.client_id.decode(), TOPIC, m3)
    sensor.publish(TOPIC, b"served on")
    assert [one.opens(m3), one.opens(one.next()[2])] == [b"sealed", b"served on"]


def test_a_message_that_nobody_can_open_is_withheld_and_counted(scene: EvilScene) -> None:
    """A changed m3 passes to readers under the label, who refuse it; it is sealed for nobody."""
    one, other, sensor = Reads(scene.client(SEALED)), Reads(scene.client(OTHER)), _sensor(scene)
    m3 = bytearray(scene.caught(TOPIC, b"genuine", sensor))
    assert (one.opens(one.next()[2]), other.opens(other.next()[2])) == (b"genuine", b"genuine")
    m3[-1] ^= 1
    scene.evil.tell(one.raw.client_id.decode(), TOPIC, bytes(m3))
    sensor.publish(TOPIC, b"served on")
    with pytest.raises(Unauthentic):
        other.opens(other.next()[2])
    assert one.opens(one.next()[2]) == b"served on"
    assert scene.heard() == [(TOPIC, b"served on", LIVE)]


def test_an_item_for_one_reader_reaches_that_one_alone(scene: EvilScene) -> None:
    sensor, other = _sensor(scene), Reads(scene.client(OTHER))
    scene.listener.items.clear()
    sensor.publish(TOPIC, b"noted")
    assert scene.heard() == [(TOPIC, b"noted", LIVE)]
    assert scene.listener.items == [{40: b"noted"}]
    now = other.raw.session.now_ms(mono())
    assert other.reader.open(TOPIC, bytearray(other.next()[2]), now).tlv == {}


def test_a_changed_policy_counts_for_what_comes_then(scene: EvilScene) -> None:
    one, sensor, site = Reads(scene.client(SEALED)), _sensor(scene), scene.site
    table, row = "[families.sealing]\n", f'{SEALED} = ["link"]\n'

    def sealed_to(ref: int) -> bool:
        sensor.publish(TOPIC, b"x")
        m3 = one.next()[2]
        assert one.opens(m3) == b"x"
        found: int = get_m3(m3)[1]
        return found == ref

    assert sealed_to(1)
    for old, new, ref in ((row, "", 0), (table, table + row, 1)):
        site.edit(old, new)
        assert sealmq("reload", site.path).returncode == 0
        until(f"ref {ref}", partial(sealed_to, ref))
