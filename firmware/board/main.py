# Publishes a reading each `every` seconds and goes on whatever the network does. /app.json says
# what and where; what is measured is yours: a file /app.py with a function measure(). It prints
# lines that begin with "sealmq: " and none that holds a secret. Ctrl-C gets to the REPL.
import gc
import json
import sys
import time

import machine
import sealmq_slots

_TYPING = False
if _TYPING:
    from typing import Any

# Collecting often keeps what lives together. Else it lies scattered over all of the memory, and a
# piece of a few kB is nowhere to be had.
gc.threshold(16_384)  # type: ignore[attr-defined]

# More than a connect takes at most: 30 times the client's timeout.
_DOG_MS = 150_000
# Who has stopped the program works at the REPL; a watchdog cannot be stopped.
_REPL_MS = 3_600_000
_PAUSE_S = 5
_ENROLMENT = 4000  # bytes at most


def say(*words: object) -> None:
    print("sealmq:", *words)


# A blob of NVS, b"" where there is none.
def blob(key: str, size: int = 512) -> bytes:
    from esp32 import NVS

    buf = bytearray(size)
    try:
        return bytes(buf[: NVS("sealmq").get_blob(key, buf)])
    except OSError:
        return b""


# What /app.json says, with what is usual where it says nothing.
def settings() -> "dict[str, Any]":
    app: "dict[str, Any]" = {"topic": "", "every": 10, "qos": 1, "subscribe": "", "purpose": ""}
    try:
        with open("/app.json") as f:
            app.update(json.load(f))
    except OSError:
        say("no /app.json, so nothing is published")
    return app


# What to publish: measure() of /app.py, else the seconds since the start.
def reading() -> "Any":
    try:
        from app import measure  # type: ignore[import-not-found]

        return measure
    except ImportError:
        start = time.time()
        return lambda: "%d" % (time.time() - start)


# A client with its network, queue and watchdog.
def board(app: "dict[str, Any]", dog: "Any") -> "Any":
    from sealmq_device import Client
    from sealmq_device.living import Living
    from sealmq_device.nvs import NvsStore
    from sealmq_device.outbox import Outbox

    wifi = blob("wifi")
    at = blob("mediator").decode()

    class Store(NvsStore):
        # The enrolment, with another address where this board has one.
        def enrolment(self) -> "dict[str, Any]":
            found = NvsStore.enrolment(self)
            host, colon, port = at.rpartition(":")
            if colon:
                found["mediator"]["host"] = host
                found["mediator"]["port"] = int(port)
            return found

    store = Store()
    wlan = None
    if wifi:
        from sealmq_device.wlan import Wlan

        class Shown(Wlan):
            was_up = False

            # Says once what address it has.
            def up(self) -> bool:
                before = self.was_up
                self.was_up = Wlan.up(self)
                if self.was_up and not before:
                    say("wifi up ip=" + self.wlan.ifconfig()[0])
                return self.was_up

        known = json.loads(wifi)
        wlan = Shown(known["ssid"], known["key"])
    slot = sealmq_slots.slot
    say("boot slot=%s ver=%s boot=%d" % (slot, sealmq_slots.version(slot), store.boot()))
    living = Living(Client(store, keepalive=60, timeout=5), wlan, Outbox(), dog)
    living.outbox.on_outcome = ended
    living.on_change = changed
    living.set_callback(lambda m: say("got", m.topic, "bytes=%d age=%s" % (len(m.payload), m.age)))
    if app["subscribe"]:
        living.subscribe(app["subscribe"], qos=app["qos"], purpose=app["purpose"] or None)
    return living


def ended(item: "Any", outcome: str, error: "Exception | None") -> None:
    if outcome == "accepted" or outcome == "sent":
        say("published ctr=%d" % item.ctr)
    else:
        say(outcome, "n=%d" % item.n, told(error) if error else "")


def changed(up: bool, error: "Exception | None") -> None:
    if not up:
        say("down", told(error) if error else "")
    elif error:
        say("refused", told(error))
    else:
        say("up")
        if sealmq_slots.confirm():
            say("slot confirmed", sealmq_slots.slot)


def told(error: BaseException) -> str:
    return "%s %s" % (type(error).__name__, error)


# A sensor that does not answer is no reason to start again.
def publish(living: "Any", app: "dict[str, Any]", measure: "Any") -> None:
    try:
        value = measure()
    except Exception as error:
        say("no reading", told(error))
        return
    living.publish(app["topic"], value, qos=app["qos"])


def run(dog: "Any") -> None:
    app = settings()
    measure = reading()
    living = board(app, dog)
    mono = living.core.mono
    begun = mono()
    every = int(app["every"] * 1000)
    at = begun
    while True:
        now = mono()
        if app["topic"] and now >= at:
            at = now + every
            publish(living, app, measure)
        living.turn(min(200, every))
        if sealmq_slots.trial and now - begun > sealmq_slots.wait * 1000:
            why = living.error or "no Wi-Fi"
            raise OSError("no session in %d s, %s" % (sealmq_slots.wait, why))


# Whatever ends the program starts the board again: a trial's starts are counted, and a board on a
# wall has nobody who would.
def main() -> None:
    dog: "Any" = None
    if not blob("enrolment", _ENROLMENT):
        say("no enrolment: provision this board")
        return
    try:
        dog = machine.WDT(timeout=_DOG_MS)
        run(dog)
    except KeyboardInterrupt:
        say("stopped")
        if dog:
            machine.WDT(timeout=_REPL_MS)
    except Exception as error:
        sys.print_exception(error)  # type: ignore[attr-defined]
        say("failed", told(error))
        try:
            sealmq_slots.failed(told(error))
        except OSError:
            pass  # the start is counted as it is
        say("starts again in %d s" % _PAUSE_S)
        time.sleep(_PAUSE_S)
        machine.reset()


main()
