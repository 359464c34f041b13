# The module `time` of a board: an epoch of 2000, no clock at power on, ticks from the reset on. The
# host keeps the real-time clock over resets and deep sleep; skew (ppm) and jumps come from there.
import struct
import time as _host

import vb_host

sleep = _host.sleep
sleep_ms = _host.sleep_ms
sleep_us = _host.sleep_us
ticks_add = _host.ticks_add
ticks_diff = _host.ticks_diff

_EPOCH = 946684800  # 2000 as the host counts
_MASK = _host.ticks_add(0, -1)
_live = vb_host.live
# Since the reset, in true microseconds and in the board's own.
_last = _host.ticks_us()
_true = 0
_own = 0
_rest = 0
_base = vb_host.boot["rtc_us"] + (_host.time_ns() - vb_host.boot["at_ns"]) // 1000
_moved = struct.unpack_from("<q", _live, 16)[0]


def _us():
    global _last, _own, _rest
    now = _host.ticks_us()
    passed = _host.ticks_diff(now, _last)
    _last = now
    ppm = struct.unpack_from("<i", _live, 8)[0]
    if ppm:
        _rest += passed * ppm
        passed += _rest // 1000000
        _rest %= 1000000
    _own += passed
    return _own


# Microseconds since 2000 by the board's clock.
def rtc_us():
    return _base + _us() + struct.unpack_from("<q", _live, 16)[0] - _moved


def set_rtc_us(value):
    global _base
    _base += value - rtc_us()
    vb_host.ask(b"T" + struct.pack("<q", value))


def ticks_us():
    return _us() & _MASK


def ticks_ms():
    return _us() // 1000 & _MASK


ticks_cpu = ticks_us


def time():
    return rtc_us() // 1000000


def time_ns():
    return rtc_us() * 1000


def gmtime(seconds=None):
    found = _host.gmtime((time() if seconds is None else seconds) + _EPOCH)
    return tuple(found[:8])


localtime = gmtime


def mktime(fields):
    return int(_host.mktime(tuple(fields[:8]) + (0,))) - _EPOCH


__name__ = "time"
