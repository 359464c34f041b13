# Publishes a reading each `every` seconds and goes on whatever the network does. /app.json says
# what and where; what is measured is yours: a file /app.py with a function measure(), which returns
# a number, a text, bytes, or None for nothing. It prints lines that begin with "sealmq: " and none
# that holds a secret. Ctrl-C gets to the REPL.
import gc
import json
import os
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
_ENOENT = 2
_begun = time.time()


def say(*words: object) -> None:
    print("sealmq:", *words)


# A watchdog, or the one that runs with another time; None where the chip's is too short for that.
def watchdog(ms: int) -> "Any":
    try:
        return machine.WDT(timeout=ms)
    except ValueError:
        return None


# What /app.json says, with what is usual where it says nothing.
def settings() -> "dict[str, Any]":
    app: "dict[str, Any]" = {"topic": "", "every": 10, "qos": 1, "subscribe": "", "purpose": ""}
    try:
        with open("/app.json") as f:
            app.update(json.load(f))
    except OSError:
        say("no /app.json, so nothing is published")
    return app


# What to publish: what measure() of /app.py returns, else the seconds since the start.
def reading() -> "Any":
    try:
        from app import measure  # type: ignore[import-not-found]
    except BaseException as error:
        # It is loaded anew the next time: half of it may be there.
        sys.modules.pop("app", None)
        there = os.listdir("/")
        if isinstance(error, ImportError) and not ("app.py" in there or "app.mpy" in there):
            return "%d" % (time.time() - _begun)
        raise
    return measure()


# The same as bytes; None for nothing.
def payload(value: "Any") -> "bytes | None":
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (int, float, str)):
        return str(value).encode()
    raise TypeError("measure() returned %s; a number, text, bytes or None" % type(value).__name__)


# A client with its network, queue and watchdog.
def board(app: "dict[str, Any]", store: "Any", dog: "Any") -> "Any":
    from sealmq_device import Client
    from sealmq_device.given import wifi
    from sealmq_device.living import Living
    from sealmq_device.outbox import Outbox

    wlan = None
    if wifi():
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

        wlan = Shown()
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


def told(error: BaseException) -> str:
    return "%s %s" % (type(error).__name__, error)


# Whatever is wrong with app.py, or with what it returns, is no reason to start again.
def publish(living: "Any", app: "dict[str, Any]") -> None:
    try:
        value = payload(reading())
        if value is not None:
            living.publish(app["topic"], value, qos=app["qos"])
    except (Exception, SystemExit) as error:
        say("no reading", told(error))


def run(store: "Any", dog: "Any") -> None:
    app = settings()
    living = board(app, store, dog)
    mono = living.core.mono
    begun = mono()
    every = int(app["every"] * 1000)
    at = begun
    while True:
        now = mono()
        if app["topic"] and now >= at:
            at = now + every
            publish(living, app)
        living.turn(min(200, every))
        if sealmq_slots.trial and now - begun > sealmq_slots.wait * 1000:
            why = living.error or "no Wi-Fi"
            raise OSError("no session in %d s, %s" % (sealmq_slots.wait, why))


# Whether there is one that says who this board is.
def enrolled() -> "Any":
    from sealmq_device.given import given

    store = given()
    try:
        store.enrolment()
    except OSError as error:
        if error.errno != _ENOENT:
            raise
        return None
    return store


# Whatever ends the program starts the board again: a trial's starts are counted, and a board on a
# wall has nobody who would.
def guarded() -> None:
    try:
        store = enrolled()
        if store is None:
            say("no enrolment: provision this board")
            return
        run(store, watchdog(_DOG_MS))
    except (Exception, SystemExit) as error:
        sys.print_exception(error)  # type: ignore[attr-defined]
        say("failed", told(error))
        try:
            sealmq_slots.failed(told(error))
        except OSError:
            pass  # the start is counted as it is
    say("starts again in %d s" % _PAUSE_S)
    time.sleep(_PAUSE_S)
    machine.reset()


try:
    guarded()
except KeyboardInterrupt:
    say("stopped")
    watchdog(_REPL_MS)
