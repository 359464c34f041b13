"""Rekeying: derivations z, back-links, who leaves, a key generator set back (claims 1 and 2).

Everything that the key generator publishes is public for ever. The attacker is one client: it has
the roots of its label and of all below while it is in, and keeps them when it is out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from .attacker import knowledge
from .search import World
from .terms import Term, f, secret, show, xor

Order = dict[str, frozenset[str]]

FACTORY = {
    "m1-temp": (),
    "m1-ctrl": ("m1-temp",),
    "m1-arm": ("m1-ctrl",),
    "m2-temp": (),
    "m2-ctrl": ("m2-temp",),
    "m2-arm": ("m2-ctrl",),
    "ctrl-room-temp": (),
    "monitor": ("m1-arm", "m2-arm", "ctrl-room-temp"),
}
SMALL: dict[str, dict[str, tuple[str, ...]]] = {
    "chain": {"c": (), "b": ("c",), "a": ("b",)},
    "fork": {"b": (), "c": (), "a": ("b", "c")},
    "join": {"c": (), "a": ("c",), "b": ("c",)},
    "diamond": {"d": (), "b": ("d",), "c": ("d",), "a": ("b", "c")},
}
BITS = "k", "k̄"


def below(direct: dict[str, tuple[str, ...]]) -> Order:
    """For each label all that lie strictly below; lower labels come first in `direct`."""
    out: Order = {}
    for label, children in direct.items():
        out[label] = frozenset(children).union(*(out[c] for c in children))
    return out


class State(NamedTuple):
    """`keys`: (epoch, draw) of each label. `out` holds (label, draw) that must stay hidden."""

    poset: str
    who: str
    order: tuple[tuple[str, frozenset[str]], ...]
    keys: tuple[tuple[int, int], ...]
    inside: bool
    public: frozenset[Term]
    has: frozenset[Term]
    out: frozenset[tuple[str, int]]
    backup: tuple[tuple[tuple[str, frozenset[str]], ...], tuple[tuple[int, int], ...], bool] | None
    draws: int
    left: int
    bad: str = ""


class Rekeying(World):
    """Sequences of leaving, rekeying, losing an edge, backup and restore on several posets."""

    name = "rekeying"
    attacker = "a client that was revoked, with all it ever held and all public data"
    DEFENCES: ClassVar[dict[str, str]] = {
        "fresh-roots": "a new epoch has new random roots (§1.1, §8)",
        "rekey-below": "leaving makes new epochs of every label below, too (§8)",
        "pad-one-way": "z hides the upper root inside F (§2)",
        "pad-epoch": "the pad depends on the target's epoch or kid, the paper's does not (§2)",
        "pad-kid": "the pad has a kid that no restored key generator draws again (§2)",
        "back-link-down": "a back-link leads from the new epoch to the old one (§8)",
        "edge-rekey": "an edge taken out makes new epochs of what is lost with it (§8)",
    }

    def __init__(
        self, out: frozenset[str] = frozenset(), full: bool = False, pad: str = "ours"
    ) -> None:
        super().__init__(out, full)
        if not self.on["pad-kid"]:
            pad = "epoch-only"
        self.pad = "paper" if not self.on["pad-epoch"] else pad

    def starts(self) -> Iterator[tuple[str, State]]:
        """The factory with its panel m1-ctrl and with its monitor; small posets with anybody."""
        posets: list[tuple[str, dict[str, tuple[str, ...]], tuple[str, ...], int]]
        posets = [("factory", FACTORY, ("m1-ctrl", "monitor"), 2)]
        for name, direct in SMALL.items():
            posets.append((name, direct, tuple(direct), 4 if self.full else 3))
        if self.full:
            posets[0] = ("factory", FACTORY, tuple(FACTORY), 3)
        for name, direct, people, left in posets:
            order = below(direct)
            for who in people:
                keys = tuple((1, i + 1) for i in range(len(order)))
                start = State(
                    name, who, tuple(order.items()), keys, True,
                    frozenset(), frozenset(), frozenset(), None, len(keys), left,
                )  # fmt: skip
                public = self._links(start, set(order))
                start = self._judged(start._replace(public=public))
                yield f"the {name} poset; a client at {who} is in, and dishonest", start

    def moves(self, s: State) -> Iterator[tuple[str, State]]:
        """Each costs one of `left`, but a backup."""
        order = dict(s.order)
        if s.backup is None and s.left > 1:
            yield "the key generator is backed up", s._replace(backup=(s.order, s.keys, s.inside))
        if not s.left:
            return
        s = s._replace(left=s.left - 1)
        if s.inside:
            mine = {s.who, *order[s.who]} if self.on["rekey-below"] else {s.who}
            gone = s._replace(inside=False)
            yield f"{s.who}'s client is revoked", self._rekey(gone, mine, {s.who, *order[s.who]})
        for label in order:
            yield f"rekey --label {label}", self._rekey(s, {label})
        if s.backup:
            were, keys, inside = s.backup
            back = s._replace(order=were, keys=keys, inside=inside, backup=None)
            yield "the key generator is set back to the backup, epochs and all", self._judged(back)
        if s.inside and order[s.who]:
            yield from self._cuts(s, order)

    def _cuts(self, s: State, order: Order) -> Iterator[tuple[str, State]]:
        """The attacker's label loses what is below it."""
        lost = set(order[s.who])
        cut = {label: under - lost if label == s.who else under for label, under in order.items()}
        after = s._replace(order=tuple(cut.items()))
        text = f"{s.who} loses every edge down, though its client stays"
        yield text, self._rekey(after, lost if self.on["edge-rekey"] else set(), lost)

    def _rekey(self, s: State, labels: set[str], hidden: set[str] | None = None) -> State:
        """New epochs of labels. `hidden`: whose new roots its client must not have from now on."""
        names = [label for label, _ in s.order]
        old = dict(zip(names, s.keys, strict=True))
        keys, draws = dict(old), s.draws
        for label in names:
            if label in labels:
                draws += self.on["fresh-roots"]
                keys[label] = (
                    old[label][0] + 1,
                    draws if self.on["fresh-roots"] else old[label][1],
                )
        after = s._replace(keys=tuple(keys.values()), draws=draws)
        public = s.public | self._links(after, labels) | self._back_links(old, keys, labels)
        out = s.out | {(label, keys[label][1]) for label in hidden or ()}
        if not s.inside:
            out |= {(label, keys[label][1]) for label in labels}
        return self._judged(after._replace(public=public, out=out))

    def _links(self, s: State, labels: set[str]) -> frozenset[Term]:
        """z and z̄ from and to labels whose keys are new."""
        keys = {label: key for (label, _), key in zip(s.order, s.keys, strict=True)}
        return frozenset(
            self._z(bit, top, keys[top], n, keys[n])
            for top, under in s.order
            for n in under
            if top in labels or n in labels
            for bit in BITS
        )

    def _back_links(
        self, old: dict[str, tuple[int, int]], new: dict[str, tuple[int, int]], labels: set[str]
    ) -> frozenset[Term]:
        if not self.on["back-link-down"]:
            old, new = new, old
        return frozenset(
            self._z(bit, label, new[label], label, old[label])
            for label in labels & set(old)
            for bit in BITS
            if new[label] != old[label]
        )

    def _z(self, bit: str, top: str, key: tuple[int, int], n: str, target: tuple[int, int]) -> Term:
        """One derivation value; draws stand for what is random about it."""
        root = _root(bit, top, key)
        if not self.on["pad-one-way"]:
            pad = root
        elif self.pad == "paper":
            pad = f("H", n, key=root)
        elif self.pad == "epoch-only":
            pad = f("z1", bit, n, f"e{target[0]}", key=root)
        else:
            kid = f"kid{key[1]}.{target[1]}"
            pad = f("z1", bit, n, f"e{target[0]}", kid, key=root)
        return xor(_root(bit, n, target), pad)

    def _judged(self, s: State) -> State:
        """Gives the attacker what it is due, and looks whether it has more."""
        due = self._due(s)
        has = s.has | due
        knows = knowledge(has | s.public)
        order = dict(s.order)
        for (label, _), key in zip(s.order, s.keys, strict=True):
            roots = [_root(bit, label, key) for bit in BITS]
            hidden = (label, key[1]) in s.out
            if any(knows.can(root) and (hidden or root not in has) for root in roots):
                where = "new root" if label in order[s.who] | {s.who} else "root"
                text = (
                    f"the client at {s.who} works out the {where} of {label}, which is not for it"
                )
                return s._replace(has=has, bad=text)
        return s._replace(has=has)

    def _due(self, s: State) -> frozenset[Term]:
        """Roots that its client has a right to now."""
        if not s.inside:
            return frozenset()
        order = dict(s.order)
        mine = order[s.who] | {s.who}
        return frozenset(
            _root(bit, label, key)
            for (label, _), key in zip(s.order, s.keys, strict=True)
            if label in mine
            for bit in BITS
        )

    def explain(self, s: State) -> list[str]:
        """The values that it computes with."""
        knows = knowledge(s.has | s.public)
        lines = [f"it held {', '.join(sorted(map(show, s.has)))}"]
        for (label, _), key in zip(s.order, s.keys, strict=True):
            root = _root("k", label, key)
            if root in knows.solved:
                lines.append(f"it computes {knows.why(root)}")
            elif (label, key[1]) in s.out and knows.can(root):
                lines.append(f"it has {root} already")
        return lines


def _root(bit: str, label: str, key: tuple[int, int]) -> Term:
    """R or R̄ of a label: its epoch, and which draw it was."""
    return secret(bit, label, f"e{key[0]}", f"#{key[1]}")
