"""A site that announces itself, and somebody beside it who lies: who believes the lie does not
connect, and no more. What can be done with what a liar hears is what anybody on the path can do
(claim 7)."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sealmq_board import enrolment
from sealmq_board.errors import BoardError
from zeroconf import IPVersion, ServiceInfo, Zeroconf

from running_site import Site, ran, sealmq, until

HERE = "127.0.0.1"
TOPIC = "machine/1/temperature"
MESSAGE = "twenty-one and a half degrees"
# A CONNACK that lets anybody in.
WELCOME = b"\x20\x02\x00\x00"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.toml.write_text(made.toml.read_text() + "\n[mdns]\nannounce = true\n")
    made.up()
    yield made
    made.down()


@contextmanager
def liar(site: str) -> Iterator[tuple[int, bytearray]]:
    """A port that takes and keeps what comes, says welcome, and is announced for the site."""
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
                    peer.settimeout(2)
                    try:
                        heard.extend(peer.recv(65536))
                        peer.sendall(WELCOME)
                        while data := peer.recv(65536):
                            heard.extend(data)
                    except OSError:
                        pass

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


def found(*words: object) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(sealmq(*words).stdout)["found"]
    return rows


def chosen(site: str) -> tuple[str, int] | None:
    try:
        return enrolment.mediator("mdns", site)
    except BoardError:
        return None


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
        # Nobody chooses one of the two for the operator.
        until("a refusal to choose", lambda: chosen(told["site"]) is None)
        here = ("pub", "--enrolment", file, "--host", HERE, "-t", TOPIC, "-m", MESSAGE, "-W", "5")
        done = sealmq(*here, "--port", astray)
        assert done.returncode != 0
        assert heard  # it was there
        for secret in (MESSAGE.encode(), TOPIC.encode(), bytes.fromhex(told["ps"])):
            assert secret not in heard
            assert secret.hex().encode() not in heard
        ran(*here, "--port", site.port)
    until("the one that is left", lambda: chosen(told["site"]) == (HERE, site.port))
