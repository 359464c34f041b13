"""Sites of the paper's graph, joined in memory: what one has pending the others receive at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sealmq.families import signatures
from sealmq.families.trust.decide import RULES, Rules
from sealmq.families.trust.example import PAPER
from sealmq.families.trust.exchange import TAKEN, Decision, Exchange
from sealmq.families.trust.ratings import SCALE, WEIGHTS, Weights
from sealmq.families.trust.tokens import Token, signed_text

NOW = 1_800_000_000_000
END = NOW + 86_400_000
LINKS = tuple(PAPER.edges)
EVERYTHING = ("a/#", *(f"@b{n}/#" for n in range(1, 10)))


def private(site: str) -> bytes:
    return site.encode().ljust(32, b"\1")


def public(site: str) -> bytes:
    return signatures.public_of(private(site))


def signed(token: Token, *signers: str) -> dict[str, bytes]:
    return {s: signatures.sign(private(s), signed_text(s, token.raw)) for s in signers}


class World:
    """All sites with their lines. `rate` gives a neighbour so much evidence that it is rated so."""

    def __init__(
        self,
        links: Iterable[tuple[str, str]] = LINKS,
        rules: Rules = RULES,
        weights: Weights | None = None,
        ratings: Mapping[tuple[str, str], int] | None = PAPER.edges,
    ) -> None:
        self.links = list(links)
        self.now = NOW
        self.sites: dict[str, Exchange] = {}
        for site in sorted({end for link in self.links for end in link}):
            self.sites[site] = self.site(site, rules, weights or still())
        for one, other in self.links:
            self.sites[one].enrol(other, public(other), EVERYTHING, self.now)
            self.sites[other].enrol(one, public(one), EVERYTHING, self.now)
        for (rated, rater), rating in (ratings or {}).items():
            self.rate(rater, rated, rating)
        for one, other in self.links:
            self.sites[one].joined(other, self.now)
            self.sites[other].joined(one, self.now)
        self.tick()

    def site(self, name: str, rules: Rules, weights: Weights) -> Exchange:
        return Exchange(
            name, public(name), lambda text: signatures.sign(private(name), text), rules, weights
        )

    def __getitem__(self, site: str) -> Exchange:
        return self.sites[site]

    def rate(self, rater: str, rated: str, rating: int) -> None:
        """r and s of 98 in all, and none of it ages: τ = (r + 1) / 100."""
        held = self.sites[rater]._ratings
        held._of[rated].good = (rating - 100) / 100
        held._of[rated].bad = 98 - held._of[rated].good
        held.changed.add((rated, ""))
        assert held.ratings(self.now)[rated] == rating <= SCALE

    def tick(self, ms: int = 60_000) -> int:
        """Time passes, and everything is told; in how many rounds."""
        self.now += ms
        for site in self.sites.values():
            site.tick(self.now)
        return self.settle()

    def settle(self) -> int:
        """Rounds in which somebody was told something new."""
        rounds = 0
        while True:
            told = [
                (one, other, record)
                for one, other in self.links + [(b, a) for a, b in self.links]
                for record in self.sites[one].pending(other)
            ]
            if not told:
                return rounds
            answers = [self.sites[b].receive(a, record, self.now) for a, b, record in told]
            assert all(answer.ok for answer in answers), answers
            rounds += any(answer.rule == TAKEN for answer in answers)
            assert rounds < 40, "it goes in circles"

    def publish(self, site: str, client: str, topic: str) -> dict[str, list[tuple[str, Decision]]]:
        """Where it comes, by whom, and what is decided: a site forwards it once."""
        sent = self.sites[site].outbound(client, topic, self.now)
        assert sent.ok, sent
        waiting = [(site, other) for other in sent.to]
        came: dict[str, list[tuple[str, Decision]]] = {}
        while waiting:
            one, other = waiting.pop(0)
            self.settle()
            done = self.sites[other].message(one, sent.token_id, topic, self.now)
            first = not any(before.accept for _, before in came.get(other, []))
            came.setdefault(other, []).append((one, done))
            if done.accept and first:
                waiting += [(other, more) for more in done.to]
        self.settle()
        return came

    def grant(
        self, site: str, client: str, publish: Sequence[str] = ("a/#",), serial: int = 1
    ) -> Token:
        return self.sites[site].grant(client, publish, (), serial, END, self.now)


def still(weights: Weights = WEIGHTS) -> Weights:
    """Evidence that neither ages nor gives way."""
    return Weights(weights.bad, weights.base, 1 << 100, 1000, weights.block, weights.free)
