# What all clients of the demo have in common. It runs in MicroPython, with one enrolment.
#
# Standard output says what happened, one JSON object a line. Standard input takes orders, one a
# line too; its end, also when the demo has died, ends the client.
import json
import select
import sys
import time

from sealmq_device import Client
from sealmq_spec.errors import SealError

_TYPING = False
if _TYPING:
    from typing import Any

_ticks_ms = time.ticks_ms  # type: ignore[attr-defined]
_ticks_add = time.ticks_add  # type: ignore[attr-defined]
_ticks_diff = time.ticks_diff  # type: ignore[attr-defined]

_TRIES = 3


def say(ev: str, **more: "Any") -> None:
    more["ev"] = ev
    print(json.dumps(more))


class Actor:
    # filters: what it subscribes to; said: what it says with that, or None. begin: called with the
    # actor once, before it is ready. act: called with the actor every `every_ms` while the demo
    # runs. read: called with (actor, topic, text) of what it could open.
    def __init__(
        self,
        path: str,
        filters: "tuple[str, ...]" = (),
        act: "Any" = None,
        every_ms: int = 1000,
        read: "Any" = None,
        said: "str | None" = None,
        begin: "Any" = None,
    ) -> None:
        self.client = Client(path)
        self.client.set_callback(self._got)
        self.filters = filters
        self.act = act
        self.every_ms = every_ms
        self.read = read
        self.said = said
        self.begin = begin
        self.number = 0
        self._counted = 0
        self._going = False

    def run(self) -> None:
        c = self.client
        self._connect()
        if self.begin:
            self.begin(self)
        say("ready", client=c.ident.client, kg_time=c.has_kg_time())
        orders = select.poll()
        orders.register(sys.stdin, select.POLLIN)
        due = _ticks_ms()
        while True:
            if orders.poll(20):
                line = sys.stdin.readline()
                if not line:
                    break
                self._obey(json.loads(line))
            try:
                while c.check_msg():
                    pass
            except OSError as e:
                self._lost(e)
            self._told()
            if self._going and self.act and _ticks_diff(_ticks_ms(), due) >= 0:
                due = _ticks_add(_ticks_ms(), self.every_ms)
                self.act(self)
        c.disconnect()
        say("bye", refused=c.refused)

    # As a device in the field does: what cannot be now may be in a second.
    def _connect(self) -> None:
        for left in range(_TRIES - 1, -1, -1):
            try:
                # A reader's session is kept: its messages then come over a connection of its own
                # from the broker, where the demo's attacker can tell them from other readers'.
                self.client.connect(clean_session=not self.filters)
                for filt in self.filters:
                    self.client.subscribe(filt, 1, self.said)
                return
            except (OSError, SealError) as e:
                if not left:
                    raise
                say("again", why=str(e), **{"class": type(e).__name__})
                time.sleep(1)

    # The connection ended, as when a packet was changed on its way: what was stored goes out again.
    def _lost(self, e: "Exception") -> None:
        say("again", why=str(e), **{"class": type(e).__name__})
        self._connect()
        self.client.resend()

    # A number in each text, so that no two readings are alike.
    def publish(self, topic: str, text: str, qos: int) -> None:
        self.number += 1
        text = "%s #%d" % (text, self.number)
        try:
            try:
                self.client.publish(topic, text, qos=qos)
            except OSError as e:
                self._lost(e)
        except SealError as e:
            self.refused("publish", e, topic, text)
        else:
            say("published", topic=topic, text=text, qos=qos)

    def _subscribe(self, filt: str) -> None:
        try:
            self.client.subscribe(filt, 1, self.said)
        except SealError as e:
            self.refused("subscribe", e, filt, "")
        else:
            say("subscribed", topic=filt)

    def refused(self, what: str, e: SealError, topic: str, text: str) -> None:
        rule = getattr(e, "rule", "")
        kind = type(e).__name__
        say("refused", what=what, topic=topic, text=text, rule=rule, why=str(e), **{"class": kind})

    def _obey(self, order: "dict[str, Any]") -> None:
        do = order["do"]
        if do == "go":
            self._going = True
        elif do == "stop":
            self._going = False
        elif do == "publish":
            self.publish(order["topic"], order["text"], order["qos"])
        elif do == "subscribe":
            self._subscribe(order["topic"])
        else:  # of a policy family's act, by a module of its own
            __import__(order["by"]).obey(self, order)

    def _got(self, m: "Any") -> None:
        topic, text = m.topic, m.payload.decode()
        say("read", topic=topic, text=text, label=m.label, sender=m.sender)
        if self.read:
            self.read(self, topic, text)

    # What the mediator told this client, and what this client itself did not take.
    def _told(self) -> None:
        c = self.client
        while c.notices:
            _, _, code, rule, reason = c.notices.pop(0)
            say("notice", code=code, rule=rule, why=reason)
        count = sum(c.refused.values())
        if count != self._counted:
            self._counted = count
            e = c.last_refused
            say("not-taken", why=str(e), refused=c.refused, **{"class": type(e).__name__})
