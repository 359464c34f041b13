"""The store in an ESP32's NVS, against a stand-in that does what NVS documents and no more."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from device_script import INTERPRETERS, Board, board
from real_micropython import ROOT

every = pytest.mark.parametrize("interpreter", INTERPRETERS)

PRELUDE = """
import sys
sys.path.insert(0, {tests!r})
import esp32_stand_in as esp32
from sealmq_spec import errors
from sealmq_device import Client
say = print
say("sealmq_device.nvs" in sys.modules)
part = esp32.install(sys.argv[1][:-5] + ".nvs")
from sealmq_device.nvs import NvsStore
NAMESPACE, ENROLMENT, STATE, BOOT = "sealmq", "enrolment", "state", "boot"
raw = esp32.NVS(NAMESPACE)
"""


def run(b: Board, interpreter: str, script: str) -> list[str]:
    """What the script prints, behind what every run does: the module is not loaded unless asked."""
    prelude = PRELUDE.format(tests=str(Path(__file__).parent))
    first, *rest = b.run(interpreter, script, prelude)
    assert first == "False"
    return rest


def written(b: Board) -> dict[str, list[object]]:
    """What the partition holds."""
    found: dict[str, list[object]] = json.loads(b.enrolment.with_suffix(".nvs").read_text())
    return found


def write(b: Board, **values: object) -> None:
    """The partition, with values under the namespace."""
    entries = {f"sealmq/{key}": value for key, value in values.items()}
    b.enrolment.with_suffix(".nvs").write_text(json.dumps(entries))


def enrolled(b: Board) -> list[object]:
    """The enrolment as the flash tools write it."""
    return ["blob", b.enrolment.read_bytes().hex()]


def test_the_entries_are_those_of_the_readme() -> None:
    """Tools that write NVS images have the names from either."""
    source = (ROOT / "firmware" / "sealmq_device" / "nvs.py").read_text()
    names = dict(re.findall(r'^([A-Z]+) = "(\w{1,15})"', source, re.MULTILINE))
    assert sorted(names) == ["BOOT", "ENROLMENT", "MEDIATOR", "NAMESPACE", "STATE"]
    readme = (ROOT / "firmware" / "README.md").read_text()
    assert f"namespace `{names.pop('NAMESPACE')}`" in readme
    kinds = {"ENROLMENT": "blob", "MEDIATOR": "blob", "STATE": "blob", "BOOT": "i32"}
    for name, kind in kinds.items():
        assert f"| `{names[name]}` | {kind} |" in readme


@every
def test_a_board_that_lives_in_nvs(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        write(b, enrolment=enrolled(b))
        script = "c = Client(NvsStore())\nc.connect()\nsay(c.session.boot, c.ident.gen, part.ops)"
        # Boot counter and state, each set and committed; later the boot counter alone.
        assert run(b, interpreter, script) == ["1 1 4"]
        assert run(b, interpreter, script) == ["2 1 2"]
        found = written(b)
        assert found["sealmq/boot"] == ["i32", 2]
        assert found["sealmq/state"][0] == "blob"
        assert len(str(found["sealmq/state"][1])) == 2 * 142
        assert set(found) == {"sealmq/enrolment", "sealmq/state", "sealmq/boot"}
        assert not b.state.exists()
        assert not b.boot.exists()


@every
def test_what_is_not_there_or_something_else(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        write(b)
        script = """
def told(what):
    try:
        say(what())
    except (errors.SealError, OSError) as error:
        say(type(error).__name__, error.args[0])
store = NvsStore()
told(store.enrolment)
told(store.state)
told(store.boot)
for value in (-1, 0, 7, 0xFFFFFF, 0x1000000):
    raw.set_i32(BOOT, value)
    told(store.boot)
raw.set_blob(BOOT, b"seven")
told(store.boot)
raw.set_i32(STATE, 7)
told(store.state)
for size in (0, 1, 256, 257, 1024, 1025, 4000, 4001):
    raw.set_blob(STATE, bytes(size))
    say(len(store.state()))
for broken in (b"no", b"[]", b"\\xff", b""):
    raw.set_blob(ENROLMENT, broken)
    told(store.enrolment)
raw.set_blob(ENROLMENT, b'{"sealmq": 1}' + bytes(4000))
told(store.enrolment)
raw.set_blob(ENROLMENT, b'{"a":"' + b"a" * 3000 + b'"}')
say(len(store.enrolment()["a"]))
part.full = True
told(lambda: store.put_boot(1))
told(lambda: store.put_state(b"x"))
told(lambda: esp32.NVS("sixteen letters!"))
"""
        none = "Malformed NVS holds no enrolment (namespace sealmq, key enrolment)"
        no_json = "Malformed the enrolment file is no JSON object"
        assert run(b, interpreter, script) == [
            none, "b''", "0",
            "0", "0", "7", "16777215", "0",
            "0", "b''",
            "0", "1", "256", "257", "1024", "1025", "4000", "0",
            no_json, no_json, no_json, none,
            none, "3000",
            "OSError -4357", "OSError -4357", "OSError -4358",
        ]  # fmt: skip


@every
def test_an_address_of_its_own_that_is_none_is_told(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        write(b, enrolment=enrolled(b))
        script = """
import json
def told(address, mediator):
    given = json.loads(open(sys.argv[1]).read())
    given["mediator"] = mediator
    raw.set_blob(ENROLMENT, json.dumps(given).encode())
    raw.set_blob("mediator", address)
    try:
        c = Client(NvsStore())
        say(c.server, c.port)
    except errors.SealError as error:
        say(type(error).__name__, error.args[0])
there = {"number": 1, "host": "10.0.0.1", "port": 1883}
told(b"10.0.0.9:1884", there)
told(b"fe80::9:1884", there)
told(b"10.0.0.9:1884", {"number": 1})
for address in (b"10.0.0.9", b"10.0.0.9:", b":1884", b"10.0.0.9:mqtt", b"10.0.0.9:0",
                b"10.0.0.9:65536", b"10.0.0.9:-1", b"\\xff:1884"):
    told(address, there)
for mediator in (None, 7, [], "10.0.0.1:1883"):
    told(b"10.0.0.9:1884", mediator)
    told(b"", mediator)
"""
        said = run(b, interpreter, script)
        assert said[:3] == ["10.0.0.9 1884", "fe80::9 1884", "10.0.0.9 1884"]
        none = "Malformed NVS: the mediator's address is %s, not HOST:PORT; provision it anew"
        assert said[3:10] == [
            none % f"b'{text}'"
            for text in (
                "10.0.0.9", "10.0.0.9:", ":1884", "10.0.0.9:mqtt", "10.0.0.9:0", "10.0.0.9:65536",
                "10.0.0.9:-1",
            )
        ]  # fmt: skip
        assert said[10].startswith("Malformed NVS: the mediator's address is ")
        missing = "Malformed enrolment file: a field is missing or has the wrong form"
        assert said[11:] == [missing] * 8


@every
def test_state_in_nvs_that_is_torn_means_provisioning(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        write(b, enrolment=enrolled(b))
        script = "c = Client(NvsStore())\nc.connect()\nsay(c.session.boot, c.ident.gen)"
        assert run(b, interpreter, script) == ["1 1"]
        state = bytearray.fromhex(str(written(b)["sealmq/state"][1]))
        state[30] ^= 4
        for gen, blob in enumerate((b"", bytes(state), bytes(state[:-1]), bytes(5000)), 2):
            write(b, enrolment=enrolled(b), state=["blob", blob.hex()], boot=["i32", 500 * gen])
            assert run(b, interpreter, script) == [f"{500 * gen + 1} {gen}"]
