# What a reader does with an m3 (SPEC.md 6.2; Chen and Wilson, Algorithm 3). Sans-IO; device and
# host use it alike. Nothing is remembered before both tags have verified; a cipher is kept, and its
# roots count as used, when its own has. Everything remembered is bounded.
from collections import namedtuple
from struct import pack_into, unpack_from

from .const import (
    LIVE,
    M1_HEAD,
    M3_HEAD,
    MANIFEST,
    REF_LABEL,
    RETAINED,
    TAG,
    TLV_FAMILIES,
    TLV_LABEL,
    U24,
    WILL,
)
from .envelope import get_m1, get_m3, nonce_m1, nonce_m3, open_at, tail_m1, tail_m3
from .errors import (
    Denied,
    Malformed,
    NoKey,
    Replay,
    Stale,
    Unauthentic,
    Unsupported,
    WrongEpoch,
)
from .keys import inner_key, outer_key, topic_key
from .newest import Newest
from .records import check_manifest, check_record, derive, get_manifest, get_record
from .tlv import fired, span, unpack
from .window import NEW, check_fresh, life_s, look, mark

_TYPING = False
if _TYPING:
    from collections.abc import Sequence
    from typing import Any

    from .identity import Identity
    from .records import Make, Roots
    from .session import Session

    Tails = tuple[int, bytes, bytes, str, bytes]

# age: seconds since it was published. how: 0 live, 1 retained, 2 will, 3 queued. tlv: the policy
# families' items, {type as it came: bytes}. A named tuple, as on a device setting an attribute
# costs more than making all of one.
Message = namedtuple("Message", ("topic", "payload", "label", "sender", "age", "how", "tlv"))

# A window in a reader: top and mask (window.py), then in words the newest t_pub, the newest s2's
# lower 24 bits and the others. So a device's fast path can work in it as it stands.
_TIMES = "<III"
_TIMES_AT = 12
_WINDOW_LEN = 24


class Reader:
    # Classes that may come with each how (SPEC.md 6.2, step 5), as bits; class clear never does.
    classes = (0b011, 0b110, 0b100, 0b111)

    # limit: how many roots, ciphers, windows and topics are kept of each kind. A reader of more
    # labels than that goes on fetching their records (SPEC.md 4.4, op 0x83). known_tlv: types, from
    # 32, that the application takes with their critical bit.
    def __init__(
        self, ident: "Identity", make: "Make", limit: int = 64, known_tlv: "Sequence[int]" = ()
    ) -> None:
        self.ident = ident
        self.make = make
        self.limit = limit
        self.known_tlv = (TLV_LABEL,) + tuple([t for t in known_tlv if t >= TLV_FAMILIES])
        # For what is sealed to a link or to a grant; set by whoever makes the reader.
        self.session: "Session | None" = None
        self._deliveries: "Any" = None
        self.floor = 0
        self.floor_s2 = 0
        self._windows: "dict[Any, bytearray]" = {}
        # Whatever a fast path that goes by this reader's keys and windows has prepared: emptied
        # when any of them, or an epoch, stops being what it was.
        self.plans: "list[Any]" = []
        self._kept = Newest(limit)
        # label: (newest epoch, hand-over end of the one before, kseq), of labels with roots, by
        # records and manifests.
        self._now: dict[Any, Any] = {}
        self._roots: dict[Any, Any] = {}
        self._uses = 0
        self.reset()

    # After provisioning. With another epoch of σ(c) nothing is kept that records brought, since who
    # was put out of it could have forged them. What provisioning brought of this label stays, so
    # that what its old epochs sealed can be read.
    def reset(self) -> None:
        self.plans.clear()
        own = self.ident.own
        kept = {}
        if own:
            held = self._roots.get((own.label, own.epoch))
            if held and held.given and (held.r, held.r_bar) == (own.r, own.r_bar):
                self._roots[(own.label, own.epoch)] = own
                return
            for key, roots in self._roots.items():
                if roots.given and key[0] == own.label and key[1] < own.epoch:
                    kept[key] = roots
            kept[(own.label, own.epoch)] = own
            self._use(own)
        self._roots = kept
        self._now = {own.label: (own.epoch, 0, 0)} if own else {}
        self._outer: dict[Any, Any] = {}
        self._inner: dict[Any, Any] = {}
        # By topic: what _tail() gives.
        self._tails: dict[bytes, Tails] = {}
        while len(kept) > self.limit and self._make_room(True):
            pass

    # What op 5 or a topic under @sm1 brought, record or manifest. Refusals raise and change
    # nothing.
    def add(self, p: "bytes | bytearray") -> None:
        if p[:1] == bytes((MANIFEST,)):
            self.add_manifest(p)
        else:
            self.add_record(p)

    # A record from whoever relays it. False: already known. Refusals raise and change nothing.
    def add_record(self, p: "bytes | bytearray") -> bool:
        _, _, n, e_n, label, epoch, kseq, end = get_record(p)
        top = self._held(label, epoch)
        own = self.ident.own
        back_link = n == label
        if not back_link and label != own.label:
            raise Denied("derivation from label %d, ours is %d" % (label, own.label))
        if epoch < self._now[label][0]:
            raise WrongEpoch("record of epoch %d of label %d, now over" % (epoch, label))
        fresh = (n, e_n) not in self._roots
        if back_link:
            if e_n >= epoch:
                raise WrongEpoch("back-link to epoch %d from %d" % (e_n, epoch))
            if not fresh:
                return False
        else:
            self._check_newest(n, e_n, kseq)
            if not fresh and self._now.get(n) == (e_n, end, kseq):
                return False
        if fresh:
            roots = derive(self.make, self.ident.site, top, p)
            roots.given = False
            self._use(roots)
            if not self._make_room(back_link):
                return False
            self._roots[(n, e_n)] = roots
        else:
            check_record(self.make, self.ident.site, top, p)
        if not back_link:
            self._now[n] = (e_n, end, kseq)
        self.plans.clear()
        return fresh

    # A newer epoch counts whatever its kseq; an older one never does.
    def _check_newest(self, n: int, e_n: int, kseq: int) -> None:
        seen = self._now.get(n)
        if seen and (e_n, kseq) < (seen[0], seen[2]):
            raise WrongEpoch(
                "record of epoch %d kseq %d, seen: %d, %d" % (e_n, kseq, seen[0], seen[2])
            )

    def _use(self, roots: "Roots") -> None:
        self._uses += 1
        roots.used = self._uses

    # Roots of old epochs go first, those longest unused, and for current ones current ones, never
    # our own; with a label's last roots goes what was seen of it. False: there is no room.
    def _make_room(self, for_old: bool) -> bool:
        if len(self._roots) < self.limit:
            return True
        oldest = None
        least = (False, 0)
        for roots in self._roots.values():
            current = roots.epoch == self._now[roots.label][0]
            rank = (current, roots.used)
            if roots is self.ident.own or (for_old and current):
                continue
            if oldest is None or rank < least:
                oldest = roots
                least = rank
        if oldest is None:
            return False
        label, epoch = oldest.label, oldest.epoch
        del self._roots[(label, epoch)]
        self.plans.clear()
        for cache in (self._outer, self._inner):
            for key in list(cache):
                if key[0] == label and key[1] == epoch:
                    del cache[key]
        if not [1 for key in self._roots if key[0] == label]:
            self._now.pop(label, None)
        return True

    def add_manifest(self, p: "bytes | bytearray") -> None:
        _, label, epoch, kseq, end = get_manifest(p)
        roots = self._held(label, epoch)
        check_manifest(self.make, self.ident.site, roots, p)
        seen = self._now.get(label)
        if seen and (epoch, kseq) < (seen[0], seen[2]):
            raise WrongEpoch("manifest of epoch %d kseq %d is older" % (epoch, kseq))
        self._now[label] = (epoch, end, kseq)
        self.plans.clear()

    # topic: bytes as in PUBLISH. payload: a bytearray that this call uses up. now_ms: verified time
    # or None.
    def open(self, topic: bytes, payload: bytearray, now_ms: "int | None") -> Message:
        suite, ref, how, label, epoch, inst, s2, _ = get_m3(payload)
        if now_ms is None:
            raise Stale("no verified time yet")
        now = now_ms // 1000
        end = len(payload)
        site = self.ident.site
        roots: "Any" = None
        tails: "Any" = None
        if ref == REF_LABEL:
            roots = self._held(label, epoch)
            if suite != roots.suite:
                raise Unsupported("m3 of suite %d, the label's is %d" % (suite, roots.suite))
            # Who was put out of the label could seal under any how.
            if epoch != self._now[label][0]:
                self._check_epoch(label, epoch, now)
            tails = self._tails_of(label, topic)
            tail = tails[1]
            key: "Any" = (label, epoch, inst)
            known = self._outer.get(key)
            outer = known or self._make_outer(roots, inst)
        else:
            tail = tail_m3(site, topic)
            key, known, outer = self._delivered().outer(
                self.session, self._outer, suite, ref, label, epoch, inst, s2
            )
        if not open_at(outer, nonce_m3(payload), payload, 0, M3_HEAD, end, tail):
            raise Unauthentic("m3: the tag does not verify")
        if known is None:
            _keep(self._outer, self.limit, key, outer)
        return self._opened(topic, payload, now, roots, how, s2, tails)

    # The same of a payload whose outer layer is open, in place, under a label's roots that are held
    # and an epoch that is not over: what a device's fast path leaves to do.
    def open_inner(self, topic: bytes, payload: bytearray, now_ms: int) -> Message:
        _, _, how, label, epoch, _, s2, _ = get_m3(payload)
        roots = self._roots[(label, epoch)]
        tails = self._tails_of(label, topic)
        return self._opened(topic, payload, now_ms // 1000, roots, how, s2, tails)

    def _opened(
        self,
        topic: bytes,
        payload: bytearray,
        now: int,
        roots: "Any",
        how: int,
        s2: int,
        tails: "Tails",
    ) -> Message:
        if roots:
            self._use(roots)
        end = len(payload)
        check_fresh("m3", now - s2 // 1000)
        o = M3_HEAD + 1
        items: "dict[int, bytes]" = {}
        if payload[M3_HEAD] or not roots:
            start, o = span(payload, M3_HEAD, end - TAG)
            items = unpack(payload, start, o, self.known_tlv)
            named = items.get(TLV_LABEL | 0x80)
            size = -1 if named is None else len(named)
            if size != (-1 if roots else 3) or TLV_LABEL in items:
                raise Malformed("m3 with ref %d, m1's label %r" % (payload[1] >> 2 & 7, named))
            if named:
                tails = self._tail(int.from_bytes(named, "big"), topic)
        return self._open_inner(topic, payload, o, end - TAG, roots, how, s2, now, items, tails)

    # m1, at payload[o:end] of an m3 that has verified. roots: m3's; None: it was under another key
    # than a label's. tails: of m1's label.
    def _open_inner(
        self,
        topic: bytes,
        payload: bytearray,
        o: int,
        end: int,
        roots: "Any",
        how: int,
        s2: int,
        now: int,
        items: "dict[int, bytes]",
        tails: "Tails",
    ) -> Message:
        suite, kind, untimed, epoch, sender, boot, salt, ctr, t_pub, life = get_m1(payload, o, end)
        if not self.classes[how] >> kind & 1 or (untimed and kind != WILL):
            raise Malformed("class %d, untimed %d in an m3 with how %d" % (kind, untimed, how))
        since = t_pub
        if untimed or items:
            since = fired(items, untimed) or t_pub
        age = now - since
        check_fresh("message", age, life_s(life))
        label = tails[0]
        other = roots is None or epoch != roots.epoch
        if other:
            roots = self._held(label, epoch)
            if how == LIVE:
                # By the mediator's time: what it took before the hand-over ended may arrive later.
                self._check_epoch(label, epoch, s2 // 1000)
        if suite != roots.suite:
            raise Unsupported("m1 of suite %d, the label's is %d" % (suite, roots.suite))
        key = (label, epoch, sender, boot, salt)
        known = self._inner.get(key)
        inner = known or self.make(
            suite, inner_key(tails[4], suite, sender, boot, salt, roots.r_bar)
        )
        if not open_at(inner, nonce_m1(payload, o), payload, o, M1_HEAD, end, tails[2]):
            raise Unauthentic("m1: the tag does not verify")
        if other:
            self._use(roots)
        if known is None:
            _keep(self._inner, self.limit, key, inner)
        if self._tails.get(topic) is not tails:
            _keep(self._tails, self.limit, topic, tails)
        if how == RETAINED:
            self._kept.look((topic, sender), (since, boot, ctr))
        else:
            self._check_window((label, sender, boot, salt, kind == WILL), how, ctr, t_pub, s2)
        if how == RETAINED or kind == RETAINED:
            self._kept.mark((topic, sender), (since, boot, ctr))
        plain = bytes(memoryview(payload)[o + M1_HEAD : end - TAG])
        if items:
            items = {t: items[t] for t in items if t & 0x7F >= TLV_FAMILIES}
        return Message(tails[3], plain, label, sender, age, how, items)

    # What op 8 brought, after op: a grant of this connection. Refusals raise and change nothing.
    def add_grant(self, body: bytes) -> None:
        self._delivered().add(self.session, self._outer, body)

    # Seldom needed, so a device loads it then.
    def _delivered(self) -> "Any":
        if self.session is None:
            raise NoKey("no connection")
        if self._deliveries is None:
            from .delivery import Deliveries

            self._deliveries = Deliveries()
        return self._deliveries

    def _held(self, label: int, epoch: int) -> "Any":
        roots = self._roots.get((label, epoch))
        if roots is None:
            error = NoKey("no key for label %d epoch %d" % (label, epoch))
            error.label = label
            raise error
        return roots

    # Of a topic: label, what comes after the headers in the associated data of m3 and m1, text, and
    # the site whose m1 it is.
    def _tails_of(self, label: int, topic: bytes) -> "Tails":
        tails = self._tails.get(topic)
        if tails is None or tails[0] != label:
            tails = self._tail(label, topic)
        return tails

    def _tail(self, label: int, topic: bytes) -> "Tails":
        site = self.ident.site
        return label, tail_m3(site, topic), tail_m1(site, label, topic), _text(topic), site

    def _make_outer(self, roots: "Roots", inst: int) -> "Any":
        site = self.ident.site
        if not roots.ek:
            roots.ek = topic_key(site, roots.suite, roots.label, roots.epoch, roots.r)
        k = outer_key(site, roots.suite, roots.label, roots.epoch, inst, roots.ek)
        return self.make(roots.suite, k)

    # An epoch is over when the hand-over to the next one is (SPEC.md 6.2, 8).
    def _check_epoch(self, label: int, epoch: int, at: int) -> None:
        current, end, _ = self._now[label]
        if epoch < current and (epoch < current - 1 or at >= end):
            raise WrongEpoch("epoch %d of label %d, current is %d" % (epoch, label, current))

    # Wills have windows of their own: their counters are as old as the connection.
    def _check_window(self, key: "Any", how: int, ctr: int, t_pub: int, s2: int) -> None:
        entry = self._windows.get(key)
        if entry is None:
            if t_pub <= self.floor if how == LIVE else s2 <= self.floor_s2:
                raise Replay("as old as what windows were given up for")
            if len(self._windows) >= self.limit:
                self._forget()
            entry = bytearray(_WINDOW_LEN)
            self._windows[key] = entry
        if look(entry, ctr) != NEW:
            raise Replay("counter %d of sender %d came before" % (ctr, key[1]))
        mark(entry, ctr)
        newest, low, high = unpack_from(_TIMES, entry, _TIMES_AT)
        if t_pub > newest:
            newest = t_pub
        if s2 > high << 24 | low:
            low = s2 & U24
            high = s2 >> 24
        pack_into(_TIMES, entry, _TIMES_AT, newest, low, high)

    # Drops the window that has been silent longest; its newest times become the floors.
    def _forget(self) -> None:
        oldest = None
        least = (0, 0)
        for key, entry in self._windows.items():
            newest, low, high = unpack_from(_TIMES, entry, _TIMES_AT)
            if oldest is None or high << 24 | low < least[0]:
                oldest = key
                least = high << 24 | low, newest
        del self._windows[oldest]
        self.plans.clear()
        self.floor = max(self.floor, least[1])
        self.floor_s2 = max(self.floor_s2, least[0])


def _text(topic: bytes) -> str:
    try:
        return topic.decode()
    except ValueError:
        raise Malformed("a topic that is no UTF-8: %r" % topic) from None


# A full cache loses one entry for a new one.
def _keep(cache: "dict[Any, Any]", limit: int, key: "Any", value: "Any") -> None:
    if len(cache) >= limit and key not in cache:
        for old in cache:
            del cache[old]
            break
    cache[key] = value
