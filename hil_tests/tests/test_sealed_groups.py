"""Claim 34: what a rule of the allowlist has sealed for a group opens for those whom the rule is
about, and for nobody else who has the label's keys; who is taken out of it opens nothing of what is
captured after the reload.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sealmq_spec.const import M3_HEAD
from sealmq_spec.envelope import get_m3
from sealmq_spec.errors import NoKey, Replay, SealError, Unauthentic
from sealmq_spec.keys import u24

from attack_scene import CLEAN, KEPT, TOPIC, Scene, again
from attack_scene import scene as scene_of
from devices import device
from evil_scene import EvilScene, evil_scene
from running_site import Reading, Site, publish, ran, until
from test_attacks_nonces import twice
from test_sealed_deliveries import FILTER, Reads
from wire import RawClient

# The panel and the reader have one label, the sibling that of the sensor.
IN, LEAVES, OUT = "m1-control-panel", "m1-temp-sibling", "m1-reader"
MORE = 'm1-reader = { label = "m1-ctrl" }\nm1-device = { label = "m1-temp" }\n'
MORE += 'm1-temp-sibling = { label = "m1-temp" }\n'
CREW = f'clients = ["{IN}", "m1-device", "monitor", "{LEAVES}"]'
LEFT = CREW.replace(f', "{LEAVES}"', "")
RULES = f"""
[[families.allowlist.rule]]
publish = ["#"]
read = ["#"]

[[families.allowlist.rule]]
{CREW}
sealed = ["machine/1/temperature"]
sealed_for = "crew"
"""


def _prepared(site: Site) -> None:
    site.edit('order = ["labels"]\n', 'order = ["labels", "allowlist"]\n')
    site.edit("[clients]\n", f"[clients]\n{MORE}")
    site.toml.write_text(site.toml.read_text() + RULES)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvilScene]:
    """A site with a group, an attacker's broker, and a record of all that is sealed."""
    with evil_scene(tmp_path_factory.mktemp("groups"), _prepared) as made:
        yield made


@pytest.fixture(
    params=[pytest.param(1, marks=pytest.mark.full), 2], ids=["one worker", "two workers"]
)
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    site = Site(tmp_path)
    site.edit("[mediator]\n", f"[mediator]\nworkers = {request.param}\n")
    _prepared(site)
    site.up("--broker", "mosquitto")
    with scene_of(site) as made:
        yield made
    site.down()


def _sensor(scene: Scene) -> RawClient:
    raw = scene.client("m1-temp-sensor")
    raw.connect(keepalive=0)
    return raw


@contextmanager
def _taken_out(site: Site) -> Iterator[None]:
    """Somebody is taken out of the rule, and in again."""
    site.edit(CREW, LEFT)
    ran("reload", site.path)
    try:
        yield
    finally:
        site.edit(LEFT, CREW)
        ran("reload", site.path)


def _as_if(told: bytes, m3: bytes) -> bytes:
    """The body of op 8 with the key that was told, for the epoch of this m3."""
    return told[:3] + u24(get_m3(m3)[4]) + told[6:7] + bytes(4) + told[11:]


@pytest.mark.parametrize("bits", [pytest.param(64, marks=pytest.mark.full), 32])
def test_host_client_and_device_read_what_is_sealed_for_their_group(
    scene: EvilScene, bits: int, tmp_path: Path
) -> None:
    """And `sealmq explain` says so."""
    site = scene.site
    witnesses = [Reads(scene.client(name)) for name in (IN, LEAVES)]
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
    first, second = (reads.next()[2] for reads in witnesses)
    assert get_m3(first)[1] == 2
    assert first == second, "one m3 for all of them"
    words = ran("explain", site.path, "deliver", "--client", "monitor", "-t", TOPIC.decode())
    assert "sealed to those who hold crew of allowlist" in words
    words = ran("explain", site.path, "deliver", "--client", OUT, "-t", TOPIC.decode())
    assert "crew" not in words


def test_nobody_else_of_the_label_opens_what_was_captured(scene: EvilScene) -> None:
    one, other, sensor = Reads(scene.client(IN)), Reads(scene.client(OUT)), _sensor(scene)
    sensor.publish(TOPIC, b"for the crew")
    _, _, m3 = one.next()
    _, _, plain = other.next()
    assert (get_m3(m3)[1], get_m3(plain)[1]) == (2, 0)
    with pytest.raises(NoKey):
        other.opens(m3)
    with pytest.raises(Unauthentic):
        other.opens(plain[:8] + m3[8:])
    other.reader.add_grant(_as_if(one.grants[0][:11] + bytes(32), m3))
    with pytest.raises(Unauthentic):
        other.opens(m3)
    assert one.opens(m3) == other.opens(plain) == b"for the crew"
    assert other.grants == []


def test_who_is_taken_out_of_the_rule_opens_nothing_that_is_captured_later(
    scene: EvilScene,
) -> None:
    """Not with the key that it had either. Who stays reads on, and who comes back."""
    stays, leaves, sensor = Reads(scene.client(IN)), Reads(scene.client(LEAVES)), _sensor(scene)
    sensor.publish(TOPIC, b"before")
    assert stays.opens(stays.next()[2]) == leaves.opens(leaves.next()[2]) == b"before"
    with _taken_out(scene.site):
        sensor.publish(TOPIC, b"after")
        m3, plain = stays.next()[2], leaves.next()[2]
        assert stays.opens(m3) == b"after"
        assert get_m3(plain)[1] == 0, "no rule seals it for this one"
        held, ended = leaves.grants
        assert ended[:7] == held[:7]
        assert int.from_bytes(ended[7:11], "big") > 0
        with pytest.raises(NoKey):
            leaves.opens(m3)
        leaves.reader.add_grant(_as_if(held, m3))
        with pytest.raises(Unauthentic):
            leaves.opens(m3)
        assert leaves.opens(plain) == b"after"
    back = Reads(scene.client(LEAVES))
    sensor.publish(TOPIC, b"back")
    assert stays.opens(stays.next()[2]) == back.opens(back.next()[2]) == b"back"


def test_what_was_queued_before_is_sealed_under_the_new_key_and_again_in_each_connection(
    scene: EvilScene,
) -> None:
    raw, sensor = scene.client(IN), _sensor(scene)
    leaves = Reads(scene.client(LEAVES))
    reads = Reads(raw, KEPT, 1)
    sensor.publish(TOPIC, b"first")
    first = reads.next()[2]
    assert reads.opens(first) == leaves.opens(leaves.next()[2]) == b"first"
    scene.cut(raw)
    scene.caught(TOPIC, b"queued", sensor)
    with _taken_out(scene.site):
        again(raw, 1, KEPT)
        reads.reader.session = raw.session
        # "first" was not acknowledged: it comes again, sealed anew.
        repeated = reads.next()[2]
        with pytest.raises(Replay):
            reads.opens(repeated)
        late = reads.next()[2]
        assert reads.opens(late) == b"queued"
        for m3 in (repeated, late):
            assert get_m3(m3)[1] == 2
            assert get_m3(m3)[4] > get_m3(first)[4], "a new epoch"
        scene.cut(raw)
        again(raw, 1, KEPT)
        later = [reads.next()[2] for _ in range(2)]
        for m3 in later:
            with pytest.raises(Replay):
                reads.opens(m3)
        numbers = {m3[8:M3_HEAD] for m3 in (first, repeated, late, *later)}
        assert len(numbers) == 5
        leaves.reader.add_grant(_as_if(leaves.grants[0], late))
        with pytest.raises(SealError):
            leaves.opens(late)


def test_no_number_and_key_seal_twice(scene: EvilScene) -> None:
    one, two, sensor = Reads(scene.client(IN)), Reads(scene.client(LEAVES)), _sensor(scene)
    for n in range(20):
        sensor.publish(TOPIC, b"%d" % n)
        assert one.opens(one.next()[2]) == two.opens(two.next()[2]) == b"%d" % n
    lines = [line for file in scene.sealed.iterdir() for line in file.read_text().splitlines()]
    assert len(lines) > 60
    assert twice(lines) == []


def test_all_workers_seal_for_a_group_and_a_restore_of_an_old_backup_gives_it_another_key(
    workers: Scene, tmp_path: Path
) -> None:
    site, told = workers.site, []
    # Numbers of both kinds, so that each worker has some of them.
    for name in (IN, LEAVES, "m1-device"):
        workers.enrolment(name)
    sensor = _sensor(workers)
    readers = [Reads(workers.client(name)) for name in (IN, LEAVES, "m1-device")]
    sensor.publish(TOPIC, b"old")
    assert {reads.opens(reads.next()[2]) for reads in readers} == {b"old"}
    told += [reads.grants[0] for reads in readers]
    assert len(set(told)) == 1
    ran("backup", site.path, tmp_path / "old")
    site.edit(CREW, LEFT)
    ran("reload", site.path)
    sensor.publish(TOPIC, b"left")
    stays, leaves, other = readers
    m3 = stays.next()[2]
    assert stays.opens(m3) == other.opens(other.next()[2]) == b"left"
    leaves.reader.add_grant(_as_if(leaves.grants[0], m3))
    with pytest.raises(Unauthentic):
        leaves.opens(m3)
    told.append(stays.grants[-1])
    assert site.down() == 0
    ran("restore", site.path, tmp_path / "old")
    site.up("--broker", "mosquitto")
    workers.all_renewed()
    sensor, stays = _sensor(workers), Reads(workers.client(IN), CLEAN)
    sensor.publish(TOPIC, b"restored")
    m3 = stays.next()[2]
    assert stays.opens(m3) == b"restored"
    [now] = stays.grants
    assert now[:3] not in {one[:3] for one in told}, "another number"
    keys = {one[11:] for one in told}
    assert now[11:] not in keys
    _stand_nowhere(site, {*keys, now[11:]})


def _stand_nowhere(site: Site, secrets: set[bytes]) -> None:
    """In no file of the site, and not in what `sealmq up` has said."""
    found = [path for path in site.path.rglob("*") if path.is_file()]
    texts = [path.read_bytes() for path in found] + [site.log().encode()]
    assert len(texts) > 10
    for secret in secrets:
        for form in (secret, secret.hex().encode(), repr(secret)[2:-1].encode()):
            assert not any(form in text for text in texts)
