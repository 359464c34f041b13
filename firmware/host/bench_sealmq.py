# Run by MicroPython: the device client, for bench_device.py.
#     bench_sealmq.py FOLDER WHAT,SIZE,N,BLOCKS
# FOLDER holds enrolments 0.json, 1.json and so on. Does WHAT N times with payloads of SIZE bytes as
# bench_umqtt.py does, in one connection (`connect`: N connections, each of a boot session and a
# client of its own).
import gc
import sys

import ffi
import micropython

from sealmq_device import Client

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

TOPIC = "machine/1/temperature"
CLIENTS = 4
BEFORE = 20  # as in bench_umqtt.py
libc = ffi.open("libc.so.6")
_exit = libc.func("v", "_exit", "i")


# The first n get their roots.
def provision(folder: str, n: int) -> None:
    for i in range(n):
        c = Client(f"{folder}/{i}.json")
        c.connect()
        c.disconnect()


# Everything is done once before, so that what is counted afterwards is no first use of the
# interpreter or of the host's libraries.
def warm(c: Client, payload: bytes) -> None:
    c.connect()
    for _ in range(3):
        c.publish(TOPIC, payload, False, 1)
    c.publish(TOPIC, payload)
    c.disconnect()
    c.connect()
    c.disconnect()


def connect(clients: "list[Client]", payload: bytes, n: int) -> None:
    for c in clients[1 : n + 1]:
        c.connect()
        c.publish(TOPIC, payload, False, 1)


def reconnect(c: Client, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.disconnect()
        c.connect()
        c.publish(TOPIC, payload, False, 1)


def publish(c: Client, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.publish(TOPIC, payload)


def publish_qos1(c: Client, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.publish(TOPIC, payload, False, 1)


def subscribe(c: Client, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.subscribe("bench/subscribe")


# For a purpose.
def subscribe_purpose(c: Client, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.subscribe("bench/subscribe", 0, "billing")


# A reservation, to its answer.
def reserve(c: Client, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.reserve(TOPIC, ("billing",), ("marketing",))


def receive(c: Client, payload: bytes, n: int) -> None:
    for _ in range(n):
        c.wait_msg()


# Both layers with their associated data: what the client does in steady state, without the write.
def seal(c: Client, payload: bytes, n: int) -> None:
    once = sealer(c, payload)
    for _ in range(n):
        once(payload)


def sealer(c: Client, payload: bytes) -> "Callable[[bytes], Any]":
    publish(c, payload, BEFORE)
    from sealmq_device.publish_fast import seal

    hand = c._hand
    hand[4] = unwritten
    at_hand = seal, hand, TOPIC

    @micropython.native
    def both(msg: bytes, at_hand: "Any" = at_hand) -> None:
        seal, hand, topic = at_hand
        seal(0, 0, hand, topic, msg, 0)

    return both


# In the place of a socket's write.
@micropython.native
def unwritten(out: bytearray, at: int, n: int) -> int:
    return n


# Bytes that publishing leaves to the collector; then whether it works with the heap locked.
def heap_per_message(c: Client, payload: bytes, n: int) -> None:
    publish(c, payload, BEFORE)
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()  # type: ignore[attr-defined]
    publish(c, payload, n)
    print(gc.mem_alloc() - before)  # type: ignore[attr-defined]
    micropython.heap_lock()
    try:
        publish(c, payload, n)
        locked = True
    except MemoryError:
        locked = False
    micropython.heap_unlock()
    print(locked)


# As in bench_umqtt.py.
def heap_per_received(c: Client, payload: bytes, n: int) -> None:
    c.subscribe(f"{BEFORE + n:05d}/{len(payload)}")
    receive(c, payload, BEFORE)
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()  # type: ignore[attr-defined]
    receive(c, payload, n)
    print(gc.mem_alloc() - before)  # type: ignore[attr-defined]


# As in bench_umqtt.py.
def watch_c_heap() -> None:
    gc.collect()
    print("code", gc.mem_alloc())  # type: ignore[attr-defined]
    mallopt = libc.func("i", "mallopt", "ii")
    mallopt(-2, 0)  # no more than was asked for
    libc.func("i", "malloc_trim", "I")(0)
    mallopt(-1, 0x7FFFFFFF)
    libc.func("v", "malloc_stats", "")()


def heap_peak(c: Client, payload: bytes, n: int) -> None:
    publish(c, payload, n)
    libc.func("v", "malloc_stats", "")()


got: "list[Any]" = [None]


# As in bench_umqtt.py.
def keep(message: "Any", got: "list[Any]" = got) -> None:
    got[0] = message


WORK = {
    "reconnect": reconnect,
    "publish": publish,
    "publish_qos1": publish_qos1,
    "subscribe": subscribe,
    "subscribe_purpose": subscribe_purpose,
    "reserve": reserve,
    "receive": receive,
    "receive_uncached": receive,
    "seal": seal,
    "heap_per_message": heap_per_message,
    "heap_per_received": heap_per_received,
    "heap_peak": heap_peak,
}


# As in bench_umqtt.py.
def fill(filled: "list[float]") -> None:
    for i in range(1000):
        filled[i] = i + 0.5


holes: "list[float]" = []


def work(c: Client, what: str, payload: bytes, n: int, blocks: int) -> None:
    act = WORK[what]
    new = what == "receive_uncached"
    # From each new sender a key is kept, so few of them come before.
    before = 2 if new else BEFORE
    if what == "reconnect" or what.startswith("heap"):
        before = 0
    receiving = act is receive
    if receiving:
        c.subscribe(f"{before + n:05d}/{len(payload)}{'/new' if new else ''}")
    if before:
        act(c, payload, before)
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
    if receiving:
        last = got[0].payload
        came = int.from_bytes(last[:2], "big")
        if came != before + n * (blocks or 1) or len(last) != len(payload):
            raise ValueError(f"message {came} of {len(last)} bytes, {c.last_refused!r}")


def main(folder: str, what: str, size: int, n: int, blocks: int) -> None:
    if what == "provision":
        provision(folder, n)
        return
    if what == "heap_peak":
        watch_c_heap()
    # Larger packets than a client takes unless told.
    limit = {"limit": size + 200} if size > 3900 else {}
    payload = bytes(size)
    clients = [Client(folder + "/0.json", **limit)]
    if what == "connect":
        gc.disable()
        for i in range(CLIENTS):
            clients.append(Client(f"{folder}/{i + 1}.json", **limit))
    c = clients[0]
    c.set_callback(keep)
    if what != "heap_peak":
        warm(c, payload)
    c.connect()
    if what == "connect":
        connect(clients, payload, n)
    else:
        work(c, what, payload, n, blocks)
    for c in clients:
        if c.refused or c.notices:
            raise ValueError("something was refused")


# One word: a second word that is new to the interpreter costs 15,000 instructions to read.
what, size, n, blocks = sys.argv[2].split(",")
main(sys.argv[1], what, int(size), int(n), int(blocks))
sys.stdout.flush()
_exit(0)
