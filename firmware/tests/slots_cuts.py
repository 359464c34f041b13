# Runs in MicroPython: cuts the power at each operation of the flash while a client set is put into
# the other slot, tried, and confirmed or given up; looks at what the next start chooses. Prints a
# line for each life and kind of cut.
# mypy: ignore-errors
import errno
import sys
from binascii import hexlify
from hashlib import sha256

sys.path.insert(0, sys.argv[1])

import os

import sealmq_slots as slots

import flash_device
from flash_device import Cut, Flash, blank, mount, umount

flash_device.COUNT["lfs2"] = 32  # a folder takes two
slots.ROOT = "/flash/sealmq"
TRIES = 2
FILES = ("sealmq_spec/errors.mpy", "sealmq_device/__init__.mpy", "sealmq_device/later.mpyz")

kept = []
graves = []


# No file that is open when the power goes is ever collected: closing it then would need its chip.
def keep(name, mode):
    kept.append(open(name, mode))
    return kept[-1]


slots.open = keep
slots.print = lambda *_: None


def content(path, client):
    return ("%s of client %d" % (path, client)).encode() * 20


def manifest(client):
    text = ""
    for path in FILES:
        raw = content(path, client)
        text += "%s %d %s\n" % (path, len(raw), hexlify(sha256(raw).digest()).decode())
    return text.encode()


def folder(path):
    try:
        os.mkdir(path)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise


# As the tools do it: what is there already is not written again.
def put(name, client):
    top = slots.ROOT + "/" + name
    for path in (slots.ROOT, top, top + "/sealmq_spec", top + "/sealmq_device"):
        folder(path)
    for path in FILES:
        raw = content(path, client)
        try:
            if slots.load(top + "/" + path) == raw:
                continue
        except OSError:
            pass
        with keep(top + "/" + path, "wb") as f:
            f.write(raw)
    slots.complete(name, manifest(client))


# Which client a start would import, all of it; 0 where it would not.
def client_of(name):
    for client in (1, 2):
        try:
            for path in FILES:
                if slots.load(slots.ROOT + "/" + name + "/" + path) != content(path, client):
                    break
            else:
                return client
        except OSError:
            pass
    return 0


class Board:
    def __init__(self):
        self.trials = 0  # starts that used client 2 and have not been confirmed

    def start(self):
        del sys.path[1:]
        slots.begin()
        self.trials += slots.trial
        return client_of(sys.path[0][-1])

    def update(self):
        name = slots.withdraw()
        put(name, 2)
        slots.offer(name, TRIES)


def prepared():
    data = blank("lfs2")
    flash = Flash("lfs2", data)
    mount("lfs2", flash)
    folder(slots.ROOT)
    put("a", 1)
    slots.write(slots.read())
    flash.dead = True
    umount()
    return data


# good: the new client gets a session at its first start; else never.
def live(board, good):
    board.update()
    for _ in range(TRIES + 2):
        board.start()
        if good:
            slots.confirm()
        elif slots.trial:
            slots.failed("ImportError")


# What the starts behind the cut do.
def look(board, good):
    first = board.start()
    if first not in (1, 2) or (first == 2) != (slots.slot == "b"):
        raise ValueError("a start with client %d from %s" % (first, slots.slot))
    active = slots.read()["active"]
    if first == 2 and not slots.trial and active != "b":
        raise ValueError("client 2 counts as proved")
    if not good:
        while slots.trial:
            if board.start() not in (1, 2):
                raise ValueError("a start without a client")
        if board.trials > TRIES or client_of(slots.slot) != 1:
            raise ValueError("%d starts of client 2, then %s" % (board.trials, slots.slot))
    if slots.read()["active"] == "a":
        # It can be done again, and comes to its end.
        board.update()
        if board.start() != 2 or not slots.confirm():
            raise ValueError("done again, it is not tried")
    if board.start() != 2 or slots.trial or slots.read()["active"] != "b":
        raise ValueError("what was confirmed did not stay")
    return first


def cut_everywhere(good, how):
    image = prepared()
    data = bytearray(image)
    firsts = [0, 0]
    k = 1
    while True:
        data[:] = image
        kept.clear()
        flash = Flash("lfs2", data, k, how)
        mount("lfs2", flash)
        board = Board()
        try:
            live(board, good)
        except (Cut, OSError, ValueError):
            if not flash.dead:
                raise
        over = not flash.dead
        graves.append(kept[-2:])
        flash.dead = True
        umount()
        if over:
            break
        flash = Flash("lfs2", data)
        mount("lfs2", flash)
        try:
            firsts[look(board, good) - 1] += 1
        except Exception as error:
            print("cut", k, how, good)
            raise error
        flash.dead = True
        umount()
        k += 1
    print("good" if good else "bad", how, k - 1, firsts[0], firsts[1])


for good in (True, False):
    for how in sys.argv[2:]:
        cut_everywhere(good, how)
