# The module `os` of a board, over the interpreter's own.
import os as _host
from collections import namedtuple
from hashlib import sha256

import vb_host
import vb_network

for _name in (
    "VfsFat", "VfsLfs2", "chdir", "getcwd", "ilistdir", "listdir", "mkdir", "mount", "remove",
    "rename", "rmdir", "sep", "stat", "statvfs", "umount", "unlink",
):  # fmt: skip
    globals()[_name] = getattr(_host, _name)

_Uname = namedtuple("uname", ("sysname", "nodename", "release", "version", "machine"))


def uname():
    from sys import implementation, platform, version  # this board's

    release = ".".join([str(part) for part in implementation.version[:3]])
    return _Uname(platform, platform, release, version.split("; ")[-1], vb_host.boot["machine"])


# An ESP32's random source is one only while the radio is on. Without it, this is the worst that is
# documented: the same bytes after each start.
_pool = bytes(vb_host.boot["mac"])


def urandom(n):
    global _pool
    if vb_network.radio():
        return _host.urandom(n)
    out = b""
    while len(out) < n:
        _pool = sha256(_pool).digest()
        out += sha256(b"out" + _pool).digest()
    return out[:n]


def sync():
    pass


def dupterm(stream, index=0):
    raise NotImplementedError("virtual board: os.dupterm")


def dupterm_notify(arg):
    raise NotImplementedError("virtual board: os.dupterm_notify")


__name__ = "os"
