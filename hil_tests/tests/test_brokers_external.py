"""`sealmq broker config mosquitto`: a Mosquitto started from exactly its files, and who gets in.

The peers are mosquitto_sub and mosquitto_pub, with whatever certificates an attacker may have.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from free_ports import free_port
from running_site import Site, sealmq, until
from wire import connect, packet, publish, text

TOPIC = "machine/1/temperature"
RETAIN = 0x31
PINGREQ, PINGRESP = b"\xc0\0", b"\xd0\0"


class Outside:
    """The broker, its site, and the mediator's files."""

    def __init__(self, folder: Path) -> None:
        self.site, self.folder, self.port = Site(folder), folder, free_port()
        self.out = folder / "out"
        data = folder / "data"
        data.mkdir()
        told = self.config(self.out, "--data", data)
        lines = (f"{key} = {json.dumps(value)}" for key, value in told["toml"].items())
        self.site.edit('kind = "embedded"', "\n".join(lines))
        self._own(self.out, self.out / "broker", *(self.out / "broker").iterdir(), data)
        program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
        assert program, "mosquitto is missing: make setup"
        command = [program, "-c", str(self.out / "broker/mosquitto.conf")]
        with (folder / "mosquitto.log").open("w") as log:
            self._process = subprocess.Popen(command, stderr=log)

    def config(self, out: Path, *more: object) -> dict[str, dict[str, str]]:
        """`sealmq broker config`; what it says."""
        words = ("--out", out, "--port", self.port, "--at", out / "broker", "--json", *more)
        done = sealmq("broker", "config", "mosquitto", self.site.path, *words)
        assert done.returncode == 0, done.stderr
        told: dict[str, dict[str, str]] = json.loads(done.stdout)
        return told

    # Mosquitto, started as root, becomes the user `mosquitto`, as the instructions have it.
    @staticmethod
    def _own(*paths: Path) -> None:
        if os.geteuid() == 0:
            for path in paths:
                shutil.chown(path, "mosquitto")

    def stop(self) -> None:
        self.site.down()
        self._process.terminate()
        self._process.wait(30)

    def log(self) -> str:
        return (self.folder / "mosquitto.log").read_text()

    def at(self, *pem: Path) -> list[str]:
        """Where it is, and with which certificate and key."""
        there = ["-h", "localhost", "-p", str(self.port)]
        there += ["--cafile", str(self.out / "ca/ca.crt"), "-V", "mqttv311"]
        return there + [
            x for pair in zip(("--cert", "--key"), map(str, pem), strict=False) for x in pair
        ]

    def tells(self, pem: tuple[Path, Path], *packets: bytes) -> bytes:
        """All that it sends to who shows this certificate, up to its answer to a last PINGREQ."""
        context = ssl.create_default_context(cafile=str(self.out / "ca/ca.crt"))
        context.load_cert_chain(*pem)
        with (
            socket.create_connection(("localhost", self.port), 30) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(connect(os.urandom(4).hex().encode(), b"") + b"".join(packets) + PINGREQ)
            got = b""
            while not got.endswith(PINGRESP):
                chunk = secure.recv(4096)
                assert chunk, got
                got += chunk
        assert got.startswith(b"\x20\x02\0\0")
        return got

    @property
    def mediator(self) -> tuple[Path, Path]:
        return self.out / "mediator/mediator.crt", self.out / "mediator/mediator.key"


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    """Running, with the site on it. Mosquitto's own user has to reach the folder."""
    folder = Path(tempfile.mkdtemp(prefix="sealmq-"))
    folder.chmod(0o711)
    made = Outside(folder)
    try:
        made.site.up(forked=False)
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


def test_a_message_passes_end_to_end_and_status_says_how(outside: Outside) -> None:
    site = outside.site
    words = ("-t", TOPIC, "-m", "21.5", "-q", 2, "-r", "--life", 255)
    done = sealmq("pub", site.path, "--client", "m1-temp-sensor", *words)
    assert done.returncode == 0, done.stderr
    done = sealmq("sub", site.path, "--client", "monitor", "-t", TOPIC, "-C", 1, "-W", 30)
    assert (done.returncode, done.stdout) == (0, "21.5\n"), done.stderr
    [row] = [row for row in site.status()["processes"] if row["role"] == "broker"]
    assert (row["ready"], row["kind"], row["note"]) == (True, "external", "external, mutual TLS")
    assert "warning" not in site.log()
    # Neither the key nor where it lies is anything that the mediator's command line shows.
    for what in ("cmdline", "environ"):
        shown = Path(f"/proc/{site.pid('mediator')}/{what}").read_bytes()
        assert b"PRIVATE" not in shown
        assert str(outside.out).encode() not in shown


def test_the_doctor_finds_nothing_and_tries_tls_as_well(outside: Outside) -> None:
    done = sealmq("doctor", outside.site.path, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    tries = {row["name"]: row["ok"] for row in json.loads(done.stdout)["tries"]}
    assert tries["broker: without TLS"] is True
    assert set(tries.values()) == {True}


@pytest.mark.parametrize("who", ["anonymous", "a client", "another CA's mediator", "the broker"])
def test_nobody_else_gets_in(outside: Outside, tmp_path: Path, who: str) -> None:
    """A client has an enrolment and no certificate; the broker's own is not good for a client."""
    words: list[str] = []
    pem: tuple[Path, ...] = ()
    if who == "a client":
        words = ["-u", "sealmq1", "-P", "x" * 54]
    elif who == "another CA's mediator":
        outside.config(tmp_path / "other")
        folder = tmp_path / "other/mediator"
        pem = folder / "mediator.crt", folder / "mediator.key"
    elif who == "the broker":
        pem = outside.out / "broker/server.crt", outside.out / "broker/server.key"
    tried = run("mosquitto_sub", *outside.at(*pem), *words, "-t", "#", "-E", "-W", "30")
    assert tried.returncode not in (0, 27), tried.stderr
    # The same with the mediator's own certificate: it was not for another reason.
    good = run("mosquitto_sub", *outside.at(*outside.mediator), "-t", "#", "-E", "-W", "30")
    assert good.returncode == 0, good.stderr


def test_it_speaks_nothing_but_tls(outside: Outside) -> None:
    with socket.create_connection(("localhost", outside.port), 30) as plain:
        plain.sendall(connect(b"plain", b""))
        try:
            answer = plain.recv(4)
        except ConnectionResetError:
            answer = b""
        assert answer[:1] != b"\x20", "a CONNACK"


def test_another_name_of_the_same_ca_may_touch_no_topic(outside: Outside, tmp_path: Path) -> None:
    """The access list is a fence of its own."""
    ca = ["-CA", str(outside.out / "ca/ca.crt"), "-CAkey", str(outside.out / "ca/ca.key")]
    key, request, cert = (tmp_path / f"other.{end}" for end in ("key", "csr", "crt"))
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=other"]
    run("openssl", "req", *made, "-keyout", str(key), "-out", str(request)).check_returncode()
    signed = ["-req", "-in", str(request), *ca, "-days", "1", "-out", str(cert)]
    run("openssl", "x509", *signed).check_returncode()
    kept = publish(b"probe/kept", b"for mediators", RETAIN)
    forged = publish(b"probe/forged", b"by another", RETAIN)
    listen = packet(0x82, b"\0\1" + text(b"probe/#") + b"\0")
    mine = outside.mediator
    outside.tells(mine, kept)
    heard = outside.tells((cert, key), forged, listen)
    assert b"for mediators" not in heard
    assert b"by another" not in heard
    heard = outside.tells(mine, listen, publish(b"probe/kept", b"", RETAIN))
    assert b"for mediators" in heard
    assert b"by another" not in heard


def test_the_mediator_itself_learns_nothing_of_the_system(outside: Outside) -> None:
    listen = packet(0x82, b"\0\1" + text(b"$SYS/#") + b"\0")
    heard = outside.tells(outside.mediator, listen)
    assert b"$SYS" not in heard


def test_a_key_that_others_can_read_is_refused(outside: Outside) -> None:
    site = outside.site
    key = outside.mediator[1]
    site.down()
    try:
        key.chmod(0o644)
        done = sealmq("up", site.path)
        assert done.returncode == 1
        assert f"{key} can be read by others (mode 0644)" in done.stderr
        assert f"hint: chmod 600 {key}" in done.stderr
    finally:
        key.chmod(0o600)
        site.up()
    until("the site to serve", lambda: sealmq("status", site.path).returncode == 0)


def test_it_is_not_put_into_the_site(outside: Outside) -> None:
    site = outside.site.path
    done = sealmq("broker", "config", "mosquitto", site, "--out", site / "broker")
    assert done.returncode == 2
    assert "lies inside the site" in done.stderr
