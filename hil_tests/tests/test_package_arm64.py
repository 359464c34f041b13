"""The Debian package for arm64, made on a PC: installed, upgraded under a running site, removed.

In a clean Debian whose own programs (dpkg, shell) are the PC's; Python, what the package brings and
Mosquitto are arm64's, which qemu-user runs. A Raspberry Pi's kernel is not tried here.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clean_debian import SITE, Debian, clean_debian, make, needs, newer, typed
from running_site import ROOT

pytestmark = pytest.mark.full
BINFMT = Path("/proc/sys/fs/binfmt_misc")
AARCH64 = 183  # elf.h: EM_AARCH64


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    if platform.machine() != "aarch64":
        needs("qemu-user-static", "binfmt-support")
        if not (BINFMT / "register").exists():
            subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT)], check=True)
        subprocess.run(["update-binfmts", "--enable", "qemu-aarch64"], check=True)
    with clean_debian(tmp_path_factory.mktemp("debian") / "root") as made:
        yield made


def machines(folder: Path) -> dict[str, int]:
    """For which machine each compiled file there is."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                head = file.read(20)
            if head.startswith(b"\x7fELF"):
                found[path.name] = int.from_bytes(head[18:20], "little")
    return found


def test_the_package_of_another_machine_from_install_to_removal(
    debian: Debian, tmp_path: Path
) -> None:
    make("deb", "ARCH=arm64")
    package = ROOT / "build/deb/sealmq_0.1.0+deb12_arm64.deb"
    shutil.copy(package, debian.root / "root/sealmq.deb")
    shutil.copy(newer(package, tmp_path), debian.root / "root/newer.deb")
    read = (
        f"sealmq sub {SITE} --client monitor -t machine/1/temperature --purpose service -C 1 -W 60"
    )

    install, *rest = typed()
    debian.run("dpkg --add-architecture arm64 && apt-get update", fetches=True)
    install = install.replace("./sealmq_0.1.0+deb12_arm64.deb", "/root/sealmq.deb")
    debian.run(install.replace("install", "install -y"), fetches=True)
    # qemu writes the code that it runs.
    dropped = debian.root / "etc/systemd/system/sealmq@.service.d/qemu.conf"
    dropped.parent.mkdir(parents=True)
    dropped.write_text("[Service]\nMemoryDenyWriteExecute=no\n")
    debian.run("systemctl daemon-reload")
    assert set(machines(debian.root / "opt/sealmq").values()) == {AARCH64}
    assert machines(debian.root / "usr/bin")["python3.11"] == AARCH64
    assert "aarch64" in debian.run("/opt/sealmq/bin/python -c 'import os; print(os.uname())'")
    for command in rest:
        debian.run(command)
    users = debian.run("for p in /proc/[0-9]*; do stat -c %U $p 2>/dev/null; done")
    assert {"sealmq-kg", "sealmq-mediator", "sealmq-broker"} <= set(users.split())
    kept = "-t machine/1/temperature -m 21.5 -r -q 1 --life 255"
    debian.run(f"sealmq pub {SITE} --client m1-temp-sensor {kept}")

    # qemu tells a process another time of its start than others see, by which `sealmq status` and
    # `down` know it: they are not tried here.
    ran = debian.pid("up")
    debian.run("dpkg -i /root/newer.deb")
    assert debian.run("sealmq --version").strip() == "sealmq 0.1.1"
    assert debian.pid("up") != ran
    assert debian.run(read) == "21.5\n"
    debian.run(f"sealmq doctor {SITE}")

    # What the extras brought is there, and for this machine.
    debian.run("/opt/sealmq/bin/python -P -c 'import littlefs, pyrage, zeroconf'")
    debian.run("/opt/sealmq/bin/python -P -m esptool version")
    assert debian.run("dpkg --verify sealmq") == ""
    assert "is kept" in debian.run("apt-get purge -y sealmq")
    assert not (debian.root / "opt/sealmq").exists()
    assert (debian.root / SITE[1:] / "sealmq.toml").exists()
    assert (debian.root / "etc/sealmq/factory.key").exists()
