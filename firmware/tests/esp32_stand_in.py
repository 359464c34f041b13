# Runs in MicroPython and CPython: `esp32.NVS` as it is documented, kept in a file of the host.
# What it is not known to do it refuses with a RuntimeError, so that no test leans on it.
#
# Of a value that was set and not committed, ESP-IDF says that it may have been written already. So
# uncommitted is "kept" or "lost" when the power goes. One value is written or not, never half: that
# is documented of NVS, and its own doing.
# mypy: ignore-errors
import json
import sys
from binascii import hexlify, unhexlify

NOT_FOUND = -0x1102
TYPE_MISMATCH = -0x1103
NOT_ENOUGH_SPACE = -0x1105
INVALID_NAME = -0x1106
KEY_TOO_LONG = -0x1109
INVALID_LENGTH = -0x110C


class Partition:
    # cut: the number of the operation before which the power goes, 0 for never.
    def __init__(self, path, cut=0, uncommitted="lost", die=None):
        if uncommitted not in ("kept", "lost"):
            raise RuntimeError("uncommitted values are kept or lost, not %r" % uncommitted)
        self.path = path
        self.cut = cut
        self.kept = uncommitted == "kept"
        self.die = die
        self.ops = 0
        self.full = False
        with open(path) as f:
            self.entries = json.loads(f.read())
        self.waiting = {}

    def operation(self):
        self.ops += 1
        if self.ops == self.cut:
            self.die()

    def write(self):
        self.entries.update(self.waiting)
        self.waiting = {}
        with open(self.path, "w") as f:
            f.write(json.dumps(self.entries))


partition = None


class NVS:
    def __init__(self, namespace):
        _name(namespace, INVALID_NAME)
        self._space = namespace

    def set_i32(self, key, value):
        if not isinstance(value, int) or not -(1 << 31) <= value < 1 << 31:
            raise RuntimeError("set_i32 of %r" % (value,))
        self._set(key, ["i32", value])

    def get_i32(self, key):
        return self._get(key, "i32")

    def set_blob(self, key, value):
        self._set(key, ["blob", hexlify(value).decode()])

    def get_blob(self, key, buffer):
        if not isinstance(buffer, bytearray):
            raise RuntimeError("get_blob into a %s" % type(buffer))
        raw = unhexlify(self._get(key, "blob"))
        if len(raw) > len(buffer):
            raise OSError(INVALID_LENGTH, "ESP_ERR_NVS_INVALID_LENGTH")
        buffer[: len(raw)] = raw
        return len(raw)

    def erase_key(self, key):
        raise RuntimeError("nothing erases keys")

    def commit(self):
        partition.operation()
        partition.write()

    def _set(self, key, value):
        _name(key, KEY_TOO_LONG)
        partition.operation()
        if partition.full:
            raise OSError(NOT_ENOUGH_SPACE, "ESP_ERR_NVS_NOT_ENOUGH_SPACE")
        partition.waiting[self._space + "/" + key] = value
        if partition.kept:
            partition.write()

    def _get(self, key, kind):
        _name(key, KEY_TOO_LONG)
        name = self._space + "/" + key
        found = partition.waiting.get(name) or partition.entries.get(name)
        if found is None:
            raise OSError(NOT_FOUND, "ESP_ERR_NVS_NOT_FOUND")
        if found[0] != kind:
            raise OSError(TYPE_MISMATCH, "ESP_ERR_NVS_TYPE_MISMATCH")
        return found[1]


# Names of namespaces and keys: 1 to 15 characters of ASCII.
def _name(name, code):
    if not isinstance(name, str) or not name:
        raise RuntimeError("the name %r" % (name,))
    if len(name) > 15:
        raise OSError(code, "too long")


# Makes `import esp32` find this.
def install(path, cut=0, uncommitted="lost", die=None):
    global partition
    partition = Partition(path, cut, uncommitted, die)
    sys.modules["esp32"] = sys.modules[__name__]
    return partition
