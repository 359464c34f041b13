"""The Debian package in a clean Debian, and what a release has: made anywhere, the same bytes.

The Debian comes from the archive, by debootstrap; pip fetches what SealMQ depends on.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
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
    sealmq@factory*) sealmq down {SITE} ;;
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
    # dpkg syncs each of thousands of files; who kills it, and not the machine, needs none of that.
    (root / "etc/dpkg/dpkg.cfg.d/quick").write_text("force-unsafe-io\n")
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


def half_way(package: Path) -> str:
    """The file in the middle of the package."""
    listed = subprocess.run(
        ["dpkg-deb", "--contents", str(package)], check=True, capture_output=True, text=True
    )
    files = [line.split()[5] for line in listed.stdout.splitlines() if line.startswith("-")]
    return files[len(files) // 2].removeprefix("./")


def cut_off(debian: Path, package: str, at: str) -> None:
    """Upgrade, and kill dpkg with all that it has started as soon as it says this of the package,
    or when this file of it lies beside the old one."""
    # What dpkg says goes to a descriptor of its own, which it keeps from the package's scripts.
    reads, writes = os.pipe()
    words = ["chroot", str(debian), "dpkg", "--status-fd", str(writes), "-i", package]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    log = debian / "root/dpkg.log"
    with log.open("w") as errors:
        dpkg = subprocess.Popen(
            words, stdout=errors, stderr=errors, env=env, pass_fds=[writes], start_new_session=True
        )
    os.close(writes)
    status = os.fdopen(reads)
    try:
        if "/" in at:
            beside = debian / f"{at}.dpkg-new"
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


@pytest.mark.full
def test_from_the_package_to_doctor_upgraded_cut_off_and_removed(
    debian: Path, inside: Inside, tmp_path: Path
) -> None:
    make("deb")
    [package] = (ROOT / "build/deb").glob("sealmq_0.1.0_*.deb")
    shutil.copy(package, debian / "root/sealmq.deb")
    shutil.copy(newer(package, tmp_path), debian / "root/newer.deb")
    (debian / "usr/bin/systemctl").write_text(SYSTEMCTL)
    (debian / "usr/bin/systemctl").chmod(0o755)
    (debian / "run/systemd/system").mkdir(parents=True)
    read = (
        f"sealmq sub {SITE} --client monitor -t machine/1/temperature --purpose service -C 1 -W 60"
    )

    install, *rest = typed()
    assert len(rest) == 4
    inside("apt-get update")
    install = install.replace("./sealmq_0.1.0_arm64.deb", "/root/sealmq.deb")
    inside(install.replace("install", "install -y"))
    try:
        for command in rest:
            inside(command)
        # Each process is a user of its own, for postinst has made them.
        users = inside("for p in /proc/[0-9]*; do stat -c %U $p 2>/dev/null; done")
        assert {"sealmq-kg", "sealmq-mediator", "sealmq-broker"} <= set(users.split())
        kept = "-t machine/1/temperature -m 21.5 -r -q 1 --life 255"
        inside(f"sealmq pub {SITE} --client m1-temp-sensor {kept}")

        # Upgraded, and back, while the site is up: it is stopped and started.
        ran = inside(f"sealmq status {SITE} --json")
        inside("dpkg -i /root/newer.deb")
        assert inside("sealmq --version").strip() == "sealmq 0.1.1"
        assert inside(f"sealmq status {SITE} --json") != ran
        assert inside(read) == "21.5\n"
        assert "machine/1/temperature" in inside(f"sealmq topic list {SITE}")
        inside("dpkg -i /root/sealmq.deb")

        # Cut off anywhere: the old one or the new one runs, and what the page says ends it.
        for at in ("half-installed", half_way(package), "unpacked", "half-configured"):
            cut_off(debian, "/root/newer.deb", at)
            assert inside("sealmq --version").strip() in ("sealmq 0.1.0", "sealmq 0.1.1"), at
            inside("dpkg --configure -a || apt-get install -y /root/newer.deb")
            state = inside("dpkg-query -W -f '${Status}' sealmq")
            if state != "install ok installed":
                inside("apt-get install -y --reinstall /root/newer.deb")
            version = inside("sealmq --version").split()[1]
            assert version in ("0.1.0", "0.1.1"), at
            found = inside("dpkg-query -W -f '${Status} ${Version}' sealmq")
            assert found == f"install ok installed {version}", at
            assert not list((debian / "opt/sealmq").rglob("*.dpkg-*")), at
            inside(f"sealmq status {SITE}")
            assert inside(read) == "21.5\n", at
            inside("dpkg -i /root/sealmq.deb")
        inside(f"sealmq doctor {SITE}")

        # One that was started by hand goes on, and is told of.
        inside("systemctl stop sealmq@factory")
        inside(f"sealmq up {SITE} --detach")
        assert "still runs the old version" in inside("dpkg -i /root/sealmq.deb")
    finally:
        inside(f"sealmq down {SITE}")
        inside("systemctl stop mosquitto")

    for file in (
        "usr/share/man/man1/sealmq-client-add.1.gz",
        "usr/share/bash-completion/completions/sealmq",
        "usr/lib/systemd/system/sealmq@.service",
        "usr/lib/systemd/system/sealmq-agent@.service",
    ):
        assert (debian / file).exists(), file
    # What [mdns] needs came along: nobody can add an extra to a package.
    inside("/opt/sealmq/bin/python -P -c 'import zeroconf'")
    # Nothing was compiled where it was installed: all that is there dpkg has put there.
    assert inside("dpkg --verify sealmq") == ""

    said = inside("apt-get purge -y sealmq")
    assert "is kept" in said
    assert not (debian / "opt/sealmq").exists()
    assert (debian / SITE[1:] / "sealmq.toml").exists()
    assert (debian / "etc/sealmq/factory.key").exists()


@pytest.mark.full
def test_the_wheel_by_pipx_works_without_a_checkout(debian: Path, inside: Inside) -> None:
    """As the page says it, for units whose users reach it; with the newest versions of what SealMQ
    depends on, as anybody's pipx takes them."""
    make("dist")
    [wheel] = (ROOT / "build/dist").glob("sealmq-*.whl")
    shutil.copy(wheel, debian / "root" / wheel.name)
    # pip here may need a certificate of this machine's to reach its index.
    if "PIP_CERT" in os.environ:
        (debian / "root/certificates").write_bytes(Path(os.environ["PIP_CERT"]).read_bytes())
    pip = "PIP_CERT=/root/certificates" if "PIP_CERT" in os.environ else ""
    inside("apt-get update && apt-get install -y python3-venv")
    inside(f"python3 -m venv /root/tool && {pip} /root/tool/bin/pip install --quiet pipx")
    page = (ROOT / "gateway/INSTALL.md").read_text()
    for said in ("PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install", ".whl[flash]'"):
        assert said in page.replace("\n", " ")
    where = "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin"
    inside(f"{pip} {where} /root/tool/bin/pipx install '/root/{wheel.name}[flash]'")

    site, sealmq = "/var/lib/piped", "/usr/local/bin/sealmq"
    inside("mkdir /root/units")
    inside(f"{sealmq} system-users --units /root/units")
    units = {path.name: path.read_text() for path in (debian / "root/units").iterdir()}
    assert {"sealmq@.service", "sealmq-agent@.service"} <= set(units)
    for text in units.values():
        [start] = [line for line in text.splitlines() if line.startswith("ExecStart=")]
        inside(f"{start.removeprefix('ExecStart=').split()[0]} --version")
        assert "/opt/sealmq" not in text
    key = "--key-file /etc/piped.key --listen 127.0.0.1:21893"
    inside(f"{sealmq} init {site} --example factory {key}")
    try:
        inside(f"{sealmq} up {site} --detach")
        users = inside("for p in /proc/[0-9]*; do stat -c %U $p 2>/dev/null; done")
        assert {"sealmq-kg", "sealmq-mediator", "sealmq-broker"} <= set(users.split())
        inside(f"{sealmq} doctor {site}")
        inside(f"{sealmq} client add {site} board-1 --label m1-temp -o /root/b.json")
    finally:
        inside(f"{sealmq} down {site}")
    build = "board build --enrolment /root/b.json --topic machine/1/temperature"
    for chip in ("esp32", "esp32c3"):
        inside(f"{sealmq} {build} -o /root/{chip}.board --chip {chip}")
        made = debian / f"root/{chip}.board"
        assert json.loads((made / "bundle.json").read_text())["chip"] == chip
        assert list(made.rglob("*.mpy")), "what a board runs came with the wheel"
