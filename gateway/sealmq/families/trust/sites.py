"""Whose key is whose: neighbours, whom the operator has enrolled, and those whom neighbours have
introduced, each with its signature.

Nobody is introduced who is a neighbour. Where neighbours say different keys of one site, none of
them counts until they agree, the one that lies is blocked, or the operator has said the key.

What neighbours say may change as they like, and all that a site has signed is looked through then.
So a site's key goes at once, and comes back, or gives way to another, once a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ..signatures import KEY_BYTES, is_signed
from .wire import BadRecord, check_name, malformed, name, number, opened, pack, u64

INTRODUCED = b"sealmq-introduces-1"
MOST_SITES = 256
"""That one neighbour introduces."""
STEADY_MS = 60_000
"""So long a key that neighbours have introduced stands before another one counts."""
MOST_COME = 8
"""Of the keys that wait, at one tick: each of them costs a look at all tokens."""
MOST_NEWS = 8
"""Introductions of one site by one neighbour within that time. An honest one needs two: its key
goes and comes."""
NOT_A_NEIGHBOUR = "trust.introduction.not-a-neighbour"
FORGED = "trust.introduction.forged"
FULL = "trust.introduction.full"
TOO_OFTEN = "trust.introduction.too-often"


class Introduction(NamedTuple):
    """A neighbour says a site's key; an empty one takes it back. The highest serial counts."""

    by: str
    site: str
    public: bytes
    serial: int

    @property
    def raw(self) -> bytes:
        return pack(INTRODUCED, self.by.encode(), self.site.encode(), self.public, u64(self.serial))


def signed_introduction(made: Introduction, sign: Callable[[bytes], bytes]) -> bytes:
    """The record."""
    return made.raw + pack(sign(made.raw))


def read_introduction(record: bytes) -> tuple[Introduction, bytes]:
    """And its signature. BadRecord."""
    fields = opened(record, INTRODUCED, 5)
    if len(fields) != 5:
        raise malformed("an introduction has five fields")
    made = Introduction(name(fields[0]), name(fields[1]), fields[2], number(fields[3]))
    if len(made.public) not in (0, KEY_BYTES):
        raise malformed(f"a key has {KEY_BYTES} bytes, or none is there")
    return made, fields[4]


class Sites:
    """Their keys, as one site knows them."""

    def __init__(self, me: str, public: bytes) -> None:
        self.me = check_name(me)
        self._own = public
        self._neighbours: dict[str, bytes] = {}
        self._pinned: dict[str, bytes] = {}
        self._introduced: dict[str, dict[str, tuple[Introduction, bytes]]] = {}
        # When a site's key has come last, and of which sites it has to wait.
        self._came: dict[str, int] = {}
        self._waiting: dict[str, None] = {}
        # How often each neighbour has said something new of a site since then.
        self._news: dict[tuple[str, str], tuple[int, int]] = {}
        self.blocked: frozenset[str] = frozenset()
        """Neighbours whose introductions do not count."""
        self.changed: set[tuple[str, str]] = set()
        """(by, site) of introductions that have changed, or are not known any more."""

    @property
    def neighbours(self) -> Iterable[str]:
        return self._neighbours.keys()

    def __iter__(self) -> Iterator[str]:
        """Who is known: the graph of ratings is closed to these."""
        said = (site for rows in self._introduced.values() for site in rows)
        return iter(dict.fromkeys((self.me, *self._neighbours, *self._pinned, *said)))

    def key(self, site: str) -> bytes | None:
        """Its public key, if the operator has said it, or neighbours that say the same."""
        if site == self.me:
            return self._own
        said_here = self._neighbours.get(site) or self._pinned.get(site)
        if said_here is not None:
            return said_here
        return None if site in self._waiting else self._agreed(site)

    def _agreed(self, site: str) -> bytes | None:
        said = {row[0].public for row in self._said(site)}
        return said.pop() if len(said) == 1 else None

    def _said(self, site: str) -> Iterator[tuple[Introduction, bytes]]:
        for neighbour, rows in self._introduced.items():
            row = rows.get(site)
            if row is not None and row[0].public and neighbour not in self.blocked:
                yield row

    def doubtful(self) -> list[str]:
        """Sites of which neighbours say different keys."""
        return [
            site for site in self
            if self.key(site) is None and len({row[0].public for row in self._said(site)}) > 1
        ]  # fmt: skip

    def enrol(self, neighbour: str, public: bytes) -> None:
        """BadRecord."""
        if check_name(neighbour) == self.me:
            raise malformed(f"{neighbour} is this site itself")
        if len(public) != KEY_BYTES:
            raise malformed(f"a key has {KEY_BYTES} bytes, this one {len(public)}")
        self._neighbours[neighbour] = public
        self._introduced.setdefault(neighbour, {})

    def pin(self, site: str, public: bytes | None) -> None:
        """The operator says the key of a site that is no neighbour, where neighbours disagree."""
        self._pinned.pop(check_name(site), None)
        if public is not None:
            self._pinned[site] = public

    def remove(self, neighbour: str) -> None:
        """With all that it has introduced."""
        self._neighbours.pop(neighbour, None)
        gone = self._introduced.pop(neighbour, {})
        self.changed.update((neighbour, site) for site in gone)
        for site in gone:
            self._came.pop(site, None)  # the operator has done so, which keeps nobody waiting

    def introduced(self, made: Introduction, signature: bytes, now_ms: int | None = None) -> bool:
        """Whether it is news. now_ms, Unix ms: keys stand for STEADY_MS; None: they need not.
        BadRecord.
        """
        public = self._neighbours.get(made.by)
        if public is None:
            raise BadRecord(NOT_A_NEIGHBOUR, f"{made.by} is no neighbour, and introduces nobody")
        rows = self._introduced[made.by]
        before = rows.get(made.site)
        if before is not None and made.serial <= before[0].serial:
            return False
        if before is None and len(rows) >= MOST_SITES:
            raise BadRecord(FULL, f"{made.by} introduces {MOST_SITES} sites")
        since, count = self._news.get((made.by, made.site), (now_ms or 0, 0))
        if count >= MOST_NEWS:
            what = f"{made.by} has said {count} new things of {made.site} in a minute"
            raise BadRecord(TOO_OFTEN, what)
        if not is_signed(public, made.raw, signature):
            raise BadRecord(FORGED, f"{made.by} has not signed this introduction")
        key = self.key(made.site)
        rows[made.site] = (made, signature)
        self.changed.add((made.by, made.site))
        if now_ms is not None:
            self._news[made.by, made.site] = since, count + 1
            if self.key(made.site) not in (None, key):
                self._comes(made.site, now_ms)
        return True

    def _comes(self, site: str, now_ms: int) -> None:
        if site in self._came:
            self._waiting[site] = None
        else:
            self._came[site] = now_ms

    def tick(self, now_ms: int) -> list[str]:
        """Every second or so. Gives sites whose key has waited long enough, and counts now."""
        self._came = {s: at for s, at in self._came.items() if _recent(at, now_ms)}
        self._news = {w: row for w, row in self._news.items() if _recent(row[0], now_ms)}
        over = [site for site in self._waiting if site not in self._came][:MOST_COME]
        for site in over:
            del self._waiting[site]
        come = [site for site in over if self._agreed(site) is not None]
        self._came.update(dict.fromkeys(come, now_ms))
        return come

    def record(self, by: str, site: str) -> bytes | None:
        """An introduction, to be kept."""
        made = self._introduced.get(by, {}).get(site)
        return None if made is None else made[0].raw + pack(made[1])


def _recent(at_ms: int, now_ms: int) -> bool:
    """A clock that was set back keeps nobody waiting."""
    return 0 <= now_ms - at_ms < STEADY_MS
