"""The mediator's side of one boot session (SPEC.md 1, 4.4, 6.1): its link keys, its window, its
tokens. Sans-IO.

It outlives TCP connections: libraries resend stored bytes after a reconnect, and those must be
recognised.
"""

from __future__ import annotations

from collections import OrderedDict
from hmac import compare_digest
from typing import Protocol

from sealmq.aead import Aead, make
from sealmq_spec import control
from sealmq_spec.const import MAX_TOPIC, USE_CONTROL, USE_DELIVERY, USE_DOWN, USE_PUBLISH
from sealmq_spec.envelope import tail_m2
from sealmq_spec.errors import Replay, SealError, TooLarge, Unsupported
from sealmq_spec.keys import link_key
from sealmq_spec.topics import split_token
from sealmq_spec.window import NEW, OLD, WIDTH, Window

from .keyring import Client
from .refusals import Repeated, of

_FILTERS = 1024
_BOOTS = 4
_TAILS = 64


class Asker(Protocol):
    """A connection that waits for an answer to a PUBLISH."""

    @property
    def is_open(self) -> bool:
        """Whether it can still be answered."""

    @property
    def conn_no(self) -> int:
        """Its number; a newer connection has a higher one."""

    def give_way(self) -> None:
        """A newer connection of its boot session has brought what waits here."""

    def answer(self, sent: Sent, topic: str, packet_id: int, qos: int) -> None:
        """The message is accepted, or refused."""


class Sent:
    """A packet that was let through, or that was refused for good.

    It belongs to the boot session, not to a connection: it is forwarded once, however often it
    comes. `refused`: by what and by which rule, None if it was let through. `done`: broker and
    journal have it. `waiting`: who is answered then: (connection, topic, packet id, QoS). `seq`:
    its number in the journal, set by the shell.
    """

    __slots__ = ("ctr", "done", "refused", "seq", "tag", "waiting")

    def __init__(self, ctr: int, tag: bytes) -> None:
        self.ctr = ctr
        self.tag = tag
        self.done = False
        self.refused: tuple[SealError, str] | None = None
        self.waiting: list[tuple[Asker, str, int, int]] = []
        self.seq = 0


class BootSession:
    """Keys and replay state of (client, gen, boot, salt).

    Nothing here is shared with another boot session.
    """

    __slots__ = (
        "_control",
        "_delivery",
        "_down",
        "_filters",
        "_tails",
        "accepted",
        "boot",
        "client",
        "commanded",
        "gen",
        "mediator",
        "owed",
        "publish",
        "salt",
        "seen",
        "site",
        "suite",
        "window",
    )

    def __init__(
        self, site: bytes, mediator: int, client: Client, gen: int, boot: int, salt: bytes
    ) -> None:
        self.site, self.mediator, self.client = site, mediator, client.number
        self.gen, self.boot, self.salt, self.suite = gen, boot, salt, client.suite
        km = client.links[gen]

        def derived(use: int) -> bytes:
            return link_key(site, use, self.suite, mediator, boot, salt, km)

        # The cipher of m2.
        self.publish = make(self.suite, derived(USE_PUBLISH))
        self._control = make(self.suite, derived(USE_CONTROL))
        self._down = make(self.suite, derived(USE_DOWN))
        # Its key: the link root may have ended when the first delivery is sealed.
        self._delivery: bytes | Aead = derived(USE_DELIVERY)
        # Counters that were let through, against replays; and that the broker accepted, for
        # receipts.
        self.window = Window()
        self.accepted = Window()
        # The newest packets by ctr, as many as the window is wide.
        self.seen: OrderedDict[int, Sent] = OrderedDict()
        # filter -> (op, ctr, tag) of its newest token.
        self._filters: dict[str, tuple[int, int, bytes]] = {}
        # How many were accepted since the last receipt.
        self.owed = 0
        # ctr of the newest command.
        self.commanded = 0
        self._tails: dict[tuple[bytes, int], bytes] = {}

    def tail(self, topic: bytes, flags: int) -> bytes:
        """What follows m2's header in its associated data."""
        tail = self._tails.get((topic, flags))
        if tail is None:
            tail = tail_m2(self.site, self.client, self.mediator, flags, topic)
            if len(topic) > MAX_TOPIC:
                return tail
            if len(self._tails) >= _TAILS:
                self._tails.clear()
            self._tails[topic, flags] = tail
        return tail

    @property
    def delivery(self) -> Aead:
        """The cipher of deliveries that are sealed to this link (ref 1)."""
        cipher = self._delivery
        if isinstance(cipher, bytes):
            cipher = self._delivery = make(self.suite, cipher)
        return cipher

    def check_connect(self, conn: int, raw: bytes, tag: bytes) -> None:
        """Verifies a CONNECT's proof; raises Unauthentic."""
        control.check_connect(self._control, self.site, self.mediator, self.salt, conn, raw, tag)

    def again(self, ctr: int, tag: bytes) -> Sent | None:
        """The same packet, if it came before. To be asked only after the tag was verified: that
        covers topic and flags, which are not compared here.
        """
        sent = self.seen.get(ctr)
        return sent if sent is not None and compare_digest(sent.tag, tag) else None

    def look(self, ctr: int, low: int) -> None:
        """Raises Repeated unless ctr is new (SPEC.md 6.1, step 2). Only after a verified tag."""
        if ctr < low:
            text = f"counter {ctr} is below {low}, the lowest that this connection announced"
            raise of(Repeated(text), ctr)
        state = self.window.look(ctr)
        if state == OLD:
            text = f"counter {ctr} lies more than {WIDTH} below {self.window.top}"
            raise of(Repeated(text), ctr)
        if state != NEW:
            raise of(Repeated(f"counter {ctr} came before"), ctr)

    def command(self, ctr: int) -> None:
        """Raises Replay for a command older than one that came: it would overwrite that."""
        if ctr < self.commanded:
            text = f"a newer command came before, with counter {self.commanded}"
            raise of(Replay(text), ctr)
        self.commanded = ctr

    def mark(self, ctr: int, tag: bytes) -> Sent:
        """ctr is used up. Only after a verified tag, once the packet is judged."""
        self.window.mark(ctr)
        sent = Sent(ctr, tag)
        self.seen[ctr] = sent
        if len(self.seen) > WIDTH:
            # One that lies below the window. Mostly the first that came; not if that one overtook
            # others: then it is still to be recognised when it comes again.
            first = next(iter(self.seen))
            del self.seen[first if self.window.top - first >= WIDTH else min(self.seen)]
        return sent

    def passed(self, ctr: int) -> None:
        """A packet of QoS 0 was forwarded: ctr is used up, and receipts say so from now on."""
        self.window.mark(ctr)
        self.accepted.mark(ctr)
        self.owed += 1

    def confirm(self, sent: Sent) -> None:
        """Broker and journal have it: from now on receipts say so."""
        sent.done = True
        accepted, ctr = self.accepted, sent.ctr
        if ctr > accepted.top or accepted.look(ctr) == NEW:
            accepted.mark(ctr)
            self.owed += 1

    def has_confirmed(self, sent: Sent) -> bool:
        """Whether `confirm` was called for it."""
        return self.accepted.look(sent.ctr) != NEW

    def token(self, op: int, qos: int, filt: str, low: int) -> tuple[str, int]:
        """Verifies a filter's token; gives the filter without it, and its ctr. Raises SealError.

        `low` is 0 where the client did not say that it seals every token anew (SPEC.md 4.1).
        """
        ctr_bytes, tag, plain = split_token(filt)
        control.check_token(
            self._control,
            self.suite,
            op,
            ctr_bytes,
            self.salt,
            self.site,
            self.client,
            self.mediator,
            qos,
            plain,
            tag,
        )
        ctr = int.from_bytes(ctr_bytes, "big")
        if ctr < low:
            text = f"token {ctr} is below {low}, the lowest that this connection announced"
            raise of(Repeated(text), ctr)
        last = self._filters.get(plain)
        if last is not None and ctr < last[1]:
            text = f"token {ctr} for {plain!r} is older than its last one, {last[1]}"
            raise of(Repeated(text), ctr)
        if last is None and len(self._filters) >= _FILTERS:
            raise of(TooLarge(f"{_FILTERS} filters in one boot session; no more are taken"), ctr)
        self._filters[plain] = (op, ctr, tag)
        return plain, ctr

    def open_control(self, packet: bytes) -> tuple[int, int, bytes]:
        """(ctr, s1, body) of a control packet up; raises SealError. Marks nothing."""
        suite, ctr, s1 = control.up_header(packet)
        if suite != self.suite:
            raise Unsupported(f"suite {suite} on a link of suite {self.suite}")
        return (
            ctr,
            s1,
            control.open_up(
                self._control, self.salt, self.site, self.client, self.mediator, packet
            ),
        )

    def down(self, order: bytes, conn: int, body: bytes) -> bytes:
        """A sealed control packet for connection `conn`. order: 12 bytes, never used before."""
        return control.seal_down(
            self._down, self.suite, order, self.site, self.client, self.mediator, conn, body
        )

    def receipt(self) -> bytes:
        """The body of a receipt for all that was accepted so far."""
        self.owed = 0
        return control.receipt(self.accepted.top, self.accepted.mask)


class BootSessions:
    """The boot sessions of every client, the newest few of each."""

    def __init__(self) -> None:
        self._links: dict[int, OrderedDict[tuple[int, int, bytes], BootSession]] = {}

    def find(self, client: int, gen: int, boot: int, salt: bytes) -> BootSession | None:
        """A boot session seen before."""
        row = self._links.get(client)
        return row.get((gen, boot, salt)) if row is not None else None

    def keep(self, link: BootSession) -> BootSession:
        """Remembers a boot session whose proof has verified; the oldest of the client goes.

        Returns the one to use: two CONNECTs of a boot session at once share one window.
        """
        row = self._links.setdefault(link.client, OrderedDict())
        kept = row.setdefault((link.gen, link.boot, link.salt), link)
        row.move_to_end((link.gen, link.boot, link.salt))
        if len(row) > _BOOTS:
            row.popitem(last=False)
        return kept
