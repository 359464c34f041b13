"""A clean Debian in a container, by debootstrap and systemd-nspawn, and the package in it.

The Debian comes from the archive; pip fetches what SealMQ depends on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from running_site import ROOT, until

_ENV = (
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
)
SITE = "/var/lib/sealmq/factory"


def make(*words: str, **env: str) -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", *words], cwd=ROOT, capture_output=True, text=True,
        timeout=1800, check=False, env=os.environ | env,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


class Debian:
    """One that runs, with a systemd of its own and no network but its loopback."""

    def __init__(self, root: Path, first: int) -> None:
        self.root, self._first = root, first

    def words(self, command: str, fetches: bool = False) -> list[str]:
        """What starts a command of its shell, as root, in the namespaces of its first process; of
        one that fetches, with our network. What systemd starts for that one has its own.
        """
        spaces = ["--mount", "--uts", "--ipc", "--pid"] if fetches else ["--all"]
        enter = ["nsenter", "--target", str(self._first), *spaces, "--"]
        return [*enter, "/usr/bin/env", "-i", *_ENV, "/bin/sh", "-c", command]

    def run(self, command: str, fetches: bool = False) -> str:
        """What a command says; it ends well."""
        done = subprocess.run(
            self.words(command, fetches), capture_output=True, text=True, timeout=900, check=False
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}: {done.returncode}\n{said}"
        assert "Traceback" not in said
        return said

    def pid(self, role: str) -> int:
        """Its number in the container: of the site's supervisor ("up"), or of a process."""
        told = json.loads((self.root / SITE[1:] / "run/up.json").read_text())
        return int((told if role == "up" else told["processes"][role])["pid"])

    def restarts(self) -> int:
        """How often systemd has started the site again by itself."""
        return int(self.run("systemctl show --value -p NRestarts sealmq@factory"))


def needs(*packages: str) -> None:
    """Debian packages of the machine that tests."""
    if os.geteuid() != 0:
        pytest.fail("this test makes a container: run it as root")
    found = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status}\n", *packages],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.stdout.split() != ["installed"] * len(packages):
        subprocess.run(["apt-get", "install", "-y", "-q", *packages], check=True, timeout=600)


@contextlib.contextmanager
def clean_debian(root: Path) -> Iterator[Debian]:
    needs("debootstrap", "systemd-container")
    subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=systemd-sysv,dbus", "bookworm", str(root)],
        check=True, capture_output=True, timeout=900,
    )  # fmt: skip
    # dpkg syncs each of thousands of files; who kills it, and not the machine, needs none of that.
    (root / "etc/dpkg/dpkg.cfg.d/quick").write_text("force-unsafe-io\n")
    (root / "etc/machine-id").write_text("")
    log = root.parent / "nspawn.log"
    with log.open("w") as said:
        # --keep-unit, --register: the machine that tests may have no systemd that runs.
        nspawn = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network",
             f"--machine=sealmq-{os.getpid()}", "--boot", "--directory", str(root)],
            env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip
    try:
        children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")

        def started() -> Debian | None:
            assert nspawn.poll() is None, log.read_text()
            first, *_ = [*children.read_text().split(), ""]
            made = Debian(root, int(first)) if first else None
            asked = made and subprocess.run(
                made.words("systemctl is-system-running"), capture_output=True, check=False
            )
            return made if asked and asked.stdout == b"running\n" else None

        yield until("its systemd to have started all", started, 120)
    finally:
        nspawn.terminate()  # it tells systemd to power off
        nspawn.wait(120)


def typed() -> list[str]:
    """The commands of the page, without sudo and what is said of them."""
    text = (ROOT / "gateway/INSTALL.md").read_text().partition("## From the Debian package")[2]
    lines = text.partition("```console\n")[2].partition("```")[0].splitlines()
    commands = [line.removeprefix("$ ").removeprefix("sudo ") for line in lines]
    return [line.partition("  #")[0].strip() for line in commands]


def newer(package: Path, folder: Path) -> Path:
    """The same package as the next version, whose program says so."""
    root = folder / "newer"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(root)], check=True)
    control = root / "DEBIAN/control"
    control.write_text(control.read_text().replace("Version: 0.1.0", "Version: 0.1.1"))
    [source] = root.glob("opt/sealmq/lib/python3*/site-packages/sealmq/__init__.py")
    source.write_text(source.read_text().replace('"0.1.0"', '"0.1.1"'))
    compiled = ["-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]
    subprocess.run(
        ["/usr/bin/python3", *compiled, "-s", str(root), str(source)], check=True
    )  # as packaging/deb.sh
    made = folder / "sealmq_0.1.1.deb"
    build = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z1", "--build", str(root), str(made)]
    subprocess.run(build, check=True, capture_output=True)
    shutil.rmtree(root)
    return made
