# The module `esp32` of a board: NVS and Partition. The entries of NVS lie in the flash's partition;
# the host reads and writes them there (nvs.py), as C does on a board.
import struct

import vb_flash
import vb_host
import vb_missing

Partition = vb_flash.Partition

_NAMES = {
    0x1101: "ESP_ERR_NVS_NOT_INITIALIZED",
    0x1102: "ESP_ERR_NVS_NOT_FOUND",
    0x1103: "ESP_ERR_NVS_TYPE_MISMATCH",
    0x1104: "ESP_ERR_NVS_READ_ONLY",
    0x1105: "ESP_ERR_NVS_NOT_ENOUGH_SPACE",
    0x1106: "ESP_ERR_NVS_INVALID_NAME",
    0x1107: "ESP_ERR_NVS_INVALID_HANDLE",
    0x1109: "ESP_ERR_NVS_KEY_TOO_LONG",
    0x110A: "ESP_ERR_NVS_PAGE_FULL",
    0x110C: "ESP_ERR_NVS_INVALID_LENGTH",
    0x110E: "ESP_ERR_NVS_VALUE_TOO_LONG",
    0x0006: "ESP_ERR_FLASH_OP_FAIL",
}


def _ask(verb, space, key, rest=b""):
    head = space.encode() + b"\0" + key.encode() + b"\0"
    status, n = vb_host.call(b"N" + verb + head + rest)
    if status < 0:
        raise OSError(status, _NAMES.get(-status, "ESP_FAIL"))
    return status, bytes(memoryview(vb_host._answer)[4:n])


class NVS:
    def __init__(self, namespace):
        if not isinstance(namespace, str):
            raise TypeError("namespace must be a str")
        self._space = namespace
        _ask(b"o", namespace, "")

    def get_i32(self, key):
        return struct.unpack("<i", _ask(b"i", self._space, key)[1])[0]

    def set_i32(self, key, value):
        if not -(1 << 31) <= value < 1 << 31:
            raise OverflowError("%r in 32 bits" % (value,))
        _ask(b"I", self._space, key, struct.pack("<i", value))

    # The value's length; OSError of ESP_ERR_NVS_INVALID_LENGTH when `buffer` is too short.
    def get_blob(self, key, buffer):
        at = 0
        length = 1
        while at < length:
            length, piece = _ask(b"b", self._space, key, struct.pack("<II", len(buffer), at))
            buffer[at : at + len(piece)] = piece
            at += len(piece)
        return length

    def set_blob(self, key, value):
        _ask(b"B", self._space, key, bytes(value))

    def erase_key(self, key):
        _ask(b"e", self._space, key)

    # What was set lies in the flash already.
    def commit(self):
        _ask(b"c", self._space, "")


_MISSING = (
    "HEAP_DATA", "HEAP_EXEC", "PCNT", "RMT", "ULP", "gpio_deep_sleep_hold", "hall_sensor",
    "idf_heap_info", "idf_task_info", "mcu_temperature", "raw_temperature", "wake_on_ext0",
    "wake_on_ext1", "wake_on_gpio", "wake_on_touch", "wake_on_ulp",
)  # fmt: skip


vb_missing.fill(globals(), "esp32", _MISSING)
__name__ = "esp32"
