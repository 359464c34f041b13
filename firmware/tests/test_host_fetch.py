"""Reading the host's apt sources, and how fetch.py and count.py speak when something is missing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import apt_sources
import debs
from apt_sources import Mirror
from count import CountError, count, interpreter
from real_micropython import ROOT
from steps import FetchError, run

HOST = ROOT / "firmware" / "host"

DEB822 = """\
# a comment
Types: deb deb-src
URIs: http://mirror.example/debian https://second.example/debian/
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb
URIs: http://embedded.example/debian
Suites: stable
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEZ
 -----END PGP PUBLIC KEY BLOCK-----
"""

ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=arm64 signed-by=/usr/share/keyrings/pi.gpg] http://pi.example/debian/ bookworm main
deb-src http://source.example/debian bookworm main
deb cdrom:[Debian]/ bookworm main
deb http://tool.example/apt nodistro main
deb http://mirror.example/debian bookworm main non-free # the same as below
deb\thttp://tab.example/debian bookworm main
deb mirror+file:/etc/apt/mirrors/debian.list bookworm main
deb http://pgdg.example/apt bookworm-pgdg main
"""


def test_deb822_sources() -> None:
    found = apt_sources.select(apt_sources.parse_deb822(DEB822), "bookworm")
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    assert [mirror.uri for mirror in found] == [
        "http://mirror.example/debian",
        "https://second.example/debian/",
        "http://embedded.example/debian",
    ]
    assert found[0] == Mirror("http://mirror.example/debian", keyring)
    stanza = found[2].deb822("trixie")
    assert "Suites: trixie\nComponents: main\n" in stanza
    assert "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEZ\n -----END" in stanza


def test_one_line_sources() -> None:
    found = apt_sources.select(apt_sources.parse_one_line(ONE_LINE), "bookworm")
    assert found == [
        Mirror("http://pi.example/debian/", "/usr/share/keyrings/pi.gpg"),
        Mirror("http://mirror.example/debian"),
        Mirror("http://tab.example/debian"),
        Mirror("mirror+file:/etc/apt/mirrors/debian.list"),
    ]


def fetch(folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, HOST / "fetch.py", "--dest", folder],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_host_without_apt_gets_one_line_and_a_hint(tmp_path: Path) -> None:
    done = fetch(tmp_path / "new", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("fetch: architecture: cannot start dpkg: No such file")
    assert "use Debian 12+ or Raspberry Pi OS 12+" in done.stderr


def test_an_architecture_without_packages_is_named(tmp_path: Path) -> None:
    dpkg = tmp_path / "dpkg"
    dpkg.write_text("#!/bin/sh\necho riscv64\n")
    dpkg.chmod(0o755)
    done = fetch(tmp_path / "new", str(tmp_path))
    assert done.returncode == 1
    assert (
        done.stderr == "fetch: no MicroPython for a 'riscv64' host; use an amd64 or arm64 machine\n"
    )


def test_what_is_in_place_stays(tmp_path: Path) -> None:
    stamp = ROOT / "build" / "micropython" / "64" / "stamp.json"
    before = stamp.stat().st_mtime_ns
    # No apt, no network tools on PATH beyond dpkg: nothing may be fetched.
    (tmp_path / "dpkg").symlink_to("/usr/bin/dpkg")
    done = fetch(ROOT / "build" / "micropython", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "ready in" in done.stdout
    assert stamp.stat().st_mtime_ns == before


def test_a_failing_program_is_quoted_in_one_line() -> None:
    script = "echo reading; echo 'E: Unable to locate package x' >&2; exit 100"
    with pytest.raises(FetchError) as caught:
        run("package lists", ["/bin/sh", "-c", script], hint="check the network")
    assert caught.value.line() == (
        "package lists: sh: E: Unable to locate package x; check the network"
    )


def test_counting(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text("import sys\nfor _ in range(int(sys.argv[1])):\n    pass\n")
    more = count(script, [100], [300])
    assert more == count(script, [100], [300])
    assert 200 * 5 < more < 200 * 2000
    with pytest.raises(CountError, match=r"loop\.py failed with status 1: IndexError"):
        count(script)
    with pytest.raises(CountError, match=r"run firmware/host/fetch\.py"):
        interpreter(tmp_path)


def pinned(folder: Path, digest: str) -> list[Path]:
    """What a mirror on this disk gives for one file pinned to `digest`."""
    pool = folder / "pool"
    pool.mkdir()
    (pool / "small_1.0_i386.deb").write_bytes(b"a package")
    room = folder / "room"
    room.mkdir()
    rows = [(digest, "pool/small_1.0_i386.deb")]
    return debs._pinned_files(rows, Mirror(f"file:{folder}"), room)


def test_a_pinned_file_needs_no_package_lists(tmp_path: Path) -> None:
    found = pinned(tmp_path, hashlib.sha256(b"a package").hexdigest())
    assert [path.read_bytes() for path in found] == [b"a package"]


def test_a_file_that_is_not_the_pinned_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pinned(tmp_path, hashlib.sha256(b"another package").hexdigest()) == []
    assert "asking apt for the packages instead" in capsys.readouterr().err


def test_the_pins_are_whole_sets_of_packages() -> None:
    for arch in ("amd64", "i386", "arm64"):
        rows = debs._pinned(HOST / "micropython_debs.txt", arch)
        names = [path.rpartition("/")[2].partition("_")[0] for _, path in rows]
        assert len(set(names)) == len(names) == 8
        assert {"micropython", "libc6", "libmbedtls21"} <= set(names)
