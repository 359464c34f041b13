"""Records and epochs at a reader (§8, §6.2 step 5; claims 6 and 13).

The reader is at label U, above L, above D. Either X, who was at L, or Z, who was at U, is put out
and keeps the roots of epoch 1; each has the broker's side, so it serves any record, genuine or of
its own making, and any message under the old roots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from .search import World

HANDOVER_END = 5


class Record(NamedTuple):
    """n, e_n from l, e_l; a manifest has neither a source of its own nor a root. `root`: whose."""

    n: str
    e_n: int
    l: str  # noqa: E741
    e_l: int
    kseq: int
    end: int
    root: str


class State(NamedTuple):
    """`kg`: epochs of U and L (D's is L's), kseq. `seen`: label, epoch, kseq, hand-over end."""

    who: str
    kg: tuple[int, int, int] = (1, 1, 1)
    own: int = 1
    public: frozenset[Record] = frozenset()
    roots: frozenset[tuple[str, int, str]] = frozenset({("U", 1, "KG")})
    seen: tuple[tuple[str, int, int, int], ...] = (("U", 1, 0, 0),)
    over: bool = False
    bad: str = ""


class Records(World):
    """What a reader takes for a root, for the newest epoch, and for a message of now."""

    name = "records"
    attacker = "a client that was put out, on the broker's side"
    DEFENCES: ClassVar[dict[str, str]] = {
        "record-tag": "records and manifests are tagged under their source's R̄ (§8)",
        "own-label-only": "derivations count from the client's own label alone (§8)",
        "from-newest": "a record counts only from the newest epoch of its source (§8)",
        "back-link-older": "a back-link leads to a lower epoch (§8)",
        "back-link-raises-nothing": "a back-link says nothing about what is newest (§8)",
        "seen-order": "(e_n, kseq) below what was seen is refused (§8)",
        "epoch-before-kseq": "a higher epoch counts whatever its kseq (§8)",
        "forgotten-with-own": "what was seen is forgotten with a new own epoch (§8)",
        "live-epoch": "live messages of an epoch that is over are refused (§6.2, step 5)",
        "m3-epoch": "an m3 of an epoch that is over is refused whatever how says (§6.2)",
        "handover-ends": "the hand-over end is heeded (§6.2, step 5; §8)",
    }

    def starts(self) -> Iterator[tuple[str, State]]:
        """X at L, Z at U; the first records are public."""
        for who in ("X", "Z"):
            yield f"{who} is in at {'L' if who == 'X' else 'U'}", self._publish(State(who))

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """The key generator puts the attacker out, and rekeys once more; the rest is free."""
        u, low, kseq = s.kg
        if low < (4 if self.full else 3):
            u = 2 if s.who == "Z" else 1
            what = f"{s.who} is put out" if low == 1 else "a further rekeying"
            after = self._publish(s._replace(kg=(u, low + 1, kseq + 1), over=False))
            yield f"KG: {what}: L and D get epoch {low + 1}" + (", U 2" if u == 2 else ""), after
        if s.own < u:
            yield self._provision(s)
        if low > 1 and not s.over:
            yield "the hand-over is over", s._replace(over=True)
        for record in s.public:
            yield from self._take(s, record)
        for record in self._forged(s):
            yield from self._take(s, record)
        yield from self._read(s)

    def _publish(self, s: State) -> State:
        """Derivations, back-links and manifests of now; the older ones stay public."""
        u, low, kseq = s.kg
        end = HANDOVER_END if low > 1 else 0
        new = {Record(n, low, "U", u, kseq, end, "KG") for n in "LD"}
        new |= {
            Record("L", low, "L", low, kseq, end, ""),
            Record("D", low, "L", low, kseq, end, "KG"),
        }
        if low > 1:
            new |= {Record(n, low - 1, n, low, kseq, 0, "KG") for n in "LD"}
        if u == 2:
            new.add(Record("U", 1, "U", 2, kseq, 0, "KG"))
        return s._replace(public=s.public | new)

    def _forged(self, s: State) -> Iterator[Record]:
        """What the attacker can tag: anything from the labels whose epoch 1 it held."""
        sources = [("L", 1), ("D", 1)] + ([("U", 1)] if s.who == "Z" else [])
        if not self.on["record-tag"]:
            sources += [("U", s.own), ("L", s.kg[1])]
        for l, e_l in sources:  # noqa: E741
            for n in "ULD":
                for e_n in (1, 9):
                    for kseq in (1, 9):
                        if "ULD".index(n) >= "ULD".index(l):
                            yield Record(n, e_n, l, e_l, kseq, 9, "forged")
            for kseq in (1, 9):
                yield Record(l, e_l, l, e_l, kseq, 9, "")

    def _provision(self, s: State) -> tuple[str, State]:
        """The reader gets U's new epoch; it keeps the old root of its own label."""
        own = s.kg[0]
        seen = tuple(x for x in s.seen if x[0] != "U") if not self.on["forgotten-with-own"] else ()
        roots = frozenset({("U", own, "KG"), ("U", s.own, "KG")})
        after = s._replace(own=own, roots=roots, seen=(*seen, ("U", own, 0, 0)))
        return f"reader: provisions and has epoch {own} of U", self._judged(after)

    def _take(self, s: State, r: Record) -> Iterator[tuple[str, State]]:
        """The reader's rules for a record or manifest."""
        if self._refused(s, r):
            return
        back = r.n == r.l and r.root != ""
        roots = s.roots
        if r.root and not any(x[:2] == (r.n, r.e_n) for x in roots):
            roots |= {(r.n, r.e_n, r.root)}
        seen = {x[0]: x for x in s.seen}
        if not back or not self.on["back-link-raises-nothing"]:
            seen[r.n] = (r.n, r.e_n, r.kseq, r.end)
        after = s._replace(roots=roots, seen=tuple(sorted(seen.values())))
        if after != s:
            kind = "back-link" if back else "derivation" if r.root else "manifest"
            by = "genuine" if r in s.public else f"{s.who}'s own"
            text = (
                f"reader: takes a {kind}, {by}: {r.n} e{r.e_n} from {r.l} e{r.e_l}, kseq {r.kseq}"
            )
            fell = any(x[0] == r.n and x[1] > r.e_n for x in s.seen) and not back
            if not fell and back:
                fell = any(x[0] == r.n and x[1] > seen[r.n][1] for x in s.seen)
            bad = "what the reader knows for the newest epoch goes back" if fell else ""
            yield text, self._judged(after) if not bad else after._replace(bad=bad)

    def _refused(self, s: State, r: Record) -> bool:
        if not any(x[:2] == (r.l, r.e_l) for x in s.roots):
            return True
        newest = {x[0]: x for x in s.seen}
        if r.root and self.on["from-newest"] and r.l in newest and r.e_l < newest[r.l][1]:
            return True
        if r.n == r.l and r.root:
            return self.on["back-link-older"] and r.e_n >= r.e_l
        if r.root and self.on["own-label-only"] and r.l != "U":
            return True
        if r.n not in newest or not self.on["seen-order"]:
            return False
        _, epoch, kseq, _ = newest[r.n]
        if not self.on["epoch-before-kseq"]:
            return (r.kseq, r.e_n) < (kseq, epoch)
        return (r.e_n, r.kseq) < (epoch, kseq)

    def _judged(self, s: State) -> State:
        """Nothing is claimed against Z while the reader still has U's old epoch alone."""
        if s.own < s.kg[0] or (s.who == "Z" and s.kg[0] == 1):
            return s
        for label, epoch, whose in s.roots:
            # A member of an epoch can make up what was before it.
            if whose == "forged" and epoch > 1:
                return s._replace(bad=f"the reader takes a root of {label} that is not the KG's")
        for label, epoch, _, end in s.seen:
            if epoch > s.kg[1] and label != "U":
                return s._replace(bad=f"the reader believes in an epoch of {label} that is not")
            if 1 < epoch and end == 9:
                return s._replace(bad="the reader believes in a hand-over end that is not the KG's")
        u, low, kseq = s.kg
        genuine = Record("L", low, "U", u, kseq, HANDOVER_END if low > 1 else 0, "KG")
        if low > 1 and ("U", u, "KG") in s.roots and self._refused(s, genuine):
            return s._replace(bad="a forgery holds up the genuine record of L's newest epoch")
        return s

    def _read(self, s: State) -> Iterator[tuple[str, State]]:
        """The attacker makes m1 under L's epoch 1, and m3 too, or has a mediator seal it."""
        if ("L", 1, "KG") not in s.roots or s.kg[1] == 1:
            return
        newest = {x[0]: x for x in s.seen}.get("L", ("L", 1, 0, 0))
        over = newest[1] > 1 and (newest[1] > 2 or s.over)
        if not over:
            return
        heeds = self.on["handover-ends"] or newest[1] > 2
        ways = (
            ("m3 of its own, how live", heeds and (self.on["live-epoch"] or self.on["m3-epoch"])),
            ("m3 of its own, how queued", heeds and self.on["m3-epoch"]),
            ("m3 of a dishonest mediator, how live", heeds and self.on["live-epoch"]),
        )
        for way, refused in ways:
            if not refused:
                text = f"{s.who}: m1 under L's epoch 1 in an {way}; the reader takes it"
                bad = "the reader takes a message of an epoch that it knows to be over"
                yield text, s._replace(bad=bad)
