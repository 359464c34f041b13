# What lies in RTC memory over a deep sleep: unsent messages in plaintext, what they mean for the
# next wake, and a range of boot numbers. Nothing here enters a key, and no nonce depends on it. A
# MAC under the client's secret tells torn or foreign content, which counts as none.
import struct
from hashlib import sha256

from micropython import const

from sealmq_spec.errors import Unsupported

_TYPING = False
if _TYPING:
    from typing import Any

    Kept = tuple[bytes, bytes, bool, int, int]

# u8 version, failures, skip, done, begun; u32 boot, ceiling; digest of the subscriptions; digest
# of the messages. Then the MAC.
_HEAD = ">BBBBBII4s8s"
_FRONT = const(25)
_BODY = const(33)
ROOM = const(2015)  # 2,048 on an ESP32, without _BODY
_VERSION = const(0x51)
_MESSAGE = ">BBHH"  # QoS and RETAIN as in PUBLISH, life, lengths of topic and payload
_LEAST = const(6)
# So many boot numbers are taken from stable memory at once: one write to flash in so many wakes.
_RANGE = const(64)
_U24 = const(0xFFFFFF)


class Rtc:
    # memory: has memory() and memory(bytes), as machine.RTC. secret: the client's, as text.
    def __init__(self, memory: "Any", secret: str) -> None:
        if not hasattr(memory, "memory"):
            # An RP2040's, say.
            raise Unsupported(
                "this chip's RTC has no memory(), which a Sleeper needs; Living stays awake"
            )
        self._memory = memory
        self._secret = sha256(b"rtc1" + secret.encode()).digest()
        self._raw = bytearray(_BODY)
        self.failures = 0  # wakes in a row that could not publish
        self.skip = 0  # wakes that are still to pass without trying
        self.done = 0  # so many of the first messages are over
        self.begun = 0  # so many have been sealed once
        self.boot = 0
        self.ceiling = 0  # in stable memory; 0: RTC memory knows no boot
        self.filters = bytes(4)
        self.lost = False  # there was something that could not be used

    # The messages that lie there. Fills in the rest.
    def read(self) -> "list[Kept]":
        raw = self._memory.memory()
        if len(raw) < _BODY or self._mac(raw) != raw[_FRONT:_BODY]:
            self.lost = len(raw) > 0
            return []
        head = struct.unpack(_HEAD, raw[:_FRONT])
        body = raw[_BODY:]
        if head[0] != _VERSION or sha256(body).digest()[:8] != head[8]:
            self.lost = True
            return []
        _, self.failures, self.skip, self.done, self.begun = head[:5]
        self.boot, self.ceiling, self.filters = head[5:8]
        return _messages(body)

    def write(self, messages: "list[Kept]") -> None:
        parts = [bytes(_BODY)]
        for topic, msg, retain, qos, life in messages:
            flags = qos << 1 | (1 if retain else 0)
            parts.append(struct.pack(_MESSAGE, flags, life, len(topic), len(msg)) + topic + msg)
        self._raw = bytearray(b"".join(parts))
        self.done = self.begun = 0
        self.mark()

    # The same messages, with other words about them.
    def mark(self) -> None:
        raw = self._raw
        struct.pack_into(
            _HEAD, raw, 0, _VERSION, min(self.failures, 255), self.skip, self.done, self.begun,
            self.boot, self.ceiling, self.filters,
            sha256(memoryview(raw)[_BODY:]).digest()[:8],
        )  # fmt: skip
        raw[_FRONT:_BODY] = self._mac(raw)
        self._memory.memory(raw)

    def _mac(self, raw: "bytes | bytearray") -> bytes:
        inner = sha256(bytes(raw[:_FRONT]) + self._secret).digest()
        return sha256(self._secret + inner).digest()[:8]


# Their digest has been checked, so what does not fit was written by another version.
def _messages(body: bytes) -> "list[Kept]":
    found = []
    at = 0
    while at + _LEAST <= len(body):
        flags, life, n, m = struct.unpack_from(_MESSAGE, body, at)
        at += _LEAST
        topic = body[at : at + n]
        msg = body[at + n : at + n + m]
        at += n + m
        if at > len(body):
            return []
        found.append((topic, msg, flags & 1 == 1, flags >> 1 & 1, life))
    return found


# The port of store.py over another one, with boot numbers from RTC memory: flash holds the end of a
# range, so that power that fails only leaves a gap.
class RtcStore:
    def __init__(self, store: "Any", rtc: Rtc, enrolment: "dict[str, Any]") -> None:
        self.lasting = store
        self._rtc = rtc
        self._enrolment = enrolment
        self._asked = False
        self.state = store.state
        self.put_state = store.put_state

    # As it was read at this wake.
    def enrolment(self) -> "dict[str, Any]":
        return self._enrolment

    def boot(self) -> int:
        if self._rtc.ceiling:
            return self._rtc.boot
        self._asked = True
        boot: int = self.lasting.boot()
        return boot

    def put_boot(self, boot: int) -> None:
        rtc = self._rtc
        if not (rtc.ceiling and rtc.boot < boot <= rtc.ceiling):
            if not self._asked:
                self._asked = True
                self.lasting.boot()  # a file store opens its file there
            ceiling = min(boot + _RANGE - 1, _U24)
            self.lasting.put_boot(ceiling)
            rtc.ceiling = ceiling
        rtc.boot = boot
        rtc.mark()
