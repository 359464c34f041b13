# Wi-Fi as a station, through `network.WLAN`. Statuses go by the names that the `network` module of
# the board has; a board that lacks a name cannot be in that state.
import network

from .radio import Radio

_TYPING = False
if _TYPING:
    from typing import Any

_FAILURES = (
    ("STAT_WRONG_PASSWORD", "wrong password"),
    ("STAT_NO_AP_FOUND", "no such network"),
    ("STAT_CONNECT_FAIL", "refused"),
    ("STAT_ASSOC_FAIL", "refused"),
    ("STAT_HANDSHAKE_TIMEOUT", "handshake timed out, perhaps a wrong password"),
    ("STAT_BEACON_TIMEOUT", "the network is gone"),
)


class Wlan(Radio):
    # pm: power save, network.WLAN.PM_NONE, PM_PERFORMANCE or PM_POWERSAVE; None leaves it. wlan:
    # another interface than the usual one. config: for WLAN.config before connecting, by name.
    def __init__(
        self, ssid: str, key: str, pm: "int | None" = None, wlan: "Any" = None, **config: "Any"
    ) -> None:
        Radio.__init__(self)
        self._ssid = ssid
        self._key = key
        self._config = config
        if pm is not None:
            config["pm"] = pm
        self.wlan = wlan or network.WLAN(network.STA_IF)

    def start(self) -> None:
        wlan = self.wlan
        wlan.active(True)
        if self._config:
            wlan.config(**self._config)
        wlan.connect(self._ssid, self._key)

    # Turns the radio off.
    def stop(self) -> None:
        wlan = self.wlan
        try:
            wlan.disconnect()
        finally:
            wlan.active(False)

    def up(self) -> bool:
        return bool(self.wlan.isconnected())

    # A driver that tries on for ever (on an ESP32 unless `reconnects` is set) says nothing here:
    # radio.py gives up.
    def failure(self) -> str:
        status = self.wlan.status()
        for name, why in _FAILURES:
            if status == getattr(network, name, None):
                return why
        return ""
