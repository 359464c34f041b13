"""What scripts of clients that live begin with: `living()` makes one that says all that happens,
and a clock, a random source and Wi-Fi hardware that obey the test.

The stand-in for `network` keeps to what MicroPython documents of an ESP32: WLAN objects of one
interface share its state; connect() only begins; with the driver's own retries status() says
STAT_CONNECTING until there is an address; connect() while the interface is off, or while it is
connecting, is an OSError.
"""

from __future__ import annotations

from device_script import PRELUDE, Board
from peer_connection import Connection

LIVING = (
    PRELUDE
    + """
from sealmq_device.living import Living
from sealmq_device.outbox import Outbox
def name(error):
    return "OSError" if isinstance(error, OSError) else type(error).__name__ if error else ""
def told(item, how, error):
    say(item.n, how, name(error))
def changed(up, error):
    say("up" if up else "down", name(error))
def living(wlan=None, wdt=None, patience=0, clean=True, box=None, **options):
    options.setdefault("keepalive", 60)
    made = Living(client(**options), wlan, box, wdt, patience, clean)
    made.outbox.prove_ms = 0
    made.backoff.draw = lambda: 0
    made.outbox.on_outcome = told
    made.on_change = changed
    return made
# The client's clock from here on: it goes on when the test says so.
def stopped(made):
    clock = [made.core.mono()]
    made.core.mono = lambda: clock[0]
    return clock
def until(made, look):
    for _ in range(2000):
        if look():
            return
        made.turn(10)
    say("in vain")
"""
)

NETWORK = """
class Radio:
    active = False
    asked = False       # connect() was called, disconnect() was not
    reachable = True    # whether an access point answers
    password = "right"
    key = ""
    log = []
class WLAN:
    PM_NONE, PM_PERFORMANCE, PM_POWERSAVE = 0, 1, 2
    def __init__(self, interface):
        assert interface == network.STA_IF
    def active(self, on=None):
        if on is None:
            return Radio.active
        Radio.active = on
        if not on:
            Radio.asked = False
        Radio.log.append("on" if on else "off")
    def config(self, **kw):
        Radio.log.append(kw)
    def connect(self, ssid, key):
        if not Radio.active or Radio.asked:
            raise OSError("Wifi Internal State Error")
        Radio.asked = True
        Radio.key = key
        Radio.log.append("connect " + ssid)
    def disconnect(self):
        if not Radio.active:
            raise OSError("Wifi Not Started")
        Radio.asked = False
    def isconnected(self):
        return Radio.active and Radio.asked and Radio.reachable and Radio.key == Radio.password
    def status(self):
        if self.isconnected():
            return network.STAT_GOT_IP
        if Radio.asked and Radio.key != Radio.password and Radio.reachable:
            return network.STAT_WRONG_PASSWORD
        return network.STAT_CONNECTING if Radio.asked else network.STAT_IDLE
class network:
    STA_IF = 0
    STAT_IDLE, STAT_CONNECTING, STAT_GOT_IP, STAT_WRONG_PASSWORD = 1000, 1001, 1010, 202
network.WLAN = WLAN
sys.modules["network"] = network
from sealmq_device.wlan import Wlan
"""


def hangs_up(c: Connection) -> bool:
    """For a hook: the connection ends here."""
    c.sock.close()
    return True


def gives_receipts(b: Board) -> None:
    """A PINGREQ is answered with a receipt, as a mediator does when it owes one."""

    def on_ping(c: Connection) -> bool:
        c.receipt()
        return False

    b.peer.on_ping = on_ping


def live(b: Board, interpreter: str, script: str, prelude: str = LIVING) -> list[str]:
    """What the script says, trailing blanks off."""
    return [line.rstrip() for line in b.run(interpreter, script, prelude)]


def first_of_each(b: Board) -> list[str]:
    """The messages that a mediator would have forwarded, in order: each ctr counts once."""
    seen = set()
    forwarded = []
    boots: dict[tuple[int, ...], None] = {}
    for event in b.peer.events:
        if event[0] == "connected":
            boots[event[1:3]] = None
        elif event[0] == "publish":
            key = (list(boots)[-1], event[4])
            if key not in seen:
                seen.add(key)
                forwarded.append(event[2].decode())
    return forwarded
