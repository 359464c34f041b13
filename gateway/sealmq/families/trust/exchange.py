"""What one site knows of others, and what it decides about what they hand over. The face of this
package towards whatever connects sites: records and events in, records and decisions out.

It holds no private key (`sign` makes a signature), no socket and no clock. A decision takes nothing
away: a message that is refused may still be accepted when another neighbour hands it over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..api import NEVER
from . import decide
from .decide import RULES, Acceptance, Rules
from .events import Events
from .gossip import FORGED as RATINGS_FORGED
from .gossip import RATED, Board, Said, read_ratings, signed_ratings
from .paths import Edges, Least, Oriented, without
from .ratings import WEIGHTS, Ratings, Weights
from .sites import FORGED as INTRODUCTION_FORGED
from .sites import (
    INTRODUCED,
    TOO_OFTEN,
    Introduction,
    Sites,
    read_introduction,
    signed_introduction,
)
from .tokens import (
    ANNOUNCED,
    CLASH,
    MOST_SIGNERS,
    NEIGHBOUR,
    Known,
    Token,
    Tokens,
    announcement,
    read_announcement,
    signed_text,
)
from .tokens import FORGED as TOKEN_FORGED
from .wire import MALFORMED, BadRecord, malformed, name, number, opened, pack, u64, unpack

EVIDENCE = b"sealmq-evidence-1"
CHANNEL = b"sealmq-evidence-of-issuer-1"
BROUGHT = b"sealmq-token-brought-1"
PERIOD_MS = 60_000
"""How often ratings are computed anew."""
VALID_MS = 60 * PERIOD_MS
"""How long what a site says of others counts, which clocks that differ shorten."""
MOST_DECISIONS = 16_384
EDGES_A_SECOND = 8192
"""Of the graph that are gone through, about 0.1 s of work: what others say of each other counts at
once up to that, and else as soon as the seconds that have passed pay for it, at most PERIOD_MS
later. So who says ever new ratings makes nobody build large graphs again and again."""
REMIND_MS = 10 * PERIOD_MS
"""A neighbour that hears of a token again was told it again after so long: it may not have taken
it, for want of a key or of room."""
NEIGHBOUR_TOKEN_MS = 10 * 365 * 86_400_000
OBSERVED = ("bad-token", "outside", "rate", "replay")

TAKEN = "trust.record.taken"
KNOWN = "trust.record.known"
NOT_A_NEIGHBOUR = "trust.message.not-a-neighbour"
BLOCKED = "trust.message.blocked"
UNKNOWN_TOKEN = "trust.message.unknown-token"  # noqa: S105 - a rule's id
ENDED = "trust.message.token-ended"
OWN = "trust.message.own"
OUTSIDE = "trust.message.outside"
UNSUBSCRIBED = "trust.message.unsubscribed"
CLOSED = "trust.message.closed"
NO_TOKEN = "trust.message.no-token"  # noqa: S105 - a rule's id
SENT = "trust.message.sent"

_TOKEN, _SITE, _RATED = b"t", b"i", b"e"
_CHARGED = frozenset({MALFORMED, TOKEN_FORGED, RATINGS_FORGED, INTRODUCTION_FORGED})


class Answer(NamedTuple):
    """Whether a record is taken."""

    ok: bool
    rule: str
    reason: str


class Decision(NamedTuple):
    """Of a message: deliver it here, and forward it to these neighbours, or neither. `until`: Unix
    ms up to which it holds, unless something changes."""

    accept: bool
    sign: bool
    to: tuple[str, ...]
    rule: str
    reason: str
    until: int = NEVER


class Outbound(NamedTuple):
    """Of an own client's message: to whom it goes, with which token."""

    ok: bool
    token_id: bytes
    to: tuple[str, ...]
    rule: str
    reason: str


class Exchange:
    """One site among others."""

    def __init__(
        self,
        me: str,
        public: bytes,
        sign: Callable[[bytes], bytes],
        rules: Rules = RULES,
        weights: Weights = WEIGHTS,
    ) -> None:
        self.me, self.rules = me, rules
        self._sign, self._public = sign, public
        self._sites = Sites(me, public)
        self._tokens = Tokens(self._sites.key)
        self._board = Board(self._sites.key)
        self._ratings = Ratings(weights)
        self._events = Events(self._ratings)
        self._rated: Mapping[str, int] = {}
        self._due_ms = 0
        self._said_until = 0
        self._serial = 0
        # What each neighbour has still to be told, by kind and name; the newest of it is sent.
        self._pending: dict[str, dict[tuple[bytes, str | bytes], None]] = {}
        # S of the tokens that a neighbour was told, as it was, and when.
        self._announced: dict[str, dict[bytes, tuple[frozenset[str], int]]] = {}
        self._now_ms = 0
        # Keys of `changes` that are on disk from before a restart: what was left out goes there.
        self._restored: set[bytes] = set()
        self._introductions: dict[str, Introduction] = {}
        self._decisions: dict[tuple[str, bytes, str], Decision] = {}
        self._graph: Edges | None = None
        # Edges gone through that no second has paid for yet; whether ratings wait for that.
        self._owed = 0
        self._stale = False
        self._views: dict[str, tuple[Oriented, Mapping[str, Least]]] = {}

    def judge_by(self, rules: Rules, weights: Weights) -> None:
        """Other rules from now on."""
        self.rules, self._ratings.weights = rules, weights
        self._due_ms = 0
        self._forget()

    # Neighbours

    def enrol(self, neighbour: str, public: bytes, subscribe: Iterable[str], now_ms: int) -> None:
        """A neighbour, and F_s of the token ⟨me, @neighbour, S, ∅, F_s⟩ that it gets: what of this
        site's it may have, own topics as they are, others' as @SITE/TOPIC. BadRecord.
        """
        before, until = self._sites.key(neighbour), now_ms + NEIGHBOUR_TOKEN_MS
        made = Token(
            self.me, NEIGHBOUR + neighbour, (), tuple(sorted(set(subscribe))), now_ms, until
        )  # what is none enrols nobody
        self._sites.enrol(neighbour, public)
        self._ratings.add(neighbour, now_ms)
        self._pending.setdefault(neighbour, {})
        self._announced.setdefault(neighbour, {})
        if before != public:
            self._key_changed(neighbour, now_ms)
        self.grant(made.client, (), made.subscribe, now_ms, until, now_ms)
        self._due_ms = 0

    def remove(self, neighbour: str, now_ms: int) -> None:
        """It is no neighbour any more: its key, what it introduced and what is held of it go."""
        before = {site: self._sites.key(site) for site in self._sites}
        self._sites.remove(neighbour)
        self._ratings.remove(neighbour)
        self._pending.pop(neighbour, None)
        self._announced.pop(neighbour, None)
        for site, key in before.items():
            if self._sites.key(site) != key:
                self._key_changed(site, now_ms)
        self._board.tick(now_ms, frozenset(self._sites))
        self._due_ms = 0
        self._forget()

    def pin(self, site: str, public: bytes | None, now_ms: int) -> None:
        """The operator's word for the key of a site that is no neighbour; None takes it back."""
        self._sites.pin(site, public)
        self._key_changed(site, now_ms)

    def joined(self, neighbour: str, now_ms: int) -> None:
        """The line is up: it is told all that it has to know, in this order."""
        told = self._pending[neighbour] = {}
        self._announced[neighbour] = {}
        self._decisions.clear()
        for site in self._introductions:
            self._tell(neighbour, INTRODUCED, site)
        for rater in self._board.raters():
            self._tell(neighbour, RATED, rater)
        known = self._tokens.newest(self.me, NEIGHBOUR + neighbour)
        if known is not None:
            told[(ANNOUNCED, known.token.id)] = None

    def pending(self, neighbour: str) -> list[bytes]:
        """Records that it has to be sent, in this order; they are not given again."""
        if not (told := self._pending.get(neighbour)):
            return []
        self._pending[neighbour] = {}
        return [record for kind, what in told if (record := self._record(kind, what)) is not None]

    def _record(self, kind: bytes, what: str | bytes) -> bytes | None:
        if isinstance(what, bytes):
            known = self._tokens.get(what)
            return None if known is None else announcement(known.token, known.signatures)
        if kind == RATED:
            return self._board.record(what)
        return signed_introduction(self._introductions[what], self._sign)

    def _tell(self, neighbour: str, kind: bytes, what: str) -> None:
        if what != neighbour:
            self._pending[neighbour][(kind, what)] = None

    def _tell_all(self, kind: bytes, what: str, but: str = "") -> None:
        for neighbour in self._pending:
            if neighbour != but:
                self._tell(neighbour, kind, what)

    def _announce(self, known: Known, neighbour: str) -> None:
        """Once, and again when somebody has signed it since, or a while has passed."""
        told = self._announced[neighbour]
        signers, at_ms = told.get(known.token.id, (None, 0))
        if signers != known.signers or self._now_ms - at_ms > REMIND_MS:
            told[known.token.id] = known.signers, self._now_ms
            self._pending[neighbour][(ANNOUNCED, known.token.id)] = None

    # Records

    def receive(self, neighbour: str, record: bytes, now_ms: int) -> Answer:
        """A record that a neighbour has sent. What is forged or malformed is held against it."""
        if neighbour not in self._sites.neighbours:
            return Answer(False, NOT_A_NEIGHBOUR, f"{neighbour[:64]!r} is no neighbour")
        try:
            return self._receive(neighbour, record, now_ms)
        except BadRecord as error:
            if error.rule in _CHARGED:
                self.observe(neighbour, "bad-token", now_ms)
            elif error.rule == TOO_OFTEN:
                self.observe(neighbour, "rate", now_ms)
            elif error.rule == CLASH:
                self._decisions.clear()
            return Answer(False, error.rule, str(error))

    def _receive(self, neighbour: str, record: bytes, now_ms: int) -> Answer:
        kind = next(iter(unpack(record)), b"")
        if kind == ANNOUNCED:
            return self._token(neighbour, *read_announcement(record), now_ms)
        if kind == RATED:
            said, signature = read_ratings(record)
            mine = said.rater == self.me
            if mine or not self._board.take(said, signature, now_ms, neighbour):
                return Answer(True, KNOWN, "these ratings are known")
            self._tell_all(RATED, said.rater, neighbour)
            self._rated_anew()
            return Answer(True, TAKEN, f"ratings of {said.rater}")
        if kind == INTRODUCED:
            made, signature = read_introduction(record)
            if made.by != neighbour:
                raise malformed("a neighbour hands over its own introductions alone")
            before = self._sites.key(made.site)
            if not self._sites.introduced(made, signature, now_ms):
                return Answer(True, KNOWN, "this introduction is known")
            if self._sites.key(made.site) != before:
                self._key_changed(made.site, now_ms)
            return Answer(True, TAKEN, f"the key of {made.site}")
        raise malformed("it is no record of a kind that is known")

    def _token(
        self, neighbour: str, token: Token, signatures: Mapping[str, bytes], now_ms: int
    ) -> Answer:
        if neighbour in self._ratings.blocked and self._tokens.get(token.id) is None:
            return Answer(False, BLOCKED, f"{neighbour} is blocked: no token of it is new here")
        done = self._tokens.announce(token, signatures, now_ms, neighbour)
        for _ in done.forged:
            self.observe(neighbour, "bad-token", now_ms)
        if done.known.signers <= signatures.keys():  # it has told all that is known here
            self._announced[neighbour][token.id] = done.known.signers, self._now_ms
        if done.fresh:
            self._signers_changed(done.known, but=neighbour)
        if done.forged:
            return Answer(False, TOKEN_FORGED, f"not signed by {', '.join(sorted(done.forged))}")
        return Answer(True, TAKEN if done.fresh else KNOWN, f"token {token.id.hex()}")

    def _signers_changed(self, known: Known, but: str = "") -> None:
        """Whoever has the token is told who has signed it since."""
        self._decisions.clear()
        for neighbour, told in self._announced.items():
            if neighbour != but and known.token.id in told:
                self._announce(known, neighbour)

    def _key_changed(self, site: str, now_ms: int) -> None:
        if site != self.me:
            key = self._sites.key(site)
            last = self._introductions.get(site)
            serial = max(now_ms, last.serial + 1 if last else 0)
            self._introductions[site] = Introduction(self.me, site, key or b"", serial)
            self._tell_all(INTRODUCED, site)
        for known in self._tokens.rekeyed(site):
            self._signers_changed(known)
        self._decisions.clear()  # and no edges: a key is none

    # Tokens and messages

    def grant(
        self,
        client: str,
        publish: Iterable[str],
        subscribe: Iterable[str],
        serial: int,
        until_ms: int,
        now_ms: int,
    ) -> Token:
        """Issue an own client's token, in the place of any with a lower serial (Unix ms will do).
        BadRecord.
        """
        held = self._tokens.newest(self.me, client)
        filters = tuple(sorted(set(publish))), tuple(sorted(set(subscribe)))
        if held is not None and (held.token.publish, held.token.subscribe) == filters:
            if held.token.until_ms >= until_ms:
                return held.token
        token = Token(self.me, client, *filters, serial, until_ms)
        signature = self._sign(signed_text(self.me, token.raw))
        self._tokens.announce(token, {self.me: signature}, now_ms)
        if client.startswith(NEIGHBOUR) and client[1:] in self._pending:
            self._pending[client[1:]][(ANNOUNCED, token.id)] = None
        self._decisions.clear()
        return token

    def token(self, id: bytes) -> Token | None:
        """A token that is known."""
        known = self._tokens.get(id)
        return None if known is None else known.token

    def issuer(self, id: bytes) -> str:
        """Who has issued a token; "": it is not known."""
        known = self._tokens.get(id)
        return "" if known is None else known.token.issuer

    def known(self, id: bytes) -> Known | None:
        """A token and who has signed it."""
        return self._tokens.get(id)

    def all_known(self) -> Iterator[Known]:
        """Those that are known."""
        return iter(self._tokens)

    def issued(self, client: str) -> Token | None:
        """An own client's token."""
        known = self._tokens.newest(self.me, client)
        return None if known is None else known.token

    def naming(self, neighbour: str, token_id: bytes) -> bool:
        """A message that names the token is about to go to a neighbour, which is told the token
        first (`pending`) if it does not know it. False: it is blocked, or the token not known.
        """
        known = self._tokens.get(token_id)
        if known is None or neighbour not in self._pending or neighbour in self._ratings.blocked:
            return False
        self._announce(known, neighbour)
        return True

    def key(self, site: str) -> bytes | None:
        """Its public key, where that is known and in no doubt."""
        return self._sites.key(site)

    def outbound(self, client: str, topic: str, now_ms: int) -> Outbound:
        """An own client has published: with which token that goes, and to whom."""
        known = self._tokens.newest(self.me, client)
        if known is None or now_ms >= known.token.until_ms:
            return Outbound(False, b"", (), NO_TOKEN, f"{client} has no token")
        if not known.token.may_publish(topic):
            return Outbound(False, b"", (), OUTSIDE, f"{client}'s token does not have the topic")
        to = self._wanting(topic, but=())
        for neighbour in to:
            self._announce(known, neighbour)
        return Outbound(True, known.token.id, to, SENT, "within the client's token")

    def message(self, neighbour: str, token_id: bytes, topic: str, now_ms: int) -> Decision:
        """A neighbour hands a message over. topic: as its issuer's site has it."""
        found = self._decisions.get((neighbour, token_id, topic))
        if found is not None and now_ms < found.until:
            return found
        found, known = self._decide(neighbour, token_id, topic, now_ms)
        if found.rule == OUTSIDE:
            self.observe(neighbour, "outside", now_ms)
        if known is None:
            return found
        room = len(known.signatures) < MOST_SIGNERS
        if found.sign and self.me not in known.signers and room:
            signature = self._sign(signed_text(self.me, known.token.raw))
            self._tokens.sign(known, self.me, signature, self._public)
            self._signers_changed(known)
        for other in found.to:
            self._announce(known, other)
        if len(self._decisions) >= MOST_DECISIONS:
            self._decisions.clear()
        self._decisions[(neighbour, token_id, topic)] = found
        return found

    def _decide(
        self, neighbour: str, token_id: bytes, topic: str, now_ms: int
    ) -> tuple[Decision, Known | None]:
        """The known token comes with a decision that holds until something changes."""
        if neighbour not in self._sites.neighbours:
            return _refused(NOT_A_NEIGHBOUR, f"{neighbour[:64]!r} is no neighbour"), None
        if neighbour in self._ratings.blocked:
            return _refused(BLOCKED, f"{neighbour} is blocked"), None
        known = self._tokens.get(token_id)
        if known is None:
            return _refused(UNKNOWN_TOKEN, "its token is not known, or replaced"), None
        if known.clashes:
            return _refused(CLASH, "there are two tokens with its token's id"), None
        token, until = known.token, known.token.until_ms
        if now_ms >= until:
            return _refused(ENDED, "its token is over"), None
        if token.issuer == self.me:
            return _refused(OWN, "it comes from this site"), None
        if not token.may_publish(topic):
            return _refused(OUTSIDE, "its client's token does not have the topic"), None
        there = topic if token.issuer == neighbour else f"{NEIGHBOUR}{token.issuer}/{topic}"
        wanted = self._tokens.newest(neighbour, NEIGHBOUR + self.me)
        if wanted is None or not wanted.token.may_receive(there):
            return _refused(UNSUBSCRIBED, f"{neighbour} has not let this site have it"), None
        until = min(until, wanted.token.until_ms)
        accepted = self.accepts(known)
        if not accepted.ok:
            return Decision(False, False, (), decide.NOT_ACCEPTED, accepted.reason, until), known
        rating = self._rated.get(neighbour, 0)
        does = decide.handed(self.rules, rating)
        if not does.deliver:
            reason = f"{neighbour}, rated {rating / 10_000:g}, has handed it over"
            return Decision(False, False, (), does.rule, reason, until), known
        if (neighbour, token.issuer) in self._ratings.closed:
            reason = f"what {neighbour} hands over of {token.issuer} was bad more than good"
            return Decision(False, False, (), CLOSED, reason, until), known
        to = self._wanting(f"{NEIGHBOUR}{token.issuer}/{topic}", but=(neighbour, token.issuer))
        return Decision(True, does.sign, to, does.rule, accepted.reason, until), known

    def accepts(self, known: Known) -> Acceptance:
        """Whether the token is accepted, whoever hands it over."""
        graph, least = self._view(known.token.issuer)
        blocked = self._ratings.blocked
        mine = {n: rating for n, rating in self._rated.items() if n not in blocked}
        return decide.accepts(self.rules, self.me, known.signers, mine, graph, least)

    def _wanting(self, topic: str, but: Sequence[str]) -> tuple[str, ...]:
        """Neighbours whose token has the topic in F_s."""
        found = []
        for neighbour in self._pending:
            known = self._tokens.newest(self.me, NEIGHBOUR + neighbour)
            if neighbour in but or neighbour in self._ratings.blocked or known is None:
                continue
            if known.token.may_receive(topic):
                found.append(neighbour)
        return tuple(found)

    # Ratings

    def observe(self, neighbour: str, what: str, now_ms: int) -> None:
        """What a mediator sees of a neighbour: one of OBSERVED. ValueError."""
        if what not in OBSERVED:
            raise ValueError(f"{what!r} is none of {', '.join(OBSERVED)}")
        self._ratings.saw(neighbour, False, now_ms)
        if self._ratings.falls(neighbour, now_ms):
            self._due_ms = now_ms  # who has done so much is not listened to for another minute

    def forwarded(
        self, neighbour: str, message: bytes, topic: str, now_ms: int, label: str = ""
    ) -> None:
        """The event ⟨neighbour, message, topic⟩: it was accepted and delivered. message: as
        sealmq.feedback names it. topic, label: as they are here, @SITE/TOPIC and LABEL@SITE."""
        self._events.forwarded(neighbour, message, topic, now_ms, label)

    def vote(
        self,
        client: str,
        message: bytes,
        good: bool,
        now_ms: int,
        assessor: bool = False,
        topic: str | None = None,
        label: str | None = None,
    ) -> bool:
        """What a client says of a message; whether it counts. topic, label: that the client reads,
        as its mediator says; None: whichever."""
        return self._events.vote(client, message, good, now_ms, assessor, topic, label)

    def tick(self, now_ms: int) -> None:
        """Every second or so: what is over goes, ratings are computed anew when they are due."""
        passed_ms = min(max(now_ms - self._now_ms, 0), PERIOD_MS)
        self._now_ms = now_ms
        self._owed = max(0, self._owed - EDGES_A_SECOND * passed_ms // 1000)
        self._events.settle(now_ms)
        for site in self._sites.tick(now_ms):
            self._key_changed(site, now_ms)
        for known in self._tokens.tick(now_ms):
            self._signers_changed(known)
        version = self._board.version
        self._board.tick(now_ms, frozenset(self._sites))
        if self._stale or self._board.version != version:
            self._rated_anew()
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + PERIOD_MS
            self._rate(now_ms)

    def _rate(self, now_ms: int) -> None:
        blocked, closed = self._ratings.blocked, self._ratings.closed
        rated = self._ratings.ratings(now_ms)
        if self._ratings.closed != closed:
            self._decisions.clear()
        if self._ratings.blocked != blocked:
            self._blocked_changed(now_ms)
        if rated == self._rated and now_ms < self._said_until - VALID_MS // 2:
            return
        self._rated = rated
        self._said_until = now_ms + VALID_MS
        self._serial = max(now_ms, self._serial + 1)
        said = Said(self.me, self._serial, self._said_until, rated)
        self._board.take(*read_ratings(signed_ratings(said, self._sign)), now_ms)
        self._tell_all(RATED, self.me)
        self._forget()

    def _blocked_changed(self, now_ms: int) -> None:
        """Who is blocked has introduced nobody."""
        before = {site: self._sites.key(site) for site in self._sites}
        self._sites.blocked = self._ratings.blocked
        for site, key in before.items():
            if self._sites.key(site) != key:
                self._key_changed(site, now_ms)
        self._forget()

    def ratings(self) -> Mapping[str, int]:
        """trust(b, me) of each neighbour, in 1/10,000, as last computed."""
        return self._rated

    def blocked(self) -> frozenset[str]:
        """Neighbours of which nothing is taken."""
        return self._ratings.blocked

    def doubtful(self) -> Sequence[str]:
        """Sites of which neighbours say different keys: none counts until the operator says one."""
        return self._sites.doubtful()

    def edges(self) -> Edges:
        """The graph of ratings by which is decided."""
        if self._graph is None:
            self._graph = without(self._board.edges(), self._ratings.blocked)
            self._owes(len(self._graph))
        return self._graph

    def _view(self, issuer: str) -> tuple[Oriented, Mapping[str, Least]]:
        found = self._views.get(issuer)
        if found is None:
            graph = Oriented(self.edges(), issuer)
            self._owes(len(self.edges()))
            found = self._views[issuer] = graph, graph.least(self.me, self.rules.measure)
        return found

    def _owes(self, edges: int) -> None:
        self._owed = min(self._owed + edges, EDGES_A_SECOND * PERIOD_MS // 1000)

    def _rated_anew(self) -> None:
        """Others have: it counts as soon as it may."""
        self._stale = self._owed > EDGES_A_SECOND
        if not self._stale:
            self._forget()

    def _forget(self) -> None:
        self._stale = False
        self._graph = None
        self._views.clear()
        self._decisions.clear()

    # Words and keeping

    def explain(self, neighbour: str, token_id: bytes, topic: str, now_ms: int) -> dict[str, Any]:
        """What `message` would decide, and by whose rating; nothing is signed or charged."""
        found, known = self._decide(neighbour, token_id, topic, now_ms)
        said: dict[str, Any] = {
            "accept": found.accept, "sign": found.sign, "to": list(found.to),
            "rule": found.rule, "reason": found.reason, "by": neighbour,
            "rating": self._rated.get(neighbour, 0) / 10_000,
        }  # fmt: skip
        if known is not None:
            said["signers"] = [
                {"signer": vote.signer, "counts": vote.counts,
                 "rating": None if vote.rating is None else round(vote.rating.rating, 4)}
                for vote in self.accepts(known).votes
            ]  # fmt: skip
        return said

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """What has to survive a restart, for `restore`, as far as it has changed since this was
        last asked: a key and the record in the place of what was there, None: nothing."""
        keys = self._restored
        keys.update(_TOKEN + id for id in self._tokens.changed)
        keys.update(_SITE + _pair(*which) for which in self._sites.changed)
        keys.update(_RATED + _pair(*which) for which in self._ratings.changed)
        if not keys:
            return []
        for changed in (self._tokens.changed, self._sites.changed, self._ratings.changed):
            changed.clear()
        self._restored = set()
        made = [(key, self._kept(key)) for key in sorted(keys)]
        for key, record in made:
            if record is None and key[:1] == _TOKEN:
                for told in self._announced.values():
                    told.pop(key[1:], None)
        return made

    def _kept(self, key: bytes) -> bytes | None:
        kind, which = key[:1], key[1:]
        if kind == _TOKEN:
            # One that does not count for now stays: its issuer's key may come back any minute.
            known = self._tokens.held(which)
            if known is None:
                return None
            return pack(BROUGHT, known.by.encode()) + announcement(known.token, known.kept)
        by, _, of = which.decode().partition("\0")
        if kind == _SITE:
            return self._sites.record(by, of)
        held = self._ratings.held((by, of))
        if held is None:
            return None
        said = map(u64, (round(1000 * held[0]), round(1000 * held[1]), *held[2:]))
        return pack(
            CHANNEL if of else EVIDENCE, *(part.encode() for part in (by, of) if part), *said
        )

    def restore(self, key: bytes, record: bytes, now_ms: int) -> None:
        """One of `changes`, after neighbours are enrolled. What does not fit any more is left out,
        and goes from the disk with the next `changes`."""
        self._restored.add(key)
        try:
            kind = next(iter(unpack(record)), b"")
            if kind == CHANNEL:
                self._restore_channel(record, now_ms)
                return
            if kind != EVIDENCE:
                self._restore_signed(record, now_ms)
                return
            fields = opened(record, EVIDENCE, 5)
            good, bad, at = map(number, fields[1:4])
            self._ratings.restore(name(fields[0]), good / 1000, bad / 1000, min(at, now_ms))
        except BadRecord:
            return

    def _restore_channel(self, record: bytes, now_ms: int) -> None:
        fields = opened(record, CHANNEL, 6)
        good, bad, at, charged = map(number, fields[2:6])
        channel = name(fields[0]), name(fields[1])
        at, charged = min(at, now_ms), min(charged, now_ms)
        self._ratings.restore_channel(channel, good / 1000, bad / 1000, at, charged)

    def _restore_signed(self, record: bytes, now_ms: int) -> None:
        fields = unpack(record)
        if next(iter(fields), b"") == INTRODUCED:
            made, _ = read_introduction(record)
            self._receive(made.by, record, now_ms)
            return
        by, *rest = opened(record, BROUGHT, 3)
        told = read_announcement(pack(*rest))
        self._tokens.announce(*told, now_ms, name(by) if by else "")


def _pair(one: str, other: str) -> bytes:
    return f"{one}\0{other}".encode()


def _refused(rule: str, reason: str) -> Decision:
    return Decision(False, False, (), rule, reason)
