"""Messages of other sites (SPEC.md 3.5), as boards take or refuse them with the files that ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import EVERY, board
from peer_connection import Connection
from sealmq_spec.origin import CRITICAL, put
from sealmq_spec.records import Roots
from sealmq_spec.tlv import pack
from test_shipping import a_set, both, built, shipped

__all__ = ["built"]

AWAY, THERE, THEIR_EPOCH = b"away", 40, 77
MOUNTED = "@north/machine/1/t"
HEARS = """
got = []
c.set_callback(got.append)
c.connect()
c.subscribe("@north/#", qos=1)
c.subscribe("machine/#", qos=1)
c.ping()
while not (got or c.refused):
    c.wait_msg()
c.publish("machine/1/t", b"own", qos=1)
while not got or got[-1].payload != b"own":
    c.wait_msg()
say([(m.topic, bytes(m.payload)) for m in got], c.refused)
"""
BOTH = [f"[('{MOUNTED}', b'21.5'), ('machine/1/t', b'own')] {{}}"]


def of_another_site(c: Connection, flip: int = 0, topic: str = MOUNTED) -> bool:
    """Answers a PINGREQ with what a mediator makes of what a bridge has brought."""
    own = c.site.own
    theirs = Roots(THERE, THEIR_EPOCH, own.suite, own.r, own.r_bar)
    m1 = bytearray(c.m1(b"machine/1/t", b"21.5", theirs, 5, site=AWAY))
    m1[-1] ^= flip
    item = pack([(CRITICAL, put(AWAY, THERE, own.epoch))])
    raw = topic.encode()
    c.publish(raw, c.m3(raw, bytes(m1), own, tlv=item))
    return True


@pytest.mark.parametrize("interpreter", EVERY)
def test_a_board_opens_what_another_site_has_sealed(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.peer.on_ping = of_another_site
        assert b.run(interpreter, HEARS) == BOTH


@both
def test_the_set_for_other_sites_opens_it_and_the_one_without_refuses_it(
    bits: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    for name, said in (
        ("display-sites", BOTH),
        ("display", ["[('machine/1/t', b'own')] {'Unsupported': 1}"]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        shipped(a_set(name, bits, built, folder / "set"), monkeypatch)
        with board(folder) as b:
            b.peer.on_ping = of_another_site
            assert b.run(bits, HEARS) == said


@both
def test_what_was_changed_on_its_way_or_stands_elsewhere_is_refused(
    bits: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(a_set("display-sites", bits, built, tmp_path / "set"), monkeypatch)
    for number, (more, error) in enumerate(
        (({"flip": 1}, "Unauthentic"), ({"topic": "@north/machine/1/u"}, "Unauthentic"))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        with board(folder) as b:
            b.peer.on_ping = lambda c, more=more: of_another_site(c, **more)
            assert b.run(bits, HEARS) == [f"[('machine/1/t', b'own')] {{'{error}': 1}}"]
