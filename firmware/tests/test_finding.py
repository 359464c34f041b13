"""A board that looks for its mediator by mDNS: which answers it believes, in which order it tries
what they say, and what lies cost it. Answers are made by hand here; hil_tests/tests has a site that
announces itself."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from aio_script import AIO
from aio_script import run as run_aio
from device_script import INTERPRETERS, PRELUDE, Board, board
from living_script import LIVING, gives_receipts

every = pytest.mark.parametrize("interpreter", INTERPRETERS)

SERVICE = b"\x07_sealmq\x04_tcp\x05local\x00"
SITE = "0a0b0c0d"
HERE = "127.0.0.1"
A, TXT, AAAA, SRV = 1, 16, 28, 33
Say = Callable[[bytes], list[bytes]]


def label(*words: str) -> bytes:
    return b"".join(bytes([len(word)]) + word.encode() for word in words)


def record(owner: bytes, kind: int, data: bytes) -> bytes:
    return owner + struct.pack(">HHIH", kind, 0x8001, 10, len(data)) + data


def packet(ident: bytes, *records: bytes, flags: int = 0x8400, count: int = -1) -> bytes:
    """An answer with the question in front, as RFC 6762 6.7 has it."""
    number = len(records) if count < 0 else count
    head = ident + struct.pack(">HHHHH", flags, 1, number, 0, 0)
    return head + SERVICE + struct.pack(">HH", 12, 1) + b"".join(records)


def said(
    ident: bytes,
    port: int,
    site: str = SITE,
    host: bytes = bytes([127, 0, 0, 1]),
    name: str = "shed",
) -> bytes:
    """A site's announcement, its names shortened by pointers."""
    service = b"\xc0\x0c"  # the question's name
    owner = label(name) + service
    at = label("sealmq-" + site) + b"\xc0\x19"  # local
    return packet(
        ident,
        record(service, 12, owner),
        record(owner, SRV, struct.pack(">HHH", 0, 0, port) + at),
        record(owner, TXT, label("v=1", "site=" + site)),
        record(at, A, host),
    )


class Network:
    """Answers questions as `say` has it. What a board sends behind its question comes back once
    that is answered, so that no test waits for a clock."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.asked: list[bytes] = []
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind((HERE, 0))
        self.port = int(self._sock.getsockname()[1])

    def serve(self) -> None:
        while True:
            raw, peer = self._sock.recvfrom(2048)
            if raw == b"end":
                return
            if raw == b"sync":
                self._sock.sendto(raw, peer)
                continue
            self.asked.append(raw)
            for answer in self.say(raw[:2]):
                self._sock.sendto(answer, peer)

    def end(self) -> None:
        self._sock.sendto(b"end", (HERE, self.port))

    def close(self) -> None:
        self._sock.close()

    def script(self, draw: str = "n", pause: bool = True) -> str:
        """In front of a device script: its multicast goes to this. draw: how answers are mixed."""
        lines = f"""
import sealmq_device.finding as finding
finding.GROUP = ("{HERE}", {self.port})
finding._drawn = lambda n: {draw}
"""
        if pause:
            lines += f"""
import socket as net
class Pause:
    def sleep(self, seconds):
        s = net.socket(net.AF_INET, net.SOCK_DGRAM)
        s.sendto(b"sync", net.getaddrinfo("{HERE}", {self.port}, 0, net.SOCK_DGRAM)[0][4])
        s.recv(8)
        s.close()
finding.time = Pause()
"""
        return lines


@contextmanager
def network(say: Say) -> Iterator[Network]:
    made = Network(say)
    running = threading.Thread(target=made.serve)
    running.start()
    try:
        yield made
    finally:
        made.end()
        running.join()
        made.close()


@contextmanager
def liar(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Takes connections, says this to each and hangs up; what was heard."""
    heard: list[bytes] = []
    with socket.create_server((HERE, 0)) as door:
        ends = threading.Event()

        def serve() -> None:
            while True:
                peer, _ = door.accept()
                with peer:
                    if ends.is_set():
                        return
                    peer.settimeout(10)
                    with suppress(OSError):
                        heard.append(peer.recv(4096))
                        peer.sendall(answer)

        port = int(door.getsockname()[1])
        running = threading.Thread(target=serve)
        running.start()
        try:
            yield port, heard
        finally:
            ends.set()
            socket.create_connection((HERE, port)).close()
            running.join()


def nowhere() -> int:
    """A port that nobody listens at."""
    with socket.socket() as sock:
        sock.bind((HERE, 0))
        return int(sock.getsockname()[1])


def looks(b: Board, host: str = HERE, port: int = 0) -> str:
    """Its enrolment says that it is to look; where else its mediator is. The site's id."""
    told = json.loads(b.enrolment.read_text())
    told["mediator"] |= {"host": host, "port": port or nowhere(), "mdns": True}
    b.enrolment.write_text(json.dumps(told))
    return str(told["site"])


def found(b: Board) -> str:
    return b.enrolment.with_suffix(".found").read_text()


CONNECTS = """
def attempt():
    try:
        c.connect()
        return "up"
    except OSError:
        return "OSError"
    except errors.SealError as error:
        return type(error).__name__
def times(n):
    for _ in range(n):
        came = attempt()
        say(came, c.port)
        if came == "up":
            c.disconnect()
"""


@every
def test_it_goes_where_its_site_is_announced_and_keeps_that(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        site = looks(b)
        at = b.peer.port
        with network(lambda ident: [said(ident, at, site)]) as net:
            script = net.script() + "c = client()\n" + CONNECTS + "times(2)"
            assert b.run(interpreter, script) == [f"up {at}"] * 2
            assert found(b) == f"{HERE}:{at}"
            assert len(net.asked) == 1
            # A start later it goes there without a question.
            assert b.run(interpreter, script) == [f"up {at}"] * 2
            assert len(net.asked) == 1


@every
def test_nobody_is_asked_unless_the_enrolment_says_so(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b, network(lambda ident: []) as net:
        told = json.loads(b.enrolment.read_text())
        told["mediator"] |= {"port": nowhere(), "mdns": False}
        b.enrolment.write_text(json.dumps(told))
        script = net.script() + "c = client()\n" + CONNECTS + "times(3)"
        assert b.run(interpreter, script) == [f"OSError {told['mediator']['port']}"] * 3
        assert net.asked == []


@every
def test_a_lie_costs_one_connect(interpreter: str, tmp_path: Path) -> None:
    """One who says welcome, one who refuses, one who listens nowhere; then the site itself."""
    welcome, refused = b"\x20\x02\x00\x00", b"\x20\x02\x00\x05"
    with board(tmp_path) as b, liar(welcome) as (one, heard), liar(refused) as (two, also):
        site = looks(b)
        places = [one, two, nowhere(), b.peer.port]
        with network(lambda ident: [said(ident, port, site) for port in places]) as net:
            script = net.script() + "c = client()\n" + CONNECTS + "times(5)"
            came = b.run(interpreter, script)
            assert [line.split()[1] for line in came] == [str(p) for p in (*places, places[-1])]
            assert [line.split()[0] == "up" for line in came] == [False] * 3 + [True] * 2
            assert len(net.asked) == 1
            secret = bytes.fromhex(json.loads(b.enrolment.read_text())["ps"])
            assert heard
            assert also
            assert not any(secret in each or secret.hex().encode() in each for each in heard + also)
        assert found(b) == f"{HERE}:{b.peer.port}"


@every
def test_all_places_are_tried_before_others_are_asked_again(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        enrolled, kept, one, two = (nowhere() for _ in range(4))
        site = looks(b, port=enrolled)
        b.enrolment.with_suffix(".found").write_text(f"{HERE}:{kept}")
        with network(lambda ident: [said(ident, port, site) for port in (one, two, one)]) as net:
            script = net.script() + "c = client()\n" + CONNECTS + "times(7)"
            ports = [int(line.split()[1]) for line in b.run(interpreter, script)]
            assert ports == [kept, one, two, enrolled, kept, one, two]
            assert len(net.asked) == 2
            # No lie was kept.
            assert found(b) == f"{HERE}:{kept}"
            # Mixed the other way: who answers first is not always first.
            script = net.script("0") + "c = client()\n" + CONNECTS + "times(5)"
            ports = [int(line.split()[1]) for line in b.run(interpreter, script)]
            assert ports == [kept, enrolled, two, one, kept]


@every
@pytest.mark.parametrize("kept", ["", "torn", ":1", "h:", "h:99999", "h:-1", "\udcff:1"])
def test_silence_leads_to_the_address_of_the_enrolment(
    interpreter: str, kept: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b, network(lambda ident: []) as net:
        looks(b, port=b.peer.port)
        if kept:
            b.enrolment.with_suffix(".found").write_bytes(kept.encode(errors="surrogateescape"))
        script = net.script() + "c = client()\n" + CONNECTS + "times(1)"
        assert b.run(interpreter, script) == [f"up {b.peer.port}"]
        assert found(b) == f"{HERE}:{b.peer.port}"
        [asked] = net.asked
        question = b"\0\0\0\1\0\0\0\0\0\0" + SERVICE + b"\0\x0c\0\1"
        assert asked[2:] == question


@every
def test_a_flood_of_lies_is_bounded(interpreter: str, tmp_path: Path) -> None:
    """No more than sixteen packets are read, and no more than four places tried."""
    with board(tmp_path) as b:
        enrolled = nowhere()
        site = looks(b, port=enrolled)
        lies = [nowhere() for _ in range(20)]
        with network(lambda ident: [said(ident, port, site) for port in lies]) as net:
            script = net.script("0") + "c = client()\n" + CONNECTS + "times(6)"
            ports = [int(line.split()[1]) for line in b.run(interpreter, script)]
            assert ports[:4] == lies[15:11:-1]
            assert ports[4] == enrolled
            assert len(net.asked) == 2


@every
def test_a_network_that_passes_no_multicast_costs_nothing(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        looks(b, port=b.peer.port)
        script = """
import sealmq_device.finding as finding
class net:
    AF_INET = SOCK_DGRAM = 2
    def getaddrinfo(self, *words):
        return [(0, 0, 0, "", b"")]
    def socket(self, *words):
        return self
    def settimeout(self, seconds):
        pass
    def sendto(self, raw, at):
        raise OSError(101)
    def close(self):
        say("closed")
finding.net = net()
c = client()
"""
        assert b.run(interpreter, script + CONNECTS + "times(1)") == ["closed", f"up {b.peer.port}"]


@every
def test_a_full_flash_ends_no_session(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        site = looks(b)
        with network(lambda ident: [said(ident, b.peer.port, site)]) as net:
            script = """
def put(self, key, blob):
    raise OSError(28)
finding.Beside.put = put
c = client()
c.connect()
say(c.publish("machine/1/t", b"21.5", qos=1))
"""
            assert b.run(interpreter, net.script() + script) == ["1"]
        assert not b.enrolment.with_suffix(".found").exists()


@every
def test_keys_that_are_fetched_on_the_way_lead_nowhere_else(
    interpreter: str, tmp_path: Path
) -> None:
    """The enrolment is read anew with each answer of the key generator."""
    with board(tmp_path) as b:
        site = looks(b)
        with network(lambda ident: [said(ident, b.peer.port, site)]) as net:
            script = net.script() + "c = client()\nc.connect()\nsay(c.ident.gen, c.port)"
            assert b.run(interpreter, script) == [f"1 {b.peer.port}"]


@every
def test_one_who_refuses_at_an_address_that_was_found_is_not_waited_for(
    interpreter: str, tmp_path: Path
) -> None:
    """Who refuses at the address of an enrolment is asked again in a minute; here anybody can."""
    with board(tmp_path) as b, liar(b"\x20\x02\x00\x05") as (port, _):
        site = looks(b)
        places = [port, b.peer.port]
        with network(lambda ident: [said(ident, each, site) for each in places]) as net:
            script = """
b = living(timeout=1)
until(b, lambda: b.up)
"""
            prelude = LIVING.replace("c = client()\n", net.script())
            lines = b.run(interpreter, script, prelude)
            assert lines == ["down Denied", "up "]


@every
def test_a_board_with_nvs_keeps_it_there(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        raw = b.enrolment.read_bytes()
        site = str(json.loads(raw)["site"])
        nvs = b.enrolment.with_suffix(".nvs")
        entries = {"sealmq/enrolment": ["blob", raw.hex()], "sealmq/mediator": ["blob", "6d646e73"]}
        nvs.write_text(json.dumps(entries))
        moved = b.peer.port
        with network(lambda ident: [said(ident, moved, site)]) as net:
            script = f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
import esp32_stand_in as esp32
esp32.install(sys.argv[1][:-5] + ".nvs")
from sealmq_device.nvs import NvsStore
c = Client(NvsStore())
c.connect()
"""
            prelude = PRELUDE.replace("c = client()\n", net.script())
            for _ in range(2):
                assert b.run(interpreter, script, prelude) == []
            kept = json.loads(nvs.read_text())["sealmq/found"]
            assert bytes.fromhex(kept[1]).decode() == f"{HERE}:{moved}"
            assert len(net.asked) == 1


@every
def test_a_board_that_sleeps_keeps_it_where_it_lasts(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        site = looks(b)
        gives_receipts(b)
        with network(lambda ident: [said(ident, b.peer.port, site)]) as net:
            script = """
from sealmq_device.sleeping import Sleeper
class Slept(Exception):
    pass
class Machine:
    kept = b""
    def RTC(self):
        return self
    def memory(self, raw=None):
        if raw is not None:
            Machine.kept = bytes(raw)
        return Machine.kept
    def deepsleep(self, ms):
        raise Slept
for n in range(3):
    s = Sleeper(sys.argv[1], board=Machine(), timeout=3)
    s.publish("machine/1/t", b"%d" % n, qos=1)
    try:
        s.sleep(60)
    except Slept:
        pass
    say(len(s.outbox))
"""
            prelude = PRELUDE.replace("c = client()\n", net.script())
            assert b.run(interpreter, script, prelude) == ["0"] * 3
            assert len(net.asked) == 1
        assert len(b.peer.said("publish")) == 3


@every
def test_the_asyncio_client_looks_while_other_tasks_go_on(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        site = looks(b)
        with network(lambda ident: [said(ident, b.peer.port, site)]) as net:
            body = """
turns = [0]
async def others():
    while True:
        turns[0] += 1
        await asyncio.sleep(0.01)
beside = asyncio.create_task(others())
task = asyncio.create_task(c.connect())
await task
beside.cancel()
say(c.core.port, turns[0] > 10)
await c.disconnect()
"""
            lines = "\n".join("    " + line for line in body.strip().splitlines())
            script = f"async def main():\n{lines}\nasyncio.run(main())\n"
            prelude = AIO.replace("c = client()\n", net.script(pause=False) + "c = client()\n")
            assert b.run(interpreter, script, prelude) == [f"{b.peer.port} True"]
            assert len(net.asked) == 1
            # Where it was last, at once.
            assert run_aio(b, interpreter, "await c.connect()\nsay(c.core.port)") == [
                str(b.peer.port)
            ]


# --- packets: what counts, and that nothing else does anything

IDENT = b"\x12\x34"
OWNER = label("shed") + SERVICE
AT = label("gw", "local") + b"\0"
TEXT = record(OWNER, TXT, label("v=1", "site=" + SITE))
WHERE = record(OWNER, SRV, struct.pack(">HHH", 0, 0, 1883) + AT)
ADDRESS = record(AT, A, bytes([10, 0, 0, 9]))
GOOD = "('10.0.0.9', 1883)"
LOOP = b"\xc0\x2a"  # behind the question: leads to itself


def srv(port: int, target: bytes = AT, owner: bytes = OWNER) -> bytes:
    return record(owner, SRV, struct.pack(">HHH", 0, 0, port) + target)


CASES: dict[str, tuple[bytes, str]] = {
    "as announced": (said(IDENT, 1883, host=bytes([10, 0, 0, 9])), GOOD),
    "in any order": (packet(IDENT, ADDRESS, TEXT, WHERE), GOOD),
    "names in capitals": (
        packet(IDENT, record(OWNER.upper(), TXT, label("site=" + SITE)), WHERE, ADDRESS),
        GOOD,
    ),
    "with records that mean nothing to it": (
        packet(IDENT, record(AT, AAAA, bytes(16)), record(AT, 47, b"x"), TEXT, WHERE, ADDRESS),
        GOOD,
    ),
    "with another site beside it": (
        packet(
            IDENT,
            srv(1, owner=label("other") + SERVICE),
            record(label("other") + SERVICE, TXT, label("site=ffffffff")),
            TEXT, WHERE, ADDRESS,
        ),
        GOOD,
    ),
    "another id": (packet(b"\x12\x35", TEXT, WHERE, ADDRESS), "None"),
    "a question": (packet(IDENT, TEXT, WHERE, ADDRESS, flags=0), "None"),
    "another operation": (packet(IDENT, TEXT, WHERE, ADDRESS, flags=0xA400), "None"),
    "another site": (said(IDENT, 1883, "0a0b0c0e"), "None"),
    "no site": (packet(IDENT, record(OWNER, TXT, label("v=1")), WHERE, ADDRESS), "None"),
    "no port": (packet(IDENT, TEXT, srv(0), ADDRESS), "None"),
    "no place": (packet(IDENT, TEXT, ADDRESS), "None"),
    "no address": (packet(IDENT, TEXT, WHERE), "None"),
    "an address that is none": (packet(IDENT, TEXT, WHERE, record(AT, A, b"\1\2\3")), "None"),
    "an address of somebody else": (
        packet(IDENT, TEXT, WHERE, record(label("x", "local") + b"\0", A, bytes(4))),
        "None",
    ),
    "another service": (
        packet(
            IDENT,
            record(label("shed", "_mqtt", "_tcp", "local") + b"\0", TXT, label("site=" + SITE)),
            srv(1883, owner=label("shed", "_mqtt", "_tcp", "local") + b"\0"),
            ADDRESS,
        ),
        "None",
    ),
    "a name that leads to itself": (packet(IDENT, record(LOOP, TXT, b"x")), "None"),
    "a name that leads past the end": (packet(IDENT, record(b"\xff\xff", TXT, b"x")), "None"),
    "a host that leads to itself": (
        packet(IDENT, TEXT, srv(1883, b"\xc0\x0c\xc0\x0c"), srv(1883, b"\x01a\xc0\x2a"), ADDRESS),
        "None",
    ),
    "a name without end": (packet(IDENT, record(label(*["a"] * 200) + b"\0", TXT, b"x")), "None"),
    "a label of no kind": (packet(IDENT, record(b"\x80\0", TXT, b"x")), "None"),
    "a record longer than the packet": (
        packet(IDENT, TEXT, WHERE, ADDRESS[:-6] + b"\xff\xff" + ADDRESS[-4:]),
        "None",
    ),
    "more records than there are": (packet(IDENT, TEXT, WHERE, ADDRESS, count=65535), "None"),
    "what counts behind too many records": (
        packet(IDENT, *[record(b"\0", 47, b"")] * 32, TEXT, WHERE, ADDRESS),
        "None",
    ),
    "no questions": (
        IDENT + struct.pack(">HHHHH", 0x8400, 0, 3, 0, 0) + TEXT + WHERE + ADDRESS,
        GOOD,
    ),
    "65535 questions": (
        IDENT + struct.pack(">HHHHH", 0x8400, 65535, 3, 0, 0) + TEXT + WHERE + ADDRESS,
        "None",
    ),
    "a head and no more": (IDENT + struct.pack(">HHHHH", 0x8400, 0, 0, 0, 0), "None"),
    "nothing": (b"", "None"),
    "one byte": (IDENT[:1], "None"),
}  # fmt: skip
READS = """
import sys
from binascii import unhexlify
from sealmq_device.finding import read
mark = b"\\x0dsite=%s"
for line in open(sys.argv[1][:-5] + ".packets"):
    print(read(unhexlify(line.strip()), b"\\x12\\x34", mark))
"""


def reads(b: Board, interpreter: str, packets: list[bytes]) -> list[str]:
    """What `read` makes of each."""
    b.enrolment.with_suffix(".packets").write_text("".join(raw.hex() + "\n" for raw in packets))
    return b.run(interpreter, READS.replace("%s", SITE), "")


@every
def test_what_of_a_packet_counts(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        came = reads(b, interpreter, [raw for raw, _ in CASES.values()])
    assert dict(zip(CASES, came, strict=True)) == {name: want for name, (_, want) in CASES.items()}


@every
def test_cut_off_anywhere_it_counts_for_nothing(interpreter: str, tmp_path: Path) -> None:
    whole = said(IDENT, 1883)
    with board(tmp_path) as b:
        came = reads(b, interpreter, [whole[:n] for n in range(len(whole))])
    assert set(came) == {"None"}


@every
def test_no_packet_gets_further_than_an_address(interpreter: str, tmp_path: Path) -> None:
    """Changed and random ones, 1,500 in all: none raises, none leads to more than host and port."""
    chance = random.Random(6762)
    packets = []
    whole = said(IDENT, 1883)
    for _ in range(1200):
        raw = bytearray(whole)
        for _ in range(chance.randrange(1, 5)):
            raw[chance.randrange(2, len(raw))] = chance.choice((0, 1, 12, 63, 192, 255, 33, 16))
        packets.append(bytes(raw))
    packets += [IDENT + b"\x84\0" + chance.randbytes(chance.randrange(400)) for _ in range(300)]
    with board(tmp_path) as b:
        came = reads(b, interpreter, packets)
    assert len(came) == len(packets)
    for line in set(came) - {"None"}:
        host, port = line.strip("()").split(", ")
        socket.inet_aton(host.strip("'"))
        assert 0 < int(port) < 65536
