"""Provisioning (§7.2): one client, the key generator, requests and answers in anybody's hands.

The network keeps every request and answer, gives them to whom it likes, and passes requests on
through a second, dishonest mediator M2. The key generator may be set back once to a raw image of
its disk, which is the worst that can happen to it; then it has forgotten what it issued.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from .attacker import knowledge
from .search import World
from .terms import Term, f, readings, sealed, secret

PS = secret("ps")
MEDIATORS = "M1", "M2"


class Gen(NamedTuple):
    """A generation: its number, the epoch it was made at, its mediator and link root."""

    number: int
    epoch: int
    mediator: str
    link: Term


class Kg(NamedTuple):
    """`made`: how many generations; `gens`: those whose link roots are good, oldest first."""

    epoch: int = 1
    kseq: int = 1
    made: int = 0
    gens: tuple[Gen, ...] = ()
    confirmed: int = 0

    def confirm(self, number: int) -> Kg:
        """A proof under that gen, or a request that names it as held: older ones end."""
        if not any(g.number == number for g in self.gens):
            return self
        gens = tuple(g for g in self.gens if g.number >= number)
        return self._replace(gens=gens, confirmed=max(number, self.confirmed))


class State(NamedTuple):
    """`stored`: gen, epoch, kseq of the client. `made`: per answer the requests asked by then."""

    kg: Kg = Kg()
    asked: int = 0
    open: int = 0
    stored: tuple[int, int, int] = (0, 0, 0)
    link: Term | None = None
    net: frozenset[Term] = frozenset()
    made: frozenset[tuple[Term, int]] = frozenset()
    taken: frozenset[Term] = frozenset()
    served: int = 0
    draws: int = 0
    image: int = 0
    bad: str = ""


class Provisioning(World):
    """Answers count once, never lead back, and reach nobody else."""

    name = "provisioning"
    attacker = "the network, a dishonest mediator, a key generator set back"
    DEFENCES: ClassVar[dict[str, str]] = {
        "request-tag": "the key generator answers only what ps authenticates (§7.2)",
        "request-binds-mediator": "the request names the mediator that the client asks (§7.2)",
        "answer-under-ps": "the answer is sealed under ps, not under a link root (§7.2)",
        "answer-nc": "N_c enters the answer's key (§7.2)",
        "answer-once": "an answer closes its N_c (§7.2)",
        "gen-not-lower": "gen is not below the stored one (§7.2)",
        "kseq-not-lower": "kseq is not below the stored one (§7.2)",
        "epoch-not-lower": "epoch is not below the stored one (§7.2)",
        "confirmed-kept": "the confirmed link root lasts until a proof under the next (§7.2)",
        "made-since-kept": "so do the link roots of all generations made since (§7.2)",
        "pending-same": "while a generation is pending, requests get that one again (§7.2)",
        "gen-has-one-epoch": "a generation goes with one epoch of σ(c) (§7.2)",
    }

    def starts(self) -> Iterator[tuple[str, State]]:
        """A client with its enrolment."""
        yield "a client is enrolled for M1; it holds ps", State()

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """The client asks, takes answers, connects; the key generator serves and changes."""
        limit = 3 if self.full else 2
        if s.asked < limit:
            yield self._ask(s)
        if s.served < limit + 1:
            for nc, held, mediator in self._requests(s):
                yield self._serve(s, nc, held, mediator)
        yield from self._take(s)
        kg = s.kg
        for gen in kg.gens:
            if gen.link is s.link:
                after = s._replace(kg=kg.confirm(gen.number))
                if gen.epoch != s.stored[1]:
                    bad = "M1 takes the client to hold another epoch than it does"
                    after = after._replace(bad=bad)
                yield "C connects through M1 with a proof, which confirms its gen", after
        if kg.epoch < 2:
            rekeyed = kg._replace(epoch=kg.epoch + 1, kseq=kg.kseq + 1)
            yield "KG: a new epoch of σ(c)", s._replace(kg=rekeyed)
        if kg.kseq < 2:
            yield (
                "KG: another label changes; kseq rises",
                s._replace(kg=kg._replace(kseq=kg.kseq + 1)),
            )
        if not s.image and kg != Kg():
            text = "KG: its disk is replaced by an image from the beginning"
            yield text, s._replace(kg=Kg(), image=1)

    def _ask(self, s: State) -> tuple[str, State]:
        n = s.asked + 1
        key = f("p1", "request", f"Nc{n}", key=PS)
        fields = self.cover("request", gen=s.stored[0], nc=n, mediator="M1")
        request = sealed(key, 0, fields)
        after = s._replace(asked=n, open=n, net=s.net | {request})
        return f"C: asks M1 with Nc{n}, holding gen {s.stored[0]}", after

    def _requests(self, s: State) -> Iterator[tuple[int, int, str]]:
        """N_c, gen held and passing mediator of each request that the KG would answer."""
        if not self.on["request-tag"]:
            for nc in range(1, s.asked + 1):
                for mediator in MEDIATORS:
                    yield nc, 0, mediator
            return
        for term in s.net:
            if term.kind == "sealed" and term.args[0].args[1][0] == "request":
                for r in readings(term, nc=(), gen=(), mediator=MEDIATORS):
                    yield r["nc"], r["gen"], r["mediator"]

    def _serve(self, s: State, nc: int, held: int, via: str) -> tuple[str, State]:
        kg, draws, net = s.kg.confirm(held), s.draws, s.net
        fit = [
            g
            for g in kg.gens
            if g.number > kg.confirmed and g.mediator == via and g.number >= held
            if g.epoch == kg.epoch or not self.on["gen-has-one-epoch"]
        ]
        if not fit or not self.on["pending-same"]:
            draws += 1
            link = secret("k_c^M", via, kg.made + 1, f"#{draws}")
            fit = [Gen(kg.made + 1, kg.epoch, via, link)]
            older = kg.gens
            if not self.on["confirmed-kept"]:
                older = ()
            elif not self.on["made-since-kept"]:
                older = tuple(g for g in older if g.number == kg.confirmed)
            kg = kg._replace(made=kg.made + 1, gens=(*older, fit[0]))
            if via == "M2":
                net |= {link}
        gen, _, _, link = fit[-1]
        root = secret("R", "σ(c)", f"e{kg.epoch}")
        if not self.on["answer-under-ps"]:
            key = f("p1", "answer", f"Nc{nc}", key=link)
        elif self.on["answer-nc"]:
            key = f("p1", "answer", f"Nc{nc}", key=PS)
        else:
            key = f("p1", "answer", key=PS)
        answer = sealed(
            key, "inst‖ms‖seq", {"client": "C"}, gen, kg.epoch, kg.kseq, via, root, link
        )
        text = f"KG: answers Nc{nc} through {via}: gen {gen}, epoch {kg.epoch}, kseq {kg.kseq}"
        after = s._replace(
            kg=kg, draws=draws, net=net | {answer}, served=s.served + 1,
            made=s.made | {(answer, s.asked)},
        )  # fmt: skip
        return text, self._judged(after)

    def _take(self, s: State) -> Iterator[tuple[str, State]]:
        """Every answer that the client accepts now."""
        if not s.open:
            return
        for term, asked in s.made:
            ctx = term.args[0].args[1]
            if ctx[0] != "answer" or (len(ctx) > 1 and ctx[1] != f"Nc{s.open}"):
                continue
            gen, epoch, kseq, via, _, link = term.args[3]
            if self.on["gen-not-lower"] and gen < s.stored[0]:
                continue
            if self.on["epoch-not-lower"] and epoch < s.stored[1]:
                continue
            if self.on["kseq-not-lower"] and kseq < s.stored[2]:
                continue
            bad = ""
            if term in s.taken:
                bad = "one answer counts twice"
            elif asked < s.open:
                bad = "an answer from before the request counts"
            elif via != "M1":
                bad = "the client's new link root is another mediator's"
            elif (gen, epoch, kseq) != tuple(map(max, (gen, epoch, kseq), s.stored)):
                bad = "the client's gen, epoch or kseq goes back"
            after = s._replace(
                stored=(gen, epoch, kseq), link=link, taken=s.taken | {term},
                open=0 if self.on["answer-once"] else s.open, bad=bad,
            )  # fmt: skip
            text = f"C: accepts gen {gen}, epoch {epoch}, kseq {kseq} and stores them"
            yield text, after if bad else self._judged(after)

    def _judged(self, s: State) -> State:
        """Nobody reads an answer, and what the client holds is good for a CONNECT."""
        root = secret("R", "σ(c)", f"e{s.kg.epoch}")
        valid = frozenset(g.link for g in s.kg.gens)
        # M1 too is curious: it has every link root that is its own.
        if knowledge(s.net | valid).can(root):
            return s._replace(bad="a mediator reads the client's root")
        if any(knowledge(s.net).can(k) for k in valid if k.args[1] == "M1"):
            return s._replace(bad="another mediator has M1's link root")
        waiting = [(g.epoch, g.mediator) for g in s.kg.gens if g.number > s.kg.confirmed]
        if len(waiting) > len(set(waiting)) and not s.image:
            return s._replace(bad="each repeated request makes one more link root")
        if s.stored[0] and s.link not in valid and not s.image:
            return s._replace(bad="repeated requests have made invalid what the client holds")
        return s
