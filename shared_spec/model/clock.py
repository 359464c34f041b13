"""Time (§7.3; claim 19): a clock that says it is the key generator's is right.

The mediator is dishonest and the network delays; KG time itself cannot be made by either
(secrecy.py). The client does not restart, so its clock must never go backwards. Steps are of W.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from .search import World
from .terms import Term, f, sealed, secret

PS = secret("ps")


class State(NamedTuple):
    """`ahead`: the client's clock less true time; None: it has none. `since`: when it asked."""

    now: int = 0
    ahead: int | None = None
    from_kg: bool = False
    asked: int = 0
    open: int = 0
    since: int = 0
    net: frozenset[Term] = frozenset()
    told: int = 0
    bad: str = ""


class Clock(World):
    """Times from the key generator and from a mediator, in any order, early and late."""

    name = "clock"
    attacker = "a dishonest mediator, and the network"
    DEFENCES: ClassVar[dict[str, str]] = {
        "kg-time-nc": "KG time is for one N_c (§7.3)",
        "within-2-s": "an answer that took longer than 2 s sets no clock (§7.3)",
        "kg-time-stays": "a mediator's time never moves a clock that KG time has set (§7.3)",
        "never-back": "within a boot session time never goes backwards (§7.3)",
        "ahead-is-no-kg": "a clock ahead of KG time does not count as KG time (§7.3)",
    }

    def starts(self) -> Iterator[tuple[str, State]]:
        """Devices have no clock at first."""
        yield "C has no clock", State()

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """Time goes by; the client asks; the key generator answers; anything arrives."""
        if s.now < (3 if self.full else 2):
            yield "W goes by", s._replace(now=s.now + 1)
        if s.asked < (3 if self.full else 2):
            n = s.asked + 1
            yield f"C: asks for KG time with Nc{n}", s._replace(asked=n, open=n, since=s.now)
        for n in range(1, s.asked + 1):
            answer = self._answer(n, s.now)
            if answer not in s.net:
                yield f"KG: its time for Nc{n} is {s.now}·W", s._replace(net=s.net | {answer})
        for term in s.net:
            key = f("t1", f"Nc{s.open}", key=PS) if self.on["kg-time-nc"] else f("t1", key=PS)
            late = s.now > s.since and self.on["within-2-s"]
            if s.open and term.args[0] is key and not late:
                (time,) = term.args[3]
                after = self._set(s._replace(open=0), time, from_kg=True)
                yield f"C: takes KG time {time}·W", after
        if s.told < (3 if self.full else 2):
            for time in range(5):
                after = self._set(s._replace(told=s.told + 1), time, from_kg=False)
                yield f"M: says that it is {time}·W", after

    def _answer(self, n: int, now: int) -> Term:
        key = f("t1", f"Nc{n}", key=PS) if self.on["kg-time-nc"] else f("t1", key=PS)
        return sealed(key, "inst‖ms‖seq", {"client": "C"}, now)

    def _set(self, s: State, time: int, from_kg: bool) -> State:
        """What the client does with a time that it is told."""
        ahead = time - s.now
        if s.ahead is None:
            return self._judged(s._replace(ahead=ahead, from_kg=from_kg))
        if s.from_kg and not from_kg and self.on["kg-time-stays"]:
            return s
        back = ahead < s.ahead
        if back and not self.on["never-back"]:
            return s._replace(bad="the client's clock goes backwards")
        counts = from_kg and not (back and self.on["ahead-is-no-kg"])
        # Without the rule a mediator's time would be taken for what had been set before.
        counts = counts or (s.from_kg and not self.on["kg-time-stays"])
        return self._judged(s._replace(ahead=max(ahead, s.ahead), from_kg=counts))

    def _judged(self, s: State) -> State:
        if s.from_kg and s.ahead:
            return s._replace(bad=f"a clock that counts as KG time is wrong by {s.ahead}·W")
        return s
