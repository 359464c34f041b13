"""PUBLISH up to an honest mediator (§3.2, §6.1, steps 1 to 4), and what comes back (§4.4).

Here the attacker is the network, which also forges PUBACKs on both sides of the mediator's back: to
the client. Time is in steps of W. The client restarts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from .search import World
from .terms import Term, f, readings, sealed, secret

LINK = secret("k_c^M")
TOPICS = "arm/angle", "arm/height"
# What of PUBLISH's first byte the link covers: QoS and RETAIN.
QOS_0, QOS_1, KEPT = "QoS 0", "QoS 1", "QoS 1, RETAIN"
FLAGS = QOS_0, QOS_1, KEPT


class State(NamedTuple):
    """`sent`: m2 with topic, flags, time. `window`: (boot, ctr) with m2. `done`: broker has it."""

    now: int = 0
    boot: int = 1
    ctr: int = 0
    net: frozenset[Term] = frozenset()
    sent: frozenset[tuple[Term, str, str, int]] = frozenset()
    window: frozenset[tuple[int, int, Term]] = frozenset()
    forwarded: frozenset[Term] = frozenset()
    done: frozenset[tuple[int, int]] = frozenset()
    believed: frozenset[tuple[int, int]] = frozenset()
    kept: tuple[tuple[str, tuple[int, int, int]], ...] = ()
    bad: str = ""


class Publishing(World):
    """One client's messages, an honest mediator, receipts."""

    name = "publishing"
    attacker = "the network"
    DEFENCES: ClassVar[dict[str, str]] = {
        "m2-tag": "m2 is sealed under the link key (§3.2)",
        "m2-binds-topic": "m2's associated data has the topic (§3.2)",
        "m2-binds-flags": "m2's associated data has QoS and RETAIN (§3.2)",
        "m2-window": "a ctr counts once (§6.1, step 2)",
        "s1-fresh": "s1 is within W at QoS 0, within life above (§6.1, step 4)",
        "m2-of-session": "salt enters the link key and m2's nonce (§2, §3.2)",
        "retained-order-up": "a retained message below the newest passed is refused (§6.1)",
        "receipt": "a client that doubts its network believes receipts, not PUBACKs (§4.4)",
        "receipt-of-session": "salt enters the key of down packets (§2, §4.4)",
        "receipt-after-broker": "a receipt says what the broker has taken (§4.4)",
    }

    def starts(self) -> Iterator[tuple[str, State]]:
        """A client with a session."""
        yield "C has connected and been welcomed", State()

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """The client publishes, the network delivers, time goes by."""
        if s.now < (3 if self.full else 2):
            yield "W goes by", s._replace(now=s.now + 1)
        if s.ctr < 2 and len(s.sent) < (3 if self.full else 2):
            for topic in TOPICS:
                for flags in FLAGS:
                    yield self._publish(s, topic, flags)
        if s.boot == 1 and s.ctr:
            text = "C restarts: next boot, new salt, ctr from 1"
            yield text, s._replace(boot=2, ctr=0, believed=frozenset())
        for term in s.net:
            if term.args[0].args[1][0] == "publish":
                for r in readings(term, topic=TOPICS, flags=FLAGS, ctr=(), s1=()):
                    yield from self._judge(s, term, r["topic"], r["flags"], r["ctr"], r["s1"])
        if not self.on["m2-tag"]:
            forged = sealed(self._key("publish", s.boot), "forged", {})
            yield from self._judge(s, forged, TOPICS[1], QOS_1, 9, s.now)
        yield from self._believe(s)

    def _key(self, use: str, boot: int) -> Term:
        bound = self.on["receipt-of-session" if use == "down" else "m2-of-session"]
        return f("l1", use, "M", f"salt{boot}" if bound else "no salt", key=LINK)

    def _publish(self, s: State, topic: str, flags: str) -> tuple[str, State]:
        ctr = s.ctr + 1
        fields = self.cover("m2", topic=topic, flags=flags, ctr=ctr, s1=s.now)
        term = sealed(self._key("publish", s.boot), (1, ctr), fields, f"m1 {s.boot}.{ctr}")
        sent = s.sent | {(term, topic, flags, s.now)}
        text = f"C: PUBLISH {topic}, {flags}, boot {s.boot}, ctr {ctr}, at {s.now}·W"
        return text, s._replace(ctr=ctr, net=s.net | {term}, sent=sent)

    def _judge(
        self, s: State, term: Term, topic: str, flags: str, ctr: int, s1: int
    ) -> Iterator[tuple[str, State]]:
        """What the mediator does with an m2 that verifies in the session of now."""
        if term.args[0] is not self._key("publish", s.boot):
            return
        # A retained message here lives for 3·W, another for W.
        life = 3 if flags == KEPT else 1
        if self.on["s1-fresh"] and not -1 <= s.now - s1 <= life:
            return
        if self.on["m2-window"] and any(w[:2] == (s.boot, ctr) for w in s.window):
            return
        kept, order = dict(s.kept), (s1, s.boot, ctr)
        old = flags == KEPT and order < kept.get(topic, (0, 0, 0))
        if old and self.on["retained-order-up"]:
            return
        bad = ""
        if term not in s.net:
            bad = "the mediator forwards what the client never published"
        elif not any(x[:3] == (term, topic, flags) for x in s.sent):
            bad = "the mediator forwards a message on another topic or with other flags"
        elif term in s.forwarded:
            bad = "the mediator forwards one message twice"
        elif not -1 <= s.now - s1 <= life:
            bad = "the mediator forwards a message that is too old"
        elif old:
            bad = "the network sets a retained message back"
        if flags == KEPT:
            kept[topic] = max(order, kept.get(topic, order))
        after = s._replace(
            window=s.window | {(s.boot, ctr, term)}, forwarded=s.forwarded | {term},
            kept=tuple(sorted(kept.items())), bad=bad,
        )  # fmt: skip
        text = f"M: accepts ctr {ctr} on {topic}, {flags}"
        taken = s.done | {(s.boot, ctr)}
        yield f"{text}; the broker takes it; M sends a receipt", self._receipt(after, taken, ctr)
        if flags != QOS_0:
            lost = after if self.on["receipt-after-broker"] else self._receipt(after, s.done, ctr)
            yield f"{text}; the broker is lost before it takes it", lost

    def _receipt(self, s: State, done: frozenset[tuple[int, int]], ctr: int) -> State:
        says = frozenset({x for x in done if x[0] == s.boot} | {(s.boot, ctr)})
        receipt = sealed(self._key("down", s.boot), "inst‖ms‖seq", {"client": "C"}, says)
        return s._replace(done=done, net=s.net | {receipt})

    def _believe(self, s: State) -> Iterator[tuple[str, State]]:
        """What the client takes for done."""
        mine = {(s.boot, ctr) for ctr in range(1, s.ctr + 1)}
        for term in s.net:
            if term.args[0] is self._key("down", s.boot):
                shown = {(s.boot, ctr) for _, ctr in term.args[3][0]} & mine
                yield from self._hears(s, shown, "takes a receipt")
        if not self.on["receipt"]:
            yield from self._hears(s, mine, "takes a PUBACK that the network made")

    def _hears(
        self, s: State, shown: set[tuple[int, int]], how: str
    ) -> Iterator[tuple[str, State]]:
        if shown - s.believed:
            bad = "" if shown <= s.done else "the client takes for done what no broker has"
            numbers = ", ".join(str(ctr) for _, ctr in sorted(shown))
            text = f"C: {how}: done are ctr {numbers}"
            yield text, s._replace(believed=s.believed | shown, bad=bad)
