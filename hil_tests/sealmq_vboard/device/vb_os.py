# The module `os` of a board, over the interpreter's own.
import os as _host
from collections import namedtuple

import vb_host

for _name in (
    "VfsFat", "VfsLfs2", "chdir", "getcwd", "ilistdir", "listdir", "mkdir", "mount", "remove",
    "rename", "rmdir", "sep", "stat", "statvfs", "umount", "unlink", "urandom",
):  # fmt: skip
    globals()[_name] = getattr(_host, _name)

_Uname = namedtuple("uname", ("sysname", "nodename", "release", "version", "machine"))


def uname():
    from sys import implementation, platform, version  # this board's

    release = ".".join([str(part) for part in implementation.version[:3]])
    return _Uname(platform, platform, release, version.split("; ")[-1], vb_host.boot["machine"])


def sync():
    pass


def dupterm(stream, index=0):
    raise NotImplementedError("virtual board: os.dupterm")


def dupterm_notify(arg):
    raise NotImplementedError("virtual board: os.dupterm_notify")


__name__ = "os"
