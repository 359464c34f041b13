"""A dishonest client at an honest mediator (§6.1, G1; claims 5, 15, 16).

B has the label's roots, as its neighbour C has, and a link of its own. It puts into its m2 whatever
m1 it can make or has seen. What B says as itself is B's right. It may not speak as C, wear out C's
numbers, pass one m1 twice, or reach topics that are not its label's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar, NamedTuple

from .attacker import knowledge
from .search import World
from .terms import Term, f, sealed, secret

R_BAR = {1: secret("R̄", "e1"), 2: secret("R̄", "e2")}
OWN, OTHERS, NEW, RESERVED = "arm/angle", "valve/1", "new/topic", "@sm1/m/17"
TOPICS = OWN, OTHERS, NEW, RESERVED


class M1(NamedTuple):
    """The header of an m1, and the topic that its tag covers."""

    sender: str
    session: str
    ctr: int
    t_pub: int
    kind: str
    epoch: int
    topic: str


class State(NamedTuple):
    """`passed`: what the mediator forwarded from B. `label`: of the topic that had none."""

    now: int = 1
    epoch: int = 1
    net: frozenset[Term] = frozenset({R_BAR[1]})
    by_c: frozenset[M1] = frozenset()
    passed: frozenset[tuple[M1, int]] = frozenset()
    written: str = ""
    believed: str = ""
    killed: bool = False
    bad: str = ""


class Siblings(World):
    """B's packets, with B's own valid link and any m1 inside."""

    name = "siblings"
    attacker = "a client that is in, at the same label"
    DEFENCES: ClassVar[dict[str, str]] = {
        "m1-sender": "m1's sender is the client of the link (§6.1, step 4)",
        "m1-session": "m1's boot and salt are the session's (§6.1, step 4)",
        "m1-ctr": "m1's ctr is m2's (§6.1, step 4)",
        "m1-time": "m1's t_pub is m2's s1 (§6.1, step 4)",
        "m1-class": "class retained exactly with RETAIN; will only in CONNECT (§6.1, step 4)",
        "m1-epoch": "m1's epoch is the current one of σ(c), or in its hand-over (§6.1, step 4)",
        "other-tag": "a ctr that comes again with another tag is refused (§6.1, step 2)",
        "label-of-topic": "a topic takes messages of its own label only (§6.1, step 5)",
        "label-durable": "a new topic's label is on disk before the message moves (§6.1, step 5)",
        "label-first": "the first publisher labels a topic, for good (§6.1, step 5)",
        "reserved": "no client publishes to $, ! or @ topics (§4.3)",
        "no-empty": "an empty MQTT payload, which deletes what is retained, is refused (§6.1)",
    }

    def __init__(self, out: frozenset[str] = frozenset(), full: bool = False) -> None:
        super().__init__(out, full)
        self._made: dict[Any, list[tuple[M1, int, str, str]]] = {}

    def starts(self) -> Iterator[tuple[str, State]]:
        """Before and after C has published."""
        yield "B and C are clients at one label; B is dishonest", State()

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """C publishes once, a new epoch begins, B sends, somebody races for a topic."""
        if not s.by_c:
            m1 = M1("C", "C1", 1, s.now, "live", s.epoch, OWN)
            yield "C publishes ctr 1; B reads it, as it may", self._seen(s, m1)
        if s.epoch == 1:
            yield (
                "a new epoch of the label; its hand-over is over",
                s._replace(epoch=2, net=s.net | {R_BAR[2]}),
            )
        if s.now < (4 if self.full else 2):
            yield "W goes by", s._replace(now=s.now + 1)
        if len(s.passed) < (3 if self.full else 2):
            yield from self._sends(s)
        if not self.on["no-empty"]:
            yield (
                "B: PUBLISH with RETAIN and no payload; M forwards it",
                s._replace(bad="a retained message is deleted by what nobody sealed"),
            )
        if not s.passed:
            yield from self._race(s)

    def _term(self, m1: M1) -> Term:
        key = f("i1", m1.sender, m1.session, key=R_BAR[m1.epoch])
        header = {"header": tuple(m1[:6]), "topic": m1.topic}
        return sealed(key, (m1.session, 0, m1.ctr), header, "payload")

    def _seen(self, s: State, m1: M1) -> State:
        return s._replace(by_c=s.by_c | {m1}, net=s.net | {self._term(m1)})

    def _sends(self, s: State) -> Iterator[tuple[str, State]]:
        """Every m1 that B can put into an m2 of its own, and every m2 around it."""
        for m1, ctr, text, bad in self._choices(s.net, s.now, s.epoch):
            again = (m1, ctr) in s.passed
            if again or (self.on["other-tag"] and any(ctr == other for _, other in s.passed)):
                continue
            passed = s.passed | {(m1, ctr)}
            if len({(m.sender, m.session, m.ctr) for m, _ in passed}) < len(passed):
                bad = bad or "one number of a sender goes out twice"
            yield text, s._replace(passed=passed, bad=bad)

    def _choices(
        self, net: frozenset[Term], now: int, epoch: int
    ) -> list[tuple[M1, int, str, str]]:
        """All that B can send and the mediator takes; the same wherever B has the same."""
        key = net, now, epoch
        if key not in self._made:
            knows = knowledge(net)
            # Beside the time of now, B has use for one that is over.
            heads = product(
                ("B", "C"),
                ("B1", "C1"),
                (1, 2),
                (now - 2, now),
                ("live", "retained", "will"),
                (1, 2),
            )
            m1s = [M1(*head, topic) for head, topic in product(heads, (OWN, OTHERS, RESERVED))]
            m1s = [m1 for m1 in m1s if knows.can(self._term(m1))]
            self._made[key] = [
                (m1, ctr, text, self._harm(m1, now, retain, epoch))
                for m1, ctr, retain in product(m1s, (1, 2), (False, True))
                if self._takes(m1, ctr, now, retain, epoch)
                for text in [f"M: forwards B's ctr {ctr}, RETAIN {int(retain)}, with {m1}"]
            ]
        return self._made[key]

    def _takes(self, m1: M1, ctr: int, s1: int, retain: bool, epoch: int) -> bool:
        """Steps 1 to 5 of §6.1; m2's tag is B's own and verifies."""
        rules = {
            "reserved": m1.topic != RESERVED,
            "m1-sender": m1.sender == "B",
            "m1-session": m1.session == "B1",
            "m1-ctr": m1.ctr == ctr,
            "m1-time": m1.t_pub == s1,
            "m1-class": m1.kind == ("retained" if retain else "live"),
            "m1-epoch": m1.epoch == epoch,
            "label-of-topic": m1.topic != OTHERS,
        }
        return all(holds or not self.on[name] for name, holds in rules.items())

    def _harm(self, m1: M1, now: int, retain: bool, epoch: int) -> str:
        """What is wrong for readers and the broker when this goes out; they see no m2."""
        if m1.topic == RESERVED:
            return "a client's message reaches a reserved topic"
        if m1.topic == OTHERS:
            return "readers of another label's topic take a message of this label"
        if m1.sender != "B":
            return "readers take for C's what did not come over C's link"
        if m1.session != "B1":
            return "readers count it in another boot session than the mediator did"
        if m1.kind == "will":
            return "a will goes out while its client is connected"
        if (m1.kind == "retained") != retain:
            return "the broker keeps what was meant to be live, or not what was meant to stay"
        if m1.epoch != epoch:
            return "a live message of an epoch that is over goes out"
        if abs(now - m1.t_pub) > 1:
            return "what is older than W goes out as live"
        return ""

    def _race(self, s: State) -> Iterator[tuple[str, State]]:
        """Two labels publish first to a topic; the mediator may be killed right behind PUBACK."""
        for label in ("valve", "arm"):
            known = s.written or (s.believed if not s.killed else "")
            if known and known != label and self.on["label-first"]:
                continue
            bad = ""
            if s.believed and s.believed != label:
                bad = f"{NEW} has changed its label from {s.believed} to {label}"
            written = label if self.on["label-durable"] else s.written
            text = f"M: {NEW} gets label {label}; its first message and the PUBACK go out"
            if label != s.believed or bad:
                yield text, s._replace(written=written, believed=label, bad=bad)
        if not s.killed:
            yield "M is killed and restarts; what was not on disk is gone", s._replace(killed=True)
