"""What a person at a terminal is asked and shown: a Wi-Fi key that is not echoed, a board that has
another client's enrolment, a bar for each board."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import sys
import time
from pathlib import Path

import pytest

from board_things import WIFI_KEY, built, client_sets, enrolment
from flashed_board import PATIENCE_S, board, cells, check_whole, digest, firmware_file
from sealmq_board import nvs_image


def at_terminal(*words: str | Path, answers: list[tuple[str, str]]) -> tuple[int, str]:
    """Runs it with a terminal of its own; (exit code, all that the terminal showed).

    answers: what to wait for, and what to type then.
    """
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "sealmq_board", *map(str, words)])  # noqa: S606
    shown = ""
    left = list(answers)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if select.select([fd], [], [], 1.0)[0]:
            try:
                piece = os.read(fd, 1 << 16)
            except OSError:  # Linux says so when the last one has closed it
                break
            shown += piece.decode(errors="replace")
        if left and left[0][0] in shown:
            os.write(fd, (left.pop(0)[1] + "\n").encode())
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


def test_a_wifi_key_is_asked_for_and_not_shown(tmp_path: Path) -> None:
    target = tmp_path / "m7.board"
    code, shown = at_terminal(
        *("build", "--enrolment", enrolment(tmp_path), "--wifi", "ask", "--topic", "a/b"),
        *("--files", client_sets(tmp_path / "sets"), "-o", target),
        answers=[("Wi-Fi name: ", "workshop"), ("Wi-Fi key: ", WIFI_KEY)],
    )
    assert code == 0, shown
    assert "workshop" in shown
    assert WIFI_KEY not in shown
    found = nvs_image.read((target / "nvs.bin").read_bytes())
    assert json.loads(found[("sealmq", "wifi")]) == {"ssid": "workshop", "key": WIFI_KEY}


def test_who_ends_the_questions_is_told_so(tmp_path: Path) -> None:
    target = tmp_path / "m7.board"
    code, shown = at_terminal(
        *("build", "--enrolment", enrolment(tmp_path), "--wifi", "ask", "--topic", "a/b"),
        *("--files", client_sets(tmp_path / "sets"), "-o", target),
        answers=[("Wi-Fi name: ", "\x04")],  # Ctrl-D
    )
    assert code == 1
    assert "no Wi-Fi was typed" in shown
    assert "internal error" not in shown
    assert not target.exists()


@pytest.mark.full
def test_who_holds_another_clients_enrolment_is_asked_about(tmp_path: Path) -> None:
    firmware = firmware_file(tmp_path, size=600_000)
    nvs = (built(tmp_path, 1) / "nvs.bin").read_bytes()
    other = built(tmp_path, 2)
    images = (other / "nvs.bin").read_bytes(), (other / "vfs.bin").read_bytes()
    with board(tmp_path / "one") as one:
        with (one.folder / "flash.bin").open("r+b") as file:
            file.seek(0x9000)
            file.write(nvs)
        before = digest(cells(one))
        given = ["flash", str(other), "--firmware", str(firmware), "--port", one.pty or ""]
        question = "Put client 2 (m2) in its place? [y/N]"
        code, shown = at_terminal(*given, answers=[(question, "")])
        assert code == 1
        assert "left as it was" in shown
        assert digest(cells(one)) == before
        code, shown = at_terminal(*given, answers=[(question, "y")])
        assert code == 0, shown
        check_whole(one, firmware, *images)
        # The bar moved.
        parts = {int(n) for n in re.findall(r"(\d+) %", shown)}
        assert {0, 100} < parts
