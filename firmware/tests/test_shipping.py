"""What `make firmware` makes: sizes, that it can be made again byte for byte, and that it runs."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import pytest

import build_mpy
from count import count
from device_script import ARCHS, Board, board
from mpy_file import MpyError, check, check_folder
from peer_connection import Connection
from peer_site import Site
from real_micropython import VIPER
from sealmq_spec import const
from test_finding import looks, network, said

both = pytest.mark.parametrize("bits", [str(n) for n in VIPER])

# A tenth of umqtt's over TLS 1.3 with ECDSA is 4.5 million.
WAKE = {const.CCM: 4_500_000, const.CHACHA: 5_000_000}
PUBLISHES = """
say(c.connect(), all(c.publish("machine/1/t", b"%d" % i, qos=1) == i + 1 for i in range(20)))
"""
WAKES = """
import sys
from sealmq_device import Client
say = print
c = Client(sys.argv[1])
"""
RECEIVES = """
got = []
c.set_callback(got.append)
c.connect()
c.subscribe("machine/#", qos=1)
c.publish("machine/1/t", b"21.5", qos=1)
while not got:
    c.wait_msg()
say(got[0].topic, got[0].payload, c.refused)
"""
RESERVES = """
c.connect()
say(c.reserve("machine/1/t", ["billing"]), c.publish("machine/1/t", b"21.5", qos=1) == 2)
"""
PURPOSES = """
got = []
c.set_callback(got.append)
c.connect()
say(c.reserve("machine/1/t", ["billing"]), c.subscribe("machine/#", 1, "billing"))
c.publish("machine/1/t", b"21.5", qos=1)
while not got:
    c.wait_msg()
say(got[0].topic, got[0].payload, c.refused)
"""
ASYNC_PURPOSES = """
import asyncio
from sealmq_device import aio
async def main():
    c = aio.Client(sys.argv[1])
    await c.connect()
    await c.reserve("machine/1/t", ["billing"])
    say(await c.subscribe("machine/#", 1, "billing"), c.isconnected())
asyncio.run(main())
"""
# With a heap of 96 kB: behind RECEIVES.
HANDS_OVER = """
c.ping()
while not c.session.due:
    c.wait_msg()
c.publish("machine/1/t", b"after", qos=1)
while len(got) < 2:
    c.wait_msg()
c.disconnect()
c.connect()
c.subscribe("machine/#", qos=1)
c.publish("machine/1/t", b"again", qos=1)
while len(got) < 3:
    c.wait_msg()
import gc
gc.collect()
say(not c.unacked, c.ident.gen, c.ident.own.epoch, [m.payload for m in got], c.refused)
say(gc.mem_free())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what `make firmware` left; that it is of this tree is a test of its own."""
    assert (build_mpy.OUT / "sizes.json").is_file(), "make firmware"
    return Path(shutil.copytree(build_mpy.OUT, tmp_path_factory.mktemp("built") / "firmware"))


def shipped(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on boards run what was built."""
    monkeypatch.setenv("SEALMQ_MPY", str(built))


def provisioned(b: Board, bits: str) -> None:
    assert b.run(bits, "c.connect()\nc.disconnect()\n") == []
    b.peer.events.clear()


def test_each_set_fits_its_flash(built: Path) -> None:
    totals = json.loads((built / "sizes.json").read_bytes())["sets"]
    assert totals == {
        name: {
            arch: sum(path.stat().st_size for path in (built / name / arch).rglob("*.mpy*"))
            for arch in build_mpy.BOARDS
        }
        for name in build_mpy.SETS
    }
    assert set(build_mpy.ABOUT) == set(build_mpy.SETS)
    limited = [name for name, without in build_mpy.SETS.items() if without]
    assert len(limited) >= 3
    assert {(n, a): s for n in limited for a, s in totals[n].items() if s > build_mpy.LIMIT} == {}
    for name in build_mpy.SETS:
        for arch in build_mpy.BOARDS:
            assert check_folder(built / name / arch, arch) >= 8


def test_it_can_be_made_again_byte_for_byte(built: Path, tmp_path: Path) -> None:
    build_mpy.merged.cache_clear()
    build_mpy.build(tmp_path, ["xtensawin"])
    files = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*.mpy*"))
    assert len(files) > 10
    assert [p for p in files if (tmp_path / p).read_bytes() != (built / p).read_bytes()] == []


def test_a_board_program_reaches_no_private_attribute() -> None:
    """What ships has other names for those."""
    for path in sorted((build_mpy.ROOT / "firmware" / "board").glob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        own = {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
        attributes = [n for n in nodes if isinstance(n, ast.Attribute)]
        own |= {n.attr for n in attributes if isinstance(n.ctx, ast.Store)}
        private = {n.attr for n in attributes if n.attr[0] == "_" and n.attr[1] != "_"}
        assert private - own == set(), path.name


@both
@pytest.mark.parametrize(
    ("name", "script", "said"),
    [
        ("sensor", "from sealmq_device.living import Living" + PUBLISHES, ["False True"]),
        ("display", RECEIVES, ["machine/1/t b'21.5' {}"]),
        ("asyncio", "from sealmq_device import aio\nsay(bool(aio.Client))", ["True"]),
        ("asyncio", ASYNC_PURPOSES, ["1 True"]),
        ("sensor-purposes", "from sealmq_device.living import Living" + RESERVES, ["b'' True"]),
        ("display-purposes", PURPOSES, ["b'' 1", "machine/1/t b'21.5' {}"]),
    ],
)
def test_a_set_has_what_its_board_needs(
    bits: str, name: str, script: str, said: list[str], built: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    shipped(a_set(name, bits, built, tmp_path / "set"), monkeypatch)
    with board(tmp_path) as b:
        assert b.run(bits, script) == said


def a_set(name: str, bits: str, built: Path, folder: Path) -> Path:
    """The set `name`, for this host, in `folder`."""
    for inside in build_mpy.SETS[name]:
        assert "/" not in inside
    shutil.copytree(built / ARCHS[bits], folder / ARCHS[bits])
    for inside in build_mpy.SETS[name]:
        (folder / ARCHS[bits] / "sealmq_device" / f"{inside}.mpyz").unlink(missing_ok=True)
    return folder


@both
def test_a_forged_message_does_not_end_who_can_open_none(
    bits: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is on the way can send one, without a key."""
    shipped(a_set("sensor", bits, built, tmp_path / "set"), monkeypatch)
    with board(tmp_path) as b:
        b.peer.on_ping = forge
        script = "c.connect()\nc.ping()\nwhile not c.refused:\n    c.wait_msg()\nsay(c.refused)"
        assert b.run(bits, script + PUBLISHES) == ["{'Unsupported': 1}", "False True"]


@both
def test_each_set_publishes_long_messages(
    bits: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(a_set("sensor", bits, built, tmp_path / "set"), monkeypatch)
    with board(tmp_path) as b:
        assert b.run(bits, 'c.connect()\nsay(c.publish("machine/1/t", bytes(3000), qos=1))') == [
            "1"
        ]
        assert b.peer.said("publish")


@both
def test_a_new_epoch_does_not_end_who_can_open_no_message(
    bits: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(a_set("sensor", bits, built, tmp_path / "set"), monkeypatch)
    with board(tmp_path) as b:
        b.peer.on_ping = new_epoch
        script = "c.connect()\nc.ping()\nwhile not c.session.due:\n    c.wait_msg()\n"
        script += 'c.publish("machine/1/t", b"after", qos=1)\nsay(c.ident.own.epoch)'
        # Kept over a start: roots, and a new epoch while it was away.
        assert b.run(bits, script) == ["2"]
        b.peer.site.new_epoch()
        again = 'c.connect()\nc.publish("machine/1/t", b"again", qos=1)\nsay(c.ident.own.epoch)'
        assert b.run(bits, again) == ["3"]
        assert len(b.peer.said("publish")) == 2


LOOKS = """
import socket, sys
class Net:
    AF_INET, SOCK_STREAM, SOCK_DGRAM = socket.AF_INET, socket.SOCK_STREAM, socket.SOCK_DGRAM
    socket = socket.socket
    def getaddrinfo(self, host, port, *rest):
        if host == "224.0.0.251":
            host, port = "127.0.0.1", %d
        return socket.getaddrinfo(host, port, *rest)
sys.modules["socket"] = Net()
from sealmq_device import Client
say = print
c = Client(sys.argv[1])
c.connect()
say(c.port, c.publish("machine/1/t", b"21.5", qos=1))
"""


def test_a_board_that_looks_finds_its_mediator(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(built, monkeypatch)
    with board(tmp_path) as b:
        site = looks(b)
        with network(lambda ident: [said(ident, b.peer.port, site)]) as net:
            assert b.run("32", "", LOOKS % net.port, heap="96k") == [f"{b.peer.port} 1"]
            assert len(net.asked) == 1


def test_a_waking_board_that_looks_loads_no_more_than_that_takes(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(built, monkeypatch)
    with board(tmp_path) as b:
        provisioned(b, "32")
        looks(b)
        b.enrolment.with_suffix(".found").write_text(f"127.0.0.1:{b.peer.port}")
        script = """
c.connect()
c.publish("machine/1/temperature", bytes(64), False, 1)
c.disconnect()
say(sorted([m[14:] for m in sys.modules if m.startswith("sealmq_device.")]))
"""
        assert b.run("32", script, WAKES) == ["['finding', 'inflate']"]


def test_one_whose_set_cannot_look_goes_where_its_enrolment_says(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sealmq board` refuses that; whoever brings files by hand shall not lose the board."""
    shipped(a_set("sensor", "32", built, tmp_path / "set"), monkeypatch)
    with board(tmp_path) as b:
        looks(b, port=b.peer.port)
        assert b.run("32", "c.connect()\nsay(c.port)") == [str(b.peer.port)]


def forge(c: Connection) -> bool:
    """Answers a PINGREQ with a message that nobody sealed."""
    c.publish(b"machine/1/t", bytes(90))
    return True


def test_another_architecture_or_version_is_named(built: Path, tmp_path: Path) -> None:
    package = tmp_path / "sealmq_device"
    package.mkdir()
    raw = (built / "xtensawin" / "sealmq_device" / "__init__.mpy").read_bytes()
    core = package / "__init__.mpy"
    core.write_bytes(raw)
    assert check_folder(tmp_path, "xtensawin") == 1
    with pytest.raises(MpyError, match=r"__init__\.mpy: native code for xtensawin, not x64"):
        check_folder(tmp_path, "x64")
    core.write_bytes(raw[:1] + b"\x05" + raw[2:])
    with pytest.raises(MpyError, match=r"__init__\.mpy: \.mpy version 5, not 6"):
        check_folder(tmp_path, "xtensawin")
    core.write_bytes(raw[:2] + bytes((raw[2] & 0xFC | 1,)) + raw[3:])
    with pytest.raises(MpyError, match=r"version 6\.1"):
        check_folder(tmp_path, "xtensawin")
    core.write_bytes(b"from x")
    with pytest.raises(MpyError, match=r"no \.mpy file"):
        check(core, "xtensawin")
    with pytest.raises(MpyError, match=r"no \.mpy file in it"):
        check_folder(tmp_path / "empty", "x64")


@pytest.mark.parametrize("suite", [const.CCM, const.CHACHA])
@both
def test_a_waking_publisher_loads_nothing_else(
    bits: str, suite: int, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(built, monkeypatch)
    with board(tmp_path, Site(suite)) as b:
        provisioned(b, bits)
        said = b.run(
            bits,
            """
c.connect()
c.publish("machine/1/temperature", bytes(64), False, 1)
c.disconnect()
say([m for m in sys.modules if m in ("sealmq_device.later", "sealmq_device.reader")])
c.subscribe
say("sealmq_device.later" in sys.modules)
""",
            WAKES,
        )
        assert said == ["[]", "True"]
        assert len(b.peer.said("publish")) == 1


@pytest.fixture(scope="module")
def chacha(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The set for ChaCha20-Poly1305, for this host."""
    folder = tmp_path_factory.mktemp("chacha")
    for arch, files in build_mpy.build(folder, build_mpy.HOSTS, chacha=True).items():
        for inside in files.keys() - build_mpy.choose(files, "sensor-chacha").keys():
            (folder / arch / inside).unlink()
    return folder


@both
def test_a_chacha_board_needs_no_other_cipher(
    bits: str, chacha: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped(chacha, monkeypatch)
    with board(tmp_path, Site(const.CHACHA)) as b:
        script = "c.connect()" + PUBLISHES + "say([m for m in sys.modules if 'cc' in m])"
        assert b.run(bits, script) == ["False True", "[]"]
        assert len(b.peer.said("publish")) == 20


if 64 in VIPER:

    @pytest.mark.parametrize("suite", [const.CCM, const.CHACHA])
    def test_what_a_wake_costs(
        suite: int, built: Path, chacha: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = chacha if suite == const.CHACHA else built
        shipped(folder, monkeypatch)
        host = Path(build_mpy.__file__).parent
        scripts = tmp_path / "scripts"
        text = (host / "bench_wake_sealmq.py").read_text(encoding="utf-8")
        build_mpy.compile_text(text, scripts / "wake.mpy", "wake.py", "x64")
        script = tmp_path / "w.py"
        script.write_text("import wake\n", encoding="utf-8")
        with board(tmp_path, Site(suite)) as b:
            provisioned(b, "64")
            counted = count(script, [b.enrolment], path=[folder / "x64", scripts])
            assert len(b.peer.said("publish")) == 1
        assert counted < WAKE[suite]


def test_96_kilobytes_of_heap_are_enough(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To provision, to receive, to publish with QoS 1 through a new epoch of the label and a new
    connection, which provisions and derives all keys anew."""
    shipped(built, monkeypatch)
    with board(tmp_path) as b:
        b.peer.on_ping = new_epoch
        said = b.run("32", RECEIVES + HANDS_OVER, heap="96k")
    assert said[0] == "machine/1/t b'21.5' {}"
    assert said[1] == "True 2 2 [b'21.5', b'after', b'again'] {}"
    assert b.peer.said("asked") == [(0,), (1,)]
    assert len(b.peer.said("publish")) == 3
    assert int(said[2]) > 8_000, said[2]


@pytest.mark.parametrize(
    ("name", "script", "said"),
    [
        ("sensor-purposes", RESERVES, ["b'' True"]),
        ("display-purposes", PURPOSES, ["b'' 1", "machine/1/t b'21.5' {}"]),
    ],
)
@pytest.mark.parametrize("kilobytes", [88, 89, 90])
def test_the_sets_with_purposes_work_in_88_kilobytes(
    kilobytes: int, name: str, script: str, said: list[str], built: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A new client provisions, reserves, subscribes and receives. Where a file happens to find no
    room depends on the heap's size, so that more than the least is tried."""
    shipped(a_set(name, "32", built, tmp_path / "set"), monkeypatch)
    with board(tmp_path) as b:
        script += "import gc\ngc.collect()\nsay(gc.mem_free())"
        found = b.run("32", script, heap=f"{kilobytes}k")
    assert found[:-1] == said
    assert int(found[-1]) > 6_000, found


def new_epoch(c: Connection) -> bool:
    """Answers a PINGREQ with op 4: the label has a new epoch."""
    c.site.new_epoch()
    own = c.site.own
    body = b"\x04" + own.label.to_bytes(3, "big") + own.epoch.to_bytes(3, "big")
    end = c.site.now_ms() // 1000 + 60
    c.tell(body + c.site.kseq.to_bytes(4, "big") + end.to_bytes(4, "big"))
    return True
