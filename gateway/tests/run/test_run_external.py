"""`sealmq up --broker URL` with Debian's Mosquitto, unmodified, on the loopback."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from free_ports import free_port
from run.sites import Site, sealmq, until
from sealmq.broker.errors import BadAddress
from sealmq.broker.target import Target, names_password, parse
from sealmq.run.child import Start
from sealmq.run.chosen import choose
from sealmq.site.layout import Layout
from sealmq.site.model import Broker

MOSQUITTO = "/usr/sbin/mosquitto"
PASSWORD = "the broker's own pass-word"


class Mosquitto:
    """One broker; `open_to_all` takes anonymous clients, else one user with PASSWORD."""

    def __init__(self, folder: Path, *, open_to_all: bool) -> None:
        self.port = free_port()
        self._config = folder / f"mosquitto-{self.port}.conf"
        self._log = self._config.with_suffix(".log")
        lines = [f"listener {self.port} 127.0.0.1", f"log_dest file {self._log}"]
        if os.geteuid() == 0:
            lines.append("user root")
        if open_to_all:
            lines.append("allow_anonymous true")
        else:
            passwords = self._config.with_suffix(".passwd")
            command = ["mosquitto_passwd", "-c", "-b", str(passwords), "sealmq", PASSWORD]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            lines += ["allow_anonymous false", f"password_file {passwords}"]
        self._config.write_text("\n".join(lines) + "\n")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [MOSQUITTO, "-c", str(self._config)], stderr=subprocess.DEVNULL
        )
        until(self._answers, "Mosquitto to listen")

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def guarded(folder: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(folder, open_to_all=False)
    yield broker
    broker.stop()


@pytest.fixture
def password_file(folder: Path) -> Path:
    path = folder / "broker.pw"
    path.touch(0o600)
    path.write_text(PASSWORD + "\n")
    return path


def test_an_external_broker_is_used_and_none_started(
    site: Site, guarded: Mosquitto, password_file: Path
) -> None:
    url = f"mqtt://sealmq@127.0.0.1:{guarded.port}"
    up = site.up("--broker", url, "--broker-password-file", str(password_file)).ready()
    row = site.row("broker")
    assert row == {
        "role": "broker",
        "pid": None,
        "address": f"127.0.0.1:{guarded.port}",
        "ready": True,
        "user": None,
        "note": "external",
        "kind": "external",
        "version": None,
        "closed": None,
    }
    assert site.status()["code"] == 0
    assert "(external)" in up.out.read_text()
    assert "warning" not in up.err.read_text()
    [mediator] = site.told("mediator")
    assert mediator["secrets"]["broker"] == {
        "host": "127.0.0.1",
        "port": guarded.port,
        "user": "sealmq",
        "password": PASSWORD,
        "shared": True,
        "keeps_sessions": True,
        "retained": True,
        "qos": 2,
        "inflight": 20,
        "queue": 1000,
        "filters": 100,
        "autosave_s": 30,
    }
    assert "sealmq/probe/" in guarded.log()
    assert up.end() == 0
    assert PASSWORD not in up.err.read_text() + up.out.read_text()
    guarded.stop()


@pytest.mark.parametrize(
    ("host", "exposed"),
    [
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("localhost", False),
        ("[::1]", False),
        ("192.168.1.5", True),
        ("[fd00::1]", True),
        ("broker.example", True),
    ],
)
def test_a_broker_elsewhere_without_tls_is_warned_of(site: Site, host: str, exposed: bool) -> None:
    said: list[str] = []
    chosen = choose(Broker("embedded"), f"mqtt://{host}")
    chosen.part(_nothing_starts, Layout.open(site.root), said.append)
    assert [line.startswith("warning: ") and "without TLS" in line for line in said] == (
        [True] if exposed else []
    )


def _nothing_starts(*_: object, **__: object) -> Start:
    raise AssertionError("an external broker is not started")


def test_it_may_stand_in_sealmq_toml(folder: Path, guarded: Mosquitto, password_file: Path) -> None:
    site = Site.make(
        folder,
        f'[broker]\nurl = "mqtt://127.0.0.1:{guarded.port}"\nuser = "sealmq"\n'
        f'password_file = "{password_file}"\n',
    )
    try:
        site.up().ready()
        assert site.status()["code"] == 0
    finally:
        assert site.ups[0].end() == 0


def test_its_loss_is_seen_and_its_return(
    site: Site, guarded: Mosquitto, password_file: Path
) -> None:
    url = f"mqtt://sealmq@127.0.0.1:{guarded.port}"
    up = site.up(
        "--broker",
        url,
        "--broker-password-file",
        str(password_file),
        env={"FAKE_TIMES": '{"WATCH_S": 0.2}'},
    ).ready()
    guarded.stop()
    row = site.row("broker")
    assert not row["ready"]
    assert "refused" in row["note"].lower()
    lost = re.compile(rf"^(?!.*warning).*\b{guarded.port}\b")
    # Once, in the words of the first look that failed: that may have been under way at the stop.
    until(lambda: any(map(lost.search, up.err.read_text().splitlines())), "the loss to be told")
    guarded.start()
    until(lambda: "is there again" in up.err.read_text(), "the return to be told")
    until(lambda: site.status()["code"] == 0, "the mediator to be let in again")
    assert up.end() == 0


@pytest.mark.parametrize("wrong", ["password", "user", "none"])
def test_wrong_credentials_are_one_clear_line(
    site: Site, guarded: Mosquitto, password_file: Path, wrong: str
) -> None:
    """Status alone would not see it: the broker is there. Only a CONNECT with them shows it."""
    if wrong == "password":
        password_file.write_text("another")
    user = {"password": "sealmq@", "user": "nobody@", "none": ""}[wrong]
    options = ["--broker", f"mqtt://{user}127.0.0.1:{guarded.port}"]
    if wrong != "none":
        options += ["--broker-password-file", str(password_file)]
    up = site.up(*options, env={"FAKE_TIMES": '{"EXTERNAL_S": 0.2}'})
    assert up.process.wait(60) == 1
    *_, error, hint = up.err.read_text().splitlines()
    assert error == (
        f"sealmq: broker 127.0.0.1:{guarded.port} refuses the mediator: CONNACK 5, not authorised"
    )
    assert hint == "hint: check user and password file"
    assert site.left() == []


def test_nothing_there_is_one_clear_line(site: Site) -> None:
    port = free_port()
    up = site.up("--broker", f"mqtt://127.0.0.1:{port}", env={"FAKE_TIMES": '{"EXTERNAL_S": 0.2}'})
    assert up.process.wait(60) == 1
    error = up.err.read_text().splitlines()[-2]
    assert error.startswith(f"sealmq: broker 127.0.0.1:{port}: ")


def test_a_broker_that_is_open_to_all_is_told(site: Site, folder: Path) -> None:
    broker = Mosquitto(folder, open_to_all=True)
    try:
        up = site.up("--broker", f"mqtt://127.0.0.1:{broker.port}").ready()
        assert "lets in anybody" in up.err.read_text()
        assert site.status()["code"] == 0
        assert up.end() == 0
    finally:
        broker.stop()


def test_a_password_on_the_command_line_is_warned_about(site: Site, guarded: Mosquitto) -> None:
    up = site.up("--broker", f"mqtt://sealmq:{quote(PASSWORD)}@127.0.0.1:{guarded.port}").ready()
    assert "can be read by everybody" in up.err.read_text()
    assert site.told("mediator")[0]["secrets"]["broker"]["password"] == PASSWORD
    assert up.end() == 0
    assert PASSWORD not in up.err.read_text()


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("mqtt://h", Target("h", 1883)),
        ("mqtt://h:1884/", Target("h", 1884)),
        ("mqtt://u@[::1]:1884", Target("::1", 1884, "u")),
        ("mqtt://u:p%40%3A@h", Target("h", 1883, "u", "p@:")),
    ],
)
def test_urls(url: str, target: Target) -> None:
    assert parse(url) == target
    assert names_password(url) == (target.password is not None)
    assert "p@:" not in repr(parse(url))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "localhost:1883",
        "http://h",
        "mqtts://h",  # without certificates
        "mqtt://",
        "mqtt://h:0",
        "mqtt://h:65536",
        "mqtt://h:x",
        "mqtt://h/topic",
        "mqtt://h?x=1",
        "mqtt://h#x",
        "mqtt://:secret@h",
        "mqtt://[::1",
    ],
)
def test_urls_that_will_not_do(url: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse(url)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["missing", "open", "empty", "folder", "lines", "latin", "huge"])
def test_a_password_file_that_will_not_do(folder: Path, wrong: str) -> None:
    path = folder / "pw"
    texts = {"empty": b"", "lines": b"a\nb\n", "latin": b"\xff\xfe", "huge": b"x" * 5000}
    if wrong == "folder":
        path.mkdir(0o700)
    elif wrong != "missing":
        path.touch(0o600)
        path.write_bytes(texts.get(wrong, b"secret"))
        path.chmod(0o644 if wrong == "open" else 0o600)
    with pytest.raises(BadAddress) as caught:
        parse("mqtt://u@h", password_file=path)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_two_passwords_or_options_that_exclude_each_other(site: Site, password_file: Path) -> None:
    with pytest.raises(BadAddress):
        parse("mqtt://u:p@h", password_file=password_file)
    done = sealmq("up", str(site.root), "--broker", "mqtt://h", "--broker-port", "1884")
    assert done.returncode == 2
    assert "give one of the two" in done.stderr
    done = sealmq("up", str(site.root), "--broker-port", "70000")
    assert done.returncode == 2
    done = sealmq("up", str(site.root), "--broker-password-file", str(password_file))
    assert done.returncode == 1
    assert "--broker" in done.stderr
