"""The file system image: MicroPython itself mounts it, and the slot's list is right."""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from board_things import SITE, client_sets, enrolment
from sealmq_board import build, cli, client_files, littlefs, provision
from sealmq_board import enrolment as enrolments
from sealmq_board.errors import BoardError

ROOT = Path(__file__).resolve().parents[2]
SIZE = 0x200000
APP = ("every", "qos", "subscribe", "purpose")
FILES = {
    "/boot.py": b"print(1)\n",
    "/sealmq/a/sealmq_device/__init__.mpy": bytes(range(256)) * 100,
    "/sealmq/slots": b"{}",
    "/empty": b"",
}
# Mounts the image as a board does, prints what is there, writes, and mounts once more.
MOUNTS = """
import os, sys, hashlib, vfs
class Dev:
    def __init__(self, path):
        self.f = open(path, "r+b")
    def readblocks(self, n, buf, off=0):
        self.f.seek(n * 4096 + off); self.f.readinto(buf)
    def writeblocks(self, n, buf, off=None):
        if off is None:
            off = 0
        self.f.seek(n * 4096 + off); self.f.write(buf)
    def ioctl(self, op, arg):
        if op == 4: return %d
        if op == 5: return 4096
        if op == 6:
            self.f.seek(arg * 4096); self.f.write(b"\\xff" * 4096); return 0
dev = Dev(%r)
vfs.mount(vfs.VfsLfs2(dev), "/b")
def show(at):
    for e in sorted(os.ilistdir(at)):
        p = at + "/" + e[0]
        if e[1] == 0x4000:
            print(p, "dir"); show(p)
        else:
            with open(p, "rb") as f: raw = f.read()
            print(p, len(raw), hashlib.sha256(raw).digest().hex())
show("/b")
with open("/b/new", "wb") as f: f.write(b"x" * 9000)
vfs.umount("/b")
vfs.mount(vfs.VfsLfs2(dev), "/b")
print(os.stat("/b/new")[6], os.statvfs("/b")[2])
"""


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("size", [SIZE, 0x80000])
def test_micropython_mounts_it(tmp_path: Path, bits: int, size: int) -> None:
    raw = littlefs.resized(littlefs.image(FILES, {"/sealmq/b"}, SIZE), size)
    path = tmp_path / "vfs.bin"
    path.write_bytes(raw)
    done = subprocess.run(
        [ROOT / f"build/micropython/bin/micropython{bits}", "-X", "heapsize=1m", "-c",
         MOUNTS % (size // 4096, str(path))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.split("\n")[:-1]
    want = [f"/b{name} {len(raw)} {hashlib.sha256(raw).hexdigest()}" for name, raw in FILES.items()]
    folders = ["/b/sealmq", "/b/sealmq/a", "/b/sealmq/a/sealmq_device", "/b/sealmq/b"]
    assert sorted(lines) == sorted(want + [f"{name} dir" for name in folders])
    assert last == f"9000 {size // 4096}"


def test_the_same_files_give_the_same_bytes() -> None:
    turned = dict(reversed(list(FILES.items())))
    assert littlefs.image(FILES, {"/x", "/y"}, SIZE) == littlefs.image(turned, {"/y", "/x"}, SIZE)


def test_contents_and_size_come_back() -> None:
    raw = littlefs.image(FILES, {"/sealmq/b"}, SIZE)
    assert len(raw) == SIZE
    files, folders = littlefs.contents(raw)
    assert files == FILES
    assert folders == {"/sealmq", "/sealmq/a", "/sealmq/a/sealmq_device", "/sealmq/b"}
    larger = littlefs.resized(raw, 0x400000)
    assert len(larger) == 0x400000
    assert littlefs.contents(larger) == (files, folders)


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(BoardError, match=r"1 files of 2,000,000 bytes do not fit .* 1,048,576"):
        littlefs.image({"/a": bytes(2_000_000)}, set(), 0x100000)
    # Some blocks are left to the board.
    with pytest.raises(BoardError, match="do not fit"):
        littlefs.image({"/a": bytes(0x100000 - 16 * 4096)}, set(), 0x100000)


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(BoardError, match="no littlefs2 image"):
        littlefs.contents(b"\xff" * 0x10000)


def test_a_slot_has_its_list(tmp_path: Path) -> None:
    client = client_files.client_set("everything", "x64", client_sets(tmp_path))
    files, folders = client_files.file_system(client, {"topic": "a"}, None)
    lines = files["/sealmq/a/MANIFEST"].decode().splitlines()
    assert len(lines) == len(client) == 5
    for line in lines:
        name, size, digest = line.split(" ")
        raw = files[f"/sealmq/a/{name}"]
        assert (int(size), digest) == (len(raw), hashlib.sha256(raw).hexdigest())
    assert folders == {"/sealmq/b"}
    assert json.loads(files["/sealmq/slots"])["active"] == "a"
    for name in ("boot.py", "main.py", "sealmq_slots.py"):
        assert files[f"/{name}"] == (ROOT / "firmware/board" / name).read_bytes()


@pytest.mark.parametrize("topic", ["machine/+/t", "machine/#"])
def test_a_topic_to_publish_to_has_no_wildcard(topic: str) -> None:
    names = ("app", "every", "qos", "subscribe", "purpose")
    given = argparse.Namespace(topic=topic, **dict.fromkeys(names))
    with pytest.raises(BoardError, match="has a wildcard"):
        build.app_settings(given)


@pytest.mark.parametrize("bits", [64, 32])
def test_micropython_reads_each_character_as_it_was_given(bits: int, tmp_path: Path) -> None:
    """A character beyond U+FFFF would be two of another kind to its JSON."""
    name = "h\u00fctte \U0001f3e0"
    path = tmp_path / "wifi.json"
    path.touch(0o600)
    path.write_text(json.dumps({"ssid": name, "key": "12345678"}))
    names = ("app", "every", "qos", "subscribe", "purpose")
    given = argparse.Namespace(topic=name + "/t", **dict.fromkeys(names))
    app = client_files.as_json(build.app_settings(given))
    raws = [enrolments.wifi(str(path)), app]
    program = f"import json\nfor raw in {raws!r}:\n    print(json.loads(raw))"
    done = subprocess.run(
        [ROOT / f"build/micropython/bin/micropython{bits}", "-c", program],
        capture_output=True,
        check=True,
    )
    wifi, topic = (ast.literal_eval(line) for line in done.stdout.decode().splitlines())
    assert (wifi["ssid"], topic["topic"]) == (name, name + "/t")


@pytest.mark.parametrize(
    ("app", "says"),
    [
        ({"every": 0}, "every is 0"),
        ({"every": "10"}, "every is '10'"),
        ({"every": True}, "every is True"),
        ({"qos": 2}, "qos is 2"),
        ({"topic": None}, "topic is None"),
        ({"subscribe": ["a"]}, "subscribe is"),
        ({"purpose": 1}, "purpose is 1"),
        ({"mine": ["\ud800"]}, "has half of a character"),
    ],
)
def test_what_no_board_can_do_is_not_brought_to_one(
    app: dict[str, Any], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "app.json"
    path.write_text(json.dumps({"topic": "a/b", "mine": 1} | app))
    given = argparse.Namespace(app=str(path), **dict.fromkeys(("topic", *APP)))
    with pytest.raises(BoardError, match=says):
        build.app_settings(given)


def test_settings_that_are_too_deep_are_none(tmp_path: Path) -> None:
    """Where that is, is Python's affair."""
    path = tmp_path / "app.json"
    for depth in (*range(900, 1000), 2000):
        path.write_text('{"topic": "a/b", "mine": ' + "[" * depth + "]" * depth + "}")
        given = argparse.Namespace(app=str(path), **dict.fromkeys(("topic", *APP)))
        with suppress(BoardError):
            assert client_files.as_json(build.app_settings(given))


def test_what_a_board_that_keeps_its_files_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """For `sealmq board provision --mediator mdns`."""
    finding = "sealmq_device/finding.mpyz"
    there: Any = SimpleNamespace(name="0001", files={f"/sealmq/b/{finding}": "", "/boot.py": ""})
    provision._check_finds(there, "sensor", "b", None)
    with pytest.raises(BoardError, match="0001: the set that it runs has no mDNS") as told:
        provision._check_finds(there, "everything", "a", None)
    assert "sealmq board update --set everything" in str(told.value.hint)
    provision._check_finds(there, "everything", "a", {finding: b""})
    with pytest.raises(BoardError, match="the set sensor has no mDNS"):
        provision._check_finds(there, "sensor", "b", {})


def test_a_set_that_lacks_something_is_refused(tmp_path: Path) -> None:
    sets = client_sets(tmp_path)
    with pytest.raises(BoardError, match=r"no set sensor for xtensawin in ") as caught:
        client_files.client_set("sensor", "xtensawin", sets)
    assert caught.value.hint is not None
    assert "make firmware" in caught.value.hint
    with pytest.raises(BoardError, match="not made for x64"):
        client_files.client_set("sensor", "x64", sets)
    (sets / "x64/sealmq_device/living.mpyz").unlink()
    with pytest.raises(BoardError, match=r"no living, which our main\.py runs on"):
        client_files.client_set("everything", "x64", sets, ours=True)
    assert client_files.client_set("everything", "x64", sets)
    (sets / "x64/sealmq_spec/__init__.mpy").unlink()
    with pytest.raises(BoardError, match="has no sealmq_spec"):
        client_files.client_set("everything", "x64", sets)


@pytest.mark.parametrize(
    ("site", "kept", "warns"),
    [
        (SITE, "10.0.0.9:1884", False),
        (SITE, "", True),
        ("0a0b0c0e", "10.0.0.9:1884", True),  # goes with the other site
    ],
)
def test_an_address_that_a_board_keeps_is_none_to_warn_of(
    site: str,
    kept: str,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = {"mediator": {"number": 1, "host": "127.0.0.1", "port": 1883}}
    file = enrolment(tmp_path, 7, at)
    held = {"client": 7, "name": "m7", "site": site}
    there: Any = SimpleNamespace(
        name="0001",
        about={},
        arch="xtensawin",
        programs={},
        client=held,
        nvs={"enrolled": True, "mediator": kept},
    )
    monkeypatch.setattr(provision, "look", lambda port, digests: there)
    monkeypatch.setattr(provision, "work", lambda port, steps: [{"secrets": True}])
    monkeypatch.setattr(provision, "_files", lambda there, args: [])
    words = ["--port", "/dev/null", "--enrolment", str(file), "--replace", "--no-start"]
    assert cli.main(["provision", *words]) == 0
    assert ("warning: the mediator's address is 127.0.0.1" in capsys.readouterr().err) == warns
