# One boot of a virtual board. child.py starts it with the number of the socket to it and this
# folder as arguments; the host's file system is there until the stubs are loaded.
import gc
import sys

sys.path[:] = [".frozen", sys.argv[2]]

import os

import vb_host

vb_host.console()

# Its task queue is C and asks the host's clock, so the rest of it must, too.
__import__("asyncio.core")

# `time` first: what is loaded later asks it.
_STUBS = ("time", "sys", "os", "micropython", "esp32", "machine", "network", "socket")
for name in _STUBS:
    sys.modules[name] = sys.modules["u" + name] = __import__("vb_" + name)

import vb_flash
import vb_repl
import vb_vfs

for name in list(sys.modules):
    if name.startswith("vb_"):
        sys.modules.pop(name)

sys.path[:] = ["", ".frozen", "/lib"]
os.umount("/")


# An erased partition gets a file system, as the firmware's first start does it; whatever else
# cannot be mounted stays as it is.
def mount(partition):
    try:
        os.mount(vb_vfs.VfsLfs2(partition), "/")
        return True
    except OSError:
        first = bytearray(4096)
        partition.readblocks(0, first)
    if first != b"\xff" * 4096:
        return False
    vb_repl.say("Performing initial setup\n")
    os.VfsLfs2.mkfs(partition)
    os.mount(vb_vfs.VfsLfs2(partition), "/")
    with open("boot.py", "w") as f:
        f.write("# This file is executed on every boot\n")
    return True


# Ctrl-C while the interpreter starts counts as one in boot.py: then main.py is not run either.
def programs(mode):
    for name in ("boot.py", "main.py"):
        if name == "main.py" and mode == "raw":
            break
        came = vb_repl.start(name)
        if came != "done":
            return came
    return "done"


def main():
    repl = vb_repl
    mode = last = vb_host.boot["repl"]
    found = vb_flash.Partition.find(label="vfs")
    mounted = found and mount(found[0])
    gc.collect()
    # An ESP32's heap begins with 64 kB and takes more when a collection does not help; so does this
    # one nearly, and what lives stays close together.
    gc.threshold(vb_host.boot["heap_begins"])
    if vb_host.boot["watchdog"]:
        vb_host.watchdog(vb_host.boot["watchdog"])  # a soft reset does not stop it
    interrupted = vb_host.call(b"H%d %d" % (gc.mem_free(), gc.mem_alloc()))[0]
    came = "done"
    if not mounted:
        repl.say("The filesystem in partition vfs appears to be corrupted, or there is none.\n")
    elif vb_host.boot["broken"]:
        if mode == "friendly":
            repl.show(KeyboardInterrupt())
    elif interrupted:
        repl.show(KeyboardInterrupt())
    else:
        came = programs(mode)
    while came != "soft" and mode != "soft":
        last = mode
        mode = repl.raw(vb_host.boot.pop("broken")) if mode == "raw" else repl.friendly()
        vb_host.boot["broken"] = False
    repl.say("MPY: soft reboot\n")
    vb_host.leave(vb_host.SOFT_RAW if last == "raw" else vb_host.SOFT)


main()
