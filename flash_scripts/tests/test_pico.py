"""A Raspberry Pi Pico W: no NVS, so what only it may know lies in files, where the client reads it.

The scripts run in real MicroPython, on a littlefs in RAM that is the whole file system, with
stand-ins of `machine` and of `rp2.Flash`, which has the methods that MicroPython documents.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sealmq_board import mpremote_run, provision
from sealmq_board.errors import BoardError
from sealmq_board.mpremote_run import MARK, Run
from sealmq_board.ports import Port

SECRET = "5e" * 32
ENROLMENT = {
    "sealmq": 1,
    "site": "01020304",
    "client": 9,
    "name": "t1",
    "ps": SECRET,
    "mediator": {"number": 1, "host": "127.0.0.1", "port": 1883},
}
ROOT = Path(__file__).resolve().parents[2]
_BOARD = """
import os, sys
import vfs
class Flash:
    size, count = 4096, 64
    raw = bytearray(b"\\xff" * size * count)
    def readblocks(self, n, buf, off=0):
        at = n * self.size + off
        buf[:] = self.raw[at : at + len(buf)]
    def writeblocks(self, n, buf, off=0):
        at = n * self.size + off
        self.raw[at : at + len(buf)] = buf
    def ioctl(self, op, arg):
        if op == 4:
            return self.count
        if op == 5:
            return self.size
        if op == 6:
            at = arg * self.size
            self.raw[at : at + self.size] = b"\\xff" * self.size
        return 0
class machine:
    class RTC:
        pass
    class WDT:
        def __init__(self, timeout):
            if timeout > 8388:
                raise ValueError("timeout exceeds 8388")
    def unique_id():
        return b"\\x01\\x02"
class rp2:
    pass
class network:
    class WLAN:
        def __init__(self, interface):
            pass
        def active(self, on):
            pass
    STA_IF = 0
rp2.Flash = Flash
for each in (machine, rp2, network):
    sys.modules[each.__name__] = each
vfs.VfsLfs2.mkfs(Flash())
vfs.mount(vfs.VfsLfs2(Flash()), "/")
os.chdir("/")
def shown(path):
    try:
        with open(path, "rb") as f:
            print(path, f.read())
    except OSError:
        print(path, None)
"""


def on_pico(folder: Path, *steps: Run | str) -> tuple[list[dict[str, Any]], list[str]]:
    """Answers of scripts of on_board/ and other lines, in the order in which they came."""
    parts = [mpremote_run.program(s) if isinstance(s, Run) else s for s in steps]
    script = folder / "script.py"
    script.write_text("\n".join([_BOARD, *(f"exec({part!r})" for part in parts)]))
    done = subprocess.run(
        [ROOT / "build/micropython/bin/micropython32", script],
        capture_output=True,
        text=True,
        env={**os.environ, "MICROPYPATH": ".frozen"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.rstrip("\n").split("\n")
    answers = [json.loads(line.removeprefix(MARK)) for line in lines if line.startswith(MARK)]
    return answers, [line for line in lines if not line.startswith(MARK)]


def secrets(
    enrolment: dict[str, Any] | None, wifi: bytes | None, mediator: bytes | None = None
) -> Run:
    raw = None if enrolment is None else json.dumps(enrolment).encode()
    given = {"enrolment": raw, "wifi": wifi, "mediator": mediator, "replace": False}
    return Run("secrets", given)


def test_a_pico_w_keeps_its_secrets_in_files(tmp_path: Path) -> None:
    answers, lines = on_pico(
        tmp_path,
        Run("look", {"digests": False}),
        secrets(ENROLMENT, b'{"ssid": "s", "key": "k"}'),
        "with open('/sealmq.state', 'wb') as f: f.write(b'keys')",
        "with open('/sealmq.boot', 'wb') as f: f.write(b'\\0\\0\\x07\\xff\\xff\\xf8')",
        secrets(ENROLMENT, b'{"ssid": "s", "key": "k"}'),
        Run("look", {"digests": False}),
        secrets(None, None, b"10.0.0.5:1884"),
        "shown('/sealmq.json'); shown('/wifi.json'); shown('/sealmq.state')",
        secrets(ENROLMENT | {"client": 99}, None),
    )
    seen = [a for a in answers if "enrolled" in a]
    assert [(a["enrolled"], a["wifi"], a["boot"]) for a in seen] == [
        (False, False, 0),
        (True, True, 7),
    ]
    assert seen[1]["enrolment"]["client"] == ENROLMENT["client"]
    assert all(a["network"] for a in answers if "machine" in a)
    # The second time nothing is written; the last client is another one.
    assert [a["written"] for a in answers if "written" in a] == ["wifi", "enrolment", "enrolment"]
    assert answers[-1]["other"]["client"] == ENROLMENT["client"]
    kept = {line.split()[0]: line.partition(" ")[2] for line in lines}
    assert '"host": "10.0.0.5"' in kept["/sealmq.json"]
    assert '"port": 1884' in kept["/sealmq.json"]
    assert kept["/wifi.json"] == """b'{"ssid": "s", "key": "k"}'"""
    assert kept["/sealmq.state"] == "None"


@pytest.mark.parametrize(
    "there", [None, b'{"sealmq": 1, "si', b"[]", b'{"sealmq": 1}', b'{"mediator": []}']
)
def test_an_address_without_an_enrolment_to_put_it_into_is_refused_in_words(
    there: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Run | str] = [secrets(None, b'{"ssid": "s", "key": "k"}', b"10.0.0.5:1884")]
    if there is not None:
        steps.insert(0, f"with open('/sealmq.json', 'wb') as f: f.write({there!r})")
    answers, lines = on_pico(tmp_path, *steps, "shown('/sealmq.json'); shown('/wifi.json')")
    assert not any("written" in a or "secrets" in a for a in answers)
    assert lines == [f"/sealmq.json {there!r}", "/wifi.json None"]
    # What an operator reads of it.
    port = Port("pico", "/dev/ttyACM0")
    monkeypatch.setattr(provision, "one", lambda args: port)
    monkeypatch.setattr(provision, "look", lambda port, digests: SimpleNamespace(client={}))
    monkeypatch.setattr(provision, "_check", lambda there, who, replace: None)
    monkeypatch.setattr(provision, "_files", lambda there, args: [])
    monkeypatch.setattr(provision, "work", lambda port, steps: answers)
    parser = argparse.ArgumentParser()
    provision.arguments(parser)
    with pytest.raises(BoardError, match=r"pico: the board holds no enrolment that") as told:
        provision.run(parser.parse_args(["--mediator", "10.0.0.5:1884"]))
    assert "--enrolment FILE" in str(told.value.hint)


def test_a_pico_w_that_looks_for_its_mediator(tmp_path: Path) -> None:
    """It has it in its enrolment, and where it found it is forgotten with another secret."""
    answers, lines = on_pico(
        tmp_path,
        secrets(ENROLMENT, None, b"mdns"),
        Run("look", {"digests": False}),
        "with open('/sealmq.found', 'wb') as f: f.write(b'10.0.0.9:1883')",
        "shown('/sealmq.json')",
        secrets(None, None, b"10.0.0.5:1884"),
        Run("look", {"digests": False}),
        "shown('/sealmq.json'); shown('/sealmq.found')",
    )
    assert [a["mediator"] for a in answers if "enrolled" in a] == ["mdns", ""]
    one, two, found = lines
    assert '"mdns": true' in one
    assert '"host": "127.0.0.1"' in one
    assert '"mdns": false' in two
    assert '"host": "10.0.0.5"' in two
    assert found == "/sealmq.found None"


def test_what_is_wiped_is_in_no_bit_of_a_pico_ws_flash(tmp_path: Path) -> None:
    answers, lines = on_pico(
        tmp_path,
        secrets(ENROLMENT, b'{"ssid": "s", "key": "k"}'),
        Run("erase", {}),
        "print(set(Flash.raw))",
    )
    assert answers[-1] == {"wiped": True}
    assert {a["erased"]: a["bytes"] for a in answers if "erased" in a} == {"vfs": 64 * 4096}
    assert lines == ["{255}"]
