"""The Debian package in a clean Debian, and what a release has: made twice, the same bytes.

The Debian comes from the archive, by debootstrap; pip fetches what SealMQ depends on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from running_site import ROOT

SITE = "/var/lib/sealmq/factory"
# The unit is checked by systemd's own tools (gateway/tests/run/test_run_systemd.py); in a chroot
# there is no systemd that could start it.
INSTEAD = {
    "systemctl enable --now sealmq@factory": f"sealmq up {SITE} --detach",
}

MOUNTS = (("proc", "proc"), ("sysfs", "sys"), ("tmpfs", "dev/shm"), ("tmpfs", "run"))


def make(*words: str, **env: str) -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", *words], cwd=ROOT, capture_output=True, text=True,
        timeout=1800, check=False, env=os.environ | env,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_a_release_made_twice_is_the_same_bytes() -> None:
    made = ROOT / "build/dist"
    make("dist")
    first = (made / "SHA256SUMS").read_text()
    make("dist")
    assert (made / "SHA256SUMS").read_text() == first
    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    subprocess.run(check, cwd=made, check=True)
    [bill] = made.glob("*.cdx.json")
    names = {part["name"].lower(): part for part in json.loads(bill.read_text())["components"]}
    for needed in ("amqtt", "cryptography", "sqlalchemy", "tomlkit", "uvloop"):
        assert names[needed]["version"]


Inside = Callable[..., str]


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.fail("this test makes a chroot: run it as root")
    if shutil.which("debootstrap") is None:
        subprocess.run(["apt-get", "install", "-y", "-q", "debootstrap"], check=True, timeout=600)
    root = tmp_path_factory.mktemp("debian") / "root"
    subprocess.run(
        ["debootstrap", "--variant=minbase", "bookworm", str(root)],
        check=True, capture_output=True, timeout=900,
    )  # fmt: skip
    mounted = []
    try:
        for kind, where in MOUNTS:
            (root / where).mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", kind, kind, str(root / where)], check=True)
            mounted.append(root / where)
        yield root
    finally:
        for folder in reversed(mounted):
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def inside(debian: Path) -> Inside:
    def run(command: str, code: int = 0) -> str:
        done = subprocess.run(
            ["chroot", str(debian), "/bin/sh", "-c", command],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
                 "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{command}: {done.returncode}\n{said}"
        assert "Traceback" not in said
        return said

    return run


def typed() -> list[str]:
    """The commands of the page, without sudo; what needs a running systemd by what does it here."""
    text = (ROOT / "gateway/INSTALL.md").read_text().partition("## From the Debian package")[2]
    lines = text.partition("```console\n")[2].partition("```")[0].splitlines()
    commands = [line.removeprefix("$ ").removeprefix("sudo ") for line in lines]
    return [INSTEAD.get(line, line) for line in commands]


@pytest.mark.full
def test_from_the_package_to_doctor_in_five_commands(debian: Path, inside: Inside) -> None:
    """The upgrade is one to the same version; a chroot has no systemd to restart the site."""
    make("deb")
    [package] = (ROOT / "build/deb").glob("sealmq_*.deb")
    shutil.copy(package, debian / "root" / package.name)
    install, *rest = typed()
    assert len(rest) == 4
    install = install.replace("./sealmq_0.1.0_arm64.deb", f"/root/{package.name}")
    inside("apt-get update")
    inside(install.replace("install", "install -y --no-install-recommends"))
    try:
        for command in rest:
            inside(command)
        # Each process is a user of its own, for postinst has made them.
        users = inside("for p in /proc/[0-9]*; do stat -c %U $p 2>/dev/null; done")
        assert {"sealmq-kg", "sealmq-mediator", "sealmq-broker"} <= set(users.split())
        inside(f"sealmq pub {SITE} --client m1-temp-sensor -t machine/1/temperature -m 21.5 -r")

        # Upgraded while the site is up: it says what still runs, and what was kept is there after.
        said = inside(f"dpkg -i /root/{package.name}")
        assert "still runs the old version" in said
        inside(f"sealmq down {SITE} && sealmq up {SITE} --detach")
        read = f"sealmq sub {SITE} --client monitor -t machine/1/temperature --purpose service"
        assert inside(f"{read} -C 1 -W 30") == "21.5\n"
        labels = inside(f"sealmq topic list {SITE}")
        assert "machine/1/temperature" in labels
    finally:
        inside(f"sealmq down {SITE}")

    for file in (
        "usr/share/man/man1/sealmq-client-add.1.gz",
        "usr/share/bash-completion/completions/sealmq",
        "usr/lib/systemd/system/sealmq@.service",
        "usr/lib/systemd/system/sealmq-agent@.service",
    ):
        assert (debian / file).exists(), file
    # Nothing was compiled where it was installed: all that is there dpkg has put there.
    assert inside("dpkg --verify sealmq") == ""

    said = inside("apt-get purge -y sealmq")
    assert "is kept" in said
    assert not (debian / "opt/sealmq").exists()
    assert (debian / SITE[1:] / "sealmq.toml").exists()
    assert (debian / "etc/sealmq/factory.key").exists()
