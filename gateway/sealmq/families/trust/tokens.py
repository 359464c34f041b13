"""Authorisation tokens ⟨b, c, S, F_p, F_s⟩ and the store of those that are known (Chen, Vidalis
and Yang, III-A).

b, c, F_p and F_s are what is signed, with a serial and an end; S are those whose signature of
exactly these bytes is right, united over all announcements: nobody takes a signature away by
leaving it out. Of an issuer and a client the highest serial counts, so a token that was replaced
comes back neither wider nor at all.

A message names its token by 8 bytes. Who makes 2^32 tokens finds two with one id: then nobody
knows which of them a message means, so nothing that names it is taken, and no neighbour is charged
for it.

A signature that was right by a key is tried with no other one: it is kept with that key, so a key
that goes and comes back has nothing verified anew. Those that came before their signer's key are
tried a few at a time: no record of a neighbour's keeps all others waiting.

A token that is not accepted yet is kept, since messages decide that. Each neighbour has a share for
those that it was the first to bring, and each issuer one, so nobody's fills up another's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_filter, check_topic, is_reserved, matches

from ..filters import covers
from ..signatures import SIGNATURE_BYTES, is_signed
from .wire import (
    BadRecord,
    check_name,
    malformed,
    name,
    number,
    opened,
    pack,
    pairs,
    text,
    u64,
    unpack,
)

TOKEN, SIGNED, ANNOUNCED = b"sealmq-token-1", b"sealmq-token-signed-1", b"sealmq-announce-1"
ID_BYTES = 8
MOST_FILTERS = 64
MOST_TOKEN_BYTES = 4096
MOST_SIGNERS = 90
"""A record of the longest token, with so many of the longest names, fits into MOST_BYTES."""
MOST_UNVERIFIED = 16
"""Signatures of a token by sites whose key is not known yet."""
MOST_TRIED = 256
"""Of one signer at once, when its key is known at last: 26 ms. The others follow with `tick`."""
MOST_OF_ISSUER = 4096
MOST_OF_NEIGHBOUR = 8192
"""Brought by one neighbour first, whoever has issued them."""
NEIGHBOUR = "@"
"""Before the name of a site that is a client of its neighbour."""

NO_SIGNATURE = "trust.token.unsigned"
FORGED = "trust.token.forged"
SUPERSEDED = "trust.token.superseded"
EXPIRED = "trust.token.expired"
FULL = "trust.token.full"
CLASH = "trust.token.clash"


@dataclass(frozen=True, slots=True)
class Token:
    """⟨b, c, S, F_p, F_s⟩ without S. BadRecord if it cannot be one; filters in order, each once."""

    issuer: str
    client: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    serial: int
    until_ms: int
    """Unix ms; from then on it counts no more."""
    raw: bytes = field(init=False, repr=False, compare=False)
    id: bytes = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.issuer)
        check_name(self.client.removeprefix(NEIGHBOUR))
        for filters in (self.publish, self.subscribe):
            if len(filters) > MOST_FILTERS or list(filters) != sorted(set(filters)):
                raise malformed(f"filters stand in order, each once, {MOST_FILTERS} at most")
            for filt in filters:
                try:
                    check_filter(filt)
                except (SealError, UnicodeEncodeError) as error:
                    raise malformed(str(error)) from None
        for filt in self.publish:
            if is_reserved(filt):
                raise malformed(f"{filt!r}: nobody publishes what begins with $, ! or @")
        lists = (pack(*map(str.encode, filters)) for filters in (self.publish, self.subscribe))
        head = (TOKEN, self.issuer.encode(), self.client.encode())
        raw = pack(*head, u64(self.serial), u64(self.until_ms), *lists)
        if len(raw) > MOST_TOKEN_BYTES:
            raise malformed(f"a token has at most {MOST_TOKEN_BYTES} bytes, this one {len(raw)}")
        object.__setattr__(self, "raw", raw)
        object.__setattr__(self, "id", sha256(raw).digest()[:ID_BYTES])

    @classmethod
    def read(cls, raw: bytes) -> Token:
        """The token of these bytes, and of no others. BadRecord."""
        fields = opened(raw, TOKEN, 6)
        filters = [tuple(map(text, unpack(listed))) for listed in fields[4:6]]
        made = cls(
            name(fields[0]), text(fields[1]), filters[0], filters[1],
            number(fields[2]), number(fields[3]),
        )  # fmt: skip
        if made.raw != raw:
            raise malformed("a token is written otherwise")
        return made

    def may_publish(self, topic: str) -> bool:
        """Whether it is a topic, and lies in F_p."""
        try:
            check_topic(topic)
        except (SealError, UnicodeEncodeError):
            return False
        return any(matches(filt, topic) for filt in self.publish)

    def may_receive(self, topic: str) -> bool:
        """Whether the topic lies in F_s."""
        return any(matches(filt, topic) for filt in self.subscribe)

    def may_subscribe(self, filt: str) -> bool:
        """Whether it is ⊆ a filter of F_s."""
        return any(covers(over, filt) for over in self.subscribe)


def signed_text(signer: str, raw: bytes) -> bytes:
    """What a site signs when it signs a token."""
    return pack(SIGNED, signer.encode(), raw)


def announcement(token: Token, signatures: Mapping[str, bytes]) -> bytes:
    """The record that tells a token and its signatures."""
    said = (part for who, made in sorted(signatures.items()) for part in (who.encode(), made))
    return pack(ANNOUNCED, token.raw, *said)


def read_announcement(record: bytes) -> tuple[Token, dict[str, bytes]]:
    """BadRecord."""
    fields = opened(record, ANNOUNCED, 1)
    signatures = {name(who): made for who, made in pairs(fields[1:])}
    if len(signatures) > MOST_SIGNERS:
        raise malformed(f"{len(signatures)} signatures, and {MOST_SIGNERS} are the most")
    if any(len(made) != SIGNATURE_BYTES for made in signatures.values()):
        raise malformed(f"a signature has {SIGNATURE_BYTES} bytes")
    return Token.read(fields[0]), signatures


@dataclass(slots=True)
class Known:
    """A token and S: whose signatures of it are right."""

    token: Token
    signatures: dict[str, bytes] = field(default_factory=dict)
    signers: frozenset[str] = frozenset()
    unverified: dict[str, bytes] = field(default_factory=dict)
    """Those that do not count: their signer's key is not known, or they are not right by it."""
    right_by: dict[str, bytes] = field(default_factory=dict)
    """The key by which a signature, of either kind, was right."""
    wrong_by: dict[str, bytes] = field(default_factory=dict)
    """Of one that was right by none so far: the last key that it was tried with."""
    by: str = ""
    """The neighbour that was the first to bring it; "": this site itself."""
    clashes: bool = False
    """Whether another token with its id has been seen."""

    @property
    def counts(self) -> bool:
        """Whether its issuer has signed it, by the key that the issuer has now."""
        return self.token.issuer in self.signers

    @property
    def kept(self) -> dict[str, bytes]:
        """Signatures that some key has verified, the issuer's first, as many as a record holds."""
        held = {**self.unverified, **self.signatures}
        first = sorted(
            self.right_by,
            key=lambda who: (who != self.token.issuer, who not in self.signatures, who),
        )
        return {who: held[who] for who in first[:MOST_SIGNERS]}

    def add(self, signer: str, signature: bytes, key: bytes) -> None:
        """A signature that was verified with this key."""
        self.signatures[signer] = signature
        self.signers |= {signer}
        self.right_by[signer] = key
        self.unverified.pop(signer, None)
        self.wrong_by.pop(signer, None)

    def shelve(self, signer: str) -> None:
        """The signature by which it was one counts no more, and is kept."""
        self.unverified[signer] = self.signatures.pop(signer)
        self.signers -= {signer}


@dataclass(frozen=True, slots=True)
class Announced:
    """What an announcement did. `fresh`: who is a signer since; `forged`: whose signature is
    wrong."""

    known: Known
    fresh: tuple[str, ...]
    forged: tuple[str, ...]


class Tokens:
    """Those that are known, by id. `key` gives a site's public key, or None."""

    def __init__(self, key: Callable[[str], bytes | None], most: int = MOST_OF_NEIGHBOUR) -> None:
        self._key, self._most = key, most
        self.changed: set[bytes] = set()
        """Ids of those that have changed, or are not known any more."""
        self._by_id: dict[bytes, Known] = {}
        # The serial that counts, and the token's id; it stays when the token has ended, so that an
        # older one does not come back.
        self._newest: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._of_issuer: Counter[str] = Counter()
        self._of_neighbour: Counter[str] = Counter()
        # Signers of whose signatures not all have been tried with their key.
        self._waiting: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Known]:
        return (known for known in self._by_id.values() if known.counts)

    def get(self, id: bytes) -> Known | None:
        """One that counts."""
        known = self._by_id.get(id)
        return known if known is not None and known.counts else None

    def held(self, id: bytes) -> Known | None:
        """One that counts, or will when its issuer's key is in no doubt any more."""
        return self._by_id.get(id)

    def newest(self, issuer: str, client: str) -> Known | None:
        """The token of an issuer for a client."""
        _, id = self._newest.get((issuer, client), (0, b""))
        return self.get(id)

    def announce(
        self, token: Token, signatures: Mapping[str, bytes], now_ms: int, by: str = ""
    ) -> Announced:
        """Take a token in that `by` has brought ("": this site), or unite what is known of it with
        these signatures. BadRecord: it is not signed by its issuer, over, too many, or there is
        one with a higher serial, or another one with its id.
        """
        known = self._by_id.get(token.id)
        if known is None:
            known = self._new(token, signatures, now_ms, by)
        elif known.token != token:
            known.clashes = True
            whose = f"{token.issuer} ({token.client}) and {known.token.issuer}"
            raise BadRecord(CLASH, f"two tokens have the id {token.id.hex()}: of {whose}")
        done = self._unite(known, signatures)
        if not known.counts:
            raise BadRecord(NO_SIGNATURE, f"the key of {token.issuer} is in doubt")
        return done

    def _new(self, token: Token, signatures: Mapping[str, bytes], now_ms: int, by: str) -> Known:
        whose = (token.issuer, token.client)
        if now_ms >= token.until_ms:
            raise BadRecord(EXPIRED, "the token is over")
        newest = self._newest.get(whose, (-1, token.id))
        if token.serial < newest[0] or (token.serial == newest[0] and token.id != newest[1]):
            raise BadRecord(SUPERSEDED, f"{token.client} has one with serial {newest[0]}")
        key = self._key(token.issuer)
        if key is None or token.issuer not in signatures:
            what = "its key is not known" if key is None else "its signature is not there"
            raise BadRecord(NO_SIGNATURE, f"{token.issuer} has issued it, and {what}")
        made = signatures[token.issuer]
        if not is_signed(key, signed_text(token.issuer, token.raw), made):
            raise BadRecord(FORGED, f"{token.issuer} has not signed this token")
        if whose not in self._newest:
            if by and self._of_issuer[token.issuer] >= MOST_OF_ISSUER:
                raise BadRecord(FULL, f"{token.issuer} has issued {MOST_OF_ISSUER} tokens")
            if by and self._of_neighbour[by] >= self._most:
                raise BadRecord(FULL, f"{by} has brought {self._most} tokens")
            self._of_issuer[token.issuer] += 1
            self._of_neighbour[by] += 1
        else:
            before = self._by_id.pop(self._newest[whose][1], None)
            by = by if before is None else before.by
            self.changed.add(self._newest[whose][1])
        self._newest[whose] = (token.serial, token.id)
        self.changed.add(token.id)
        found = self._by_id[token.id] = Known(token, by=by)
        return found

    def sign(self, known: Known, signer: str, signature: bytes, key: bytes) -> None:
        """This signature of it is right by the signer's key."""
        known.add(signer, signature, key)
        self.changed.add(known.token.id)

    def _unite(self, known: Known, signatures: Mapping[str, bytes]) -> Announced:
        fresh, forged = [], []
        for signer, made in signatures.items():
            if signer in known.signatures:
                continue
            key = self._key(signer)
            if key is None:
                # One that was right stays: nobody puts another in its place while its key is away.
                if signer not in known.right_by and len(known.unverified) < MOST_UNVERIFIED:
                    known.unverified[signer] = made
                    known.wrong_by.pop(signer, None)
            elif len(known.signatures) >= MOST_SIGNERS - 1:  # one place is for this site itself
                break
            elif is_signed(key, signed_text(signer, known.token.raw), made):
                self.sign(known, signer, made, key)
                fresh.append(signer)
            else:
                forged.append(signer)
        return Announced(known, tuple(fresh), tuple(forged))

    def rekeyed(self, site: str) -> list[Known]:
        """A site's key has changed, or is known at last, or no more: of what it has signed, that
        counts which the key fits. The rest is kept, and so are its serials: who can make a key
        doubtful for a while ends nothing for good, and brings no older token back. Gives those
        with a new signer.
        """
        key = self._key(site)
        self._waiting.pop(site, None)
        fresh, tried = [], 0
        for known in self._by_id.values():
            if site in known.signatures:
                if known.right_by[site] != key:
                    known.shelve(site)
                continue
            made = known.unverified.get(site)
            if made is None or key is None or len(known.signatures) >= MOST_SIGNERS - 1:
                continue
            if site not in known.right_by and known.wrong_by.get(site) != key:
                if tried == MOST_TRIED:
                    self._waiting[site] = None
                    continue
                tried += 1
                if is_signed(key, signed_text(site, known.token.raw), made):
                    self.sign(known, site, made, key)
                    fresh.append(known)
                else:
                    known.wrong_by[site] = key
            elif known.right_by.get(site) == key:
                known.add(site, made, key)
                fresh.append(known)
        return fresh

    def tick(self, now_ms: int) -> list[Known]:
        """What is over goes; signatures that wait are tried, of one signer, as after `rekeyed`."""
        for known in [k for k in self._by_id.values() if now_ms >= k.token.until_ms]:
            self._by_id.pop(known.token.id)
            self.changed.add(known.token.id)
        return self.rekeyed(next(iter(self._waiting))) if self._waiting else []
