"""A running closed site for tests of purposes: who reads and writes there, who says what for."""

from __future__ import annotations

import os
import signal

from sealmq_spec import purposes as say
from sealmq_spec.const import OP_COMMAND, OP_REPLY

from mqtt_peers import SYNC, Keeper, Sealed, provisioned
from mqtt_stage import LABEL
from running_site import Site, until
from wire import CONTROL, RawClient, mono, publish

CARE, BILL, OTHER = "care", "bill", "other"
# Beside what tests reserve themselves: what Peer.sync subscribes to, without a purpose.
TABLES = f"""
[families.purposes]
mode = "hybrid"
stewards = ["steward"]
[families.purposes.reserve]
{SYNC} = {{ aip = ["{CARE}"] }}
[families.purposes.presubscribe]
reader = {{ {SYNC} = "{CARE}", "plain/+" = "{CARE}" }}
higher = {{ {SYNC} = "{CARE}" }}
beside = {{ {SYNC} = "{CARE}" }}
"""
CLIENTS = {
    "steward": "bottom",
    "writer": LABEL,
    "reader": LABEL,
    "keeper": LABEL,
    "higher": "m1-ctrl",
}


class Place:
    """`play`: the first level of a test's own topics. beside: a client at a label beside theirs."""

    def __init__(self, site: Site, broker: str) -> None:
        self.site, self.broker = site, broker
        self.play = ""
        self._boots = 0
        for name, label in {**CLIENTS, "beside": "m2-temp"}.items():
            site.enrol(name, label)
        site.purposes(TABLES)
        site.up("--broker", broker)
        self.connect_steward()
        self._keeper = Keeper(lambda: Sealed("keeper", "keeper", self._raw("keeper")))

    def _raw(self, name: str) -> RawClient:
        raw = provisioned(self.site.port, self.site.clients / name / "sealmq.json")
        self._boots += 1
        raw.boot = 1000 + self._boots
        raw.noted = self.site.noted
        return raw

    def client(self, name: str, clean: bool = True) -> Sealed:
        """Connected, right behind its start."""
        raw = self._raw(name)
        peer = Sealed(name, self.play, raw)
        peer.keeper = self._keeper

        def admitted() -> bool:
            peer.connect(clean=clean)
            return peer.welcome

        until(f"{name} to be let in", admitted)
        return peer

    # --- what the steward says ---

    def connect_steward(self) -> None:
        """Anew, where the mediator was killed."""
        self._steward = self._raw("steward")
        self._steward.connect(keepalive=0)

    def say(self, text: str) -> bytes:
        """A command; its reply. What it changes is in force then."""
        raw = self._steward
        body = bytes((OP_COMMAND, 8)) + b"purposes" + text.encode()
        raw.wire.send(publish(CONTROL, raw.session.up(body, mono())))
        while True:
            op, what = raw.control(raw.next("a reply"))
            assert op != 3, f"{text}: {what}"
            if op == OP_REPLY:
                assert isinstance(what, tuple)
                return bytes(what[1])

    def at(self, topic: str) -> str:
        """A topic or filter at this test's place."""
        return f"{self.play}/{topic}"

    def reserve(self, topic: str, *aip: str, pip: tuple[str, ...] = ()) -> None:
        self.say(say.reserve(self.at(topic), aip, pip))

    def release(self, *topics: str) -> None:
        for topic in topics:
            self.say(say.release(self.at(topic)))

    def access(self, topic: str, purpose: str = CARE) -> str:
        """The filter of a subscription for a purpose."""
        return say.access(self.at(topic), purpose)

    def mode(self, mode: str) -> None:
        """Live, by a command; "" is what sealmq.toml says."""
        self.say(say.setting("mode", mode))

    def reload(self, old: str, new: str) -> None:
        """sealmq.toml is changed and taken over."""
        before = len(self.site.audit("config-reloaded", role="mediator"))
        self.site.edit(old, new)
        os.kill(self.site._supervisor(), signal.SIGHUP)
        until(
            "the mediator to take it over",
            lambda: len(self.site.audit("config-reloaded", role="mediator")) > before,
        )


def seen(peer: Sealed) -> list[str]:
    """What it has got since it was asked last, as TOPIC PAYLOAD qN rN, without DUP."""
    peer.sync()
    got, peer.got = [line.rpartition(" ")[0] for line in peer.got], []
    return got


def sent(peer: Sealed, *messages: tuple[str, str], qos: int = 1, retain: bool = False) -> None:
    """The broker has these: (topic, payload)."""
    for topic, payload in messages:
        peer.publish(topic, payload.encode(), qos, retain)
    if qos:
        peer.await_("pubcomp" if qos == 2 else "puback", len(messages))
    else:
        peer.settle()
