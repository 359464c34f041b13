# What a reader does with an m3 (SPEC.md 6.2; Chen and Wilson, Algorithm 3). Sans-IO; device and
# host use it alike. Nothing is remembered before both tags have verified. Everything remembered is
# bounded.
from .const import LIVE, M1_HEAD, M3_HEAD, MANIFEST, REF_LABEL, RETAINED, TAG, WILL
from .envelope import get_m1, get_m3, nonce_m1, nonce_m3, open_at, tail_m1, tail_m3
from .errors import Malformed, NoKey, Replay, Stale, Unauthentic, Unsupported, WrongEpoch
from .keys import inner_key, outer_key, topic_key
from .records import check_manifest, check_record, derive, get_manifest, get_record
from .tlv import fired, span, unpack
from .window import NEW, Window, check_fresh, life_s

_TYPING = False
if _TYPING:
    from collections.abc import Sequence
    from typing import Any

    from .identity import Identity
    from .records import Make, Roots

# Classes that may come with each how (SPEC.md 6.2, step 5), as bits; class clear never does.
_CLASSES = (0b011, 0b110, 0b100, 0b111)
_NOTHING = (0, 0, 0)


class Message:
    # age: seconds since it was published. how: 0 live, 1 retained, 2 will, 3 queued. tlv: {type:
    # bytes}.
    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        label: int,
        sender: int,
        age: int,
        how: int,
        tlv: "dict[int, bytes]",
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.label = label
        self.sender = sender
        self.age = age
        self.how = how
        self.tlv = tlv


class Reader:
    # limit: how many ciphers, windows and topics are kept of each kind.
    def __init__(
        self, ident: "Identity", make: "Make", limit: int = 64, known_tlv: "Sequence[int]" = ()
    ) -> None:
        self.ident = ident
        self.make = make
        self.limit = limit
        self.known_tlv = known_tlv
        self.floor = 0
        self.floor_s2 = 0
        self._windows: dict[Any, Any] = {}
        self._kept: dict[Any, Any] = {}
        # label: (newest epoch, hand-over end of the one before, kseq) of records and manifests.
        self._now: dict[int, Any] = {}
        self.reset()

    # After provisioning: new roots, so nothing derived from the old ones is kept. What was seen of
    # other labels is kept under the same own epoch, whose records could still be rolled back.
    def reset(self) -> None:
        self._roots: dict[Any, Any] = {}
        self._outer: dict[Any, Any] = {}
        self._inner: dict[Any, Any] = {}
        own = self.ident.own
        if not own:
            return
        self._roots[(own.label, own.epoch)] = own
        seen = self._now.get(own.label)
        if seen is None or seen[0] != own.epoch:
            self._now = {own.label: (own.epoch, 0, 0)}

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
        top = self._roots.get((label, epoch))
        if top is None:
            raise NoKey("record from label %d epoch %d, which is not held" % (label, epoch))
        known = (n, e_n) in self._roots
        back_link = n == label
        if back_link:
            if e_n >= epoch:
                raise WrongEpoch("back-link to epoch %d from %d" % (e_n, epoch))
        else:
            self._check_newest(n, e_n, label, epoch, kseq)
            known = known and self._now.get(n) == (e_n, end, kseq)
        if known:
            return False
        fresh = (n, e_n) not in self._roots
        if fresh:
            roots = derive(self.make, self.ident.site, top, p)
            _room(self._roots, self.limit, (n, e_n), (self.ident.own.label, self.ident.own.epoch))
            self._roots[(n, e_n)] = roots
        else:
            check_record(self.make, self.ident.site, top, p)
        if not back_link:
            self._now[n] = (e_n, end, kseq)
        return fresh

    # Who was put out of a label still holds its old roots: they no longer say anything about other
    # labels.
    def _check_newest(self, n: int, e_n: int, label: int, epoch: int, kseq: int) -> None:
        if epoch < self._now[label][0]:
            raise WrongEpoch("record from epoch %d of label %d, which is over" % (epoch, label))
        seen = self._now.get(n)
        # A newer epoch counts whatever its kseq; an older one never does.
        if seen and (e_n, kseq) < (seen[0], seen[2]):
            raise WrongEpoch(
                "record of epoch %d kseq %d, seen: %d, %d" % (e_n, kseq, seen[0], seen[2])
            )

    def add_manifest(self, p: "bytes | bytearray") -> None:
        _, label, epoch, kseq, end = get_manifest(p)
        roots = self._roots.get((label, epoch))
        if roots is None:
            raise NoKey("manifest of label %d epoch %d, which is not held" % (label, epoch))
        check_manifest(self.make, self.ident.site, roots, p)
        seen = self._now.get(label)
        if seen and (epoch, kseq) < (seen[0], seen[2]):
            raise WrongEpoch("manifest of epoch %d kseq %d is older" % (epoch, kseq))
        self._now[label] = (epoch, end, kseq)

    # topic: bytes as in PUBLISH. payload: a bytearray that this call uses up. now_ms: verified time
    # or None.
    def open(self, topic: bytes, payload: bytearray, now_ms: "int | None") -> Message:
        suite, ref, how, label, epoch, inst, s2, _ = get_m3(payload)
        if ref != REF_LABEL:
            raise Unsupported("m3 with key reference %d" % ref)
        if now_ms is None:
            raise Stale("no verified time yet")
        roots = self._roots.get((label, epoch))
        if roots is None:
            raise NoKey("no key for label %d epoch %d" % (label, epoch))
        if suite != roots.suite:
            raise Unsupported("m3 of suite %d, the label's is %d" % (suite, roots.suite))
        end = len(payload)
        tail = tail_m3(self.ident.site, topic)
        key = (label, epoch, inst)
        outer = self._outer.get(key) or self._make_outer(roots, inst)
        if not open_at(outer, nonce_m3(payload), payload, 0, M3_HEAD, end, tail):
            raise Unauthentic("m3: the tag does not verify")
        _room(self._outer, self.limit, key)
        self._outer[key] = outer
        check_fresh("m3", now_ms // 1000 - s2 // 1000)
        start, o = span(payload, M3_HEAD, end - TAG)
        items = unpack(payload, start, o, self.known_tlv)
        return self._open_inner(topic, payload, o, end - TAG, roots, how, s2, now_ms, items)

    def _open_inner(
        self,
        topic: bytes,
        payload: bytearray,
        o: int,
        end: int,
        roots: "Any",
        how: int,
        s2: int,
        now_ms: int,
        items: "dict[int, bytes]",
    ) -> Message:
        suite, kind, untimed, epoch, sender, boot, salt, ctr, t_pub, life = get_m1(payload, o, end)
        if not _CLASSES[how] >> kind & 1 or (untimed and kind != WILL):
            raise Malformed("class %d, untimed %d in an m3 with how %d" % (kind, untimed, how))
        now = now_ms // 1000
        since = t_pub
        if untimed or items:
            since = fired(items, untimed) or t_pub
        age = now - since
        check_fresh("message", age, life_s(life))
        label = roots.label
        roots = self._roots.get((label, epoch))
        if roots is None:
            raise NoKey("no key for label %d epoch %d" % (label, epoch))
        if suite != roots.suite:
            raise Unsupported("m1 of suite %d, the label's is %d" % (suite, roots.suite))
        if how == LIVE:
            self._check_epoch(label, epoch, now)
        key = (label, epoch, sender, boot, salt)
        inner = self._inner.get(key)
        if inner is None:
            site = self.ident.site
            k = inner_key(site, roots.suite, sender, boot, salt, roots.r_bar)
            inner = self.make(roots.suite, k)
        tail = tail_m1(self.ident.site, label, topic)
        if not open_at(inner, nonce_m1(payload, o), payload, o, M1_HEAD, end, tail):
            raise Unauthentic("m1: the tag does not verify")
        _room(self._inner, self.limit, key)
        self._inner[key] = inner
        order = (since, boot, ctr)
        kept = self._kept.get((topic, sender), _NOTHING)
        if how != RETAINED:
            self._check_window((label, sender, boot, salt, kind == WILL), how, ctr, t_pub, s2)
        elif order < kept:
            raise Stale("an older retained message came back")
        if how == RETAINED or (kind == RETAINED and order > kept):
            _room(self._kept, self.limit, (topic, sender))
            self._kept[(topic, sender)] = order
        plain = bytes(payload[o + M1_HEAD : end - TAG])
        return Message(topic, plain, label, sender, age, how, items)

    def _make_outer(self, roots: "Roots", inst: int) -> "Any":
        site = self.ident.site
        ek = topic_key(site, roots.suite, roots.label, roots.epoch, roots.r)
        k = outer_key(site, roots.suite, roots.label, roots.epoch, inst, ek)
        return self.make(roots.suite, k)

    # Live messages of an epoch whose hand-over is over are refused (SPEC.md 8).
    def _check_epoch(self, label: int, epoch: int, now: int) -> None:
        current, end, _ = self._now.get(label, (epoch, 0, 0))
        if epoch < current and (epoch < current - 1 or now >= end):
            raise WrongEpoch("epoch %d of label %d, current is %d" % (epoch, label, current))

    # Wills have windows of their own: their counters are as old as the connection.
    def _check_window(self, key: "Any", how: int, ctr: int, t_pub: int, s2: int) -> None:
        entry = self._windows.get(key)
        if entry is None:
            if t_pub <= self.floor if how == LIVE else s2 <= self.floor_s2:
                raise Replay("as old as what windows were given up for")
            if len(self._windows) >= self.limit:
                self._forget()
            entry = [Window(), 0, 0]
            self._windows[key] = entry
        window = entry[0]
        if window.look(ctr) != NEW:
            raise Replay("counter %d of sender %d came before" % (ctr, key[1]))
        window.mark(ctr)
        entry[1] = max(entry[1], t_pub)
        entry[2] = max(entry[2], s2)

    # Drops the window that has been silent longest; its newest times become the floors.
    def _forget(self) -> None:
        oldest = None
        for key, entry in self._windows.items():
            if oldest is None or entry[2] < self._windows[oldest][2]:
                oldest = key
        entry = self._windows.pop(oldest)
        self.floor = max(self.floor, entry[1])
        self.floor_s2 = max(self.floor_s2, entry[2])


# Makes room for `key`: a full cache loses one entry, but never `keep`.
def _room(cache: "dict[Any, Any]", limit: int, key: "Any", keep: "Any" = None) -> None:
    if len(cache) < limit or key in cache:
        return
    for old in cache:
        if old != keep:
            del cache[old]
            return
