"""Provisioning: the device client against a scripted peer."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import INTERPRETERS, board
from peer_connection import Connection
from peer_site import Site
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
@pytest.mark.parametrize("other", ["site", "client", "secret"])
def test_state_of_another_enrolment_counts_as_none(
    interpreter: str, other: str, tmp_path: Path
) -> None:
    """Its gen and kseq are higher than what this one's key generator gives: they would refuse every
    answer (SPEC.md 7.2, 7.4)."""
    old = Site()
    old.gen, old.kseq = 50, 500
    new = Site()
    if other != "site":
        new.id = old.id
    if other == "client":
        new.ps, old.client = old.ps, 8
    with board(tmp_path, old) as b:
        b.provision()
    with board(tmp_path, new) as b:
        said = b.run(interpreter, "c.connect()\nsay(c.ident.gen, c.session.boot, c.refused)")
        assert said == ["1 2 {}"]


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
