"""A bundle: what is in it, who can read it, the same bytes from the same inputs, and no secret
anywhere else."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pyrage
import pytest

from board_things import SECRET, WIFI_KEY, built, client_sets, command, enrolment, mode, wifi
from sealmq_board import bundle, cli, littlefs, nvs_image, private
from sealmq_board import enrolment as enrolments
from sealmq_board.errors import BoardError


def words(folder: Path, target: Path, *more: str | Path) -> list[str | Path]:
    return [
        *("build", "--enrolment", enrolment(folder), "--wifi", wifi(folder)),
        *("--files", client_sets(folder / "sets"), "--topic", "a/b", "-o", target, *more),
    ]


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_in_it(tmp_path: Path) -> None:
    target = tmp_path / "m7.board"
    more = ("--every", "2.5", "--mediator", "[fd00::1]:1884", "--subscribe", "c/#")
    done = command(*words(tmp_path, target, *more, "--purpose", "control"))
    assert done.returncode == 0, done.stderr
    assert set(everything(target)) == {"nvs.bin", "vfs.bin", "bundle.json"}
    taken = bundle.read(target)
    assert taken.about["client"] == {"number": 7, "name": "m7", "site": "0a0b0c0d"}
    assert (taken.about["chip"], taken.about["arch"]) == ("esp32", "xtensawin")
    found = nvs_image.read(taken.nvs)
    raw = (tmp_path / "m7.sealmq.json").read_bytes()
    assert found[("sealmq", "enrolment")] == raw
    assert json.loads(found[("sealmq", "wifi")]) == {"ssid": "workshop", "key": WIFI_KEY}
    assert found[("sealmq", "mediator")] == b"fd00::1:1884"
    assert len(found) == 3
    files, _ = littlefs.contents(taken.vfs)
    assert json.loads(files["/app.json"]) == {
        "topic": "a/b", "every": 2.5, "qos": 1, "subscribe": "c/#", "purpose": "control",
    }  # fmt: skip
    # Nothing secret is where MicroPython's file system shows it.
    for secret in (SECRET[:40], WIFI_KEY):
        assert secret.encode() not in taken.vfs
        assert secret not in done.stdout + done.stderr
        assert secret not in (target / "bundle.json").read_text()


def test_nobody_else_can_read_it_whatever_the_umask_is(tmp_path: Path) -> None:
    target = tmp_path / "m7.board"
    done = command(*words(tmp_path, target), umask=0)
    assert done.returncode == 0, done.stderr
    assert mode(target) == 0o700
    assert {mode(path) for path in target.iterdir()} == {0o600}


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for n, (umask, seed) in enumerate([(0o022, "0"), (0o077, "12345")]):
        folder = tmp_path / ("one" if n else "a longer name of a folder")
        folder.mkdir()
        target = folder / f"{n}.board"
        env = dict(os.environ, PYTHONHASHSEED=seed, TZ="Asia/Tokyo" if n else "UTC", LANG="C")
        done = command(*words(folder, target), umask=umask, env=env, cwd=folder)
        assert done.returncode == 0, done.stderr
        made.append(everything(target))
        # Another time, to the second.
        time.sleep(1.1 if not n else 0)
    assert made[0] == made[1]


def test_an_enrolment_of_a_sealed_archive(tmp_path: Path) -> None:
    """The same bytes as from its file; and each way in which it is not had."""
    taken, sets = tmp_path / "m7.board", client_sets(tmp_path / "sets")
    ours, other = pyrage.x25519.Identity.generate(), pyrage.x25519.Identity.generate()
    keys, others = tmp_path / "key.txt", tmp_path / "other.txt"
    for path, key in ((keys, ours), (others, other)):
        path.touch(0o600)
        path.write_text(f"# created: today\n{key}\n")
    made, packed = enrolment(tmp_path), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(made, "m7.sealmq.json")
        tar.add(keys, "torn.sealmq.json")
    archive = tmp_path / "clients.tar.age"
    archive.write_bytes(pyrage.encrypt(packed.getvalue(), [ours.to_public()]))

    def build(*more: str | Path) -> subprocess.CompletedProcess[str]:
        rest = ("--wifi", wifi(tmp_path), "--files", sets, "--topic", "a/b", "-o", taken)
        return command("build", *more, *rest)

    of_it = ("--archive", archive, "--identity", keys, "--client")
    done = build(*of_it, "m7")
    assert done.returncode == 0, done.stderr
    assert SECRET[:40] not in done.stdout + done.stderr
    from_archive = everything(taken)
    shutil.rmtree(taken)
    assert build("--enrolment", made).returncode == 0
    assert everything(taken) == from_archive
    shutil.rmtree(taken)
    keys_open = tmp_path / "open.txt"
    keys_open.write_text(str(ours))
    keys_open.chmod(0o644)
    cut = tmp_path / "cut.age"
    cut.write_bytes(archive.read_bytes()[:-40])
    for words_, what in (
        ((*of_it, "m8"), "holds no enrolment of client m8"),
        ((*of_it, "torn"), "torn.sealmq.json in"),
        ((*of_it, "m7", "--enrolment", made), "from one place"),
        (("--archive", archive, "--client", "m7"), "from one place"),
        (("--archive", archive, "--identity", others, "--client", "m7"), "does not open"),
        (("--archive", cut, "--identity", keys, "--client", "m7"), "does not open"),
        (("--archive", archive, "--identity", keys_open, "--client", "m7"), "others can read it"),
        (("--archive", archive, "--identity", made, "--client", "m7"), "is no identity"),
        ((), "an enrolment is required"),
    ):
        done = build(*words_)
        assert done.returncode in (1, 2)
        assert what in done.stderr
        assert "Traceback" not in done.stderr
        assert str(ours)[-20:] not in done.stderr
        assert not taken.exists()


def test_wifi_from_stdin(tmp_path: Path) -> None:
    target = tmp_path / "m7.board"
    given = words(tmp_path, target)
    given[given.index("--wifi") + 1] = "-"
    done = command(*given, input=json.dumps({"ssid": "w", "key": WIFI_KEY}))
    assert done.returncode == 0, done.stderr
    found = nvs_image.read((target / "nvs.bin").read_bytes())
    assert json.loads(found[("sealmq", "wifi")])["key"] == WIFI_KEY


@pytest.mark.parametrize(
    "raw",
    [
        '{"ssid": "", "key": "12345678"}',
        '{"ssid": "w", "key": "1234567"}',
        '{"ssid": "w", "key": "' + 64 * "z" + '"}',
        '{"ssid": "w", "key": 12345678}',
        '{"ssid": "w"}',
        '{"ssid": "' + 17 * "ö" + '", "key": "12345678"}',
        '["w"]',
        "w:12345678",
    ],
)
def test_wifi_that_is_none(tmp_path: Path, raw: str) -> None:
    path = tmp_path / "wifi.json"
    path.write_text(raw)
    with pytest.raises(BoardError) as caught:
        enrolments.wifi(str(path))
    for secret in ("12345678", "1234567", 64 * "z"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sealmq", 2),
        ("site", "0a0b"),
        ("ps", SECRET[:-2]),
        ("ps", SECRET[:-2] + "zz"),
        ("client", "7"),
        ("client", -1),
        ("client", True),
        ("suite", 3),
        ("mediator", None),
        ("mediator", {"number": 1, "host": "", "port": 1883}),
        ("mediator", {"number": 1, "host": "h", "port": 0}),
        ("mediator", {"number": 1, "host": "h", "port": "1883"}),
    ],
)
def test_an_enrolment_that_is_none(tmp_path: Path, field: str, value: object) -> None:
    path = enrolment(tmp_path, 7, {field: value})
    with pytest.raises(BoardError, match=f"no enrolment file: its member {field}") as caught:
        enrolments.load(str(path))
    assert SECRET[:16] not in str(caught.value)


def test_an_enrolment_that_others_can_read_is_none_any_more(tmp_path: Path) -> None:
    path = enrolment(tmp_path)
    path.chmod(0o640)
    with pytest.raises(BoardError, match=r"others can read it \(mode 0640\)"):
        enrolments.load(str(path))


def test_an_enrolment_is_kept_byte_by_byte_and_has_a_bound(tmp_path: Path) -> None:
    path = enrolment(tmp_path, 7, {"note": "x" * 3500})
    assert enrolments.load(str(path)).raw == path.read_bytes()
    with pytest.raises(BoardError, match=r"longer than 4,000 bytes"):
        enrolments.load(str(enrolment(tmp_path, 7, {"note": "x" * 4000})))


def test_a_mediator_that_no_board_gets_to_is_warned_of(tmp_path: Path) -> None:
    here = {"mediator": {"number": 1, "host": "127.0.0.1", "port": 1883}}
    given = words(tmp_path, tmp_path / "m7.board")
    enrolment(tmp_path, 7, here)
    done = command(*given)
    assert done.returncode == 0
    assert "warning: the mediator's address is 127.0.0.1" in done.stderr
    enrolment(tmp_path, 7, {"mediator": {"number": 1, "host": "gateway", "port": 1883}})
    assert "gateway, which is a bare host name" in command(*given, "--replace").stderr
    enrolment(tmp_path, 7, here)
    assert "127.0.0.1" not in command(*given, "--arch", "x64", "--replace").stderr
    enrolment(tmp_path, 7, here)
    assert "127.0" not in command(*given, "--mediator", "10.0.0.1:1883", "--replace").stderr


def test_a_board_that_looks_for_its_mediator_has_what_that_takes(tmp_path: Path) -> None:
    target = tmp_path / "m7.board"
    given = [*words(tmp_path, target), "--mediator", "mdns"]
    enrolment(tmp_path, 7, {"mediator": {"number": 1, "host": "127.0.0.1", "port": 1883}})
    done = command(*given)
    # Where the enrolment leads is no more than where it goes last.
    assert (done.returncode, done.stderr) == (0, "")
    taken = bundle.read(target)
    assert nvs_image.read(taken.nvs)[("sealmq", "mediator")] == b"mdns"
    assert taken.about["mediator"] == "mdns"
    sets = tmp_path / "sets"
    shutil.copytree(sets / "everything", sets / "sensor")
    (sets / "sensor" / "xtensawin" / "sealmq_device" / "finding.mpyz").unlink()
    done = command(*given, "--replace", "--set", "sensor")
    assert done.returncode == 1
    assert done.stderr == (
        "sealmq board: the set sensor has no mDNS\n"
        "hint: --set everything, or --mediator HOST:PORT (sealmq find says where)\n"
    )


def test_one_that_is_there_is_not_overwritten_unless_told(tmp_path: Path) -> None:
    target = built(tmp_path)
    before = everything(target)
    done = command(*words(tmp_path, target))
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert everything(target) == before
    assert command(*words(tmp_path, target, "--replace")).returncode == 0
    assert everything(target) != before
    other = tmp_path / "mine.board"
    other.mkdir()
    (other / "thesis.txt").write_text("x")
    assert "is no bundle" in command(*words(tmp_path, other, "--replace")).stderr
    assert (other / "thesis.txt").exists()


def test_who_got_the_secret_is_known_to_the_next_bundle_with_it(tmp_path: Path) -> None:
    target = built(tmp_path)
    bundle.note_given(target, "02:00:00:00:00:01")
    bundle.use_up(target)
    assert command(*words(tmp_path, target, "--replace")).returncode == 0
    assert bundle.given_to(target) == "02:00:00:00:00:01"
    assert mode(target / bundle.GIVEN) == 0o600
    for torn in (b"", b'{"mac": ""}', b"[1"):
        (target / bundle.GIVEN).write_bytes(torn)
        with pytest.raises(BoardError, match="unknown on which"):
            bundle.given_to(target)
    (target / bundle.GIVEN).unlink()
    bundle.note_given(target, "02:00:00:00:00:01")
    again = words(tmp_path, target, "--replace")
    # So it is where an earlier version made it, for which a secret was its whole file.
    about = json.loads((target / bundle.ABOUT).read_bytes())
    raw = (tmp_path / "m7.sealmq.json").read_bytes()
    about["enrolment"] = hashlib.sha256(raw).hexdigest()
    (target / bundle.ABOUT).write_text(json.dumps(about))
    assert command(*again).returncode == 0
    assert bundle.given_to(target) == "02:00:00:00:00:01"
    # And where the same secret came in another file.
    enrolment(tmp_path, 7, {"mediator": {"number": 1, "host": "10.9.9.9", "port": 1883}})
    assert command(*again).returncode == 0
    assert bundle.given_to(target) == "02:00:00:00:00:01"
    # Another secret has been given to nobody.
    enrolment(tmp_path, 7, {"ps": "77" * 32})
    assert command(*again).returncode == 0
    assert bundle.given_to(target) == ""


def test_who_got_the_secret_is_known_behind_a_build_that_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last moment: as it removes the bundle of before."""
    target = built(tmp_path)
    bundle.note_given(target, "02:00:00:00:00:01")
    real = private.remove

    def removed(made: Path) -> None:
        real(made)
        raise KeyboardInterrupt

    monkeypatch.setattr(private, "remove", removed)
    again = list(map(str, words(tmp_path, target, "--replace")))
    assert cli.main(again) == 130
    assert bundle.given_to(target) == "02:00:00:00:00:01"
    assert bundle.read(target).client == "client 7 (m7)"
    assert not list(tmp_path.glob(".*"))


def test_a_bundle_that_is_being_flashed_is_not_built_anew(tmp_path: Path) -> None:
    """It would be the new one's secret that goes once the old one is on the board."""
    target = built(tmp_path)
    before = everything(target)
    with bundle.held(target):
        done = command(*words(tmp_path, target, "--replace"))
    assert done.returncode == 1
    assert "is being flashed by another run" in done.stderr
    assert everything(target) == before
    assert not list(tmp_path.glob(".*"))


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "m7.board"
    sets = client_sets(tmp_path / "sets")
    (sets / "everything/xtensawin/large.mpy").write_bytes(bytes(3_000_000))
    done = command(*words(tmp_path, target))
    assert done.returncode == 1
    assert "do not fit" in done.stderr
    assert not list(tmp_path.glob("*.board")) + list(tmp_path.glob(".*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_build_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    target = tmp_path / "m7.board"
    # Stops in the middle of writing: the second file is a pipe that nobody reads.
    script = (
        "import os, sys, time\n"
        "from sealmq_board import cli, private\n"
        "real = private.write\n"
        "def write(path, content):\n"
        "    real(path, content)\n"
        "    if path.name == 'vfs.bin':\n"
        "        print('there', flush=True)\n"
        "        time.sleep(60)\n"
        "private.write = write\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    given = [sys.executable, "-c", script, *map(str, words(tmp_path, target))]
    with subprocess.Popen(given, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "there\n"
        (draft,) = tmp_path.glob(".m7.board.*")
        assert mode(draft) == 0o700
        running.send_signal(number)
        assert running.wait(30) == (130 if number == signal.SIGINT else 143)
    assert not list(tmp_path.glob("*.board")) + list(tmp_path.glob(".*"))


def test_what_a_killed_build_left_goes_at_the_next_one(tmp_path: Path) -> None:
    target = tmp_path / "m7.board"
    script = (
        "import os, signal, sys\n"
        "from sealmq_board import cli, private\n"
        "real = private.write\n"
        "def write(path, content):\n"
        "    real(path, content)\n"
        "    if path.name == 'vfs.bin':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "private.write = write\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    given = [sys.executable, "-c", script, *map(str, words(tmp_path, target))]
    assert subprocess.run(given, check=False).returncode == -signal.SIGKILL
    (draft,) = tmp_path.glob(".*")
    kept = tmp_path / "second name"
    os.link(draft / "nvs.bin", kept)
    assert SECRET[:40].encode() in kept.read_bytes()
    # Of a run that goes on it is left alone.
    other = tmp_path / f".m7.board.{os.getpid()}-x"
    other.mkdir()
    assert command(*words(tmp_path, target)).returncode == 0
    assert list(tmp_path.glob(".*")) == [other]
    assert not kept.read_bytes().strip(b"\0")


def test_a_bundle_that_is_not_as_built_is_refused(tmp_path: Path) -> None:
    target = built(tmp_path)
    raw = (target / "vfs.bin").read_bytes()
    (target / "vfs.bin").write_bytes(raw[:-1] + b"\0")
    with pytest.raises(BoardError, match="not as it was built"):
        bundle.read(target)
    (target / "vfs.bin").write_bytes(raw)
    (target / "nvs.bin").chmod(0o604)
    with pytest.raises(BoardError, match="others can read it"):
        bundle.read(target)
    (target / "nvs.bin").chmod(0o600)
    about = json.loads((target / "bundle.json").read_text())
    for change in ({"format": 2}, {"chip": "esp8266"}, {"arch": "rv32imc"}, {"client": 7}):
        (target / "bundle.json").write_text(json.dumps(about | change))
        with pytest.raises(BoardError, match="no format that this version knows"):
            bundle.read(target)
    (target / "bundle.json").write_text(json.dumps(about))
    bundle.use_up(target)
    with pytest.raises(BoardError, match="used up"):
        bundle.read(target)


def test_a_secret_is_overwritten_before_its_name_goes(tmp_path: Path) -> None:
    path = tmp_path / "nvs.bin"
    path.write_bytes(b"secret" * 5000)
    kept = tmp_path / "second name"
    os.link(path, kept)
    private.shred(path)
    assert not path.exists()
    assert kept.read_bytes() == bytes(30000)


def test_a_folder_of_secrets_goes_also_behind_a_kill(tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        "from sealmq_board import private\n"
        "with private.folder() as f:\n"
        "    private.write(f / 'x', b'secret')\n"
        "    print(f, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    left = Path(done.stdout.strip())
    assert left.parent == tmp_path
    assert mode(left) == 0o700
    assert mode(left / "x") == 0o600
    again = "from sealmq_board import private\nwith private.folder() as f: print(f)"
    subprocess.run([sys.executable, "-c", again], check=True, env=env)
    assert not left.exists()
    assert list(tmp_path.iterdir()) == []
