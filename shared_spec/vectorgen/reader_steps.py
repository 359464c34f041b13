"""What reader cases are made of: senders, messages, records, the steps of a reader."""

from __future__ import annotations

from .case import Cases, Json, client_json, roots_json
from .cases_envelopes import PLAIN, TOPIC, T
from .envelopes import LIVE, fired, m1, m3
from .model import Client, Order, Roots, client, rnd, roots

KG = Order(2, T * 1000, 0)
INST = 9
OWN, OLD, OLDER = roots(16, 5, 1), roots(16, 4, 1), roots(16, 3, 1)
LOW, LOWER = roots(17, 2, 1), roots(17, 1, 1)


def sender(own: Roots = OWN, number: int = 8, boot: int = 5) -> Client:
    """Who publishes at a label; another boot has another salt."""
    salt = rnd(f"sender {number} boot {boot}", 8)
    return client(own.suite).but(client=number, boot=boot, salt=salt, own=own)


def send(
    who: Client,
    ctr: int,
    t_pub: int = T,
    s2: int = T,
    how: int = LIVE,
    kind: int = LIVE,
    life: int = 0,
    topic: bytes = TOPIC,
    outer: Roots | None = None,
    block: bytes | None = None,
    ms: int = 0,
    seq: int = 0,
) -> bytes:
    """m3 as an honest mediator makes it: an untimed one (t_pub 0) fired at s2, others fire not.

    s2 in seconds, ms on top of it.
    """
    if block is None:
        block = b"\x00" if t_pub else fired(s2)
    inner = m1(who, topic, PLAIN, ctr, t_pub, kind, life)
    order = Order(INST, s2 * 1000 + ms, seq)
    return m3(who.site, outer or who.own, order, topic, inner, how, block)


def take(packet: bytes, now: int = T, topic: bytes = TOPIC, ms: int = 0) -> Json:
    """The step that hands a reader m3 at a time in seconds, with ms on top."""
    step: Json = {"do": "open", "topic": topic.hex(), "packet": packet.hex()}
    return {**step, "now_ms": now * 1000 + ms}


def ok(
    packet: bytes,
    who: Client,
    now: int = T,
    age: int = 0,
    how: int = LIVE,
    topic: bytes = TOPIC,
    ms: int = 0,
    items: Json | None = None,
    flip: bool = False,
) -> Json:
    """The step in which a reader takes m3 and delivers it. items: the families'."""
    out: Json = {"payload": PLAIN.hex(), "label": who.own.label, "sender": who.client, "age": age}
    out |= {"how": how, "tlv": sorted([int(t), v] for t, v in (items or {}).items())}
    return {**take(packet, now, topic, ms), "out": out, **({"flip": ["packet"]} if flip else {})}


def no(packet: bytes, refuse: str, now: int = T, topic: bytes = TOPIC, ms: int = 0) -> Json:
    """The step in which a reader refuses m3."""
    return {**take(packet, now, topic, ms), "refuse": refuse}


def put_record(packet: bytes, added: bool = True, flip: bool = False) -> Json:
    """A record that is accepted."""
    step: Json = {"do": "record", "packet": packet.hex(), "out": {"added": added}}
    return {**step, **({"flip": ["packet"]} if flip else {})}


def no_record(packet: bytes, refuse: str) -> Json:
    """A record that is refused."""
    return {"do": "record", "packet": packet.hex(), "refuse": refuse}


def put_manifest(packet: bytes, flip: bool = False) -> Json:
    """A manifest that is accepted."""
    step: Json = {"do": "manifest", "packet": packet.hex(), "out": {}}
    return {**step, **({"flip": ["packet"]} if flip else {})}


def take_roots(own: Roots) -> Json:
    """Provisioning has brought the reader's client these roots."""
    return {"do": "roots", "own": roots_json(own), "out": {}}


class Story:
    """Writes reader cases: who reads, and what happens to it."""

    def __init__(self, cases: Cases) -> None:
        self.cases = cases
        self.site = client().site
        # Whether the reader takes messages of other sites.
        self.origin = False

    def tell(
        self,
        name: str,
        what: str,
        *steps: Json,
        own: Roots = OWN,
        limit: int = 64,
        known: tuple[int, ...] = (),
        section: str = "6.2",
        me: Client | None = None,
    ) -> None:
        """One case. me: who reads, in a boot session."""
        given: Json = {} if me is None else {"boot": me.boot, "salt": me.salt.hex()}
        me = me or client(own.suite).but(own=own)
        given |= {"client": client_json(me), "limit": limit, "known_tlv": list(known)}
        if self.origin:
            given["origin"] = True
        self.cases.script(f"reader-{name}", section, what, "reader", given, list(steps))
