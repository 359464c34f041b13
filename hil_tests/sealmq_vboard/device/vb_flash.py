# The flash: reads come straight from the image's file, programs and erases through the host, which
# has the chip's semantics, counts them and can cut the power.
import struct

import vb_host

_EINVAL = -22
_file = open(vb_host.boot["flash"], "rb")


def read_into(at, buf):
    _file.seek(at)
    _file.readinto(buf)


# esp32.Partition as a block device and for what it tells. No OTA.
class Partition:
    BOOT = 0
    RUNNING = 1
    TYPE_APP = 0
    TYPE_DATA = 1
    BLOCK = 4096

    def __init__(self, name, block_size=4096):
        for entry in vb_host.boot["partitions"]:
            if entry[4] == name:
                break
        else:
            raise OSError(2)
        self._set(entry, block_size)

    def _set(self, entry, block_size):
        if block_size != self.BLOCK:
            raise NotImplementedError("virtual board: partitions with blocks of %d" % block_size)
        self._info = tuple(entry)
        self._at = entry[2]
        self._ops = {
            1: self._nothing, 2: self._nothing, 3: self._nothing, 4: self._count, 5: self._size,
            6: self._erase,
        }  # fmt: skip

    @staticmethod
    def find(type=1, subtype=0xFF, label=None, block_size=4096):
        found = []
        for entry in vb_host.boot["partitions"]:
            if entry[0] == type and subtype in (0xFF, entry[1]) and label in (None, entry[4]):
                partition = object.__new__(Partition)
                partition._set(entry, block_size)
                found.append(partition)
        return found

    # (type, subtype, address, size, label, encrypted)
    def info(self):
        return self._info

    # littlefs calls these; Ctrl-C must not cut one short: no jumps (vb_host.py).
    def readblocks(self, block, buf, offset=0):
        _file.seek(self._at + block * 4096 + offset)
        _file.readinto(buf)

    def writeblocks(self, block, buf, offset=None):
        return _WRITES[offset is None](self._at + block * 4096, buf, offset)

    def ioctl(self, op, arg):
        return self._ops[op](arg)

    def _nothing(self, arg):
        return 0

    def _count(self, arg):
        return self._info[3] // 4096

    def _size(self, arg):
        return 4096

    def _erase(self, block):
        return vb_host.flash(b"E" + struct.pack("<II", self._at + block * 4096, 4096))


def _program(at, buf, offset):
    return vb_host.flash(b"P" + struct.pack("<I", at + offset) + bytes(buf))


# Without an offset: whole blocks, erased before.
def _whole(at, buf, offset):
    for done in range(0, len(buf), 4096):
        status = vb_host.flash(b"E" + struct.pack("<II", at + done, 4096))
        if status:
            return status
        status = _program(at, memoryview(buf)[done : done + 4096], done)
        if status:
            return status
    return 0


_WRITES = {False: _program, True: _whole}
