"""Items of TLV that a publisher sends: for the site's policy families, and for no reader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sealmq_spec.tlv import pack

from attack_scene import QOS1, TOPIC, Scene, scene, with_will
from running_site import Site, until
from wire import publish

MALFORMED, UNSUPPORTED = 1, 10
NOTE = pack([(40, b"rated: trusted"), (127, b"")])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The factory with no family that uses items."""
    made = Site(tmp_path_factory.mktemp("items"))
    made.up()
    with scene(made) as whole:
        yield whole
    made.down()


@pytest.fixture
def site(running: Scene) -> Scene:
    """The same, with nothing left of the test before."""
    running.heard()
    running.listener.items.clear()
    return running


def test_no_item_that_a_publisher_sends_reaches_a_reader(site: Scene) -> None:
    raw = site.client("m1-temp-sensor")
    raw.connect(keepalive=0)
    raw.wire.send(publish(TOPIC, raw.seal(TOPIC, b"noted", tlv=NOTE), QOS1, 1))
    raw.acknowledged()
    assert raw.notices == []
    assert [payload for _, payload, _ in site.heard()] == [b"noted"]
    assert site.listener.items == [{}]


def test_no_item_of_a_will_reaches_a_reader(site: Scene) -> None:
    raw = site.client("m1-temp-sensor")
    with_will(raw, TOPIC, b"gone", tlv=NOTE)
    site.cut(raw)
    heard: list[bytes] = []

    def came() -> bool:
        heard.extend(payload for _, payload, _ in site.heard())
        return bool(heard)

    until("the will", came)
    assert heard == [b"gone"]
    assert site.listener.items == [{}]


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([(0x80 | 40, b"")], UNSUPPORTED),
        ([(40, b""), (0xFF, b"")], UNSUPPORTED),
        ([(31, b"")], MALFORMED),
        ([(2, bytes(4))], MALFORMED),
        ([(0x82, bytes(4))], MALFORMED),
        ([(0x83, b"\0\0\x10")], MALFORMED),
    ],
)
def test_a_critical_item_that_no_family_knows_is_refused(
    site: Scene, items: list[tuple[int, bytes]], code: int
) -> None:
    raw = site.client("m1-temp-sensor")
    raw.connect(keepalive=0)
    raw.wire.send(publish(TOPIC, raw.seal(TOPIC, b"noted", tlv=pack(items)), QOS1, 1))
    raw.acknowledged()
    assert [(what, ctr, code) for what, ctr, code, _, _ in raw.notices] == [(1, 1, code)]
    assert site.heard() == []
