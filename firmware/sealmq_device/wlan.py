# Wi-Fi as a station, through `network.WLAN`. Statuses go by the names that `network` has for them.
import network

from sealmq_spec.errors import Misuse

from .given import wifi
from .radio import Radio

_TYPING = False
if _TYPING:
    from typing import Any

_WELL = ("STAT_IDLE", "STAT_CONNECTING", "STAT_GOT_IP")


class Wlan(Radio):
    # ssid: None for the network that the board was given. wlan: another interface than the usual
    # one. config: for WLAN.config before connecting, by
    # name; pm, say: network.WLAN.PM_NONE, PM_PERFORMANCE or PM_POWERSAVE.
    def __init__(
        self, ssid: "str | None" = None, key: str = "", wlan: "Any" = None, **config: "Any"
    ) -> None:
        Radio.__init__(self)
        if ssid is None:
            known = wifi()
            if known is None:
                raise Misuse("no Wi-Fi was given: /wifi.json, or sealmq board provision --wifi")
            ssid, key = known
        self._ssid = ssid
        self._key = key
        self._config = config
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

    # The name of the status. A driver that tries on for ever (on an ESP32 unless `reconnects` is
    # set) says nothing here: radio.py gives up.
    def failure(self) -> str:
        status = self.wlan.status()
        for name in dir(network):
            if name.startswith("STAT_") and name not in _WELL and getattr(network, name) == status:
                return name
        return ""
