# The module `sys` of a board.
import sys as _host
from collections import namedtuple

import vb_host

argv = []
byteorder = _host.byteorder
maxsize = _host.maxsize
modules = _host.modules
path = _host.path
print_exception = _host.print_exception
version = _host.version
version_info = _host.version_info
platform = vb_host.boot["platform"]
ps1 = ">>> "
ps2 = "... "
_Implementation = namedtuple("implementation", ("name", "version", "_machine", "_mpy", "_build"))
implementation = _Implementation(
    _host.implementation.name,
    _host.implementation.version,
    vb_host.boot["machine"],
    _host.implementation._mpy,
    vb_host.boot["build"],
)


def exit(value=None):
    raise SystemExit(value)


class _RawOut:
    # write(buf), write(buf, length) or write(buf, at, length), as streams have it.
    def write(self, data, a=None, b=None):
        if a is not None:
            at, length = (0, a) if b is None else (a, b)
            data = memoryview(data)[at : at + length]
        return vb_host.write_raw(data)


# sys.stdout and sys.stderr: text, with the UART's line ends; `buffer` has bytes as they are.
class _Out:
    buffer = _RawOut()

    def write(self, data):
        return _host.stdout.write(data)


stdin = _host.stdin
stdout = _Out()
stderr = stdout
__name__ = "sys"
