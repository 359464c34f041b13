"""A site that announces itself, and somebody beside it who lies: who believes the lie does not
connect, and no more. What a liar hears, also one who hands all on to the real mediator, serves for
nothing afterwards (claim 7)."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from zeroconf import IPVersion, ServiceInfo, Zeroconf

from running_site import Reading, Site, ran, sealmq, until
from wire import packet, split

HERE = "127.0.0.1"
TOPIC = "machine/1/temperature"
MESSAGE = "twenty-one and a half degrees"
# A CONNACK that lets anybody in.
WELCOME = b"\x20\x02\x00\x00"
CONNECT = 0x10


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.toml.write_text(made.toml.read_text() + "\n[mdns]\nannounce = true\n")
    made.up()
    yield made
    made.down()


def hand_on(peer: socket.socket, port: int, heard: bytearray) -> None:
    """Between a client and the mediator, until one of them ends."""
    with socket.create_connection((HERE, port)) as mediator:

        def back() -> None:
            with suppress(OSError):
                while data := mediator.recv(65536):
                    peer.sendall(data)
                peer.shutdown(socket.SHUT_RDWR)

        answers = threading.Thread(target=back)
        answers.start()
        with suppress(OSError):
            while data := peer.recv(65536):
                heard.extend(data)
                mediator.sendall(data)
            mediator.shutdown(socket.SHUT_WR)
        answers.join()


def welcome(peer: socket.socket, heard: bytearray) -> None:
    """Lets anybody in, and keeps what comes."""
    peer.settimeout(2)
    with suppress(OSError):
        heard.extend(peer.recv(65536))
        peer.sendall(WELCOME)
        while data := peer.recv(65536):
            heard.extend(data)


@contextmanager
def liar(site: str, onward: int = 0) -> Iterator[tuple[int, bytearray]]:
    """A port that is announced for the site, takes and keeps what comes, and says welcome, or hands
    it on to a port.
    """
    heard = bytearray()
    with socket.create_server((HERE, 0)) as door:
        door.settimeout(0.2)
        ends = threading.Event()

        def listen() -> None:
            while not ends.is_set():
                try:
                    peer, _ = door.accept()
                except TimeoutError:
                    continue
                with peer:
                    if onward:
                        hand_on(peer, onward, heard)
                    else:
                        welcome(peer, heard)

        running = threading.Thread(target=listen)
        running.start()
        port = door.getsockname()[1]
        zc = Zeroconf(interfaces=[HERE], ip_version=IPVersion.V4Only)
        kind = "_sealmq._tcp.local."
        zc.register_service(
            ServiceInfo(
                kind,
                f"liar-{site}.{kind}",
                port=port,
                properties={"v": "1", "site": site},
                server=f"liar-{site}.local.",
                addresses=[ipaddress.ip_address(HERE).packed],
            )
        )
        try:
            yield port, heard
        finally:
            zc.unregister_all_services()
            zc.close()
            ends.set()
            running.join()


def said_again(port: int, heard: bytes) -> bytes:
    """Sends it to the mediator as it is; its answer until it hangs up, or for two seconds."""
    answer = bytearray()
    with socket.create_connection((HERE, port)) as wire:
        wire.settimeout(2)
        with suppress(OSError):
            wire.sendall(heard)
            while data := wire.recv(65536):
                answer.extend(data)
    return bytes(answer)


def connections(heard: bytes) -> list[bytes]:
    """What was sent in each connection, from its CONNECT on."""
    found: list[bytearray] = []
    packets, rest = split(heard)
    assert not rest
    for first, body in packets:
        if first == CONNECT:
            found.append(bytearray())
        found[-1] += packet(first, body)
    return [bytes(one) for one in found]


def found(*words: object) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(sealmq(*words).stdout)["found"]
    return rows


@pytest.mark.full
def test_a_lie_leads_to_a_client_that_does_not_connect_and_no_further(
    site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "m1.sealmq.json"
    ran("client", "add", site.path, "m1-temp-sensor", "--label", "m1-temp", "-o", file)
    told = json.loads(file.read_text())
    with liar(told["site"]) as (astray, heard):
        words = ("find", "--interface", HERE, "--enrolment", file, "--json")
        both = {site.port, astray}
        until("both to be found", lambda: {row["port"] for row in found(*words)} == both)
        here = ("pub", "--enrolment", file, "--host", HERE, "-t", TOPIC, "-m", MESSAGE, "-W", "5")
        done = sealmq(*here, "--port", astray)
        assert done.returncode != 0
        assert heard  # it was there
        for secret in (MESSAGE.encode(), TOPIC.encode(), bytes.fromhex(told["ps"])):
            assert secret not in heard
            assert secret.hex().encode() not in heard
        ran(*here, "--port", site.port)
    until("the one that is left", lambda: {row["port"] for row in found(*words)} == {site.port})


@pytest.mark.full
@pytest.mark.parametrize("relay", [False, True])
def test_what_a_liar_has_heard_changes_nothing_at_the_real_mediator(
    site: Site, tmp_path: Path, relay: bool
) -> None:
    """One who says welcome hears a request for keys, and then a proof; a relay a whole connection,
    with a PUBLISH. Said again, before and after the client's next connection, no message comes of
    it, no topic, and the client connects as before.
    """
    file = tmp_path / "m1.sealmq.json"
    ran("client", "add", site.path, "m1-temp-sensor", "--label", "m1-temp", "-o", file)
    told = json.loads(file.read_text())
    # Its label before anything is said again, so that a topic that came of that would show.
    here = ("pub", "--enrolment", file, "--host", HERE, "-q", "1", "-t", TOPIC, "-W", "5", "-m")
    (tmp_path / "reading").mkdir()
    reading = Reading(site, tmp_path / "reading", "-t", TOPIC)
    expected = []

    def publishes(message: str) -> None:
        ran(*here, message, "--port", site.port)
        expected.append(f"{TOPIC} {message}")
        until("it to be read", lambda: reading.lines() == expected)

    with liar(told["site"], site.port if relay else 0) as (astray, heard):
        done = sealmq(*here, MESSAGE, "--port", astray)
        assert (done.returncode == 0) == relay, done.stderr
        if relay:
            expected.append(f"{TOPIC} {MESSAGE}")
        first = bytes(heard)
        for _ in range(3):
            said_again(site.port, first)
        publishes("with keys")
        # Now it has keys: the next that is heard is its proof.
        heard.clear()
        sealmq(*here, "again", "--port", astray)
        if relay:
            expected.append(f"{TOPIC} again")
        until("a CONNECT to be heard", lambda: len(heard))
    topics = ran("topic", "list", site.path, "--json")
    spoken = connections(bytes(heard)) + connections(first)
    assert len(spoken) >= 2
    for _ in range(3):
        for one in spoken:
            said_again(site.port, one)
    publishes("after what was said again")
    for one in spoken:
        said_again(site.port, one)
    publishes("and once more")
    assert ran("topic", "list", site.path, "--json") == topics
    assert site.audit("connect-refused", rule="mediator.connect.behind")
    reading.end()
    assert reading.lines() == expected
