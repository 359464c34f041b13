"""Flashing virtual boards with the unmodified esptool: several at once, cut off and run again, and
never a secret where others see it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from sealmq_vboard.board import VirtualBoard

from board_things import SECRET, WIFI_KEY, built, command, mode, wifi
from flashed_board import (
    Watch,
    board,
    cannot_start,
    cells,
    check_whole,
    digest,
    esptool_for,
    firmware_file,
    start,
    until_programmed,
)
from sealmq_board import bundle as bundles
from sealmq_board import cli, littlefs


def images(bundle: Path) -> tuple[bytes, bytes]:
    return (bundle / "nvs.bin").read_bytes(), (bundle / "vfs.bin").read_bytes()


def flash(made: VirtualBoard, bundle: Path, firmware: Path, *more: str) -> tuple[int, str, str]:
    done = command("flash", bundle, "--firmware", firmware, "--port", made.pty or "", *more)
    return done.returncode, done.stdout, done.stderr


# So much that does not compress: what does is written at once, and nothing can be cut off in it.
LONG = 600_000


# One esptool is killed in the middle of the program; the other board does not notice, and the first
# is done by the same command again.
def test_two_boards_at_once_one_cut_off_and_run_again(tmp_path: Path) -> None:
    firmware = firmware_file(tmp_path, size=LONG // 2)
    bundles = [built(tmp_path, n, "--wifi", str(wifi(tmp_path))) for n in (1, 2)]
    were = [images(bundle) for bundle in bundles]
    secrets = (SECRET[:40], WIFI_KEY)
    given: list[str | Path] = ["flash", *bundles, "--firmware", firmware, "--json"]
    with (
        board(tmp_path / "one", 1) as one,
        board(tmp_path / "two", 2) as two,
        Watch(*secrets) as watch,
    ):
        ports = ["--port", str(one.pty), "--port", str(two.pty)]
        with start(*given, *ports, umask=0) as running:
            pid = esptool_for(str(one.pty), "write-flash")
            until_programmed(one, 300)
            os.kill(pid, signal.SIGKILL)
            out, err = running.communicate(timeout=240)
        assert running.returncode == 1, err
        rows = {row["board"]: row for row in json.loads(out)}
        assert rows[one.pty]["outcome"] == "failed"
        assert "esptool was ended by signal 9" in rows[one.pty]["error"]
        assert "run it again" in rows[one.pty]["hint"]
        assert rows[two.pty]["outcome"] == "done"
        assert rows[two.pty]["mac"] == "02:00:00:00:00:02"
        check_whole(two, firmware, *were[1])
        # The secret is where it is needed still, and nowhere else.
        assert not (bundles[1] / "nvs.bin").exists()
        assert images(bundles[0]) == were[0]
        assert cannot_start(one)
        assert mode(bundles[0] / "given.json") == 0o600

        code, out, err = flash(one, bundles[0], firmware)
        assert code == 0, err
        check_whole(one, firmware, *were[0])
        assert "client 1 (m1) is on the board 02:00:00:00:00:01" in out
        assert not (bundles[0] / "nvs.bin").exists()
        code, _, err = flash(one, bundles[0], firmware)
        assert code == 1
        assert "is used up" in err
    assert watch.looks > 10
    assert not watch.found
    for secret in secrets:
        assert secret not in out + err
        for path in tmp_path.glob("*.board/*"):
            assert secret.encode() not in path.read_bytes()


# A board of another client, a bundle of another board, another chip: nothing is written.
def test_what_is_refused_leaves_the_board_as_it_was(tmp_path: Path) -> None:
    firmware = firmware_file(tmp_path)
    bundle = built(tmp_path, 1)
    nvs, _ = images(bundle)
    other = built(tmp_path, 2)
    with board(tmp_path / "one") as one:
        with (one.folder / "flash.bin").open("r+b") as file:
            file.seek(0x9000)
            file.write(nvs)
        before = digest(cells(one))
        code, _, err = flash(one, other, firmware)
        assert code == 1
        assert "it holds the enrolment of client 1 (m1) of site 0a0b0c0d; left as it was" in err
        assert "--replace" in err
        assert not (other / "given.json").exists()

        # As a power cut may leave the last page.
        with (one.folder / "flash.bin").open("r+b") as file:
            file.seek(0xE000)
            file.write(bytes(64))
        before = digest(cells(one))
        code, _, err = flash(one, other, firmware)
        assert code == 1
        assert "it holds the enrolment of client 1 (m1)" in err

        (bundle / "given.json").write_text('{"mac": "02:00:00:00:00:99"}')
        code, _, err = flash(one, bundle, firmware)
        assert code == 1
        assert "was given to the board 02:00:00:00:00:99" in err
        assert digest(cells(one)) == before
    assert SECRET[:40] not in err
    with board(tmp_path / "c3", chip="esp32c3") as c3:
        before = digest(cells(c3))
        code, _, err = flash(c3, other, firmware)
        assert code == 1
        assert "the board is an ESP32-C3, the bundle for" in err
        assert digest(cells(c3)) == before


def test_the_same_client_on_two_boards_is_refused(tmp_path: Path) -> None:
    bundle = built(tmp_path, 1)
    twin = tmp_path / "twin.board"
    twin.mkdir(0o700)
    for path in bundle.iterdir():
        (twin / path.name).write_bytes(path.read_bytes())
        (twin / path.name).chmod(0o600)
    done = command("flash", bundle, twin, "--firmware", "x", "--port", "/dev/null", "--port", "/")
    assert done.returncode == 2
    assert "are of the same client 1 (m1)" in done.stderr


def test_a_bundle_for_a_virtual_board_is_none_for_a_real_one(tmp_path: Path) -> None:
    done = command("flash", built(tmp_path), "--firmware", "x", "--port", "/dev/null")
    assert done.returncode == 1
    assert "is for a virtual board (x64), /dev/null is real" in done.stderr


def test_two_runs_with_one_bundle(tmp_path: Path) -> None:
    bundle = built(tmp_path)
    with bundles.held(bundle):
        done = command("flash", bundle, "--firmware", "x", "--port", "socket://127.0.0.1:9")
    assert done.returncode == 1
    assert "is being flashed by another run" in done.stderr
    done = command("flash", bundle, "--firmware", "/none", "--port", "socket://127.0.0.1:9")
    assert "/none" in done.stderr


def test_a_bundle_is_read_once_nobody_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is built anew in between would be called given and used up in its place."""
    bundle = built(tmp_path)
    real = bundles.read

    def read(path: Path) -> bundles.Bundle:
        taken = real(path)
        with pytest.raises(RuntimeError):
            built(tmp_path, 7, "--replace")
        return taken

    def replaced(fd: int, how: int) -> None:
        fcntl.flock(fd, how)
        os.rename(bundle, tmp_path / "old")
        shutil.copytree(tmp_path / "old", bundle)

    words = ["--firmware", "/none", "--port", "socket://127.0.0.1:9"]
    monkeypatch.setattr(bundles, "read", read)
    assert cli.main(["flash", str(bundle), *words]) == 1
    assert "/none" in capsys.readouterr().err
    monkeypatch.setattr(bundles, "fcntl", SimpleNamespace(**vars(fcntl) | {"flock": replaced}))
    assert cli.main(["flash", str(bundle), *words]) == 1
    assert "is being flashed by another run" in capsys.readouterr().err
    for wrong in (tmp_path / "nothing", bundle / "vfs.bin"):
        assert cli.main(["flash", str(wrong), *words]) == 1
        assert f"{wrong} is no bundle" in capsys.readouterr().err


# Firmware without a file system in its table, as MicroPython's since 1.26: it is fitted.
def test_the_file_system_fits_the_firmware(tmp_path: Path) -> None:
    bundle = built(tmp_path)
    vfs = (bundle / "vfs.bin").read_bytes()
    larger = littlefs.resized(vfs, 0x600000)
    assert littlefs.contents(larger) == littlefs.contents(vfs)


@pytest.mark.full
@pytest.mark.parametrize("after", [1, 40, 300, 1000, 1800])
@pytest.mark.parametrize("whom", ["esptool", "flash", "ctrl-c"])
def test_cut_off_anywhere_and_run_again(tmp_path: Path, after: int, whom: str) -> None:
    firmware = firmware_file(tmp_path, size=LONG)
    bundle = built(tmp_path)
    nvs, vfs = images(bundle)
    env = dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    with board(tmp_path / "one") as one:
        given: list[str | Path] = ["flash", bundle, "--firmware", firmware, "--keep"]
        given += ["--port", str(one.pty)]
        with start(*given, env=env) as running:
            pid = esptool_for(str(one.pty), "write-flash")
            until_programmed(one, after)
            if whom == "esptool":
                os.kill(pid, signal.SIGKILL)
            else:
                running.send_signal(signal.SIGKILL if whom == "flash" else signal.SIGINT)
            running.communicate(timeout=240)
        assert running.returncode == {"esptool": 1, "flash": -9, "ctrl-c": 130}[whom]
        if whom == "flash":
            # It dies with the pipe that it prints to, or has done its work.
            os.kill(pid, signal.SIGKILL)
        else:
            assert cannot_start(one)
            assert list((tmp_path / "run").iterdir()) == []
        done = command(*given, env=env)
        assert done.returncode == 0, done.stderr
        check_whole(one, firmware, nvs, vfs)
        assert list((tmp_path / "run").iterdir()) == []


# The board's own power: at a write, or in the middle of one.
@pytest.mark.full
@pytest.mark.parametrize("after", [0, 3, 700, 5000])
@pytest.mark.parametrize("inside", [False, True])
def test_power_cut_anywhere_and_run_again(tmp_path: Path, after: int, inside: bool) -> None:
    firmware = firmware_file(tmp_path)
    bundle = built(tmp_path)
    nvs, vfs = images(bundle)
    with board(tmp_path / "one") as one:
        one.ctl({"do": "cut", "after": after, "inside": inside})
        code, _, err = flash(one, bundle, firmware)
        assert code == 1
        assert "the connection to the board was lost" in err
        assert images(bundle) == (nvs, vfs)
        one.ctl({"do": "download", "on": False})
        one.ctl({"do": "power", "on": True})
        assert one.ctl({"do": "status"})["mode"] != "run"
        one.ctl({"do": "download", "on": True})
        code, _, err = flash(one, bundle, firmware)
        assert code == 0, err
        check_whole(one, firmware, nvs, vfs)


@pytest.mark.full
def test_over_rfc2217_the_board_starts_behind_it(tmp_path: Path) -> None:
    firmware = firmware_file(tmp_path)
    bundle = built(tmp_path)
    nvs, vfs = images(bundle)
    with board(tmp_path / "one", rfc2217=0) as one:
        done = command("flash", bundle, "--firmware", firmware, "--port", one.url_rfc2217 or "")
        assert done.returncode == 0, done.stderr
        assert one.ctl({"do": "status"})["mode"] != "download"
        check_whole(one, firmware, nvs, vfs)


@pytest.mark.full
def test_over_a_socket(tmp_path: Path) -> None:
    firmware = firmware_file(tmp_path)
    bundle = built(tmp_path)
    nvs, vfs = images(bundle)
    with board(tmp_path / "one", tcp=0) as one:
        done = command("flash", bundle, "--firmware", firmware, "--port", one.url_tcp or "")
        assert done.returncode == 0, done.stderr
        check_whole(one, firmware, nvs, vfs)


@pytest.mark.full
@pytest.mark.parametrize("how", ["fail", "stuck"])
@pytest.mark.parametrize("sector", [1, 9, 700])
def test_flash_that_is_worn_out_is_found(tmp_path: Path, how: str, sector: int) -> None:
    firmware = firmware_file(tmp_path)
    bundle = built(tmp_path)
    before = images(bundle)
    with board(tmp_path / "one") as one:
        one.ctl({"do": "fault", "sector": sector, "how": how})
        code, _, err = flash(one, bundle, firmware)
        assert code == 1
        assert "Traceback" not in err
        assert images(bundle) == before
