"""The systemd unit: what systemd's own checker says of it."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sealmq.site import reach
from sealmq.site.model import Mediator

UNIT = Path(__file__).resolve().parents[2] / "systemd" / "sealmq@.service"


def test_the_unit_is_sound(folder: Path) -> None:
    """Every key is known and every value accepted; only the program is not installed here."""
    made = folder / "sealmq@.service"
    program = folder / "sealmq"
    program.touch(0o755)
    made.write_text(UNIT.read_text().replace("/opt/sealmq/bin/sealmq up", f"{program} up"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(folder / "sealmq@factory.service")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_leaves_little(folder: Path) -> None:
    """systemd's own measure, 0 (closed) to 10."""
    made = folder / "sealmq@.service"
    made.write_text(UNIT.read_text())
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(made)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) < 3.5


def test_the_unit_starts_what_the_command_line_has() -> None:
    lines = UNIT.read_text().splitlines()
    for line in (
        "Type=notify",
        "ExecStart=/opt/sealmq/bin/sealmq up --last-good /var/lib/sealmq/%i",
        "LoadCredential=sealmq-key:/etc/sealmq/%i.key",
        "ExecReload=/bin/kill -HUP $MAINPID",
    ):
        assert line in lines


# Of linux/seccomp.h and linux/filter.h; the number of socket(2) on this machine.
_FILTERED = """
import ctypes, errno, json, socket, struct, sys
from sealmq.mdns import process
from sealmq.site import reach

families = [getattr(socket, name) for name in json.loads(sys.argv[1])]
rows = [(0x20, 0, 0, 0), (0x15, 0, 2 + len(families), int(sys.argv[2])), (0x20, 0, 0, 16)]
rows += [(0x15, len(families) - at, 0, number) for at, number in enumerate(families)]
rows += [(0x06, 0, 0, 0x00050000 | errno.EAFNOSUPPORT), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
program = ctypes.create_string_buffer(struct.pack("HP", len(rows), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
except OSError as error:
    assert error.errno == errno.EAFNOSUPPORT, error
there = sorted(process._addresses())
print(json.dumps({"addresses": there, "own": reach.addresses(socket.AF_INET)}))
"""
_SOCKET = {"x86_64": 41, "aarch64": 198}


def _filtered(families: list[str]) -> subprocess.CompletedProcess[str]:
    """What a process finds of this host's addresses where it may have these sockets alone."""
    words = [json.dumps(families), str(_SOCKET[platform.machine()])]
    return subprocess.run(
        [sys.executable, "-c", _FILTERED, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(platform.machine() not in _SOCKET, reason="system calls have other numbers")
def test_with_the_sockets_that_the_unit_leaves_a_hosts_addresses_are_found() -> None:
    """To announce a site, and to say what its clients could be told."""
    [line] = [x for x in UNIT.read_text().splitlines() if x.startswith("RestrictAddressFamilies=")]
    done = _filtered(line.partition("=")[2].split())
    assert done.returncode == 0, done.stderr
    assert "127.0.0.1" in json.loads(done.stdout)["addresses"]


def test_where_nobody_says_which_interfaces_there_are_a_site_comes_up_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under an older unit `sealmq up` ended, wherever clients are told an address of a router's."""

    def denied() -> None:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr("socket.if_nameindex", denied)
    told = Mediator("0.0.0.0", 1883, "192.0.2.1", 1883)  # noqa: S104 - nobody listens
    assert "this host does not have the address 192.0.2.1" in (reach.warning(told) or "")
