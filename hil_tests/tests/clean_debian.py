"""A clean Debian in a folder, by debootstrap, and the package in it.

The Debian comes from the archive; pip fetches what SealMQ depends on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from running_site import ROOT

SITE = "/var/lib/sealmq/factory"
# A chroot has no systemd; the unit itself is checked by its own tools
# (gateway/tests/run/test_run_systemd.py). This does what commands and the package ask of it.
SYSTEMCTL = f"""#!/bin/sh
units=/run/units
touch $units
up() {{
    case "$1" in
    sealmq@factory*) sealmq up {SITE} --detach ;;
    mosquitto*) start-stop-daemon --start --background --make-pidfile \\
        --pidfile /run/mosquitto.pid --exec /usr/sbin/mosquitto -- \\
        -c /etc/mosquitto/mosquitto.conf ;;
    esac
}}
down() {{
    case "$1" in
    sealmq@factory*)
        main=$(sed -n 's/^{{"pid": \\([0-9]*\\),.*/\\1/p' {SITE}/run/up.json)
        kill "$main" && while [ -e "/proc/$main" ]; do sleep 0.1; done ;;
    mosquitto*) start-stop-daemon --stop --oknodo --retry 5 --pidfile /run/mosquitto.pid ;;
    esac
}}
verb=
for word; do
    case "$word" in
    -*) ;;
    start | stop | enable | disable | restart | list-units) verb=$word ;;
    *.service | sealmq* | mosquitto)
        unit=${{word%.service}}.service
        case "$verb" in
        start | enable | restart)
            grep -qxF "$unit" $units || {{ up "$unit" && echo "$unit" >>$units; }} || exit 1 ;;
        stop | disable)
            grep -vxF "$unit" $units >$units.new
            cmp -s $units $units.new || {{ mv $units.new $units && down "$unit"; }} || exit 1 ;;
        list-units) [ "$unit" != 'sealmq@*.service' ] || grep '^sealmq@' $units ;;
        esac ;;
    esac
done
exit 0
"""

MOUNTS = (("proc", "proc"), ("sysfs", "sys"), ("tmpfs", "dev/shm"), ("tmpfs", "run"))


def make(*words: str, **env: str) -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", *words], cwd=ROOT, capture_output=True, text=True,
        timeout=1800, check=False, env=os.environ | env,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


class Debian:
    """One, without systemd: `systemctl` is SYSTEMCTL where it is put in place."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, command: str, code: int = 0) -> str:
        """What a command of its shell says, as root; it ends with this code."""
        done = subprocess.run(
            ["chroot", str(self.root), "/bin/sh", "-c", command],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
                 "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{command}: {done.returncode}\n{said}"
        assert "Traceback" not in said
        return said

    def with_systemctl(self) -> None:
        """From now on commands and packages think that systemd runs."""
        (self.root / "usr/bin/systemctl").write_text(SYSTEMCTL)
        (self.root / "usr/bin/systemctl").chmod(0o755)
        (self.root / "run/systemd/system").mkdir(parents=True)


def needs(*packages: str) -> None:
    """Debian packages of the machine that tests."""
    if os.geteuid() != 0:
        pytest.fail("this test makes a chroot: run it as root")
    found = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status}\n", *packages],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.stdout.split() != ["installed"] * len(packages):
        subprocess.run(["apt-get", "install", "-y", "-q", *packages], check=True, timeout=600)


@contextlib.contextmanager
def clean_debian(root: Path) -> Iterator[Debian]:
    needs("debootstrap")
    subprocess.run(
        ["debootstrap", "--variant=minbase", "bookworm", str(root)],
        check=True, capture_output=True, timeout=900,
    )  # fmt: skip
    # dpkg syncs each of thousands of files; who kills it, and not the machine, needs none of that.
    (root / "etc/dpkg/dpkg.cfg.d/quick").write_text("force-unsafe-io\n")
    mounted = []
    try:
        for kind, where in MOUNTS:
            (root / where).mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", kind, kind, str(root / where)], check=True)
            mounted.append(root / where)
        yield Debian(root)
    finally:
        for folder in reversed(mounted):
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


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
