"""SUBSCRIBE and UNSUBSCRIBE (§4.2): a token is for one filter, operation and QoS, and ends.

The network repeats and changes them, within a connection and in the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from .search import World
from .terms import Term, f, readings, sealed, secret

LINK = secret("k_c^M")
FILTERS = "arm/+", "temp/+"
QOS = 0, 1


class State(NamedTuple):
    """`newest`: ctr of the newest accepted token of each filter. `asked`: what the client meant."""

    ctr: int = 0
    low: int = 1
    boot: int = 1
    net: frozenset[Term] = frozenset()
    asked: tuple[tuple[Term, str, str, int], ...] = ()
    newest: tuple[tuple[str, int], ...] = ()
    left: int = 0
    bad: str = ""


class Tokens(World):
    """What the mediator is subscribed to is what the client asked for last, or is on its way."""

    name = "tokens"
    attacker = "the network"
    DEFENCES: ClassVar[dict[str, str]] = {
        "token": "a filter needs a tag under the link key (§4.2)",
        "token-binds-filter": "the tag covers the filter (§4.2)",
        "token-binds-op": "the tag covers the operation (§4.2)",
        "token-binds-qos": "the tag covers the QoS (§4.2)",
        "token-order": "a ctr below the newest accepted of its filter is refused (§4.2)",
        "token-of-session": "salt enters the key and the nonce of a token (§2, §4.2)",
        "low-covers-tokens": "low ends the tokens of earlier connections (§4.1)",
    }

    def starts(self) -> Iterator[tuple[str, State]]:
        """A client that has connected."""
        yield "C has connected", State(left=5 if self.full else 4)

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """The client asks and connects anew; the network delivers what it has, in any order."""
        if s.left:
            n = s._replace(left=s.left - 1)
            for filter_ in FILTERS:
                for qos in QOS:
                    yield self._ask(n, "SUBSCRIBE", filter_, qos)
                yield self._ask(n, "UNSUBSCRIBE", filter_, 0)
            if s.ctr:
                # Clean Session: the mediator forgets what was subscribed, and the newest tokens.
                low = s.ctr + 1 if self.on["low-covers-tokens"] else 1
                yield "C connects anew, clean", n._replace(low=low, newest=(), asked=())
                yield (
                    "C restarts and connects",
                    n._replace(boot=s.boot + 1, ctr=0, low=1, newest=(), asked=()),
                )
        for term in s.net:
            if self.on["token-of-session"] and term.args[0] is not self._key(s.boot):
                continue
            for r in readings(term, op=("SUBSCRIBE", "UNSUBSCRIBE"), filter=FILTERS, qos=QOS):
                yield from self._judge(s, term, term.args[1][-1], r["op"], r["filter"], r["qos"])
        if not self.on["token"]:
            forged = sealed(self._key(s.boot), "none", {})
            yield from self._judge(s, forged, s.ctr + 1, "SUBSCRIBE", FILTERS[1], 0)

    def _key(self, boot: int) -> Term:
        salt = f"salt{boot}" if self.on["token-of-session"] else "no salt"
        return f("l1", "control", "M", salt, key=LINK)

    def _ask(self, s: State, op: str, filter_: str, qos: int) -> tuple[str, State]:
        ctr = s.ctr + 1
        term = sealed(
            self._key(s.boot), (4, ctr), self.cover("token", op=op, filter=filter_, qos=qos)
        )
        asked = (*s.asked, (term, op, filter_, qos))
        text = f"C: {op} {filter_}, QoS {qos}, ctr {ctr}"
        return text, s._replace(ctr=ctr, net=s.net | {term}, asked=asked)

    def _judge(
        self, s: State, term: Term, ctr: int, op: str, filter_: str, qos: int
    ) -> Iterator[tuple[str, State]]:
        """What the mediator does with a token whose tag verifies."""
        newest = dict(s.newest)
        if ctr < s.low or (self.on["token-order"] and ctr < newest.get(filter_, 0)):
            return
        bad = ""
        if (term, op, filter_, qos) not in s.asked:
            bad = f"{op} {filter_} counts, which the client did not ask for in this connection"
        elif ctr < newest.get(filter_, 0):
            bad = f"{op} {filter_} counts after the client has changed its mind"
        newest[filter_] = max(ctr, newest.get(filter_, 0))
        text = f"M: accepts {op} {filter_}, QoS {qos}, ctr {ctr}"
        yield text, s._replace(newest=tuple(sorted(newest.items())), bad=bad)
