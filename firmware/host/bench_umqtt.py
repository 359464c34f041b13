# Run by MicroPython: umqtt.simple, plain or over the interpreter's TLS, for bench_device.py.
#     bench_umqtt.py PORT CA.der|- HOSTNAME WHAT,SIZE,N,BLOCKS
# Does WHAT N times with payloads of SIZE bytes, in one connection (`connect`: N connections). Two
# runs that differ in N are compared. The collector runs before each of BLOCKS equal parts and in
# none of them: with ever more garbage each allocation takes longer, whoever made it. BLOCKS 0: the
# collector runs as it would. Prints, over TLS, what was negotiated and how the chain was looked at,
# then what WHAT has to say. The process ends without the interpreter's own shutdown, which sweeps
# the heap and has no place on a board.
import gc
import sys

import ffi
from umqtt.simple import MQTTClient

_TYPING = False
if _TYPING:
    from typing import Any

TOPIC = b"machine/1/temperature"
CLIENTS = 4
BEFORE = 20  # by then everything has been used, and all is loaded
libc = ffi.open("libc.so.6")
_exit = libc.func("v", "_exit", "i")


# umqtt asks a module of this name, which ports without Python's `ssl` lack.
class Ussl:
    def __init__(self, ca: bytes, name: str) -> None:
        import tls

        self._context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
        self._context.verify_mode = tls.CERT_REQUIRED
        self._context.load_verify_locations(ca)
        self._name = name

    def wrap_socket(self, sock: object) -> object:
        return self._context.wrap_socket(sock, server_hostname=self._name)

    # (suite, version, whether a chain that does not verify ends the handshake)
    def used(self, sock: "Any") -> "tuple[str, str, bool]":
        import tls

        suite, version = sock.cipher()
        return suite, version, self._context.verify_mode == tls.CERT_REQUIRED


def connect(clients: "list[MQTTClient]", payload: bytes, n: int) -> None:
    for c in clients[1 : n + 1]:
        c.connect()
        c.publish(TOPIC, payload, False, 1)


def publish(c: MQTTClient, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.publish(TOPIC, payload)


def publish_qos1(c: MQTTClient, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.publish(TOPIC, payload, False, 1)


def subscribe(c: MQTTClient, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.subscribe(b"bench/subscribe")


def receive(c: MQTTClient, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.wait_msg()


# One record: an MQTT packet that fills it.
def tls_record(c: MQTTClient, payload: bytes, n: int) -> None:
    left = len(payload) - 2
    if left < 128:
        head = bytes((left,))
    elif left < 16384:
        left -= 1
        head = bytes((left & 127 | 128, left >> 7))
    else:
        left -= 2
        head = bytes((left & 127 | 128, left >> 7 & 127 | 128, left >> 14))
    packet = b"\x30" + head + b"\x00\x01t" + bytes(left - 3)
    if len(packet) != len(payload):
        raise ValueError(f"a packet of {len(packet)} bytes")
    write = c.sock.write
    for _ in range(n):
        write(packet)


# Bytes that publishing leaves to the collector.
def heap_per_message(c: MQTTClient, payload: bytes, n: int) -> None:
    publish(c, payload, BEFORE)
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()  # type: ignore[attr-defined]
    publish(c, payload, n)
    print(gc.mem_alloc() - before)  # type: ignore[attr-defined]


# The same of receiving: the message that is handed over, and what else is left.
def heap_per_received(c: MQTTClient, payload: bytes, n: int) -> None:
    c.subscribe(b"%05d/%d" % (BEFORE + n, len(payload)))
    receive(c, payload, BEFORE)
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()  # type: ignore[attr-defined]
    receive(c, payload, n)
    print(gc.mem_alloc() - before)  # type: ignore[attr-defined]


# Prints what the code takes. From here on the C library gives out memory page by page and takes
# none back, so that what it prints at the end shows the most that was used.
def watch_c_heap() -> None:
    gc.collect()
    print("code", gc.mem_alloc())  # type: ignore[attr-defined]
    mallopt = libc.func("i", "mallopt", "ii")
    mallopt(-2, 0)  # no more than was asked for
    libc.func("i", "malloc_trim", "I")(0)
    mallopt(-1, 0x7FFFFFFF)
    libc.func("v", "malloc_stats", "")()


def heap_peak(c: MQTTClient, payload: bytes, n: int) -> None:
    publish(c, payload, n)
    libc.func("v", "malloc_stats", "")()


got = [b""]


# A callback that costs next to nothing. Messages are numbered: the last one tells how many came.
def keep(topic: bytes, msg: bytes, got: "list[bytes]" = got) -> None:
    got[0] = msg


WORK = {
    "publish": publish,
    "publish_qos1": publish_qos1,
    "subscribe": subscribe,
    "receive": receive,
    "tls_record": tls_record,
    "heap_per_message": heap_per_message,
    "heap_per_received": heap_per_received,
    "heap_peak": heap_peak,
}


# Fills the holes of one block that loading leaves at the heap's low end. After each collection an
# allocation of several blocks searches past all of them: what a received message costs would change
# with where these lie, from build to build. `*_steady` has them as they come. The list has
# its room before the collection, so that filling leaves no holes of its own.
def fill(filled: "list[float]") -> None:
    for i in range(1000):
        filled[i] = i + 0.5


holes: "list[float]" = []


def work(c: MQTTClient, what: str, payload: bytes, n: int, blocks: int) -> None:
    act = WORK[what]
    receiving = what == "receive"
    if receiving:
        c.subscribe(b"%05d/%d" % (BEFORE + n, len(payload)))
    if not what.startswith("heap"):
        act(c, payload, BEFORE)
    if blocks:
        if what == "receive":
            holes.extend([0.0] * 1000)
            gc.collect()
            fill(holes)
        gc.disable()
        n //= blocks
    for _ in range(blocks or 1):
        if blocks:
            gc.collect()
        act(c, payload, n)
    last = got[0]
    came = int.from_bytes(last[:2], "big")
    if receiving and (came != BEFORE + n * (blocks or 1) or len(last) != len(payload)):
        raise ValueError(f"message {came} of {len(last)} bytes")


def main(port: int, ca: str, name: str, what: str, size: int, n: int, blocks: int) -> None:
    if what == "heap_peak":
        watch_c_heap()
    ussl = None
    if ca != "-":
        with open(ca, "rb") as f:
            ussl = Ussl(f.read(), name)
        sys.modules["ussl"] = ussl  # type: ignore[assignment]
    payload = bytes(size)
    clients = [MQTTClient(b"bench", "127.0.0.1", port, ssl=ussl is not None)]
    if what == "connect":
        gc.disable()
        for _ in range(CLIENTS):
            clients.append(MQTTClient(b"bench", "127.0.0.1", port, ssl=ussl is not None))
    c = clients[0]
    c.set_callback(keep)
    c.connect()
    c.publish(TOPIC, payload, False, 1)
    if ussl is not None:
        print(*ussl.used(c.sock))
    if what == "connect":
        connect(clients, payload, n)
    else:
        work(c, what, payload, n, blocks)


what, size, n, blocks = sys.argv[4].split(",")
main(int(sys.argv[1]), sys.argv[2], sys.argv[3], what, int(size), int(n), int(blocks))
sys.stdout.flush()
_exit(0)
