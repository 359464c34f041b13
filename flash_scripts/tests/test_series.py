"""`sealmq board flash --csv|--archive`: each board one client, each client one board, whatever is
cut off in between."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyrage
import pytest
from sealmq_vboard.board import VirtualBoard

from board_things import SECRET, client_sets, command, enrolment, mode
from flashed_board import board, cells, esptool_for, firmware_file, start, until_programmed
from sealmq_board import cli, flash, littlefs, nvs_image, series
from sealmq_board import enrolment as enrolments
from sealmq_board.enrolment import Enrolment
from sealmq_board.errors import BoardError

MACS = [f"02:00:00:00:00:{n:02x}" for n in range(1, 9)]


class Fake:
    """A board without esptool. plan: what befalls each MAC that is plugged in."""

    def __init__(self, mac: str, taken: Any, befalls: str) -> None:
        self.name, self.bundle, self.mac, self.befalls = "place", taken, "", befalls
        self._mac = mac
        self.error: Exception | None = None
        self.done, self.seconds = False, 0.0

    def look(self, runner: object) -> None:
        if self.befalls == "silent":
            raise BoardError("the board does not answer")
        self.mac = self._mac

    def bring(self, runner: object, keep: bool) -> None:
        if self.befalls == "cut":
            raise BoardError("the connection to the board was lost")
        if self.befalls == "kill":
            raise KeyboardInterrupt
        self.done = True


class Place:
    """A folder of clients, and boards that are plugged in one after the other."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.csv = folder / "clients.csv"
        self.csv.write_text("name,label\n" + "".join(f"m{n},s\n" for n in (1, 2, 3)))
        for n in (1, 2, 3):
            enrolment(folder, n)
        self.sets = client_sets(folder / "sets")
        self.plugged: list[tuple[str, str]] = []
        self.got: dict[str, str] = {}
        monkeypatch.setattr(series, "_plugged", lambda port, timeout: self.plugged or None)
        monkeypatch.setattr(series, "_gone", lambda port, plugged: None)
        monkeypatch.setattr(flash, "_board", self._board)
        monkeypatch.setattr(flash, "_objection", self._objection)

    def _board(self, args: argparse.Namespace, port: Any, taken: Any, *rest: Any) -> Fake:
        return Fake(self.plugged[0][0], taken, self.plugged.pop(0)[1])

    def _objection(self, board: Fake, *rest: Any) -> BoardError | None:
        if board.befalls == "other's":
            return BoardError("it holds the enrolment of another")
        if board.befalls == "":
            self.got[board.mac] = board.bundle.about["client"]["name"]
        return None

    def flash(self, *plugged: tuple[str, str]) -> int:
        self.plugged = list(plugged)
        words = ["--csv", str(self.csv), "--enrolments", str(self.folder), "--json"]
        rest = ["--arch", "x64", "--files", str(self.sets), "--topic", "%c/t"]
        firmware = str(firmware_file(self.folder))
        return cli.main(["flash", *words, *rest, "--firmware", firmware, "--port", "/dev/place"])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def rows(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str | None, str]]:
    told = map(json.loads, capsys.readouterr().out.splitlines())
    return [(row["mac"], row["name"], row["outcome"]) for row in told]


def test_a_run_that_was_cut_off_goes_on_where_it_was(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c, d, *_ = MACS
    assert place.flash((a, ""), (b, "kill")) == 130
    assert rows(capsys) == [(a, "m1", "done")]
    record = place.folder / "clients.csv.flashed.jsonl"
    assert mode(record) == 0o600
    assert SECRET[:40] not in record.read_text()
    with record.open("a") as file:
        file.write('{"at": "cut off')  # the power of this host
    # b may have m2's secret already: nobody else gets it.
    assert place.flash((a, ""), (c, "other's"), (c, "silent"), (c, ""), (d, "")) == 1
    assert rows(capsys) == [
        (a, "m1", "known"),
        (c, None, "failed"),
        ("", None, "failed"),
        (c, "m3", "done"),
        (d, None, "failed"),
    ]
    assert place.flash((b, "cut"), (b, "")) == 0
    assert rows(capsys) == [(b, "m2", "failed"), (b, "m2", "done")]
    assert place.got == {a: "m1", c: "m3", b: "m2"}
    assert place.flash() == 0


def test_after_a_rotation_a_client_is_free_for_another_board(place: Place) -> None:
    assert place.flash((MACS[0], ""), (MACS[1], ""), (MACS[2], "cut")) == 1
    enrolment(place.folder, 3, {"ps": "ab" * 32})
    assert place.flash((MACS[3], "")) == 0
    assert place.got[MACS[3]] == "m3"


def test_files_that_were_written_anew_are_of_the_same_clients(place: Place) -> None:
    """Their mediator has another address by now; who has a board has it still."""
    assert place.flash((MACS[0], ""), (MACS[1], "cut")) == 1
    for n in (1, 2, 3):
        enrolment(place.folder, n, {"mediator": {"number": 1, "host": "10.9.9.9", "port": 1883}})
    assert place.flash((MACS[2], ""), (MACS[1], "")) == 0
    assert place.got == {MACS[0]: "m1", MACS[2]: "m3", MACS[1]: "m2"}


def test_a_record_of_an_earlier_version_counts(place: Place) -> None:
    """It knows each client by the digest of its whole file."""
    outcomes = {1: series.DONE, 2: series.BEGUN}
    (place.folder / "clients.csv.flashed.jsonl").write_text(
        "".join(
            json.dumps({"enrolment": sha256(of).hexdigest(), "mac": MACS[n], "outcome": how}) + "\n"
            for n, how in outcomes.items()
            for of in [(place.folder / f"m{n}.sealmq.json").read_bytes()]
        )
    )
    assert place.flash((MACS[1], ""), (MACS[3], ""), (MACS[2], "")) == 0
    assert place.got == {MACS[3]: "m3", MACS[2]: "m2"}


def test_a_record_is_of_one_run_and_nothing_else_is_taken_for_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record"
    first = series.Record(path)
    with pytest.raises(BoardError, match="another run writes"):
        series.Record(path)
    first.close()
    path.write_text("name,label\n")
    with pytest.raises(BoardError, match="line 1, is no line of such a record"):
        series.Record(path)
    assert path.read_text() == "name,label\n"


def test_a_full_disk_gives_no_client_to_two_boards(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a line that does not fit a part is written, and no error told."""
    assert place.flash((MACS[0], "")) == 1
    real = os.write
    full = [True]

    def write(fd: int, raw: bytes) -> int:
        return real(fd, raw[:40] if full[0] and raw.startswith(b'{"at"') else raw)

    monkeypatch.setattr(os, "write", write)
    assert place.flash((MACS[1], "")) == 1
    told = capsys.readouterr()
    assert "no space left on device" in told.err.lower()
    assert told.out.count("done") == 1
    full[0] = False
    assert place.flash((MACS[2], ""), (MACS[1], "")) == 0
    assert place.got == {MACS[0]: "m1", MACS[2]: "m2", MACS[1]: "m3"}
    assert place.flash() == 0


def test_a_csv_file_of_a_spreadsheet(place: Place) -> None:
    """Which puts a mark of byte order in front."""
    place.csv.write_text("name,label\nm1,s\n", encoding="utf-8-sig")
    assert place.flash((MACS[0], "")) == 0
    assert place.got == {MACS[0]: "m1"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("label\ns\n", "no column name"),
        ("name,label\n", "no rows"),
        ("name,label\n../m1,s\n", "is no client's name"),
        ("name,label\nm1,s\nm1,s\n", "are the same client 1"),
        ("name,label\nm9,s\n", "m9.sealmq.json"),
    ],
)
def test_a_csv_file_that_will_not_do(
    place: Place, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place.csv.write_text(text)
    assert place.flash((MACS[0], "")) == 1
    assert says in capsys.readouterr().err
    assert place.got == {}
    assert not (place.folder / "clients.csv.flashed.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["x.board", "--csv", "c", "--enrolments", "d", "--port", "/p"], "bundles with --csv"),
        (["--csv", "c", "--enrolments", "d", "--board", "0001"], "no place where boards"),
        (["--csv", "c", "--enrolments", "d", "--port", "socket://h:1"], "no place where boards"),
        (["--archive", "a", "--port", "/p"], "enrolments come from one place"),
        (["x.board", "--port", "/p", "--wifi", "w"], "--wifi without --csv or --archive"),
        (["--port", "/p"], "nothing to flash"),
    ],
)
def test_wrong_usage(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["flash", "--firmware", "f", *words]) == 2
    assert says in capsys.readouterr().err


def archive_of(folder: Path, numbers: list[int]) -> tuple[Path, Path]:
    """A sealed archive, and the identity that opens it."""
    ours, packed = pyrage.x25519.Identity.generate(), io.BytesIO()
    keys = folder / "key.txt"
    keys.touch(0o600)
    keys.write_text(str(ours))
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for n in numbers:
            file = enrolment(folder, n)
            tar.add(file, file.name)
            file.unlink()
    archive = folder / "clients.tar.age"
    archive.write_bytes(pyrage.encrypt(packed.getvalue(), [ours.to_public()]))
    return archive, keys


def test_of_an_archive_all_or_those_of_a_csv_file(tmp_path: Path) -> None:
    archive, keys = archive_of(tmp_path, [2, 1])
    found = enrolments.all_of(str(archive), str(keys), None)
    assert [who.name for who in found] == ["m2", "m1"]
    found = enrolments.all_of(str(archive), str(keys), ["m1"])
    assert [who.name for who in found] == ["m1"]
    with pytest.raises(BoardError, match="no enrolment of 1 of 2 clients, the first is m9"):
        enrolments.all_of(str(archive), str(keys), ["m1", "m9"])


@contextmanager
def plugged(at: Path, folder: Path, number: int) -> Iterator[VirtualBoard]:
    """A virtual board at a path, as /dev/serial/by-path has them."""
    with board(folder, number) as made:
        at.symlink_to(str(made.pty))
        try:
            yield made
        finally:
            at.unlink()


def holds(made: VirtualBoard) -> tuple[Enrolment, str]:
    """Whose enrolment a board has, and its topic."""
    values = nvs_image.read(cells(made, 0x9000, 0x6000))
    raw = values[nvs_image.NAMESPACE, nvs_image.ENROLMENT]
    assert isinstance(raw, bytes)
    files, _ = littlefs.contents(cells(made, 0x200000, 0x200000))
    return enrolments.parsed(raw), json.loads(files["/app.json"])["topic"]


@pytest.mark.full
def test_real_boards_of_an_archive_one_cut_off(tmp_path: Path) -> None:
    """esptool and this program killed in the middle of the second board; then it goes on there."""
    archive, keys = archive_of(tmp_path, [1, 2])
    at = tmp_path / "usb"
    firmware = firmware_file(tmp_path, size=300_000)
    words: list[str | Path] = ["flash", "--archive", archive, "--identity", keys, "--json"]
    words += ["--arch", "x64", "--files", client_sets(tmp_path / "sets"), "--topic", "%c/t"]
    words += ["--firmware", firmware, "--port", at]
    with start(*words) as running:
        assert running.stdout is not None
        with plugged(at, tmp_path / "one", 1) as one:
            first = json.loads(running.stdout.readline())
            assert (first["name"], first["mac"], first["outcome"]) == ("m1", MACS[0], "done")
            who, topic = holds(one)
            assert (who.name, topic) == ("m1", "m1/t")
        with plugged(at, tmp_path / "two", 2) as two:
            pid = esptool_for(str(at), "write-flash")
            until_programmed(two, 300)
            running.send_signal(signal.SIGKILL)
            running.communicate(timeout=60)
            os.kill(pid, signal.SIGKILL)
            done = command(*words, "--timeout", "5")
            assert done.returncode == 0, done.stderr
            [row] = map(json.loads, done.stdout.splitlines())
            assert (row["name"], row["mac"], row["outcome"]) == ("m2", MACS[1], "done")
            who, topic = holds(two)
            assert (who.name, topic) == ("m2", "m2/t")
    assert command(*words).returncode == 0
    for path in tmp_path.glob("*.jsonl"):
        assert SECRET[:40] not in path.read_text()
