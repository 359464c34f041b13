"""The judge of a site's bridge: an Exchange out of sealmq.toml, its tokens granted and renewed, its
events in the audit log, and its answers to `sealmq trust`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sealmq.feedback import Told

from ..api import Policy
from ..between import BadQuestion, Neighbour, Ruling, Say, Sending, Taken
from . import settings
from .decide import HANDED, NOT_ACCEPTED
from .exchange import NOT_A_NEIGHBOUR, UNKNOWN_TOKEN, UNSUBSCRIBED, Exchange
from .ratings import SCALE
from .settings import LocalToken
from .tokens import NEIGHBOUR, Known, announcement
from .wire import BadRecord

TOKEN_MS = 30 * 86_400_000
"""How long a client's token holds; after half of that there is a new one."""
MOST_SHOWN = 1000
_HEALS = frozenset({UNKNOWN_TOKEN, UNSUBSCRIBED, NOT_ACCEPTED, HANDED, NOT_A_NEIGHBOUR})
"""What records may be on their way for: none of it is charged to who has handed it over."""


class Between:
    """Of one site."""

    relays = True

    def __init__(self, me: str, public: bytes, sign: Callable[[bytes], bytes], say: Say) -> None:
        self._me, self._say = me, say
        self._x = Exchange(me, public, sign)
        self._tokens: Mapping[str, LocalToken] = {}
        self._neighbours: dict[str, Neighbour] = {}
        self._far: dict[str, bytes] = {}
        self._restored = False
        self._levels: dict[str, int] = {}
        self._votes = {"good": 0, "bad": 0}
        self._blocked: frozenset[str] = frozenset()

    # What is known

    def configure(
        self,
        policy: Policy,
        neighbours: Mapping[str, Neighbour],
        far: Mapping[str, bytes],
        now_ms: int,
    ) -> None:
        said = settings.read(policy)
        self._x.judge_by(said.rules, said.weights)
        for name in self._neighbours.keys() - neighbours.keys():
            self._x.remove(name, now_ms)
        enrolled: dict[str, Neighbour] = {}
        for name, one in neighbours.items():
            if self._neighbours.get(name) != one and not self._enrol(name, one, now_ms):
                continue
            enrolled[name] = one
        for name in self._far.keys() | far.keys():
            if self._far.get(name) != far.get(name):
                self._x.pin(name, far.get(name), now_ms)
        self._neighbours, self._far = enrolled, dict(far)
        gone = self._tokens.keys() - said.tokens.keys()
        self._tokens = {**{name: LocalToken() for name in gone}, **said.tokens}
        if self._restored:
            self._grant(now_ms)

    def _enrol(self, name: str, one: Neighbour, now_ms: int) -> bool:
        """Whether it is a neighbour now: what cannot be judged is none, and ends nothing else."""
        try:
            self._x.enrol(name, one.public, one.give, now_ms)
        except BadRecord as error:
            if name in self._neighbours:
                self._x.remove(name, now_ms)
            self._say(
                "token-refused", peer=name, rule=error.rule, reason=f"what it is given: {error}"
            )
            return False
        return True

    def _grant(self, now_ms: int) -> None:
        """New ones where they say something else, or half of their time is over."""
        for client, token in self._tokens.items():
            held = self._x.issued(client)
            filters = tuple(sorted(token.publish)), tuple(sorted(token.subscribe))
            if held is not None and held.until_ms > now_ms + TOKEN_MS // 2:
                if (held.publish, held.subscribe) == filters:
                    continue
            serial = max(now_ms, held.serial + 1 if held else 0)
            try:
                self._x.grant(client, *filters, serial, now_ms + TOKEN_MS, now_ms)
            except BadRecord as error:
                self._say("token-refused", peer=NEIGHBOUR + self._me, rule=error.rule,
                          reason=f"{client}: {error}")  # fmt: skip

    def changes(self) -> Sequence[tuple[bytes, bytes | None]]:
        return self._x.changes()

    def restore(self, rows: Iterable[tuple[bytes, bytes]], now_ms: int) -> None:
        # Who vouches for keys comes before what is signed by them.
        for key, record in sorted(rows, key=lambda row: b"introduc" not in row[1][:32]):
            self._x.restore(key, record, now_ms)
        for known in self._x.all_known():
            token = known.token
            if token.issuer == self._me and not token.client.startswith(NEIGHBOUR):
                self._tokens = {token.client: LocalToken(), **self._tokens}
        self._restored = True
        self._grant(now_ms)

    def joined(self, neighbour: str, now_ms: int) -> None:
        if neighbour in self._neighbours:
            self._x.joined(neighbour, now_ms)

    def pending(self, neighbour: str) -> list[bytes]:
        return self._x.pending(neighbour)

    def receive(self, neighbour: str, record: bytes, now_ms: int) -> Taken:
        found = self._x.receive(neighbour, record, now_ms)
        if not found.ok:
            self._say("token-refused", peer=neighbour, rule=found.rule, reason=found.reason)
        return Taken(*found)

    def knows(self, site: str, public: bytes) -> bool:
        return self._x.key(site) == public

    # Messages

    def outbound(self, client: str, topic: str, label: str, now_ms: int) -> Sending:
        return Sending(*self._x.outbound(client, topic, now_ms))

    def message(self, neighbour: str, token: bytes, topic: str, now_ms: int) -> Ruling:
        found = self._x.message(neighbour, token, topic, now_ms)
        known = self._x.token(token)
        issuer = known.issuer if known is not None else ""
        accept = found.accept and bool(issuer)
        heals = found.rule in _HEALS
        return Ruling(accept, found.to, issuer, found.rule, found.reason, heals)

    def issuer(self, neighbour: str, token: bytes) -> str:
        return self._x.issuer(token)

    def naming(self, neighbour: str, token: bytes) -> bool:
        return self._x.naming(neighbour, token)

    def observe(self, neighbour: str, what: str, now_ms: int) -> None:
        self._x.observe(neighbour, what, now_ms)

    def delivered(
        self, neighbour: str, message: bytes, topic: str, label: str, now_ms: int
    ) -> None:
        self._x.forwarded(neighbour, message, topic, now_ms, label)

    def vote(self, label: str, told: Told, now_ms: int) -> bool:
        client, said, assessor = told
        given = client, said.message, said.good, now_ms, assessor, said.topic, label
        counts = self._x.vote(*given)
        self._votes["good" if said.good else "bad"] += counts
        return counts

    # Time

    def tick(self, now_ms: int) -> None:
        self._x.tick(now_ms)
        ratings, blocked = self._x.ratings(), self._x.blocked()
        for name in blocked - self._blocked:
            self._say("peer-blocked", peer=name, rating=ratings.get(name, 0))
        for name in self._blocked - blocked & ratings.keys():
            self._say("peer-unblocked", peer=name, rating=ratings[name])
        self._blocked = blocked
        for name, rating in ratings.items():
            level = self._level(rating)
            before = self._levels.get(name, level)
            if level != before:
                self._say(
                    "rating-crossed", peer=name, rating=rating, reason=_crossed(before, level)
                )
            self._levels[name] = level
        if self._restored:
            self._grant(now_ms)

    def _level(self, rating: int) -> int:
        """0: below θ, 1: at θ or above, 2: at π or above."""
        rules = self._x.rules
        return (rating >= rules.accept) + (rating >= rules.sign)

    # Questions

    def ask(self, op: str, fields: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        answers: dict[str, Callable[[Mapping[str, Any], int], dict[str, Any]]] = {
            "show": self._show, "scene": self._scene, "explain": self._explain,
            "token": self._token,
        }  # fmt: skip
        if op not in answers:
            raise BadQuestion(f"{op[:32]!r} is none of {', '.join(answers)}")
        return answers[op](fields, now_ms)

    def _show(self, fields: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        found = list(self._x.all_known())
        return {
            "site": self._me,
            "neighbours": sorted(self._neighbours),
            "ratings": {name: rating / SCALE for name, rating in self._x.ratings().items()},
            "blocked": sorted(self._x.blocked()),
            "doubtful": sorted(self._x.doubtful()),
            "edges": [[a, b, rating / SCALE] for (a, b), rating in sorted(self._x.edges().items())],
            "tokens": [_row(known) for known in found[:MOST_SHOWN]],
            "count": len(found),
            "votes": dict(self._votes),
        }

    def _find(self, fields: Mapping[str, Any]) -> Known:
        said = fields.get("token")
        found = None
        if isinstance(said, str):
            shown = said.removeprefix(NEIGHBOUR)
            for known in self._x.all_known():
                token = known.token
                if said == token.id.hex() or shown == f"{token.issuer}/{token.client}":
                    found = known
        if found is None:
            raise BadQuestion(f"no token {str(said)[:80]!r} is known: `sealmq trust show SITE`")
        return found

    # As `sealmq trust paths FILE` reads it.
    def _scene(self, fields: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        known, rules = self._find(fields), self._x.rules
        if known.token.issuer == self._me:
            raise BadQuestion("it is a token of this site's own: no site judges its own")
        return {
            "ratings": [
                [a, b, rating / SCALE] for (a, b), rating in sorted(self._x.edges().items())
            ],
            "issuer": known.token.issuer,
            "signers": sorted(known.signers),
            "judge": self._me,
            "accept": rules.accept / SCALE,
            "sign": rules.sign / SCALE,
            "way": rules.way,
            "measure": rules.measure,
            "k": rules.signers,
        }

    def _explain(self, fields: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        known, by, topic = self._find(fields), fields.get("from"), fields.get("topic")
        if not isinstance(by, str) or not isinstance(topic, str):
            raise BadQuestion("by which neighbour (from), and which topic, at its own site?")
        return self._x.explain(by, known.token.id, topic, now_ms)

    def _token(self, fields: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        known = self._find(fields)
        keys = {site: self._x.key(site) for site in known.signatures}
        return {
            "record": announcement(known.token, known.signatures).hex(),
            "keys": {site: key.hex() for site, key in keys.items() if key is not None},
        }


def _row(known: Known) -> dict[str, Any]:
    token = known.token
    return {
        "id": token.id.hex(), "issuer": token.issuer, "client": token.client,
        "publish": list(token.publish), "subscribe": list(token.subscribe),
        "until_ms": token.until_ms, "signers": sorted(known.signers),
    }  # fmt: skip


def _crossed(before: int, now: int) -> str:
    names = ("below θ", "between θ and π", "at π or above")
    return f"from {names[before]} to {names[now]}"
