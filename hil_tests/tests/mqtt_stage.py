"""Where scripts are played: a plain Mosquitto, and sites with either broker behind the mediator.

A script is lines of words: who, what, with what. `play` does one after the other and waits for the
answer that MQTT gives to each, so that what everybody sees is the same at each run.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from free_ports import free_port
from mqtt_peers import PATIENCE_S, Keeper, Peer, Plain, Sealed, Will, provisioned
from running_site import Site, until
from wire import RawClient, Wire

KEEPER = "keeper"
NAMES = ("a", "b", "c", KEEPER)
LABEL = "m1-temp"
MOSQUITTO = shutil.which("mosquitto") or "/usr/sbin/mosquitto"


class Seen(NamedTuple):
    """What one client saw."""

    got: list[str]
    told: list[str]


class Stage:
    """make: a peer by its name, for a place."""

    def __init__(self, name: str, make: Callable[[str, str], Peer]) -> None:
        self.name = name
        self._make = make
        self.notices: dict[str, list[str]] = {}
        self._keeper = Keeper(lambda: make(KEEPER, "stage"))

    def play(self, place: str, script: str) -> dict[str, Seen]:
        """What each client of the script saw."""
        peers: dict[str, Peer] = {}
        try:
            for line in script.strip().splitlines():
                who, verb, *words = line.split()
                if who not in peers:
                    peers[who] = self._peer(who, place)
                try:
                    _VERBS[verb](peers[who], *words)
                except AssertionError as error:
                    raise AssertionError(f"{self.name}, {place}, at {line!r}: {error}") from None
            for peer in peers.values():
                if peer.wire is not None and not peer.manual and peer.welcome:
                    peer.sync()
            self.notices = {n: p.notices for n, p in peers.items() if isinstance(p, Sealed)}
            return {name: Seen(peer.got, peer.told) for name, peer in peers.items()}
        finally:
            for peer in peers.values():
                if peer.wire is not None:
                    peer.wire.send(b"\xe0\0")
                    peer.wire.close()

    def _peer(self, name: str, place: str) -> Peer:
        peer = self._make(name, place)
        peer.keeper = self._keeper
        return peer


def _connect(peer: Peer, *words: str) -> None:
    options = dict(word.partition("=")[::2] for word in words)
    if "id" in options and not options["id"]:
        peer.client_id = ""
    elif "id" in options:
        peer.client_id = f"{peer.place}-{options['id']}"
    will = Will(options["will"]) if "will" in options else None
    peer.connect("keep" not in options, int(options.get("ka", 60)), will)


def _message(words: tuple[str, ...]) -> tuple[str, bytes, int, bool]:
    topic, payload, *more = words
    retain = "r" in more
    qos = int(more[0]) if more and more[0] != "r" else 0
    if payload.startswith("*"):
        return topic, b"x" * int(payload[1:]), qos, retain
    return topic, b"" if payload == "-" else payload.encode(), qos, retain


def _pub(peer: Peer, *words: str) -> None:
    message = _message(words)
    peer.publish(*message)
    qos = message[2]
    if qos:
        peer.await_("puback" if qos == 1 else "pubcomp")
    else:
        peer.settle()


def _later(peer: Peer, *words: str) -> None:
    topic, payload, qos, retain = _message(words)
    peer.publish(topic, payload, qos, retain, held=True)
    peer.later = peer.newest


def _now(peer: Peer) -> None:
    peer.send(peer.later)
    peer.await_("puback")


def _sub(peer: Peer, *words: str) -> None:
    peer.subscribe([(words[i], int(words[i + 1])) for i in range(0, len(words), 2)])


def _raw(peer: Peer, *words: str) -> None:
    peer.send(bytes.fromhex("".join(words)))


def _opened(peer: Peer) -> None:
    peer.wire = Wire(peer.port)
    peer.wire.socket.settimeout(PATIENCE_S)


def _ping(peer: Peer) -> None:
    peer.send(b"\xc0\0")
    peer.await_("pingresp")


def _disconnect(peer: Peer) -> None:
    if not peer.manual:
        peer.sync()
    peer.disconnect()


def _await(peer: Peer, what: str, count: str = "1") -> None:
    peer.await_(what, int(count))


def _either(peer: Peer, what: str) -> None:
    """This answer, or the end."""
    try:
        peer.await_(what)
    except AssertionError:
        if peer.told[-1:] != ["closed"]:
            raise


def _manual(peer: Peer) -> None:
    peer.manual = True


def _auto(peer: Peer) -> None:
    peer.manual = False


def _rel(peer: Peer, pid: str = "") -> None:
    peer.release(int(pid) if pid else max(peer.sent))


_VERBS: dict[str, Callable[..., None]] = {
    "connect": _connect,
    "sub": _sub,
    "unsub": lambda peer, *filters: peer.unsubscribe(list(filters)),
    "pub": _pub,
    "send": lambda peer, *words: peer.publish(*_message(words)),
    "later": _later,
    "now": _now,
    "again": lambda peer: peer.again(),
    "rel": _rel,
    "ack": lambda peer: peer.acknowledge(),
    "ping": _ping,
    "sync": lambda peer: peer.sync(),
    "settle": lambda peer: peer.settle(),
    "drop": lambda peer: peer.drop(),
    "disconnect": _disconnect,
    "await": _await,
    "either": _either,
    "manual": _manual,
    "auto": _auto,
    "raw": _raw,
    "open": _opened,
}


@contextmanager
def plain_stage(folder: Path) -> Iterator[Stage]:
    """Mosquitto alone."""
    port = free_port()
    config = folder / "plain.conf"
    # As 2.0 does unless told: since 2.1 a message comes once for each filter that it matches.
    lines = f"listener {port} 127.0.0.1", "allow_anonymous true", "allow_duplicate_messages false"
    config.write_text("\n".join((*lines, "")))
    with subprocess.Popen([MOSQUITTO, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            until("Mosquitto", lambda: _listens(port))
            yield Stage("Mosquitto", lambda name, place: Plain(name, place, port))
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    try:
        Wire(port).close()
    except OSError:
        return False
    return True


@contextmanager
def sealed_stage(folder: Path, broker: str) -> Iterator[Stage]:
    """A site with this broker."""
    folder.mkdir()
    site = Site(folder)
    # Each script has identifiers of its own, of the same few clients.
    site.toml.write_text(site.toml.read_text() + "\n[limits]\nsessions = 1000\n")
    site.up("--broker", broker)
    try:
        keys: dict[str, RawClient] = {}
        for name in NAMES:
            keys[name] = provisioned(site.port, site.enrol(name, LABEL))
        yield Stage(f"SealMQ with {broker}", lambda name, place: Sealed(name, place, keys[name]))
    finally:
        site.down()
