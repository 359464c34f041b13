# Two places for the client's files, /sealmq/a and /sealmq/b. One is active; the other may be on
# trial: it is used for a few starts, and becomes the active one when it has had a session with the
# mediator. Else the active one is used again.
#
# The power may fail at any write. So the files of a place that is in use are never touched; a
# MANIFEST comes last, by rename, and goes first; /sealmq/slots says what is active and on trial, is
# replaced by rename, and a start on trial is counted there before anything of it is imported.
import json
import os
import sys
from binascii import hexlify
from hashlib import sha256

_TYPING = False
if _TYPING:
    from typing import Any

ROOT = "/sealmq"
NAMES = ("a", "b")
MANIFEST = "MANIFEST"  # a line for each file: path, size, SHA-256
TRIES = 3  # starts that a trial has
WAIT = 180  # seconds that each of them has

_DIR = 0x4000
_LONGEST = 120  # characters kept of why a trial failed

# Of this start.
slot = ""
trial = False
wait = 0  # seconds until a trial is given up; 0: none


# In boot.py: chooses the place and puts it first in sys.path.
def begin() -> None:
    global slot, trial, wait
    state = read()
    name = state["trial"]
    slot = trial_of(state) if name else ""
    trial = bool(slot)
    wait = state["wait"] if trial else 0
    if not trial:
        slot = usable(state["active"])
        if state["last"]:
            print("sealmq: rolled back", state["last"])
    sys.path.insert(0, ROOT + "/" + slot)


# The place on trial, counted; "" where the trial is over.
def trial_of(state: "dict[str, Any]") -> str:
    name: str = state["trial"]
    why = ""
    if state["tries"] <= 0:
        why = state["why"] or "no session"
    elif not whole(name):
        why = "incomplete"
    else:
        state["tries"] -= 1
    if why:
        state["trial"] = state["why"] = ""
        state["last"] = name + ": " + why
    try:
        write(state)
    except OSError as error:
        # A start that cannot be counted might be one of endlessly many.
        print("sealmq: no trial of", name, error)
        return ""
    return "" if why else name


# The active place, or the other one where that has no client.
def usable(active: str) -> str:
    if not listed(active) and listed(other(active)):
        return other(active)
    return active


def other(name: str) -> str:
    return "b" if name == "a" else "a"


# The client calls it after each session that both sides proved. True: a trial has come to a good
# end.
def confirm() -> bool:
    global trial, wait
    if not trial:
        return False
    state = read()
    state["active"] = slot
    state["trial"] = state["why"] = state["last"] = ""
    state["tries"] = 0
    try:
        write(state)
    except OSError as error:
        print("sealmq: slot not confirmed", slot, error)
        return False
    trial = False
    wait = 0
    print("sealmq: slot confirmed", slot)
    return True


# What the program of this start died of, for who asks later. Only a trial's is kept.
def failed(why: str) -> None:
    if trial:
        state = read()
        state["why"] = why[:_LONGEST]
        write(state)


# Puts `name` on trial from the next start on. ValueError: it is in use or not whole.
def offer(name: str, tries: int = TRIES, seconds: int = WAIT) -> None:
    state = read()
    if name == state["active"]:
        raise ValueError("slot %s is the active one" % name)
    if not whole(name):
        raise ValueError("slot %s is not what its %s says" % (name, MANIFEST))
    state["trial"] = name
    state["tries"] = tries
    state["wait"] = seconds
    state["why"] = state["last"] = ""
    write(state)


# Before the place that is not active is written to: it is on trial no longer, nor complete. Gives
# its name.
def withdraw() -> str:
    state = read()
    name = other(state["active"])
    if state["trial"]:
        state["trial"] = state["why"] = ""
        write(state)
    try:
        os.remove(path_of(name))
    except OSError:
        pass  # there was none
    return name


# Once all its files are there: `manifest` becomes the place's own. ValueError: they are not.
def complete(name: str, manifest: bytes) -> None:
    if not whole(name, manifest):
        raise ValueError("slot %s is not what its %s says" % (name, MANIFEST))
    replace(path_of(name), manifest)


def path_of(name: str) -> str:
    return ROOT + "/" + name + "/" + MANIFEST


# Whether there ever was a whole client at that place. Each start asks, so it is cheap.
def listed(name: str) -> bool:
    try:
        os.stat(path_of(name))
        return True
    except OSError:
        return False


# Whether the files there are those of the manifest, its own unless told, and no others: a .py file
# from before would be imported in the place of the .mpy file beside it.
def whole(name: str, manifest: "bytes | None" = None) -> bool:
    top = ROOT + "/" + name
    try:
        if manifest is None:
            manifest = load(path_of(name))
        lines = manifest.decode().split("\n")
        if len(lines) < 2 or lines.pop():
            return False
        for line in lines:
            path, size, digest = line.split(" ")
            if digest_of(top + "/" + path) != (int(size), digest):
                return False
        return count(top) == len(lines)
    except (OSError, ValueError):
        return False


# Eight letters that tell one client from another.
def version(name: str) -> str:
    try:
        return hexlify(sha256(load(path_of(name))).digest()).decode()[:8]
    except OSError:
        return "none"


# A file's size and SHA-256.
def digest_of(path: str) -> "tuple[int, str]":
    h = sha256()
    size = 0
    buf = bytearray(512)
    view = memoryview(buf)
    with open(path, "rb") as f:
        while True:
            n = f.readinto(buf)
            if not n:
                return size, hexlify(h.digest()).decode()
            h.update(view[:n])
            size += n


# The files below a folder, without a manifest or what a power cut left of one.
def count(folder: str) -> int:
    n = 0
    for entry in os.ilistdir(folder):  # type: ignore[attr-defined]
        if entry[1] == _DIR:
            n += count(folder + "/" + entry[0])
        elif not entry[0].startswith(MANIFEST):
            n += 1
    return n


# What /sealmq/slots says; where it says nothing sensible, what the folders say.
def read() -> "dict[str, Any]":
    found: "Any" = None
    try:
        found = json.loads(load(ROOT + "/slots"))
    except (OSError, ValueError):
        pass
    state: "dict[str, Any]" = {"active": "", "trial": "", "tries": 0, "wait": WAIT}
    state["why"] = state["last"] = ""
    if isinstance(found, dict):
        for key, usual in list(state.items()):
            value = found.get(key, usual)
            if isinstance(value, type(usual)):
                state[key] = value
    if state["active"] not in NAMES:
        state["active"] = "b" if listed("b") and not whole("a") else "a"
    if state["trial"] not in NAMES or state["trial"] == state["active"]:
        state["trial"] = ""
    return state


def write(state: "dict[str, Any]") -> None:
    replace(ROOT + "/slots", json.dumps(state).encode())


def load(path: str) -> bytes:
    with open(path, "rb") as f:
        raw: bytes = f.read()
        return raw


# Beside it and renamed: a power cut leaves the old file or the new one.
def replace(path: str, raw: bytes) -> None:
    fresh = path + ".new"
    with open(fresh, "wb") as f:
        f.write(raw)
        f.flush()
    os.rename(fresh, path)
