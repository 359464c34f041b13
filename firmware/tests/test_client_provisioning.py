"""Provisioning: the device client against a scripted peer."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import INTERPRETERS, board
from peer_connection import Connection
from sealmq_spec import provision

every = pytest.mark.parametrize("interpreter", INTERPRETERS)


@every
def test_a_boot_counter_at_its_end_begins_again_under_a_new_gen(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.boot.write_bytes(bytes.fromhex("ffffff000000"))
        assert b.run(interpreter, "c.connect()\nsay(c.session.boot, c.ident.gen)") == ["1 2"]
        assert b.peer.said("connected") == [(2, 1, 1)]


@every
@pytest.mark.parametrize("cut", [0, 10, 139, 140, 151])
def test_a_torn_state_file_means_provisioning_again(
    interpreter: str, cut: int, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        whole = b.state.read_bytes()
        b.state.write_bytes(whole[:cut] if cut < len(whole) - 1 else whole[:-1])
        changed = bytearray(whole)
        changed[20] ^= 1
        assert b.run(interpreter, "c.connect()\nsay(c.ident.gen)") == ["2"]
        b.state.write_bytes(changed)
        assert b.run(interpreter, "c.connect()\nsay(c.ident.gen)") == ["3"]
        assert b.peer.said("asked") == [(0,), (0,)]


@every
def test_state_is_replaced_in_one_step(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        old = b.state.read_bytes()
        b.peer.site.new_epoch()
        said = b.run(
            interpreter,
            """
import sealmq_device.store as store
def power_cut(a, b):
    raise OSError(errno.EIO)
class Os:
    rename = power_cut
store.os = Os
caught(c.connect)
say(c.ident.gen, c.session.ident.gen)
""",
        )
        # Not stored, so not used either.
        assert said == ["OSError EIO", "1 1"]
        assert b.state.read_bytes() == old
        assert b.run(interpreter, "c.connect()\nsay(c.ident.gen, c.ident.own.epoch)") == ["3 2"]


@every
def test_a_newer_epoch_is_fetched_when_the_welcome_tells(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.site.new_epoch()
        script = "c.connect()\nsay(c.ident.gen, c.ident.own.epoch, c.publish('t', b'x', qos=1))"
        assert b.run(interpreter, script) == ["2 2 1"]
        assert b.peer.said("asked") == [(1,)]
        assert b.peer.said("connected") == [(1, 2, 1), (2, 2, 2)]


@every
def test_a_newer_epoch_is_fetched_when_a_notice_tells(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_ping(c: Connection) -> bool:
            site = c.site
            site.new_epoch()
            own = site.own
            end = site.now_ms() // 1000 + 60
            body = b"\x04" + own.label.to_bytes(3, "big") + own.epoch.to_bytes(3, "big")
            c.tell(body + site.kseq.to_bytes(4, "big") + end.to_bytes(4, "big"))
            return True

        b.peer.on_ping = on_ping
        said = b.run(
            interpreter,
            """
got = []
c.set_callback(lambda m: got.append(m.payload))
c.connect()
c.subscribe("t/#")
c.publish("t/1", b"before", qos=1)
c.ping()
while not c.session.due:
    c.wait_msg()
c.publish("t/1", b"after", qos=1)
say(c.ident.gen, c.ident.own.epoch, c.session.ctr)
while len(got) < 2:
    c.wait_msg()
say(got, c.refused)
""",
        )
        # The subscription is made again behind the scenes; counters go on.
        assert said == ["2 2 4", "[b'before', b'after'] {}"]
        assert len(b.peer.said("subscribe")) == 2


@every
def test_no_new_roots_to_be_had_leaves_the_old_ones(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.site.new_epoch()
        b.peer.site.answer_status = provision.LATER
        script = """
c.connect()
for _ in range(3):
    say(c.publish("t", b"x", qos=1), c.ident.own.epoch)
"""
        assert b.run(interpreter, script) == ["1 1", "2 1", "3 1"]
        assert b.peer.said("asked") == [(1,)]


@every
def test_a_disabled_client_says_so(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.peer.site.answer_status = provision.DISABLED
        assert b.run(interpreter, "caught(c.connect)") == ["Denied  "]
        assert not b.state.exists()


@every
def test_connack_5_asks_once_for_other_roots(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.site.km.clear()
        assert b.run(interpreter, "c.connect()\nsay(c.ident.gen)") == ["2"]
        assert b.peer.said("proof fails") == [(1,)]

        def on_connect(c: Connection) -> bool:
            if c.gen:
                c.send(0x20, b"\0\x05")
            return bool(c.gen)

        b.peer.on_connect = on_connect
        b.peer.events.clear()
        assert b.run(interpreter, "caught(c.connect)") == ["Denied  "]
        assert b.peer.said("asked") == [(2,)]


@every
@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"sealmq": 2}', '{"sealmq": 1, "site": "0"}', "\xff\xfe", '{"sealmq": 1'],
)
def test_a_bad_enrolment_file(interpreter: str, text: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.enrolment.write_bytes(text.encode("latin-1"))
        prelude = "import sys\nfrom sealmq_device import Client\nfrom sealmq_spec import errors\n"
        script = "try:\n    Client(sys.argv[1])\nexcept errors.Malformed as e:\n    print(e.code)\n"
        assert b.run(interpreter, script, prelude) == ["1"]
