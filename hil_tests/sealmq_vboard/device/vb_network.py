# The module `network` of a board: a station, among the networks that the board's folder names. The
# host knows their keys (child.py); a network that is off is out of reach. IP is the host's own.
import struct

import vb_host
import vb_missing

STA_IF = 0
AP_IF = 1
STAT_IDLE = 1000
STAT_CONNECTING = 1001
STAT_GOT_IP = 1010
STAT_NO_AP_FOUND = 201
STAT_WRONG_PASSWORD = 202
STAT_BEACON_TIMEOUT = 200
STAT_ASSOC_FAIL = 203
STAT_CONNECT_FAIL = 203
STAT_HANDSHAKE_TIMEOUT = 204
AUTH_OPEN = 0
AUTH_WPA2_PSK = 3

_live = vb_host.live
_hostname = "mpy-esp32"


# How often the network went away, and whether it is there.
def _lost():
    return struct.unpack_from("<I", _live, 4)[0]


class WLAN:
    IF_STA = STA_IF
    IF_AP = AP_IF
    PM_NONE = 0
    PM_PERFORMANCE = 1
    PM_POWERSAVE = 2

    def __new__(cls, interface=STA_IF):
        if interface != STA_IF:
            raise NotImplementedError("virtual board: network.WLAN as access point")
        return _station

    def active(self, is_active=None):
        if is_active is not None:
            if not is_active:
                self._wanted = None
                self._drop()
            self._active = bool(is_active)
        return self._active

    # Returns at once, as the driver does; `status` and `isconnected` say what came of it.
    def connect(self, ssid=None, key=None, *, bssid=None):
        if bssid is not None:
            raise NotImplementedError("virtual board: WLAN.connect with a bssid")
        if not self._active:
            raise OSError("WiFi Not Started")
        if ssid is not None:
            self._wanted = (ssid, key or "")
        if self._wanted is None:
            raise OSError("WiFi SSID Invalid")
        self._drop()
        self._asked = True
        self._tries = 0
        self._try()

    def disconnect(self):
        if not self._active:
            raise OSError("WiFi Not Started")
        self._asked = False
        self._drop()

    def isconnected(self):
        self._look()
        return self._up

    def status(self, what=None):
        if what is not None:
            raise NotImplementedError("virtual board: WLAN.status(%r)" % (what,))
        self._look()
        if self._up:
            return STAT_GOT_IP
        if self._asked and (self._reconnects < 0 or self._tries <= self._reconnects):
            return STAT_CONNECTING
        return self._reason or STAT_IDLE

    def ifconfig(self, config=None):
        if config is not None:
            raise NotImplementedError("virtual board: WLAN.ifconfig with addresses (no choice)")
        self._look()
        if not self._up:
            return ("0.0.0.0",) * 4
        return tuple(vb_host.boot["ip"])

    def ipconfig(self, *what, **config):
        if config or len(what) != 1:
            raise NotImplementedError("virtual board: WLAN.ipconfig that sets something")
        address, mask, gateway, _ = self.ifconfig()
        if what[0] == "addr4":
            return (address, mask)
        if what[0] == "gw4":
            return gateway
        if what[0] == "has_dhcp4":
            return self._up
        raise NotImplementedError("virtual board: WLAN.ipconfig(%r)" % what[0])

    def config(self, *what, **config):
        if what and config:
            raise TypeError("either pos or kw args are allowed")
        if not what:
            for name in config:
                if name not in ("pm", "txpower", "reconnects", "hostname", "dhcp_hostname"):
                    raise NotImplementedError("virtual board: WLAN.config(%s=)" % name)
            # txpower and pm change nothing here: there is no radio.
            self._config.update(config)
            self._reconnects = self._config["reconnects"]
            return None
        if what[0] == "mac":
            return bytes(vb_host.boot["mac"])
        if what[0] in ("ssid", "essid"):
            return self._wanted[0] if self._wanted else ""
        if what[0] in self._config:
            return self._config[what[0]]
        raise NotImplementedError("virtual board: WLAN.config(%r)" % what[0])

    def scan(self):
        raise NotImplementedError("virtual board: WLAN.scan")

    # --- inside

    def _drop(self):
        self._up = False
        self._reason = 0

    # The driver tries on for ever unless `reconnects` bounds it; here, when it is looked at.
    def _look(self):
        if self._up and (self._lost != _lost() or not _live[0]):
            self._up = False
            self._reason = STAT_BEACON_TIMEOUT
        if not self._up and self._asked and self._active:
            if self._reconnects < 0 or self._tries <= self._reconnects:
                self._try()

    def _try(self):
        self._tries += 1
        self._lost = _lost()
        ssid, key = self._wanted
        self._reason = -vb_host.call(b"C" + ssid.encode() + b"\0" + key.encode())[0]
        self._up = self._reason == 0
        if self._up:
            self._tries = 0


_station = object.__new__(WLAN)
_station._active = _station._asked = _station._up = False
_station._wanted = None
_station._reason = _station._tries = 0
_station._reconnects = -1
_station._config = {"pm": WLAN.PM_PERFORMANCE, "txpower": 20, "reconnects": -1}


def hostname(name=None):
    global _hostname
    if name is None:
        return _hostname
    _hostname = name


_MISSING = ("LAN", "PPP", "country", "ipconfig", "phy_mode")


# Whether it is on, connected or not.
def radio():
    return _station._active


# For the sockets: how often the connection was lost, -1 while there is none.
def link():
    station = _station
    if station._up or station._asked:
        station._look()
        if station._up:
            return station._lost
    return -1


vb_missing.fill(globals(), "network", _MISSING)
__name__ = "network"
