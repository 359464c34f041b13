"""From mediator through broker to reader (§3.3, §6.2, G2): live, retained, will, queued.

An honest publisher C, an honest mediator M and a reader; the broker and the network have every m3.
In one of two starts there is a dishonest mediator M2 too: it has EK and so seals what it likes,
but has no R̄. Time is in steps of W; live messages live for W, retained ones and wills for 2·W.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar, NamedTuple

from .attacker import knowledge
from .search import World
from .terms import Term, f, readings, sealed, secret

R, R_BAR = secret("R"), secret("R̄")
EK = f("e1", "label", "epoch", key=R)
OUTER = f("o1", "label", "epoch", "inst", key=EK)
TOPICS = "arm/angle", "arm/height"
HOWS = "live", "retained", "will", "queued"
# Which class comes with which how (§6.2, step 5).
TABLE = {
    "live": ("live", "retained"),
    "retained": ("retained", "will"),
    "will": ("will",),
    "queued": ("live", "retained", "will"),
}
LIFE = {"live": 1, "retained": 2, "will": 2}


class State(NamedTuple):
    """`by_m`: m3 that M sealed. `got`: what the reader took. `top`: order of retained ones."""

    rogue: bool
    now: int = 0
    ctr: int = 0
    will: int = 0
    net: frozenset[Term] = frozenset()
    by_m: frozenset[tuple[Term, str, int]] = frozenset()
    m1s: frozenset[Term] = frozenset()
    window: frozenset[int] = frozenset()
    floor: tuple[int, int] = (-1, -1)
    got: frozenset[int] = frozenset()
    kept: tuple[int, int] = (-1, -1)
    top: tuple[int, int] = (-1, -1)
    last: tuple[int, int] = (-1, -1)
    gave_up: bool = False
    rewraps: int = 0
    bad: str = ""


class Reading(World):
    """Delivery to one reader."""

    name = "reading"
    attacker = "broker and network, with and without a dishonest mediator"
    DEFENCES: ClassVar[dict[str, str]] = {
        "m1-under-r-bar": "m1 is under a key from R̄, which no mediator has (§2, §3.1)",
        "m1-binds-topic": "m1's associated data has the topic (§3.1)",
        "m3-binds-how": "m3's associated data has how (§3.3)",
        "s2-fresh": "a reader takes an m3 within W of its sealing (§6.2, step 3)",
        "reader-life": "a reader holds age against life (§6.2, step 5)",
        "rewrap-life": "a mediator seals again only what is alive (G2)",
        "reader-window": "a ctr is taken once, but retained (§6.2, step 7)",
        "window-floors": "a window that is dropped leaves floors behind (§6.2, step 7)",
        "window-after-tags": "nothing is remembered before both tags verify (§6.2, step 7)",
        "class-and-how": "only some classes come with a how (§6.2, step 5)",
        "retained-order": "a retained message never goes back (§6.2, step 7)",
        "order-counts-live": "class retained counts for that order also when live (§6.2, step 7)",
        "fired-sealed": "the time at which a will fired is under the mediator's seal (§3.4)",
    }
    ASSUMED: ClassVar[dict[str, str]] = {
        "windows-suffice": "no reader drops a sender's window while queued messages live",
    }

    def starts(self) -> Iterator[tuple[str, State]]:
        """Without and with M2."""
        yield "C, M and the reader are honest; broker and network are not", State(False)
        yield "the same, and M2 is a dishonest mediator: it has EK", State(True)

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """C publishes, its will fires, M seals again, the reader takes what comes."""
        if s.now < (3 if self.full else 2):
            yield "W goes by", s._replace(now=s.now + 1)
        if s.ctr + s.will < (3 if self.full else 2):
            for kind in ("live", "retained"):
                yield self._publish(s._replace(ctr=s.ctr + 1), kind)
            if not s.will:
                yield self._publish(s._replace(will=1), "will")
        if s.rewraps < 2 and not s.rogue:
            yield from self._rewrap(s)
        if s.window and not s.gave_up:
            floor = (s.now, s.now) if self.on["window-floors"] else (-1, -1)
            text = "reader: gives up its windows, for others"
            yield text, s._replace(window=frozenset(), floor=floor, gave_up=True)
        for m3 in s.net:
            if m3.kind == "sealed" and m3.args[0] is OUTER:
                for r in readings(m3, topic=TOPICS, how=HOWS):
                    m1, fired = m3.args[3]
                    yield from self._take(s, m3, m1, fired, r["topic"], r["how"], m3.args[1][1])
        if s.rogue:
            yield from self._forged(s)

    def _m1(self, s: State, ctr: int, kind: str, topic: str, payload: Any) -> Term:
        root = R_BAR if self.on["m1-under-r-bar"] else EK
        t_pub = 0 if kind == "will" else s.now
        header = self.cover("m1", ctr=ctr, kind=kind, t_pub=t_pub, topic=topic)
        return sealed(f("i1", "C", "boot", "salt", key=root), ("salt", 0, ctr), header, payload)

    def _m3(self, s: State, m1: Term, topic: str, how: str, fired: int | None) -> Term:
        ad = self.cover("m3", label="label", topic=topic, how=how)
        return sealed(OUTER, ("inst", s.now), ad, m1, fired)

    def _publish(self, s: State, kind: str) -> tuple[str, State]:
        """M has judged it (publishing.py, siblings.py) and seals it; both m1 and m3 are seen."""
        ctr = 9 if kind == "will" else s.ctr
        m1 = self._m1(s, ctr, kind, TOPICS[0], secret("payload", ctr))
        how = "will" if kind == "will" else "live"
        fired = s.now if kind == "will" else None
        m3 = self._m3(s, m1, TOPICS[0], how, fired)
        # What a mediator opens it has; so has everybody else, to be on the safe side.
        after = s._replace(net=s.net | {m3, m1}, by_m=s.by_m | {(m3, how, s.now)}, m1s=s.m1s | {m1})
        return f"C publishes {kind}, ctr {ctr}; M seals it, how {how}, at {s.now}·W", after

    def _rewrap(self, s: State) -> Iterator[tuple[str, State]]:
        """M seals again what the broker serves as retained, or from a queue."""
        for m3, sealed_as, _ in s.by_m:
            if sealed_as not in ("live", "will"):
                continue
            m1, fired = m3.args[3]
            kind = dict(m1.args[2])["kind"]
            for how in ("retained", "queued"):
                if kind not in TABLE[how]:
                    continue
                age = s.now - self._time(m1, fired)
                dead = not -1 <= age <= LIFE[kind]
                if dead and self.on["rewrap-life"]:
                    continue
                new = self._m3(s, m1, TOPICS[0], how, fired)
                bad = "the mediator makes a message fresh whose life is over" if dead else ""
                after = s._replace(
                    net=s.net | {new}, by_m=s.by_m | {(new, how, s.now)},
                    rewraps=s.rewraps + 1, bad=bad,
                )  # fmt: skip
                yield (
                    f"M: seals ctr {dict(m1.args[2])['ctr']} again, how {how}, at {s.now}·W",
                    after,
                )

    def _forged(self, s: State) -> Iterator[tuple[str, State]]:
        """M2's m3 around every m1 that it has or can make."""
        own = {self._m1(s, 7, kind, topic, "anything") for kind in LIFE for topic in TOPICS}
        knows = knowledge(s.net | {EK})
        for m1 in s.m1s | {m1 for m1 in own if knows.can(m1)}:
            for topic, how in product(TOPICS, HOWS):
                fired = s.now if dict(m1.args[2])["kind"] == "will" else None
                m3 = self._m3(s, m1, topic, how, fired)
                yield from self._take(s, m3, m1, fired, topic, how, s.now)
        if not self.on["window-after-tags"]:
            yield (
                "M2: an m3 around rubbish with C's next ctr",
                s._replace(
                    window=s.window | {s.ctr + 1},
                    bad="the reader refuses a message of C that it has never seen",
                ),
            )

    def _time(self, m1: Term, fired: int | None) -> int:
        return fired if fired is not None else dict(m1.args[2])["t_pub"]

    def _take(
        self, s: State, m3: Term, m1: Term, fired: int | None, topic: str, how: str, s2: int
    ) -> Iterator[tuple[str, State]]:
        """Steps 3 to 8 of §6.2."""
        header = dict(m1.args[2])
        kind, ctr = header["kind"], header["ctr"]
        for when in (
            (fired, s.now) if fired is not None and not self.on["fired-sealed"] else (fired,)
        ):
            time = self._time(m1, when)
            age = s.now - time
            if self.on["s2-fresh"] and abs(s.now - s2) > 1:
                continue
            if self.on["reader-life"] and not -1 <= age <= LIFE[kind]:
                continue
            if self.on["class-and-how"] and kind not in TABLE[how]:
                continue
            if header.get("topic", topic) != topic:
                continue
            order = time, ctr
            if how == "retained":
                if self.on["retained-order"] and order < s.kept:
                    continue
            elif self.on["reader-window"] and (
                ctr in s.window or (s2 if how != "live" else time) <= s.floor[how != "live"]
            ):
                continue
            after = self._remember(s, kind, how, ctr, order)
            real = self._time(m1, fired)
            bad = self._wrong(s, m3, m1, topic, how, kind, ctr, real, s2)
            text = f"reader: takes ctr {ctr} on {topic}, class {kind}, how {how}, age {age}·W"
            yield text, after._replace(bad=bad)

    def _remember(self, s: State, kind: str, how: str, ctr: int, order: tuple[int, int]) -> State:
        keeps = how == "retained" or (kind == "retained" and self.on["order-counts-live"])
        return s._replace(
            window=s.window if how == "retained" else s.window | {ctr},
            got=s.got if how == "retained" and kind != "live" else s.got | {ctr},
            kept=max(s.kept, order) if keeps else s.kept,
            top=max(s.top, order) if how == "retained" or kind == "retained" else s.top,
        )

    def _wrong(
        self,
        s: State,
        m3: Term,
        m1: Term,
        topic: str,
        how: str,
        kind: str,
        ctr: int,
        t: int,
        s2: int,
    ) -> str:
        """Which property breaks when the reader takes this."""
        if m1 not in s.m1s:
            return "the reader takes what its sender never published"
        if topic != TOPICS[0]:
            return "the reader takes a message on another topic than its sender's"
        if how != "retained" or kind == "live":
            late = s.gave_up and how != "live" and self.on["windows-suffice"]
            if ctr in s.got and not late:
                return "the reader takes one message twice"
        elif (t, ctr) < s.top:
            return "a retained message goes back"
        if not -1 <= s.now - t <= LIFE[kind]:
            return "the reader takes a message whose life is over"
        if not s.rogue and (m3, how) not in {(term, sealed_as) for term, sealed_as, _ in s.by_m}:
            return "the reader is told another how than the mediator sealed"
        if not s.rogue and s.now - s2 > 1:
            return "the reader takes what no mediator has sealed within W"
        return ""
