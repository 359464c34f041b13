# The module `machine` of a board. What stands here works; the rest raises and is in `sealmq vboard
# report` (the list is at the end).
import struct
import time as _host_time

import vb_host
import vb_missing
import vb_time

PWRON_RESET = 1
HARD_RESET = 2
WDT_RESET = 3
DEEPSLEEP_RESET = 4
SOFT_RESET = 5
SLEEP = 2
DEEPSLEEP = 4
PIN_WAKE = 2
EXT0_WAKE = 2
EXT1_WAKE = 3
TIMER_WAKE = 4
TOUCHPAD_WAKE = 5
ULP_WAKE = 6

_boot = vb_host.boot


def unique_id():
    return bytes(_boot["mac"])


def reset_cause():
    return _boot["cause"]


# Woken by the timer, or not from a sleep at all.
def wake_reason():
    return TIMER_WAKE if _boot["cause"] == DEEPSLEEP_RESET else 0


# Nothing of the program may catch it.
def reset():
    vb_host.leave(vb_host.RESET)


def soft_reset():
    raise SystemExit


def _asleep(ms):
    if not isinstance(ms, int) or ms < 0:
        raise ValueError("sleep of %r ms" % (ms,))
    return ms


def deepsleep(time_ms=0):
    vb_host.ask(b"Z" + struct.pack("<q", _asleep(time_ms)))
    vb_host.leave(vb_host.SLEEP)


# Wi-Fi stays up meanwhile: there is no radio to be switched off.
def lightsleep(time_ms=0):
    if not _asleep(time_ms):
        raise NotImplementedError("virtual board: lightsleep without an end (no pins wake it)")
    _host_time.sleep_ms(time_ms)


sleep = lightsleep


def idle():
    _host_time.sleep_ms(1)


class RTC:
    def datetime(self, value=None):
        if value is None:
            us = vb_time.rtc_us()
            t = vb_time.gmtime(us // 1000000)
            return (t[0], t[1], t[2], t[6], t[3], t[4], t[5], us % 1000000)
        year, month, day, _, hour, minute, second, us = value
        t = (year, month, day, hour, minute, second, 0, 0)
        vb_time.set_rtc_us(vb_time.mktime(t) * 1000000 + us)

    init = datetime

    def memory(self, data=None):
        if data is None:
            return vb_host.ask(b"m")
        data = bytes(data)
        if len(data) > 2048:
            raise ValueError("buffer too long")
        vb_host.ask(b"M" + data)


# It cannot be stopped, as on the board; a soft reset does not stop it either.
class WDT:
    def __init__(self, id=0, timeout=5000):
        if id != 0:
            raise ValueError("WDT id %r" % (id,))
        if timeout <= 0:
            raise ValueError("WDT timeout too short")
        self._ms = timeout
        vb_host.ask(b"W" + struct.pack("<q", timeout))
        self.feed()

    def feed(self):
        vb_host.watchdog(self._ms)


_MISSING = (
    "ADC", "ADCBlock", "Counter", "DAC", "Encoder", "I2C", "I2S", "PWM", "Pin", "RMT", "SDCard",
    "SPI", "Signal", "SoftI2C", "SoftSPI", "Timer", "TouchPad", "UART", "USBDevice", "bitstream",
    "disable_irq", "dht_readinto", "enable_irq", "freq", "mem16", "mem32", "mem8", "time_pulse_us",
)  # fmt: skip


vb_missing.fill(globals(), "machine", _MISSING)
__name__ = "machine"
