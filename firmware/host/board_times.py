# What only a board can tell: times of its AES, of the client, of its flash. MicroPython runs it:
#   mpremote run firmware/host/board_times.py       on a board that has the client in /lib
#   micropython64 firmware/host/board_times.py [ENROLMENT]      on a host, to try it
# It prints rows for the table in firmware/README.md: the median and the quickest, in microseconds.
# With an enrolment, and Wi-Fi up (do that in boot.py), it connects and publishes as well.
import os
import sys
import time
from binascii import hexlify
from hashlib import sha256

from cryptolib import aes

import sealmq_device

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

ENROLMENT = sys.argv[1] if len(sys.argv) > 1 else "/sealmq.json"
TOPIC = "board/times"
# For one row: so many calls, and no more once so many microseconds have passed.
CALLS = 101
LONGEST = 2000000
SIZES = (16, 64, 256, 1024, 4096)

clock: "Any" = time


def row(what: str, call: "Callable[..., object]", *args: "Any", calls: int = CALLS) -> None:
    took: list[int] = []
    call(*args)
    begun = clock.ticks_us()
    while len(took) < calls:
        before = clock.ticks_us()
        call(*args)
        after = clock.ticks_us()
        took.append(clock.ticks_diff(after, before))
        if clock.ticks_diff(after, begun) > LONGEST:
            break
    took.sort()
    print(f"| {what} | {took[len(took) // 2]} | {took[0]} | {len(took)} |")


def board() -> None:
    print("#", sys.version)
    if hasattr(os, "uname"):
        print("#", os.uname().machine)
    try:
        import machine

        pins: Any = machine
        print(f"# {pins.freq() // 1000000} MHz, cause of the reset: {pins.reset_cause()}")
    except (ImportError, AttributeError):
        pass
    # Twenty power cycles with Wi-Fi down: twenty different ones, or the source repeats itself.
    print("# random:", hexlify(os.urandom(16)).decode())


def first_block(key: bytes) -> None:
    aes(key, 1).encrypt(key)


def primitives() -> None:
    key = bytes(range(32))
    for blocks in (1, 4, 64):
        data = bytearray(16 * blocks)
        for name, cipher in (("CBC", aes(key, 2, bytes(16))), ("ECB", aes(key, 1))):
            row(f"AES-256-{name}, {blocks} block(s)", cipher.encrypt, data, data)
    row("AES-256 key and first block", first_block, key)
    row("SHA-256, 55 bytes", lambda: sha256(bytes(55)).digest())
    row("8 random bytes", os.urandom, 8)


def opened(cipher: "Any", nonce: bytes, aad: bytes, buf: bytearray, sealed: bytes) -> None:
    buf[:] = sealed
    if not cipher.open_into(nonce, aad, buf, 0, len(buf) - 16):
        raise ValueError(f"{len(buf)} bytes that this board sealed do not open on it")


def ciphers() -> None:
    make: Any = None
    try:
        from sealmq_device import aead

        make = aead.make
    except ImportError:  # as it ships, merged: another module has a `make` too
        make = getattr(sealmq_device, "make_aead", None)
    if make is None:
        print("# no cipher alone in this build: put firmware/sealmq_device on the board as it is")
        return
    nonce = bytes(12)
    aad = bytes(30)
    for suite, name in ((1, "CCM"), (2, "ChaCha20-Poly1305")):
        try:
            cipher = make(suite, bytes(range(32)))
        except ImportError:
            print(f"# no {name} on this board")
            continue
        for n in SIZES:
            buf = bytearray(n + 16)
            row(f"seal {name}, {n} bytes", cipher.seal_into, nonce, aad, buf, 0, n)
            row(f"open {name}, {n} bytes", opened, cipher, nonce, aad, buf, bytes(buf))


def flash() -> None:
    try:
        from esp32 import NVS
    except ImportError:
        print("# no NVS here")
        return
    # Names of its own: nothing of the client's is touched.
    nvs: Any = NVS("sealmq_times")
    count = [0]

    def boot() -> None:
        count[0] += 1
        nvs.set_i32("boot", count[0])
        nvs.commit()

    def state() -> None:
        count[0] += 1
        nvs.set_blob("state", bytes([count[0] & 255]) * 256)
        nvs.commit()

    row("NVS: a boot counter, written", boot, calls=25)
    row("NVS: 256 bytes of state, written", state, calls=25)
    nvs.erase_key("boot")
    nvs.erase_key("state")
    nvs.commit()


def online() -> None:
    try:
        os.stat(ENROLMENT)
    except OSError:
        print(f"# no {ENROLMENT}: the client is not timed")
        return
    client: Any = sealmq_device.Client(ENROLMENT)
    client.connect()  # provisions, if it must
    client.disconnect()

    def again() -> None:
        client.connect()
        client.disconnect()

    row("connect and disconnect, same start", again, calls=9)
    client.connect()
    payload = bytes(64)
    row("publish 64 bytes, QoS 0", client.publish, TOPIC, payload)
    row("publish 64 bytes, QoS 1", client.publish, TOPIC, payload, False, 1, calls=25)
    client.disconnect()


board()
print("| what | median µs | quickest µs | calls |")
print("|---|---|---|---|")
primitives()
ciphers()
flash()
online()
