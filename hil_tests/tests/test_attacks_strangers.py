"""Attacks of strangers on the network on everybody else's way in: places that are held, connections
that come without end, and provisioning requests that were recorded.
"""

from __future__ import annotations

import json
import os
import resource
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from sealmq_spec.provision import OK, ask, open_answer

from attack_scene import Scene, scene
from running_site import Site, sealmq, until
from wire import CONTROL, Cipher, RawClient, Wire, connect, publish

CONNACK = (0x20, b"\0\0")
PLACES = 1024
TOPIC = b"machine/1/temperature"


@pytest.fixture(scope="module")
def stage(shared_site: Site) -> Iterator[Scene]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    with scene(shared_site) as made:
        yield made
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def stranger(port: int, address: str = "127.0.0.1") -> socket.socket:
    """A connection that says nothing."""
    return socket.create_connection(("127.0.0.1", port), 60, (address, 0))


def works(stage: Scene, name: str = "m1-temp-sensor") -> None:
    """An honest client is let in and its message taken, at the first try."""
    raw = stage.client(name)
    raw.connect()
    assert raw.publish(TOPIC, b"honest") == [(0x40, b"\0\x01")]
    raw.close()


def asked(raw: RawClient) -> tuple[bytes, bytes]:
    """A genuine provisioning request, and its N_c."""
    i, nonce_c = raw.ident, os.urandom(16)
    return ask(Cipher, i.site, i.ps, i.suite, i.client, i.gen, 1, nonce_c, i.mediator), nonce_c


def quarantine(raw: RawClient) -> Wire:
    """A connection that may provision and nothing else."""
    wire = Wire(raw.port)
    wire.send(connect(raw.client_id, raw.session.begin_connect(False)))
    assert wire.read() == CONNACK
    return wire


def status(raw: RawClient, nonce_c: bytes, got: tuple[int, bytes] | None) -> int:
    """What the key generator answered."""
    assert got is not None, "no answer"
    i = raw.ident
    return int(open_answer(Cipher, i.site, i.ps, i.suite, i.client, nonce_c, got[1][5:])[0])


@contextmanager
def flood(port: int, most: int) -> Iterator[None]:
    """A stranger that opens connections without end, and holds the newest of them."""
    enough = Event()

    def run() -> None:
        held: deque[socket.socket] = deque()
        for _ in range(most):
            if enough.is_set():
                break
            held.append(stranger(port))
            if len(held) > 2 * PLACES:
                held.popleft().close()
        for one in held:
            one.close()

    thread = Thread(target=run, name="flood")
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def test_silent_connections_of_many_addresses_shut_nobody_out(stage: Scene) -> None:
    raw = RawClient(stage.site.port, stage.enrolment("m1-device"))
    with ExitStack() as stack:
        for n in range(PLACES + 100):
            stack.enter_context(stranger(stage.site.port, f"127.0.1.{n % 18 + 1}"))
        works(stage)
        assert sealmq("status", stage.site.path).returncode == 0
        # Neither those in quarantine, which may stay longer.
        for _ in range(200):
            stack.enter_context(closing(quarantine(raw)))
        works(stage)


def test_one_address_shuts_out_nobody_else_behind_it(stage: Scene) -> None:
    with ExitStack() as stack:
        for _ in range(PLACES + 100):
            stack.enter_context(stranger(stage.site.port))
        works(stage)


def test_a_new_board_is_provisioned_while_strangers_come_without_end(stage: Scene) -> None:
    with flood(stage.site.port, 20_000):
        for _ in range(5):
            new = RawClient(stage.site.port, stage.enrolment("m1-device"))
            new.provision()
        works(stage)


def ended(peer: socket.socket) -> bool:
    """Whether the gateway has ended it; in order or not is no matter to who has proved nothing."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_who_holds_on_is_pushed_out_by_the_next_and_nobody_else(stage: Scene) -> None:
    port = stage.site.port
    raw = RawClient(port, stage.enrolment("m1-device"))
    with ExitStack() as stack:
        quiet = stack.enter_context(closing(Wire(port)))
        many = [stack.enter_context(stranger(port, "127.0.2.1")) for _ in range(PLACES)]
        assert ended(many[0]), "its oldest connection goes first"
        quiet.send(connect(raw.client_id, raw.session.begin_connect(False)))
        assert quiet.read() == CONNACK


def test_recorded_requests_cost_their_client_nothing(stage: Scene) -> None:
    raw = RawClient(stage.site.port, stage.enrolment("m1-device"))
    recorded = [asked(raw)[0] for _ in range(6)]
    for n in range(20):
        with closing(quarantine(raw)) as wire:
            for request in recorded[: len(recorded) // 2] if n % 2 else recorded[3:]:
                wire.send(publish(CONTROL, request))
                assert wire.read() is not None
    with closing(quarantine(raw)) as wire:
        request, nonce_c = asked(raw)
        wire.send(publish(CONTROL, request))
        assert status(raw, nonce_c, wire.read()) == OK


def test_with_few_files_there_are_fewer_places_and_no_lockout(site: Site) -> None:
    site.up()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    supervisor = int(json.loads((site.path / "run/up.json").read_text())["pid"])
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (600, 600))
    site.back("mediator", site.kill("mediator"))
    with scene(site) as stage, ExitStack() as stack:
        stage.client("m1-temp-sensor")
        for _ in range(700):
            stack.enter_context(stranger(site.port))
        works(stage)
        files = Path(f"/proc/{site.pid('mediator')}/fd")
        assert len(list(files.iterdir())) < 600
    assert "out of system resource" not in site.log()
    until("the log to say it", lambda: "that had proved nothing were ended" in site.log())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
