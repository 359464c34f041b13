"""Who can read and make what (§1.1, §2; claims 2 and 3): static, but for the order of events.

Each start is one attacker with all that its place gives it. C publishes at label L, below U and
above D; the key generator publishes records; mediators M and M2 have links with C.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from .attacker import knowledge
from .search import World
from .terms import Term, f, sealed, secret, xor

LABELS = "U", "L", "D"
BELOW = {"U": ("L", "D"), "L": ("D",), "D": ()}
PLAIN = secret("payload")


class State(NamedTuple):
    """What the attacker has by now, and what has happened."""

    who: str
    has: frozenset[Term]
    done: frozenset[str] = frozenset()
    bad: str = ""


class Secrecy(World):
    """Payloads, roots, link roots; and packets that only some may be able to make."""

    name = "secrecy"
    attacker = "network; mediator and broker together; another mediator; a client below; siblings"
    DEFENCES: ClassVar[dict[str, str]] = {
        "mediator-has-ek": "a mediator gets EK, an output of F, and no root (§1.1, §2)",
        "inner-from-r-bar": "m1's key comes from R̄, not from what seals m3 (§2)",
        "record-from-r-bar": "records are tagged under a key from R̄, not from EK (§2, §8)",
        "link-root-each": "each client has a link root with each mediator (§1.1, §7.2)",
        "link-root-own": "link roots are drawn for a client, not derived from the label (§1.1)",
        "provision-from-ps": "ps is a client's own; no other client has it (§7.1)",
        "roots-by-label": "an answer has the roots of σ(c) alone (G9, §7.2)",
        "kg-time-from-ps": "KG time is sealed under ps, not under a link root (§7.3)",
    }

    def starts(self) -> Iterator[tuple[str, State]]:
        """One for each attacker."""
        ek = {self._ek(label) for label in LABELS}
        has: dict[str, set[Term]] = {
            "the network": set(),
            "mediator M and the broker": {*ek, self._link("C", "M")},
            "mediator M2": {*ek, self._link("C", "M2")},
            "a client at D, below": {_r("D"), _r_bar("D"), self._link("E", "M"), self._ps("E")},
            "a sibling at L": {_r("L"), _r_bar("L"), self._link("B", "M"), self._ps("B")},
        }
        for who, terms in has.items():
            yield f"{who} attacks", self._judged(State(who, frozenset(terms)))

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """Everything that goes over the wire, once."""
        m1 = sealed(self._inner("C"), ("salt", 0, 1), {"topic": "t", "label": "L"}, PLAIN)
        link = f("l1", "publish", "M", "salt", key=self._link("C", "M"))
        outer = f("o1", "L", "inst", key=self._ek("L"))
        answer = f("p1", "answer", "Nc", key=self._ps("C"))
        label = "L" if self.on["roots-by-label"] else "U"
        packets = {
            "C publishes: m2": {sealed(link, ("salt", 1, 1), {"topic": "t"}, m1)},
            "M seals: m3": {sealed(outer, "inst‖ms‖seq", {"topic": "t"}, m1)},
            "KG answers C": {
                sealed(answer, "n", {"client": "C"}, _r(label), _r_bar(label), self._link("C", "M"))
            },
            "KG answers B, a sibling": {
                sealed(
                    f("p1", "answer", "Nc2", key=self._ps("B")), "n", {}, _r(label), _r_bar(label)
                )
            },
            "KG publishes derivations": {
                xor(root(n), f("z1", h, n, "kid", top, key=root(top)))
                for h, root in enumerate((_r, _r_bar))
                for top in LABELS
                for n in BELOW[top]
            },
        }
        for text, terms in packets.items():
            if text not in s.done:
                after = s._replace(has=s.has | terms, done=s.done | {text})
                yield text, self._judged(after)

    def _ek(self, label: str) -> Term:
        """What a mediator gets of a label."""
        return f("e1", label, "e", key=_r(label)) if self.on["mediator-has-ek"] else _r(label)

    def _inner(self, sender: str) -> Term:
        root = _r_bar("L") if self.on["inner-from-r-bar"] else self._ek("L")
        return f("i1", sender, "boot", "salt", key=root)

    def _link(self, client: str, mediator: str) -> Term:
        if not self.on["link-root-own"]:
            return f("link", mediator, key=_r("L"))
        return secret("k_c^M", client, mediator if self.on["link-root-each"] else "any")

    def _ps(self, client: str) -> Term:
        return secret("ps", client) if self.on["provision-from-ps"] else secret("ps", "everybody")

    def _judged(self, s: State) -> State:
        """What each must not have or make."""
        can = knowledge(s.has).can
        sibling, lower = s.who.startswith("a sibling"), s.who.startswith("a client")
        allowed = {"L", "D"} if sibling else {"D"} if lower else set()
        bad = ""
        if can(PLAIN) and not sibling:
            bad = "reads a payload of label L"
        for label in LABELS:
            if label not in allowed and (can(_r(label)) or can(_r_bar(label))):
                bad = f"has a root of label {label}"
        if not s.who.startswith("mediator M and") and can(self._link("C", "M")):
            bad = "has C's link root with M"
        record = f(
            "r1", "L", "e", key=_r_bar("L") if self.on["record-from-r-bar"] else self._ek("L")
        )
        if not sibling and can(record):
            bad = "can make a record that leads from L"
        time_root = self._ps("C") if self.on["kg-time-from-ps"] else self._link("C", "M")
        if can(f("t1", "Nc", key=time_root)):
            bad = "can make KG time for C"
        return s._replace(bad=f"{s.who} {bad}" if bad else "")


def _r(label: str) -> Term:
    return secret("R", label)


def _r_bar(label: str) -> Term:
    return secret("R̄", label)
