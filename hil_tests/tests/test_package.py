"""The Debian package in a clean Debian, and what a release has: made anywhere, the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clean_debian import SITE, Debian, clean_debian, make, newer, typed
from running_site import ROOT, until


def released(folder: Path, umask: str) -> Path:
    """What `make dist` makes in a checkout there."""
    clone = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)]
    subprocess.run(clone, check=True, timeout=300)
    done = subprocess.run(
        ["sh", "-c", f"umask {umask}; exec packaging/dist.sh"], cwd=folder, capture_output=True,
        text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build/dist"


@pytest.mark.full
def test_a_release_made_in_another_folder_is_the_same_bytes(tmp_path: Path) -> None:
    """Another checkout, another umask: wheel, sources and bill of materials."""
    made = released(tmp_path / "one", "022")
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=made, check=True)
    other = released(tmp_path / "quite" / "another", "077")
    files = {path.name for path in made.iterdir()}
    assert len(files) == 4
    assert files == {path.name for path in other.iterdir()}
    for name in files:
        assert (made / name).read_bytes() == (other / name).read_bytes(), name

    [bill] = made.glob("*.cdx.json")
    assert "file:" not in bill.read_text()
    parts = {part["name"].lower(): part for part in json.loads(bill.read_text())["components"]}
    for core in ("amqtt", "cryptography", "sqlalchemy", "tomlkit", "uvloop"):
        assert parts[core]["version"]
        assert parts[core]["scope"] == "required"
    extras = {"esptool": "flash", "pyspark": "spark", "pyrage": "factory", "zeroconf": "mdns"}
    for name, extra in extras.items():
        assert parts[name]["scope"] == "optional"
        assert parts[name]["properties"] == [{"name": "sealmq:extra", "value": extra}]
    assert "pytest" not in parts


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    with clean_debian(tmp_path_factory.mktemp("debian") / "root") as made:
        yield made


def half_way(package: Path) -> str:
    """The file in the middle of the package."""
    listed = subprocess.run(
        ["dpkg-deb", "--contents", str(package)], check=True, capture_output=True, text=True
    )
    files = [line.split()[5] for line in listed.stdout.splitlines() if line.startswith("-")]
    return files[len(files) // 2].removeprefix("./")


def cut_off(debian: Debian, package: str, at: str) -> None:
    """Upgrade, and kill dpkg with all that it has started as soon as it says this of the package,
    or when this file of it lies beside the old one."""
    # What dpkg says goes to a descriptor of its own, which it keeps from the package's scripts.
    reads, writes = os.pipe()
    words = debian.words(f"exec dpkg --status-fd {writes} -i {package}")
    log = debian.root / "root/dpkg.log"
    with log.open("w") as errors:
        dpkg = subprocess.Popen(
            words, stdout=errors, stderr=errors, pass_fds=[writes], start_new_session=True
        )
    os.close(writes)
    status = os.fdopen(reads)
    try:
        if "/" in at:
            beside = debian.root / f"{at}.dpkg-new"
            while not beside.exists():
                assert dpkg.poll() is None, f"{at} was never seen: {log.read_text()}"
                time.sleep(0.001)
        else:
            # Before it is half-installed, dpkg says the same words of the old version.
            lines = (line.strip() for line in status)
            begun = any(line == "status: sealmq: half-installed" for line in lines)
            wanted = f"status: sealmq: {at}"
            said = begun and (at == "half-installed" or any(line == wanted for line in lines))
            assert said, f"dpkg never says {at}: {log.read_text()}"
    finally:
        if dpkg.poll() is None:
            os.killpg(dpkg.pid, signal.SIGKILL)
            dpkg.wait()
        status.close()


def watched(debian: Debian) -> None:
    """systemd starts a site again whose supervisor hangs or was killed, and leaves one alone of
    which a process is long in coming back."""

    def serves() -> bool:
        words = debian.words(f"sealmq status {SITE}")
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    quick = debian.root / "etc/systemd/system/sealmq@.service.d/quick.conf"
    quick.parent.mkdir(parents=True)
    quick.write_text("[Service]\nWatchdogSec=4\nTimeoutStopSec=5\n")
    debian.run("systemctl daemon-reload && systemctl restart sealmq@factory")
    supervisor, mediator = debian.pid("up"), debian.pid("mediator")
    debian.run("systemctl reload sealmq@factory")

    debian.run(f"kill -9 {mediator}")
    until("another mediator", lambda: debian.pid("mediator") != mediator, 90)
    debian.run(f"kill -STOP {debian.pid('mediator')}")
    heard: set[str] = set()

    def pinged() -> bool:
        asked = "systemctl show --value -p WatchdogTimestampMonotonic sealmq@factory"
        heard.add(debian.run(asked))
        return len(heard) > 5  # twice in the watchdog's time

    until("the supervisor to be heard", pinged, 90)
    assert not serves()
    debian.run(f"kill -CONT {debian.pid('mediator')}")
    until("it to serve", serves, 90)
    assert (debian.restarts(), debian.pid("up")) == (0, supervisor)

    debian.run(f"kill -STOP {supervisor}")
    until("the watchdog to end it", lambda: debian.restarts() == 1, 90)
    until("it to serve", serves, 90)
    debian.run(f"kill -KILL {debian.pid('up')}")
    until("systemd to start it again", lambda: debian.restarts() == 2, 90)
    until("it to serve", serves, 90)
    quick.unlink()
    debian.run("systemctl daemon-reload && systemctl restart sealmq@factory")


@pytest.mark.full
def test_from_the_package_to_doctor_upgraded_cut_off_and_removed(
    debian: Debian, tmp_path: Path
) -> None:
    make("deb")
    here = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True)
    package = ROOT / f"build/deb/sealmq_0.1.0+deb12_{here.stdout.decode().strip()}.deb"
    shutil.copy(package, debian.root / "root/sealmq.deb")
    shutil.copy(newer(package, tmp_path), debian.root / "root/newer.deb")
    read = (
        f"sealmq sub {SITE} --client monitor -t machine/1/temperature --purpose service -C 1 -W 60"
    )

    install, *rest = typed()
    assert len(rest) == 4
    debian.run("apt-get update", fetches=True)
    install = install.replace("./sealmq_0.1.0+deb12_arm64.deb", "/root/sealmq.deb")
    debian.run(install.replace("install", "install -y"), fetches=True)
    for command in rest:
        debian.run(command)
    # postinst has made a user for each process.
    users = debian.run("for p in /proc/[0-9]*; do stat -c %U $p 2>/dev/null; done")
    assert {"sealmq-kg", "sealmq-mediator", "sealmq-broker"} <= set(users.split())
    watched(debian)
    kept = "-t machine/1/temperature -m 21.5 -r -q 1 --life 255"
    debian.run(f"sealmq pub {SITE} --client m1-temp-sensor {kept}")

    # Upgraded, and back, while the site is up: it is stopped and started.
    ran = debian.run(f"sealmq status {SITE} --json")
    debian.run("dpkg -i /root/newer.deb")
    assert debian.run("sealmq --version").strip() == "sealmq 0.1.1"
    assert debian.run(f"sealmq status {SITE} --json") != ran
    assert debian.run(read) == "21.5\n"
    assert "machine/1/temperature" in debian.run(f"sealmq topic list {SITE}")
    debian.run("dpkg -i /root/sealmq.deb")

    # Cut off at any step, the old or the new version is there; the page's command completes it.
    for at in ("half-installed", half_way(package), "unpacked", "half-configured"):
        cut_off(debian, "/root/newer.deb", at)
        assert debian.run("sealmq --version").strip() in ("sealmq 0.1.0", "sealmq 0.1.1"), at
        debian.run("dpkg --configure -a || apt-get install -y /root/newer.deb")
        state = debian.run("dpkg-query -W -f '${Status}' sealmq")
        if state != "install ok installed":
            debian.run("apt-get install -y --reinstall /root/newer.deb")
        version = debian.run("sealmq --version").split()[1]
        assert version in ("0.1.0", "0.1.1"), at
        found = debian.run("dpkg-query -W -f '${Status} ${Version}' sealmq")
        assert found == f"install ok installed {version}+deb12", at
        assert not list((debian.root / "opt/sealmq").rglob("*.dpkg-*")), at
        debian.run(f"sealmq status {SITE}")
        assert debian.run(read) == "21.5\n", at
        debian.run("dpkg -i /root/sealmq.deb")
    debian.run(f"sealmq doctor {SITE}")

    # One that was started by hand goes on, and is told of.
    debian.run("systemctl stop sealmq@factory")
    debian.run(f"sealmq up {SITE} --detach")
    assert "still runs the old version" in debian.run("dpkg -i /root/sealmq.deb")
    debian.run(f"sealmq down {SITE}")

    for file in (
        "usr/share/man/man1/sealmq-client-add.1.gz",
        "usr/share/bash-completion/completions/sealmq",
        "usr/lib/systemd/system/sealmq@.service",
        "usr/lib/systemd/system/sealmq-agent@.service",
    ):
        assert (debian.root / file).exists(), file
    # What [mdns] needs came along: nobody can add an extra to a package.
    debian.run("/opt/sealmq/bin/python -P -c 'import zeroconf'")
    # Nothing was compiled where it was installed: all that is there dpkg has put there.
    assert debian.run("dpkg --verify sealmq") == ""

    said = debian.run("apt-get purge -y sealmq")
    assert "is kept" in said
    assert not (debian.root / "opt/sealmq").exists()
    assert (debian.root / SITE[1:] / "sealmq.toml").exists()
    assert (debian.root / "etc/sealmq/factory.key").exists()


@pytest.mark.full
def test_the_wheel_by_pipx_works_without_a_checkout(debian: Debian) -> None:
    """As the page says it, for units whose users reach it; with the newest versions of what SealMQ
    depends on, as anybody's pipx takes them."""
    make("dist")
    [wheel] = (ROOT / "build/dist").glob("sealmq-*.whl")
    shutil.copy(wheel, debian.root / "root" / wheel.name)
    # pip here may need a certificate of this machine's to reach its index.
    if "PIP_CERT" in os.environ:
        (debian.root / "root/certificates").write_bytes(Path(os.environ["PIP_CERT"]).read_bytes())
    pip = "PIP_CERT=/root/certificates" if "PIP_CERT" in os.environ else ""
    debian.run("apt-get update && apt-get install -y python3-venv", fetches=True)
    debian.run(
        f"python3 -m venv /root/tool && {pip} /root/tool/bin/pip install --quiet pipx", fetches=True
    )
    page = (ROOT / "gateway/INSTALL.md").read_text()
    for said in ("PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install", ".whl[flash]'"):
        assert said in page.replace("\n", " ")
    where = "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin"
    debian.run(
        f"{pip} {where} /root/tool/bin/pipx install '/root/{wheel.name}[flash]'", fetches=True
    )

    site, sealmq = "/var/lib/piped", "/usr/local/bin/sealmq"
    debian.run("mkdir /root/units")
    debian.run(f"{sealmq} system-users --units /root/units")
    units = {path.name: path.read_text() for path in (debian.root / "root/units").iterdir()}
    assert {"sealmq@.service", "sealmq-agent@.service"} <= set(units)
    for text in units.values():
        [start] = [line for line in text.splitlines() if line.startswith("ExecStart=")]
        debian.run(f"{start.removeprefix('ExecStart=').split()[0]} --version")
        assert "/opt/sealmq" not in text
    key = "--key-file /etc/piped.key --listen 127.0.0.1:21893"
    debian.run(f"{sealmq} init {site} --example factory {key}")
    try:
        debian.run(f"{sealmq} up {site} --detach")
        users = debian.run("for p in /proc/[0-9]*; do stat -c %U $p 2>/dev/null; done")
        assert {"sealmq-kg", "sealmq-mediator", "sealmq-broker"} <= set(users.split())
        debian.run(f"{sealmq} doctor {site}")
        debian.run(f"{sealmq} client add {site} board-1 --label m1-temp -o /root/b.json")
    finally:
        debian.run(f"{sealmq} down {site}")
    build = "board build --enrolment /root/b.json --topic machine/1/temperature"
    for chip in ("esp32", "esp32c3"):
        debian.run(f"{sealmq} {build} -o /root/{chip}.board --chip {chip}")
        made = debian.root / f"root/{chip}.board"
        assert json.loads((made / "bundle.json").read_text())["chip"] == chip
        # What a board runs came with the wheel.
        assert b"publish_fast.mpy" in (made / "vfs.bin").read_bytes()
