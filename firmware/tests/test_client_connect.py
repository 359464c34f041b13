"""Provisioning, connecting, boot counter, reconnecting: the device client and a scripted peer."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import INTERPRETERS, board
from peer import Connection
from peer_site import Site
from sealmq_spec import const, control, provision

every = pytest.mark.parametrize("interpreter", INTERPRETERS)


@every
@pytest.mark.parametrize("suite", [const.CCM, const.CHACHA])
def test_provisions_connects_and_publishes(interpreter: str, suite: int, tmp_path: Path) -> None:
    with board(tmp_path, Site(suite)) as b:
        said = b.run(
            interpreter,
            """
say(c.connect(), c.has_kg_time())
say(c.publish("machine/1/temperature", b"21.5", qos=1))
say(c.publish("machine/1/temperature", b"21.6"))
say(c.publish(b"machine/1/state", "gr\\u00fcn", retain=True, qos=1, life=7))
say(c.publish("machine/1/state", b"", retain=True, qos=1))
c.disconnect()
say(c.refused, c.notices, c.unacked)
""",
        )
        assert said == ["False True", "1", "2", "3", "4", "{} [] {}"]
        assert [event[0] for event in b.peer.events] == [
            "quarantine", "asked", "end", "connected", *["publish"] * 4, "end",
        ]  # fmt: skip
        t, state = "machine/1/temperature", "machine/1/state"
        # topic, plaintext, flags (RETAIN 1, QoS 1: 2), ctr, class, life
        assert b.peer.said("publish") == [
            (t, b"21.5", 2, 1, const.LIVE, 0),
            (t, b"21.6", 0, 2, const.LIVE, 0),
            (state, "grün".encode(), 3, 3, const.RETAINED, 7),
            (state, b"", 3, 4, const.CLEAR, 0),
        ]


@every
def test_roots_serve_from_then_on_and_boots_rise(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        for _ in range(3):
            assert b.run(interpreter, "c.connect()\nc.disconnect()\nc.connect()\n") == []
        assert b.peer.said("asked") == [(0,)]
        assert b.peer.said("connected") == [
            (1, boot, conn) for boot in (1, 2, 3) for conn in (1, 2)
        ]
        assert b.boot.read_bytes() == bytes.fromhex("000003fffffc")


@every
def test_a_lost_boot_counter_is_jumped_over(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.highest = (1, 500, 7)
        for torn in (b"", b"\x00", b"\x00\x00\x09\xff\xff\xf7", b"\xff" * 6, bytes(6), b"7" * 50):
            b.boot.write_bytes(torn)
            at = b.peer.highest[1]
            said = b.run(
                interpreter, "c.connect()\nsay(c.session.boot, c.publish('t', b'', qos=1))"
            )
            assert said == [f"{at + 1} 1"]
        assert len(b.peer.said("behind")) == 6
        assert b.peer.highest == (1, 506, 1)
        assert not b.peer.said("asked")


@every
def test_a_salt_is_new_in_each_boot_session(interpreter: str, tmp_path: Path) -> None:
    salts = []
    with board(tmp_path) as b:
        b.provision()

        def note(c: Connection) -> bool:
            salts.append(c.salt)
            return False

        b.peer.on_connect = note
        b.peer.highest = (1, 90, 1)
        b.run(interpreter, "c.connect()\nc.disconnect()\nc.connect()\nclient().connect()\n")
    # Behind, then twice the same boot session, then another client's.
    assert len(salts) == 4
    assert salts[1] == salts[2]
    assert len(set(salts)) == 3


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
    ("answer", "said"),
    [
        (b"\x20\x02\0\x03", "Unavailable  "),
        (b"\x20\x02\0\x01", "Unsupported  "),
        (b"\x30\x02\0\0", "Malformed  "),
        (b"\x20\x03\0\0\0", "Malformed  "),
        (b"\x20\x02\0", "OSError ECONNRESET"),
        (b"", "OSError ECONNRESET"),
    ],
)
def test_other_answers_to_connect(
    interpreter: str, answer: bytes, said: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_connect(c: Connection) -> bool:
            c.sock.sendall(answer)
            c.sock.close()
            return True

        b.peer.on_connect = on_connect
        assert b.run(interpreter, "caught(c.connect)\nsay(c.sock)") == [said, "None"]


@every
@pytest.mark.parametrize(
    "what", ["other key", "other conn", "bit", "cut", "receipt", "topic", "nothing", "status"]
)
def test_nothing_goes_out_before_a_genuine_welcome(
    interpreter: str, what: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_welcome(c: Connection, want: bool) -> bool:
            if what == "other key":
                c.salt = bytes(8)
            if what == "other conn":
                c.conn += 1
            packet = bytearray(c.down(c.welcome(7 if what == "status" else 0, want)))
            if what == "bit":
                packet[20] ^= 4
            if what == "receipt":
                packet = bytearray(c.down(control.receipt(0, 0)))
            if what == "nothing":
                c.send(0xD0, b"")
            else:
                topic = b"t" if what == "topic" else const.CONTROL
                c.publish(topic, bytes(packet[:-9] if what == "cut" else packet))
            return True

        b.peer.on_welcome = on_welcome
        said = b.run(
            interpreter, "caught(c.connect)\ncaught(c.publish, 't', b'x')\nsay(c.now_ms())"
        )
        genuine = {"other key": "Unauthentic", "other conn": "Unauthentic", "bit": "Unauthentic"}
        genuine["cut"] = "Unauthentic"
        assert said == [genuine.get(what, "Malformed") + "  ", "OSError ENOTCONN", "None"]
        assert not b.peer.said("publish")


@every
def test_a_late_welcome_sets_no_clock_and_is_asked_for_again(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        seen = []

        def on_welcome(c: Connection, want: bool) -> bool:
            seen.append(want)
            if len(seen) == 1:
                b.peer.settle_after(2.1)
            return False

        b.peer.on_welcome = on_welcome
        said = b.run(interpreter, "c.connect()\nsay(c.now_ms() is not None)")
        assert said == ["True"]
        assert [event[2] for event in b.peer.said("connected")] == [1, 2]


@every
def test_kg_time_is_asked_for_over_the_session_when_the_first_welcome_lacked_it(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.gives_kg_time = False

        def on_ping(c: Connection) -> bool:
            b.peer.gives_kg_time = True
            return False

        b.peer.on_ping = on_ping
        said = b.run(
            interpreter,
            """
c.connect()
say(c.has_kg_time(), c.now_ms() is not None)
c.ping(); c.wait_msg()
c.disconnect()
c.connect()
while not c.has_kg_time():
    c.wait_msg()
say(c.refused)
""",
        )
        assert said == ["False True", "{}"]
        assert b.peer.said("up") == [(const.OP_ASK_TIME,)]


@every
def test_a_clock_that_lies_far_from_the_key_generators_is_reported(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_welcome(c: Connection, want: bool) -> bool:
            c.tell(c.welcome(0, want, ms=c.site.now_ms() + 40000))
            return True

        b.peer.on_welcome = on_welcome
        said = b.run(interpreter, "c.connect()\nsay(c.has_kg_time(), c.session.clock_conflict)")
        assert said == ["True True"]


@every
@pytest.mark.parametrize("qos", [0, 1])
def test_a_will_is_sealed_anew_for_each_connect(interpreter: str, qos: int, tmp_path: Path) -> None:
    wills = []
    with board(tmp_path) as b:
        b.provision()

        def on_welcome(c: Connection, want: bool) -> bool:
            _, topic, payload, _, _ = c.fields
            flags = c.flags >> 5 & 1 | c.flags >> 2 & 6
            wills.append((topic, flags, *c.unseal(topic, flags, payload)))
            return False

        b.peer.on_welcome = on_welcome
        script = f"""
c.set_last_will("machine/1/state", b"gone", retain=True, qos={qos}, life=255)
c.connect()
say(c.publish("t", b"x", qos=1))
c.disconnect()
c.connect()
"""
        assert b.run(interpreter, script) == ["2"]
    for (topic, flags, ctr, m1, plain), at in zip(wills, (1, 3), strict=True):
        assert (topic, flags, ctr, plain) == (b"machine/1/state", 1 | qos << 1, at, b"gone")
        assert m1[1] & 15 == const.WILL | const.UNTIMED
        assert m1[26] == 255


@every
def test_a_host_that_is_not_there(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        script = "c.port = 9\ncaught(c.connect)\ncaught(c.ping)\nc.disconnect()\nsay(c.sock)"
        assert b.run(interpreter, script) == ["OSError ECONNREFUSED", "OSError ENOTCONN", "None"]


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
