"""CONNECT (§4.1): a proof counts once, in order, for what the client sent; a welcome for its conn.

The client restarts, its flash may be set back, it may be put out; then the attacker has its link
root (a thief of the board, or the client itself). The mediator may restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from .search import World
from .terms import Term, f, readings, sealed, secret

LINK = secret("k_c^M")
REST = "its id, its will", "another's id, no will"


class State(NamedTuple):
    """`high`: boot, conn, salt in the mediator's store. `counted`: proofs that began a session."""

    boot: int = 1
    salt: int = 1
    conn: int = 0
    waiting: bool = False
    ready: int = 0
    net: frozenset[Term] = frozenset()
    high: tuple[int, int, int] = (0, 0, 0)
    last: tuple[int, int] = (0, 0)
    salts: frozenset[tuple[int, int]] = frozenset()
    counted: frozenset[Term] = frozenset()
    enabled: bool = True
    restarts: int = 1
    set_back: bool = False
    left: int = 0
    bad: str = ""


class Connecting(World):
    """CONNECTs and welcomes of one client at one mediator."""

    name = "connecting"
    attacker = "the network, and whoever holds the link root of a client that was put out"
    DEFENCES: ClassVar[dict[str, str]] = {
        "proof": "a CONNECT needs a tag under the link key (§4.1)",
        "proof-binds-rest": "the tag covers every byte of the packet (§4.1)",
        "connect-order": "(boot, conn) must rise in the store (§4.1)",
        "order-durable": "the highest (boot, conn) outlives the mediator's process (§4.1)",
        "salt-of-boot": "an equal boot comes with the stored salt (§4.1)",
        "proof-before-takeover": "nothing is touched before the proof counts (§4.1)",
        "welcome-awaited": "a client trusts no CONNACK before a valid welcome (§4.4)",
        "welcome-binds-conn": "a down packet is for one connection (§4.4)",
        "leaving-drops-link": "who is put out loses its link at once (§4.1, §7.2)",
    }

    def starts(self) -> Iterator[tuple[str, State]]:
        """A provisioned client."""
        yield "C is provisioned; M knows its link root", State(left=7 if self.full else 6)

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """`left` bounds what the client does; the network is free."""
        if s.left and s.enabled:
            yield self._connect(s._replace(left=s.left - 1))
            new = s._replace(left=s.left - 1, salt=s.salt + 1, conn=0, waiting=False, ready=0)
            if s.boot < 3:
                after = new._replace(boot=s.boot + 1)
                yield "C restarts with the next boot and a new salt", after
            if not s.set_back:
                after = new._replace(boot=1, set_back=True)
                yield "C's flash is set back to boot 1; it starts with a new salt", after
        if s.restarts:
            high = s.high if self.on["order-durable"] else (0, 0, 0)
            yield "M is killed and restarts", s._replace(restarts=0, high=high)
        if s.enabled and s.conn:
            text = "C is put out; whoever has its board reads the link root"
            yield text, s._replace(enabled=False, net=s.net | {LINK})
        yield from self._arrive(s)
        yield from self._welcome(s)

    def _proof(self, boot: int, salt: int, conn: int, rest: str) -> Term:
        key = f("l1", "control", "M", boot, f"salt{salt}", key=LINK)
        fields = self.cover("proof", boot=boot, salt=salt, conn=conn, rest=rest, mediator="M")
        return sealed(key, (f"salt{salt}", 3, conn), fields)

    def _connect(self, s: State) -> tuple[str, State]:
        conn = s.conn + 1
        proof = self._proof(s.boot, s.salt, conn, REST[0])
        after = s._replace(conn=conn, waiting=True, ready=0, net=s.net | {proof})
        return f"C: CONNECT boot {s.boot}, salt {s.salt}, conn {conn}", after

    def _arrive(self, s: State) -> Iterator[tuple[str, State]]:
        """Whatever CONNECT the network can present."""
        for term in s.net:
            if term.kind == "sealed" and "boot" in dict(term.args[2]):
                for r in readings(term, boot=(), salt=(), conn=(), rest=REST):
                    yield from self._judge(s, term, r["boot"], r["salt"], r["conn"], r["rest"])
        if not s.enabled:
            forged = self._proof(9, 9, 1, REST[1])
            yield from self._judge(s, forged, 9, 9, 1, REST[1])
        if not self.on["proof"]:
            yield from self._judge(s, self._proof(9, 9, 1, REST[1]), 9, 9, 1, REST[1])
        if not self.on["proof-before-takeover"]:
            yield (
                "network: CONNECT with a wrong tag",
                s._replace(bad="a CONNECT that does not count ended the client's session"),
            )

    def _judge(
        self, s: State, term: Term, boot: int, salt: int, conn: int, rest: str
    ) -> Iterator[tuple[str, State]]:
        """What the mediator does with a CONNECT whose tag verifies."""
        if not s.enabled and self.on["leaving-drops-link"]:
            return
        if self.on["connect-order"] and (boot, conn) <= s.high[:2]:
            return
        if self.on["salt-of-boot"] and boot == s.high[0] and salt != s.high[2]:
            return
        bad = ""
        if not s.enabled:
            bad = "a client that was put out connects"
        elif term not in s.net:
            bad = "a CONNECT counts that the client never sent"
        elif rest != REST[0]:
            bad = "a changed CONNECT counts"
        elif term in s.counted:
            bad = "one CONNECT counts twice"
        elif (boot, conn) <= s.last:
            bad = "a CONNECT counts after a newer one"
        elif any(b == boot and other != salt for b, other in s.salts):
            bad = "two boot sessions share a boot, and so a window"
        key = f("l1", "down", "M", boot, f"salt{salt}", key=LINK)
        fields = self.cover("welcome", conn=conn, client="C", mediator="M")
        welcome = sealed(key, "inst‖ms‖seq", fields, "welcome")
        yield f"M: CONNECT boot {boot}, salt {salt}, conn {conn} counts ({rest})", s._replace(
            high=(boot, conn, salt), last=(boot, conn), salts=s.salts | {(boot, salt)},
            counted=s.counted | {term}, net=s.net | {welcome}, bad=bad,
        )  # fmt: skip

    def _welcome(self, s: State) -> Iterator[tuple[str, State]]:
        """The client takes what opens and is for its connection."""
        if not s.waiting:
            return
        mine = self._proof(s.boot, s.salt, s.conn, REST[0])
        answered = mine in s.counted
        key = f("l1", "down", "M", s.boot, f"salt{s.salt}", key=LINK)
        for term in s.net:
            opens = term.kind == "sealed" and term.args[0] is key and term.args[3]
            if opens and any(r["conn"] == s.conn for r in readings(term, conn=(s.conn,))):
                bad = "" if answered else "the client trusts a connection that M never saw"
                yield (
                    f"C: takes the welcome in conn {s.conn}",
                    s._replace(waiting=False, ready=s.conn, bad=bad),
                )
        if not self.on["welcome-awaited"]:
            bad = "" if answered else "the client trusts a connection that M never saw"
            yield "network: CONNACK 0; C begins to publish", s._replace(waiting=False, bad=bad)
