# A client's boot session, sans-IO: seals what goes out, opens what the mediator says. Device and
# host use it alike. No clock and no randomness of its own: `mono` is a millisecond counter that
# only rises, salt comes from the caller.
from . import control
from .const import (
    BEHIND,
    OP_ASK_TIME,
    OP_EPOCH,
    OP_FETCH,
    OP_NOTICE,
    OP_RECEIPT,
    OP_RECORD,
    OP_REPLY,
    OP_TIME,
    OP_WELCOME,
    READY,
    ROUND_TRIP_MS,
    SUBSCRIBE,
    TLV_KG_TIME,
    U24,
    UNTIMED,
    USE_CONTROL,
    USE_DOWN,
    USE_PUBLISH,
    WANT_KG_TIME,
    WILL,
    WINDOW_S,
)
from .errors import Malformed, Misuse, Replay, Stale
from .keys import inner_key, link_input, link_key_of, u24
from .outgoing import Outgoing
from .provision import open_kg_time, time_nonce
from .tlv import EMPTY, span, unpack
from .topics import put_token

_TOPICS = 16
_USED_UP = "the boot session's counters are used up; start a new one"
# W/2: by how much KG time and another may differ before it is reported (SPEC.md 7.3).
_HALF_MS = WINDOW_S * 500


class Session:
    # boot: already raised in stable memory. salt: 8 bytes, SPEC.md 5.
    def __init__(self, ident, make, boot: int, salt: bytes):
        self.ident = ident
        self.make = make
        self._aeads = {}
        self._outgoing = {}
        self._nonce = bytearray(12)
        self.begin(boot, salt)

    # A new boot session: nothing of the last one is kept.
    def begin(self, boot: int, salt: bytes) -> None:
        if len(salt) != 8:
            raise Misuse("a salt has 8 bytes, not %d" % len(salt))
        self.boot = boot
        self.salt = salt
        self.conn = 0
        self.ctr = 0
        self.top = 0
        self.mask = 0
        self.epoch_seen = 0
        self.kseq_seen = 0
        self.boot_floor = 0
        self.kg_time = False
        self.clock_conflict = False
        self._offset = None
        self._sent = 0
        self._asked = b""
        self._order = b""
        self._nonce[:8] = salt
        self._forget()

    # New roots of the same client. boot, salt and the counters go on: a key that stays meets no
    # nonce again.
    def renew(self, ident) -> None:
        self.ident = ident
        self._forget()

    def _forget(self) -> None:
        self._aeads.clear()
        self._outgoing.clear()
        self._made = None
        self._topic = None
        self._flags = 0

    def _link(self, use: int):
        a = self._aeads.get(use)
        if a is None:
            i = self.ident
            if not i.gen:
                raise Misuse("no link root yet: provision first")
            made = self._made
            if made is None:
                made = link_input(i.site, i.mediator, self.boot, self.salt, i.km)
                self._made = made
            a = self.make(i.suite, link_key_of(made, use, i.suite))
            self._aeads[use] = a
        return a

    def _inner(self):
        a = self._aeads.get(0)
        if a is None:
            o = self.ident.own
            a = self.make(
                o.suite,
                inner_key(
                    self.ident.site, o.suite, self.ident.client, self.boot, self.salt, o.r_bar
                ),
            )
            self._aeads[0] = a
        return a

    # The next counter. At its end the caller must start a new boot session.
    def next_ctr(self) -> int:
        if self.ctr >= U24:
            raise Misuse(_USED_UP)
        self.ctr += 1
        return self.ctr

    # --- time ---

    # Unix time in ms, or None before a welcome.
    def now_ms(self, mono: int):
        return None if self._offset is None else mono + self._offset

    # Never backwards within a boot session; KG time is not overruled by a mediator's. A clock that
    # a mediator has set far ahead cannot be put right, so it never counts as KG time.
    def _set_time(self, ms: int, mono: int, from_kg: bool) -> None:
        if mono - self._sent > ROUND_TRIP_MS:
            return
        offset = ms - mono
        far = self._offset is not None and abs(offset - self._offset) > _HALF_MS
        if far and (from_kg or self.kg_time):
            self.clock_conflict = True
        if self.kg_time and not from_kg:
            return
        if self._offset is None or offset > self._offset:
            self._offset = offset
            far = False
        self.kg_time = from_kg and not far

    # --- CONNECT ---

    # First 32 characters of the password; the packet ends with these and 22 more that `sign` fills
    # in.
    def begin_connect(self, want_kg_time: bool, low: int = 0) -> bytes:
        i = self.ident
        if not i.gen:
            return control.proof_head(i.suite, 0, 0, i.client, self.boot, self.salt, 0, 0)
        if self.conn >= U24:
            raise Misuse("the boot session's connections are used up; start a new one")
        self.conn += 1
        self._order = b""
        flags = 0
        self._asked = b""
        if want_kg_time:
            flags = WANT_KG_TIME
            self._asked = time_nonce(self.salt, self.boot, self.conn)
        return control.proof_head(
            i.suite, flags, i.gen, i.client, self.boot, self.salt, self.conn, low or self.ctr + 1
        )

    # packet: the whole CONNECT, its last 22 bytes free. mono: now; the answer must come within 2 s
    # to set the clock.
    def sign(self, packet: bytearray, mono: int) -> None:
        i = self.ident
        control.sign_connect(
            self._link(USE_CONTROL), i.site, i.mediator, self.salt, self.conn, packet
        )
        self._sent = mono

    # --- what goes out ---

    # Seals both layers in place. The plaintext's n bytes stand at buf[o + 36 + len(tlv):], behind
    # them is room for 32. Returns the length of m2 from buf[o]. flags: RETAIN and QoS bits of
    # PUBLISH.
    def seal_publish(
        self, buf, o, n, topic: bytes, flags, kind_class, life, mono, tlv=EMPTY
    ) -> int:
        if kind_class == WILL:
            t_pub = 0
            kind_class |= UNTIMED
        elif self._offset is None:
            raise Misuse("no time yet: connect first")
        else:
            t_pub = (mono + self._offset) // 1000
        if topic is not self._topic or flags != self._flags:
            self._last = self._prepare(topic, flags)
            self._topic = topic
            self._flags = flags
        ctr = self.ctr + 1
        if ctr > U24:
            raise Misuse(_USED_UP)
        self.ctr = ctr
        return self._last.seal(buf, o, n, kind_class, life, ctr, t_pub, tlv)

    def _prepare(self, topic: bytes, flags: int) -> Outgoing:
        key = (topic, flags)
        out = self._outgoing.get(key)
        if out is None:
            if len(self._outgoing) >= _TOPICS:
                self._outgoing.clear()
            link = self._link(USE_PUBLISH)
            out = Outgoing(self.ident, self.boot, self._nonce, topic, flags, self._inner(), link)
            self._outgoing[key] = out
        return out

    # The filter as it goes into SUBSCRIBE (op 0) or UNSUBSCRIBE (op 1, qos 0), and its ctr.
    def token(self, filt: str, qos: int = 0, op: int = SUBSCRIBE):
        i = self.ident
        n = self.next_ctr()
        ctr = u24(n)
        tag = control.token_tag(
            self._link(USE_CONTROL),
            i.suite,
            op,
            ctr,
            self.salt,
            i.site,
            i.client,
            i.mediator,
            qos,
            filt,
        )
        return put_token(ctr, tag, filt), n

    # A control packet up, for topic !c1.
    def up(self, body: bytes, mono: int) -> bytes:
        i = self.ident
        if self._offset is None:
            raise Misuse("no time yet: connect first")
        s1 = (mono + self._offset) // 1000
        return control.seal_up(
            self._link(USE_CONTROL),
            i.suite,
            self.next_ctr(),
            s1,
            self.salt,
            i.site,
            i.client,
            i.mediator,
            body,
        )

    # nonce_c: 16 fresh random bytes.
    def ask_time(self, nonce_c: bytes, mono: int) -> bytes:
        packet = self.up(bytes((OP_ASK_TIME,)) + nonce_c, mono)
        self._asked = nonce_c
        self._sent = mono
        return packet

    def fetch(self, label: int, mono: int) -> bytes:
        return self.up(bytes((OP_FETCH,)) + u24(label), mono)

    # --- what comes in on !c1 ---

    # (op, what it says): welcome -> status; receipt -> (top, mask); notice -> (what, ctr, code,
    # rule, reason); epoch -> (label, epoch, kseq, end); record -> bytes; time -> ms; reply -> (ctr,
    # bytes). Unknown ops -> (op, None).
    def down(self, packet: bytes, mono: int):
        i = self.ident
        order, body = control.open_down(
            self._link(USE_DOWN), i.suite, i.site, i.client, i.mediator, self.conn, packet
        )
        if order <= self._order:
            raise Replay("control packet out of order")
        self._order = order
        op = body[0]
        if op == OP_WELCOME:
            return op, self._welcome(body, mono)
        if op == OP_RECEIPT:
            self.top, self.mask = control.get_receipt(body)
            return op, (self.top, self.mask)
        if op == OP_NOTICE:
            return op, control.get_notice(body)
        if op == OP_EPOCH:
            return op, self._epoch(body)
        if op == OP_RECORD:
            return op, body[1:]
        if op == OP_TIME:
            return op, self._time(body, mono)
        if op == OP_REPLY:
            if len(body) < 4:
                raise Malformed("reply of %d bytes" % len(body))
            return op, (int.from_bytes(body[1:4], "big"), body[4:])
        return op, None

    def _welcome(self, body: bytes, mono: int) -> int:
        status, ms, floor, top, mask, epoch, kseq, o = control.get_welcome(body)
        if status != READY and status != BEHIND:
            raise Malformed("welcome with status %d" % status)
        items = _items(body, o)
        if status == READY:
            self._clock(ms, items, mono)
        self.boot_floor, self.top, self.mask = floor, top, mask
        self._saw(epoch, kseq)
        return status

    def _time(self, body: bytes, mono: int) -> int:
        if len(body) < 24:
            raise Malformed("time of %d bytes" % len(body))
        if bytes(body[1:17]) != self._asked:
            raise Stale("time for another request")
        ms = int.from_bytes(body[17:23], "big")
        self._clock(ms, _items(body, 23), mono)
        return ms

    # The mediator's time, and the KG's where it is there; each request is answered once.
    def _clock(self, ms: int, items, mono: int) -> None:
        i = self.ident
        blob = items.get(TLV_KG_TIME) or items.get(TLV_KG_TIME | 0x80)
        if blob:
            kg_ms, epoch, kseq = open_kg_time(
                self.make, i.site, i.ps, i.suite, i.client, self._asked, blob
            )
            if kseq < i.kseq:
                raise Stale("KG time with kseq %d, held: %d" % (kseq, i.kseq))
            self._saw(epoch, kseq)
            if abs(kg_ms - ms) > _HALF_MS:
                self.clock_conflict = True
            self._set_time(kg_ms, mono, True)
        else:
            self._set_time(ms, mono, False)
        self._asked = b""

    def _saw(self, epoch: int, kseq: int) -> None:
        if epoch > self.epoch_seen:
            self.epoch_seen = epoch
        if kseq > self.kseq_seen:
            self.kseq_seen = kseq

    def _epoch(self, body: bytes):
        if len(body) != 15:
            raise Malformed("epoch notice of %d bytes" % len(body))
        label, epoch = int.from_bytes(body[1:4], "big"), int.from_bytes(body[4:7], "big")
        kseq, end = int.from_bytes(body[7:11], "big"), int.from_bytes(body[11:15], "big")
        if label == self.ident.own.label:
            self._saw(epoch, kseq)
        return label, epoch, kseq, end

    # The label has a newer epoch than the roots we hold: provision again.
    def outdated(self) -> bool:
        return self.epoch_seen > self.ident.own.epoch

    # True when a receipt shows that ctr was accepted.
    def receipted(self, ctr: int) -> bool:
        back = self.top - ctr
        return 0 <= back < 64 and bool(self.mask >> back & 1)


# The TLV block that closes a body.
def _items(body: bytes, o: int):
    start, end = span(body, o, len(body))
    if end != len(body):
        raise Malformed("%d bytes behind the TLV block" % (len(body) - end))
    return unpack(body, start, end, (TLV_KG_TIME,))
