# Runs in MicroPython: every truncation and every bit flip of a board's three files, and what a new
# client makes of them. argv: the folder's board.json; its files are tried on a littlefs in memory.
# Prints counts.
# mypy: ignore-errors
import gc
import sys

from flash_device import Flash, blank, mount
from sealmq_device import Client
from sealmq_device.store import FileStore
from sealmq_spec.errors import SealError

PATH = "/flash/sealmq.json"
STATE = PATH[:-5] + ".state"
BOOT = PATH[:-5] + ".boot"
KG_NONCE = 12  # behind a state's check: it goes into salts, any value will do


def read(name):
    with open(name, "rb") as f:
        return f.read()


def write(name, raw):
    with open(name, "wb") as f:
        f.write(raw)


def spoiled(raw):
    for n in range(len(raw)):
        yield n, raw[:n]
    yield len(raw), raw + b"\0"
    yield len(raw), raw + raw
    for n in range(len(raw)):
        for bit in range(8):
            other = bytearray(raw)
            other[n] ^= 1 << bit
            yield n, bytes(other)


# What a client does first with its files, in one that exists: a new one for each takes four times
# as long.
def start():
    ident = c._load(c.store.enrolment())
    c._use(ident)
    return ident


def states():
    whole = read(STATE)
    gen = start().gen
    n = 0
    for at, raw in spoiled(whole):
        write(STATE, raw)
        found = start().gen
        n += 1
        unharmed = len(raw) == len(whole) and at >= len(whole) - KG_NONCE
        if found != (gen if unharmed else 0):
            print("state", at, len(raw), found)
    write(STATE, whole)
    print("states", n)


def boots():
    whole = read(BOOT)
    n = 0
    for at, raw in spoiled(whole):
        write(BOOT, raw)
        n += 1
        store = FileStore(PATH)
        found = store.boot()
        if found:
            print("boot", at, found)
        # Whatever it was, the next number stays.
        store.put_boot(77)
        store._open.close()
        if store.boot() != 77:
            print("boot", at, "does not stay")
        store._open.close()
    write(BOOT, whole)
    print("boots", n)


# An enrolment has no check of its own: a digit may turn into another, and then provisioning fails.
def enrolments():
    whole = read(PATH)
    n = loaded = 0
    for at, raw in spoiled(whole):
        write(PATH, raw)
        n += 1
        try:
            i = start()
        except SealError:
            continue
        loaded += 1
        ok = isinstance(c.server, str) and isinstance(c.port, int) and 0 < c.port < 65536
        for number in (i.client, i.mediator):
            ok = ok and isinstance(number, int) and 0 < number < 1 << 24
        if not ok:
            print("enrolment", at, raw)
    write(PATH, whole)
    print("enrolments", n, loaded)


flash = Flash("lfs2", blank("lfs2"))
mount("lfs2", flash)
for name in (PATH, STATE, BOOT):
    write(name, read(sys.argv[1][:-5] + name[13:]))
c = Client(PATH)
states()
gc.collect()
boots()
gc.collect()
enrolments()
flash.dead = True
