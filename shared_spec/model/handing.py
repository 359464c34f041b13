"""Handing over to a new epoch without losing a message between honest ones (§7.2, §7.4, §8).

There is no attacker here but delay. C is awake at the label that gets new epochs; P publishes
there, and so does C. What has left one side arrives at the other in order. The hand-over ends at
once, which is the hardest case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from .search import World

# What is under way: a kind and its epoch; an m3 has m1's epoch as well.
Item = tuple[str, int, int]


class State(NamedTuple):
    """`down`, `up`: between M and C. `broker`: m3 on their way through it. `held`: kept back."""

    epoch: int = 1
    passed: int = 1
    own: int = 1
    roots: frozenset[int] = frozenset({1})
    asking: bool = False
    down: tuple[Item, ...] = ()
    up: tuple[Item, ...] = ()
    broker: tuple[Item, ...] = ()
    held: tuple[Item, ...] = ()
    by_p: int = 0
    by_c: int = 0
    again: int = 0
    arrived: int = 0
    bad: str = ""


class Handing(World):
    """Rekeying of C's own label, seen from a mediator and C."""

    name = "handing"
    attacker = "nobody but delay"
    DEFENCES: ClassVar[dict[str, str]] = {
        "hold": "a mediator holds back what C cannot open until the answer has passed (§8)",
        "record-before-message": "the record that opens an epoch comes before its messages (§4.4)",
        "old-epoch-resealed": "what the broker still has of an old epoch is sealed anew (G2)",
        "publish-again": "what was refused for its epoch is published once more (§7.4)",
    }

    def starts(self) -> Iterator[tuple[str, State]]:
        """Everybody has epoch 1."""
        yield "C and P are connected and hold epoch 1", State()

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """Publish, rekey, and each queue's head."""
        limit = 3 if self.full else 2
        if s.epoch <= limit:
            e = s.epoch + 1
            yield (
                f"KG: epoch {e}; M seals under it and sends op 4",
                s._replace(epoch=e, down=(*s.down, ("op 4", e, e))),
            )
        if s.by_p < limit:
            m3 = ("m3", s.epoch, s.epoch)
            yield (
                f"P publishes; M seals under epoch {s.epoch}",
                s._replace(by_p=s.by_p + 1, broker=(*s.broker, m3)),
            )
        if s.by_c < limit:
            yield (
                f"C publishes under epoch {s.own}",
                s._replace(by_c=s.by_c + 1, up=(*s.up, ("m2", s.own, s.own))),
            )
        if s.broker:
            yield self._deliver(s._replace(broker=s.broker[1:]), s.broker[0])
        if s.up:
            yield self._mediator(s._replace(up=s.up[1:]), s.up[0])
        if s.down:
            yield self._client(s._replace(down=s.down[1:]), s.down[0])
        if not (s.broker or s.up or s.down or s.bad) and s.arrived < s.by_c:
            yield "everything has arrived", s._replace(bad="a message of C is lost")
        if not (s.broker or s.up or s.down or s.bad) and s.held:
            yield "everything has arrived", s._replace(bad="a message to C is held for ever")

    def _deliver(self, s: State, item: Item) -> tuple[str, State]:
        """An m3 from the broker at M, for C."""
        if s.passed < s.epoch and self.on["hold"]:
            return f"M: holds an m3 of epoch {item[1]} back", s._replace(held=(*s.held, item))
        return f"M: passes an m3 of epoch {item[1]} on", self._send(s, (item,))

    def _send(self, s: State, items: tuple[Item, ...]) -> State:
        """Sealed anew where it is old; back-links in front of what is older than C's epoch."""
        out: list[Item] = []
        for kind, outer, inner in items:
            if self.on["old-epoch-resealed"]:
                outer = s.epoch
            item = kind, outer, inner
            if self.on["record-before-message"]:
                out += [("record", e, e) for e in {*item[1:]} if e < s.passed]
            out.append(item)
        return s._replace(down=(*s.down, *out))

    def _mediator(self, s: State, item: Item) -> tuple[str, State]:
        """What C sent, at M."""
        kind, epoch, _ = item
        if kind == "ask":
            after = s._replace(passed=s.epoch, down=(*s.down, ("answer", s.epoch, s.epoch)))
            return f"M: passes on the answer with epoch {s.epoch}", self._send(
                after._replace(held=()), after.held
            )
        if epoch == s.epoch:
            return "M: takes C's message", s._replace(arrived=s.arrived + 1)
        return f"M: refuses C's message of epoch {epoch}", s._replace(
            down=(*s.down, ("notice", s.epoch, s.epoch))
        )

    def _client(self, s: State, item: Item) -> tuple[str, State]:
        """What M sent, at C."""
        kind, epoch, inner = item
        if kind == "m3":
            bad = "" if {epoch, inner} <= s.roots else "a message to C is lost: no key"
            if epoch < s.own and not bad:
                bad = "a message to C is lost: its epoch is over"
            return f"C: an m3 of epoch {epoch}", s._replace(bad=bad)
        if kind == "record":
            return f"C: the back-link to epoch {epoch}", s._replace(roots=s.roots | {epoch})
        if kind == "answer":
            # Nothing is built on its keeping old roots of its own label, though it should.
            up = (*s.up, *(("m2", epoch, epoch),) * s.again)
            return f"C: provisioned with epoch {epoch}", s._replace(
                own=epoch, roots=frozenset({epoch}), asking=False, up=up, again=0
            )
        again = s.again + (kind == "notice" and self.on["publish-again"])
        if epoch <= s.own and again:
            # It was refused for an epoch that C has left by now.
            return f"C: {kind}; publishes once more", s._replace(up=(*s.up, ("m2", s.own, s.own)))
        if epoch > s.own and not s.asking:
            return f"C: {kind} with epoch {epoch}; asks", s._replace(
                asking=True, up=(*s.up, ("ask", 0, 0)), again=again
            )
        return f"C: {kind} with epoch {epoch}", s._replace(again=again)
