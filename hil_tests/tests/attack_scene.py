"""A site under attack: honest clients that hear what got through, and a broker that can be slow.

A message counts as let through only when a reader has had every chance to get it: `heard` asks a
second publisher for a last word, and everything before that is the answer.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sealmq_spec.errors import Replay, SealError
from sealmq_spec.reader import Reader
from sealmq_spec.tlv import EMPTY

from free_ports import free_port
from running_site import Site, until
from wire import CONTROL, Cipher, RawClient, Wire, connect, mono, packet, publish, text

TOPIC = b"machine/1/temperature"
EVERYTHING = "#"
CLEAN, KEPT = 0xC2, 0xC0
WILL_FLAGS = 0xCE
QOS1, QOS2 = 0x32, 0x34
DUP = 8
LIVE, WILL = 0, 2
DISCONNECT = b"\xe0\0"

_LABELS = {
    "m1-temp-sensor": "m1-temp",
    "m1-control-panel": "m1-ctrl",
    "m1-arm-operator": "m1-arm",
    "m2-temp-sensor": "m2-temp",
    "m2-control-panel": "m2-ctrl",
    "monitor": "monitor",
    "m1-temp-sibling": "m1-temp",
    "m1-device": "m1-temp",
    "m1-reader": "m1-ctrl",
    "east-sensor": "east",
    "west-sensor": "west",
}
_LAST = b"machine/2/temperature"
_OP_RECORD, _OP_GRANT = 5, 8


class Mosquitto:
    """An unmodified Mosquitto that only our mediator uses."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Takes what is sent to it, and answers when it is awake again."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def callers(self) -> set[str]:
        """Where connections to it come from, those included that it has not taken notice of yet."""
        remote = f":{self.port:04X}"
        rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
        found = (row.split()[1:4] for row in rows)
        return {own for own, far, state in found if far.endswith(remote) and state == "01"}


@contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[Mosquitto]:
    """Mosquitto, running, with these lines more in its configuration."""
    program = shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")
    assert program, "mosquitto is missing: make setup"
    port = free_port()
    config = folder / "mosquitto.conf"
    config.write_text("\n".join([f"listener {port} 127.0.0.1", "allow_anonymous true", *lines, ""]))
    with subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            yield Mosquitto(port, process.pid)
        finally:
            process.terminate()


class Listener:
    """An honest reader of a filter at QoS 0."""

    def __init__(self, raw: RawClient, filt: str, flags: int = CLEAN) -> None:
        self.raw = raw
        self.reader = Reader(raw.ident, Cipher)
        self.reader.session = raw.session
        # Of each message that opened: what families said of it.
        self.items: list[dict[int, bytes]] = []
        raw.connect(keepalive=0, flags=flags)
        self._came = deque(raw.subscribe(filt))

    def until(self, last: bytes) -> list[tuple[bytes, bytes, int]]:
        """(topic, payload, how) of all before the payload `last`; b"again" for a repeated one,
        b"refused CLASS" for what did not open.
        """
        heard: list[tuple[bytes, bytes, int]] = []
        while True:
            got = self._came.popleft() if self._came else self.raw.next(f"{last!r}")
            if got[0] & 0xF0 != 0x30:
                continue
            if got[1][2:5] == CONTROL:
                op, what = self.raw.control(got)
                if op == _OP_RECORD:
                    assert isinstance(what, bytes)
                    self.reader.add(what)
                elif op == _OP_GRANT:
                    assert isinstance(what, bytes)
                    self.reader.add_grant(what)
                continue
            size = int.from_bytes(got[1][:2], "big")
            topic, payload = got[1][2 : 2 + size], got[1][2 + size :]
            if got[0] & 6:
                self.raw.wire.send(packet(0x40, payload[:2]))
                payload = payload[2:]
            try:
                now = self.raw.session.now_ms(mono())
                message = self.reader.open(topic, bytearray(payload), now)
            except Replay:
                heard.append((topic, b"again", LIVE))
                continue
            except SealError as error:
                heard.append((topic, b"refused " + type(error).__name__.encode(), LIVE))
                continue
            if message.payload == last:
                return heard
            self.items.append(message.tlv)
            heard.append((topic, message.payload, message.how))


class Scene:
    """A running site with a reader above everything, and clients that attack or are attacked.

    flags: of that reader's CONNECT.
    """

    flags = CLEAN

    def __init__(self, site: Site, broker: Mosquitto | None = None) -> None:
        self.site = site
        self._broker = broker
        self._first: dict[str, RawClient] = {}
        self._boots = 0
        self.made: list[RawClient] = []
        self._words = 0
        self.gather()

    def gather(self) -> None:
        """The honest reader and publisher that tell what got through."""
        self.listener = Listener(self.client("monitor"), EVERYTHING, self.flags)
        self._teller = self.client("m2-temp-sensor")
        self._teller.connect(keepalive=0)

    @property
    def broker(self) -> Mosquitto:
        assert self._broker is not None
        return self._broker

    def client(self, name: str) -> RawClient:
        """A client right behind a restart: keys, no connection yet. It holds its own session."""
        if name not in self._first:
            self._first[name] = RawClient(self.site.port, self.enrolment(name))
            self._first[name].noted = self.site.noted
            self._first[name].provision()
        made = RawClient(self.site.port, self.enrolment(name))
        for field in ("gen", "own", "km", "kseq"):
            setattr(made.ident, field, getattr(self._first[name].ident, field))
        self._boots += 1
        made.boot = self._boots
        made.begin()
        made.client_id = b"%s-%d" % (name.encode(), self._boots)
        made.noted = self.site.noted
        self.made.append(made)
        return made

    def keep(self, name: str, raw: RawClient) -> None:
        """The keys of this one are the client's from now on."""
        self._first[name] = raw

    def renewed(self, name: str) -> RawClient:
        """The same with keys of today, where an epoch may have ended since it got the first."""
        self._first.pop(name, None)
        return self.client(name)

    def all_renewed(self) -> None:
        """Every client gets keys of today: with one that is disabled its labels' epochs end."""
        self._first.clear()

    def enrolment(self, name: str) -> Path:
        """The enrolment file of a client, which is added if it is new."""
        file = self.site.clients / name / "sealmq.json"
        return file if file.exists() else self.site.enrol(name, _LABELS[name])

    def heard(self) -> list[tuple[bytes, bytes, int]]:
        """What the reader above everything got since it was last asked."""
        self._words += 1
        last = b"last word %d" % self._words
        self._teller.publish(_LAST, last)
        assert self._teller.notices == [], "the honest publisher was refused"
        return self.listener.until(last)

    def refused(self, rule: str) -> bool:
        """Whether the audit log holds a refusal by this rule."""
        rows = self.site.audit(rule=rule)
        return any(row["event"].endswith("-refused") for row in rows)

    def awaits(self, what: str, event: str, **fields: object) -> None:
        """Waits for an audit record."""
        until(what, lambda: self.site.audit(event, **fields))

    def cut(self, raw: RawClient) -> None:
        """The client's connection is lost, and the mediator has noticed."""
        who = raw.ident.name
        before = len(self.site.audit("disconnect", client=who))
        raw.wire.close()
        until("its end", lambda: len(self.site.audit("disconnect", client=who)) > before)

    def reload(self) -> None:
        """SIGHUP to `sealmq up`, as after an edit of sealmq.toml."""
        assert self.site._up is not None
        os.kill(self.site._up.pid, signal.SIGHUP)


@contextmanager
def scene(site: Site, broker: Mosquitto | None = None) -> Iterator[Scene]:
    """The scene of a running site; its connections are closed at the end."""
    made = Scene(site, broker)
    try:
        yield made
    finally:
        for raw in made.made:
            if hasattr(raw, "wire"):
                raw.close()


def again(raw: RawClient, low: int, flags: int = CLEAN) -> None:
    """A new connection of the same boot session, which may still send `low` again."""
    head = raw.session.begin_connect(False, low)
    made = connect(raw.client_id, head + b"A" * 22, flags=flags)
    raw.session.sign(made, mono())
    raw.wire = Wire(raw.port)
    raw.wire.send(made)
    answer = raw.next("CONNACK")
    assert (answer[0], answer[1][1]) == (0x20, 0), answer
    assert raw.control(raw.next("the welcome"))[0] == 1


def answer(raw: RawClient) -> tuple[int, bytes]:
    """The next packet that is no control packet; the notices among these are kept."""
    while True:
        got = raw.next("an answer")
        if got[0] != 0x30 or got[1][2:5] != CONTROL:
            return got
        raw.control(got)


def last_words(raw: RawClient) -> list[tuple[int, int, int, str]]:
    """The notices up to the connection's end, before which nothing else may come."""
    while (got := raw.wire.read()) is not None:
        assert got[1][2:5] == CONTROL, f"{got} where the end was due"
        raw.control(got)
    return notices(raw)


def pid_of(n: int) -> bytes:
    """A packet id's two bytes."""
    return n.to_bytes(2, "big")


def hand_over(raw: RawClient, sealed: bytes, pid: int, first: int = QOS2) -> None:
    """A QoS 2 message and its whole handshake."""
    raw.wire.send(publish(TOPIC, sealed, first, pid))
    assert answer(raw) == (0x50, pid_of(pid))
    raw.wire.send(packet(0x62, pid_of(pid)))
    assert answer(raw) == (0x70, pid_of(pid))


def garbage(ctr: int, s1: int) -> bytes:
    """An m2 of the right shape, with a counter and a time at will, sealed by nobody."""
    return b"\x12\x10" + ctr.to_bytes(3, "big") + s1.to_bytes(4, "big") + os.urandom(90)


def with_will(raw: RawClient, topic: bytes, payload: bytes, tlv: bytes = EMPTY) -> None:
    """Connects with a will of QoS 1."""
    will = raw.seal(topic, payload, flags=2, kind=WILL, life=255, tlv=tlv)
    assert raw.connect(will=text(topic) + text(will), flags=WILL_FLAGS) == b"\0\0"


def notices(raw: RawClient) -> list[tuple[int, int, int, str]]:
    """(what, ctr, code, rule) of the notices so far, which are then forgotten."""
    seen = [notice[:4] for notice in raw.notices]
    raw.notices.clear()
    return seen
