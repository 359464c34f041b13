# Runs in MicroPython, in a folder of its own: what a start chooses, from what lies there. Each line
# is what one start says and chooses.
# mypy: ignore-errors
import sys

sys.path.insert(0, sys.argv[1])

import json
import os

import sealmq_slots as slots

os.chdir(sys.argv[2])
slots.ROOT = top = sys.argv[2] + "/sealmq"


def remove(path):
    try:
        os.remove(path)
    except OSError:
        for entry in os.ilistdir(path):
            remove(path + "/" + entry[0])
        os.rmdir(path)


def put(name, text):
    for path in (top, top + "/" + name, top + "/" + name + "/sealmq_device"):
        try:
            os.mkdir(path)
        except OSError:
            pass
    for file in ("x.mpy", "sealmq_device/y.mpyz"):
        with open("%s/%s/%s" % (top, name, file), "w") as f:
            f.write(text + file)
    lines = ["%s %d %s\n" % ((p,) + slots.digest_of("%s/%s/%s" % (top, name, p)))
             for p in ("sealmq_device/y.mpyz", "x.mpy")]  # fmt: skip
    slots.complete(name, "".join(lines).encode())


# Slot a active; b as it is behind an update.
def updated(tries=2):
    try:
        remove(top)
    except OSError:
        pass
    put("a", "old")
    put("b", "new")
    slots.write(dict(slots.read(), active="a", last="b: from before"))
    slots.offer("b", tries, 9)


def start(what=""):
    before = list(sys.path)
    slots.begin()
    print(what, slots.slot, slots.trial, slots.wait, len(sys.path) - len(before), sys.path[0][-2:])
    sys.path[:] = before


def raises(f, *args):
    try:
        f(*args)
        print("went well")
    except ValueError as error:
        print(error)


def rewrite(**new):
    with open(top + "/slots") as f:
        state = json.load(f)
    state.update(new)
    with open(top + "/slots", "w") as f:
        json.dump(state, f)


# A trial that is confirmed at its second start; confirm() then has nothing to do.
updated()
start("trial")
start("trial")
print(slots.confirm(), slots.confirm(), slots.trial)
start("confirmed")
# One that never is; what it died of is told, at each start.
updated()
start("trial")
slots.failed("ImportError " + "x" * 200)
start("trial")
print(slots.read()["tries"])
start("over")
start("over")
slots.failed("of the active one, which is not kept")
start("over")
updated(1)
start("trial")
start("never said why")
# What is on trial has to be as its manifest says.
for how in ("changed", "longer", "missing", "more", "cut", "none"):
    updated()
    if how == "changed":
        with open(top + "/b/x.mpy", "r+b") as f:
            f.write(b"N")
    elif how == "longer":
        with open(top + "/b/x.mpy", "ab") as f:
            f.write(b"N")
    elif how == "missing":
        os.remove(top + "/b/sealmq_device/y.mpyz")
    elif how == "more":
        open(top + "/b/sealmq_device/y.py", "w").close()
    elif how == "cut":
        raw = slots.load(top + "/b/MANIFEST")
        with open(top + "/b/MANIFEST", "wb") as f:
            f.write(raw[:-1])
    else:
        os.remove(top + "/b/MANIFEST")
    start(how)
    raises(slots.offer, "b")
raises(slots.offer, "a")
raises(slots.complete, "b", b"")
updated()
raises(slots.complete, "b", slots.load(top + "/a/MANIFEST"))
# What a power cut left of a manifest is no file of the client's.
with open(top + "/b/MANIFEST.new", "w") as f:
    f.write("sea")
raises(slots.offer, "b")
# Withdrawn while it is on trial.
start("trial")
print(slots.withdraw(), slots.listed("b"), slots.read()["trial"])
start("withdrawn")
# A file that says nothing sensible.
for what, text in (
    ("nothing", ""),
    ("{", "{"),
    ("[1]", "[1]"),
    ("7", "7"),
    ("c", '{"active": "c"}'),
    ("no active one", '{"active": 1, "trial": "b"}'),
    ("the active one", '{"active": "a", "trial": "a", "tries": 3}'),
    ("no tries", '{"active": "a", "trial": "b"}'),
    ("no number", '{"active": "b", "trial": "a", "tries": "3"}'),
):
    updated()
    with open(top + "/slots", "w") as f:
        f.write(text)
    start(what)
updated()
os.remove(top + "/slots")
start("no file")
remove(top + "/a")
start("only b")
os.remove(top + "/b/MANIFEST")
start("neither")
# The active one is gone: the other is used, if it has a client.
updated()
rewrite(trial="")
os.remove(top + "/a/MANIFEST")
start("the other")
# A start that cannot be counted is not one on trial.
updated()
usual = slots.write


def full(state):
    raise OSError(28)


slots.write = full
start("full")
slots.write = usual
start("trial")
# Without anything at all there still is a start.
remove(top)
start("no folder")
