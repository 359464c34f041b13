"""`sealmq pub` and `sealmq sub` mean what mosquitto_pub and mosquitto_sub mean.

The same flags go to both pairs of programs, ours against a site, theirs against Mosquitto; exit
codes and output are compared. What must differ (a refusal is told) is tested by itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import sealmq_forks
from free_ports import free_port
from running_site import Site, program, sealmq, until

TOPIC = "machine/1/temperature"
PROGRAM_S = 60


class Side:
    """A pair of programs. `ready`: waits until the newest subscriber has its answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started = 0

    def command(self, kind: str) -> list[str]:
        raise NotImplementedError

    def ready(self) -> None:
        raise NotImplementedError

    def run(self, kind: str, *flags: str, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
        """A program that ends by itself."""
        command = [*self.command(kind), *flags]
        return subprocess.run(
            command, input=stdin, capture_output=True, timeout=PROGRAM_S, check=False
        )

    def pub(self, *flags: str, stdin: bytes = b"") -> int:
        """mosquitto_pub or sealmq pub; its exit code."""
        return self.run("pub", *flags, stdin=stdin).returncode

    def start_sub(self, *flags: str) -> subprocess.Popen[bytes]:
        """A subscriber that has its SUBACK."""
        self.started += 1
        err = (self.folder / f"sub-{self.started}.err").open("wb")
        with err:
            process = subprocess.Popen(
                [*self.command("sub"), *flags], stdout=subprocess.PIPE, stderr=err
            )
        self.ready()
        return process


class Ours(Side):
    """Against the site: the sensor publishes, the monitor subscribes."""

    def __init__(self, site: Site, folder: Path) -> None:
        super().__init__(folder)
        self.site = site

    def command(self, kind: str) -> list[str]:
        name = {"pub": "m1-temp-sensor", "sub": "monitor"}[kind]
        more = ["-d"] if kind == "sub" else []
        return [program(), kind, str(self.site.path), "--client", name, *more]

    def run(self, kind: str, *flags: str, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
        words = [*self.command(kind)[1:], *flags]
        done = sealmq_forks.run(words, stdin=stdin, timeout=PROGRAM_S)
        return done or super().run(kind, *flags, stdin=stdin)

    def ready(self) -> None:
        err = self.folder / f"sub-{self.started}.err"
        try:
            until("our SUBACK", lambda: "subscribed: " in err.read_text())
        except AssertionError as late:
            raise AssertionError(f"{late}; it said: {err.read_text()}") from None


class Theirs(Side):
    """Against Mosquitto, whose log tells of SUBACKs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        config = folder / "mosquitto.conf"
        config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")
        self.log = folder / "mosquitto.log"
        with self.log.open("wb") as log:
            self.broker = subprocess.Popen(
                ["/usr/sbin/mosquitto", "-v", "-c", str(config)], stdout=log, stderr=log
            )
        until("Mosquitto", lambda: "running" in self.log.read_text())

    def command(self, kind: str) -> list[str]:
        return [f"mosquitto_{kind}", "-h", "127.0.0.1", "-p", str(self.port)]

    def ready(self) -> None:
        until("Mosquitto's SUBACK", lambda: self._subacks() >= self.started)

    def _subacks(self) -> int:
        return self.log.read_text().count("Sending SUBACK")


@pytest.fixture(scope="module")
def sides(
    shared_site: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Ours, Theirs]]:
    ours = Ours(shared_site, tmp_path_factory.mktemp("ours"))
    theirs = Theirs(tmp_path_factory.mktemp("theirs"))
    yield ours, theirs
    theirs.broker.terminate()
    theirs.broker.wait(PROGRAM_S)


def both(sides: tuple[Ours, Theirs], story: str, *flags: str) -> tuple[int, bytes]:
    """Tells the same story on both sides; what came of it must be equal, and is returned."""
    results = [STORIES[story](side, *flags) for side in sides]
    assert results[0] == results[1]
    return results[0]


def messages(side: Side, *flags: str) -> tuple[int, bytes]:
    """Four messages, one of them empty and one of raw bytes, to a subscriber that counts them."""
    process = side.start_sub("-t", "machine/+/temperature", "-C", "6", "-W", "30", *flags)
    raw = side.folder / "raw"
    raw.write_bytes(b"\x00\xffraw\n")
    codes = [
        side.pub("-t", TOPIC, "-m", "21.5"),
        side.pub("-t", TOPIC, "-n", "-q", "1"),
        side.pub("-t", TOPIC, "-f", str(raw), "-q", "2"),
        side.pub("-t", TOPIC, "-s", stdin=b"all\nof it"),
        side.pub("-t", TOPIC, "-l", stdin=b"one\ntwo"),
    ]
    assert codes == [0] * 5
    out, _ = process.communicate(timeout=PROGRAM_S)
    return process.returncode, out


def nothing(side: Side, *flags: str) -> tuple[int, bytes]:
    process = side.start_sub("-t", "machine/1/silence", "-W", "4", *flags)
    out, _ = process.communicate(timeout=PROGRAM_S)
    return process.returncode, out


def interrupted(side: Side, *flags: str) -> tuple[int, bytes]:
    process = side.start_sub("-t", TOPIC)
    process.send_signal(signal.Signals[flags[0]])
    out, _ = process.communicate(timeout=PROGRAM_S)
    return process.returncode, out


def retained(side: Side, *flags: str) -> tuple[int, bytes]:
    """A retained message, to one who comes later; then removed."""
    assert side.pub("-t", TOPIC, "-m", "kept", "-r", "-q", "1") == 0
    process = side.start_sub("-t", TOPIC, "-C", "1", "-W", "5", *flags)
    out, _ = process.communicate(timeout=PROGRAM_S)
    assert side.pub("-t", TOPIC, "-n", "-r", "-q", "1") == 0
    later = side.start_sub("-t", TOPIC, "-C", "1", "-W", "4")
    assert later.communicate(timeout=PROGRAM_S)[0] == b""
    return process.returncode + 100 * later.returncode, out


def wrong_sub(side: Side, *flags: str) -> tuple[int, bytes]:
    done = side.run("sub", *flags, stdin=b"")
    return done.returncode, done.stdout


def wrong_pub(side: Side, *flags: str) -> tuple[int, bytes]:
    return side.pub(*flags), b""


STORIES = {
    "messages": messages,
    "nothing": nothing,
    "interrupted": interrupted,
    "retained": retained,
    "wrong_sub": wrong_sub,
    "wrong_pub": wrong_pub,
}


@pytest.mark.parametrize("flags", [(), ("-v",), ("-N",), ("-v", "-N"), ("-q", "1")])
def test_output_and_count(sides: tuple[Ours, Theirs], flags: tuple[str, ...]) -> None:
    code, out = both(sides, "messages", *flags)
    assert code == 0
    assert b"21.5" in out
    assert b"\x00\xffraw\n" in out


def test_output_and_count_of_qos_2(sides: tuple[Ours, Theirs]) -> None:
    """Those of another QoS may overtake one of QoS 2, which is there at the end of a handshake."""
    ours, theirs = (messages(side, "-q", "2") for side in sides)
    assert ours[0] == theirs[0] == 0
    out = ours[1]
    assert sorted(out.splitlines()) == sorted(theirs[1].splitlines())
    assert b"21.5" in out
    assert b"\x00\xffraw\n" in out


def test_time_out_is_27(sides: tuple[Ours, Theirs]) -> None:
    assert both(sides, "nothing") == (27, b"")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_it_cleanly(sides: tuple[Ours, Theirs], name: str) -> None:
    assert both(sides, "interrupted", name) == (0, b"")


def test_retained_and_removed(sides: tuple[Ours, Theirs]) -> None:
    assert both(sides, "retained", "-v") == (2700, TOPIC.encode() + b" kept\n")


def test_without_retained(sides: tuple[Ours, Theirs]) -> None:
    assert both(sides, "retained", "-R", "-W", "4") == (2727, b"")


@pytest.mark.parametrize(
    "flags",
    [
        ("-t", "a/#/b"),
        ("-t", "a+"),
        ("-t", "a", "-C", "0"),
        ("-t", "a", "-W", "0"),
        ("-t", "a", "-q", "3"),
        (),
    ],
)
def test_wrong_values_of_sub(sides: tuple[Ours, Theirs], flags: tuple[str, ...]) -> None:
    assert both(sides, "wrong_sub", *flags)[0] == 1


@pytest.mark.parametrize(
    "flags",
    [
        ("-t", "a/#", "-m", "x"),
        ("-t", "a/+/b", "-m", "x"),
        ("-t", "a"),
        ("-m", "x"),
        ("-t", "a", "-m", "x", "-q", "3"),
        ("-t", "a", "-m", "x", "-n"),
        ("-t", "a", "-f", "/nowhere/at/all"),
    ],
)
def test_wrong_values_of_pub(sides: tuple[Ours, Theirs], flags: tuple[str, ...]) -> None:
    assert both(sides, "wrong_pub", *flags)[0] == 1


def ours(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    return sealmq(*words)


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_refused_publish_tells_rule_and_reason(shared_site: Site, qos: str) -> None:
    path = str(shared_site.path)
    done = ours(
        shared_site,
        *("pub", path, "--client", "m1-temp-sensor", "-t", "machine/2/temperature"),
        *("-m", "99", "-q", qos),
    )
    assert done.returncode == 12
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    start = "sealmq: publish to machine/2/temperature refused by rule labels.publish.other-label: "
    assert line.startswith(start)
    assert "m2-temp" in line.removeprefix(start)


def test_a_refused_line_is_told_and_the_others_go_on(shared_site: Site) -> None:
    who = ("--client", "m1-temp-sensor", "-t", "machine/2/temperature")
    done = sealmq("pub", shared_site.path, *who, "-l", stdin="1\n2\n3\n")
    assert done.returncode == 12
    assert len(done.stderr.splitlines()) == 3


def test_refused_filters_are_told(shared_site: Site) -> None:
    who = ["sub", str(shared_site.path), "--client", "m2-temp-sensor", "-W", "2"]
    done = ours(shared_site, *who, "-t", TOPIC)
    assert done.returncode == 12
    assert f"subscription to {TOPIC} refused by rule labels.subscribe.above" in done.stderr
    done = ours(shared_site, *who, "-t", TOPIC, "-t", "machine/2/temperature")
    assert done.returncode == 27
    assert done.stderr.count("refused by rule") == 1


def test_1_mib_arrives_and_one_byte_more_does_not_leave(
    sides: tuple[Ours, Theirs], tmp_path: Path
) -> None:
    side, _ = sides
    big = tmp_path / "big"
    big.write_bytes(os.urandom(1_048_576))
    process = side.start_sub("-t", TOPIC, "-C", "1", "-W", "30", "-N")
    assert side.pub("-t", TOPIC, "-f", str(big), "-q", "1") == 0
    assert process.communicate(timeout=PROGRAM_S)[0] == big.read_bytes()
    big.write_bytes(bytes(1_048_577))
    assert side.pub("-t", TOPIC, "-f", str(big), "-q", "1") == 1


def test_json_says_who_and_how(sides: tuple[Ours, Theirs]) -> None:
    side, _ = sides
    process = side.start_sub("-t", TOPIC, "-C", "2", "-W", "30", "--json")
    assert side.pub("-t", TOPIC, "-m", "21.5") == 0
    assert side.pub("-t", TOPIC, "-s", stdin=b"\xff") == 0
    out, _ = process.communicate(timeout=PROGRAM_S)
    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["topic"], first["payload"], first["how"]) == (TOPIC, "21.5", "live")
    assert (first["sender"], first["label"]) == ("m1-temp-sensor", "m1-temp")
    assert first["sender_number"] > 0
    assert first["label_number"] >= 16
    assert (second["payload_hex"], second["payloadlen"]) == ("ff", 1)


def test_many_lines_are_all_accepted_in_their_order(sides: tuple[Ours, Theirs]) -> None:
    side, _ = sides
    lines = b"".join(b"%d\n" % i for i in range(1000))
    process = side.start_sub("-t", TOPIC, "-C", "1000", "-W", "50")
    assert side.pub("-t", TOPIC, "-l", stdin=lines) == 0
    assert process.communicate(timeout=PROGRAM_S)[0] == lines


def test_with_an_enrolment_instead_of_the_site(shared_site: Site) -> None:
    file = str(shared_site.enrol("m2-temp-sensor", "m2-temp"))
    words = ("pub", "--enrolment", file, "-t", "machine/2/temperature", "-m", "1", "-q", "1")
    for _ in range(2):
        done = ours(shared_site, *words)
        assert (done.returncode, done.stderr) == (0, "")
    state = Path(f"{file}.state")
    assert state.stat().st_mode & 0o777 == 0o600
    # One identity, two holders: the operator's tool does not end the other one's provisioning.
    lent = ("pub", str(shared_site.path), "--client", "m2-temp-sensor")
    done = ours(shared_site, *lent, "-t", "machine/2/temperature", "-m", "3")
    assert done.returncode == 0
    held = json.loads(state.read_text())["identity"]
    assert ours(shared_site, *words).returncode == 0
    assert json.loads(state.read_text())["identity"] == held


@pytest.mark.parametrize("state", [True, False], ids=["with keys", "without"])
def test_an_enrolment_of_before_a_rotation_is_told_what_may_be(
    shared_site: Site, state: bool
) -> None:
    name = f"rotated-{state}".lower()
    old = shared_site.enrol(name, "m2-temp")
    words = ("pub", "--enrolment", str(old), "-t", "machine/2/temperature", "-m", "1")
    if state:
        assert ours(shared_site, *words).returncode == 0
    new = old.with_name("new.json")
    done = ours(shared_site, "client", "rotate", str(shared_site.path), name, "-o", str(new))
    assert done.returncode == 0, done.stderr
    done = ours(shared_site, *words)
    assert done.returncode == 1
    said, hint = done.stderr.splitlines()
    assert said == "sealmq: the mediator closed the connection, asked for keys"
    assert hint.startswith("hint: ")
    assert "sealmq client rotate" in hint
    words = ("pub", "--enrolment", str(new), "-t", "machine/2/temperature", "-m", "1")
    assert ours(shared_site, *words).returncode == 0


def test_a_subscriber_outlives_the_mediator(site: Site, tmp_path: Path) -> None:
    site.up()
    side = Ours(site, tmp_path)
    process = side.start_sub("-t", TOPIC, "-C", "2", "-W", "50")
    assert side.pub("-t", TOPIC, "-m", "before") == 0
    killed = site.kill("mediator")
    site.back("mediator", killed)
    err = tmp_path / "sub-1.err"
    until("the subscriber to be back", lambda: "sealmq: connected" in err.read_text())
    assert side.pub("-t", TOPIC, "-m", "after") == 0
    out, _ = process.communicate(timeout=PROGRAM_S)
    assert (process.returncode, out) == (0, b"before\nafter\n")


def test_a_gateway_that_is_not_up(site: Site) -> None:
    for words in (("pub", "-m", "x"), ("sub",)):
        done = ours(site, words[0], str(site.path), "--client", "monitor", "-t", TOPIC, *words[1:])
        assert done.returncode == 1
        first, hint = done.stderr.splitlines()
        assert first.startswith(f"sealmq: the gateway of {site.path} is not up: ")
        assert hint == f"hint: sealmq up {site.path}"
    done = ours(site, "pub", str(site.path.parent), "--client", "x", "-t", "a", "-m", "b")
    assert done.returncode == 1
    assert "is no site" in done.stderr


def test_an_unknown_client(shared_site: Site) -> None:
    done = ours(shared_site, "sub", str(shared_site.path), "--client", "nobody", "-t", "a")
    assert done.returncode == 1
    assert "nobody" in done.stderr
    assert "hint: sealmq client list" in done.stderr
