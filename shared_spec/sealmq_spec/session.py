# A client's boot session, sans-IO: seals what goes out, opens what the mediator says. Device and
# host use it alike. No clock and no randomness of its own: `mono` is a millisecond counter that
# only rises, salt comes from the caller.
from struct import pack_into

from . import control
from .const import (
    BEHIND,
    DOWN_HEAD,
    N_PROOF,
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
    TAG,
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
from .envelope import FRONT_SESSION, front_m1, front_m2
from .errors import Malformed, Misuse, Replay, Stale
from .keys import (
    in_session,
    inner_input,
    inner_key_of,
    link_input,
    link_key_of,
    time_input,
    time_key_of,
    u24,
)
from .outgoing import prepare, seal
from .provision import open_time, time_nonce
from .tlv import EMPTY, items
from .topics import put_token

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

    from .identity import Identity
    from .outgoing import Prepared

_TOPICS = 16
_KNOWN = (TLV_KG_TIME,)
_USED_UP = "the boot session's counters are used up; start a new one"
# W/2: by how much KG time and another may differ before it is reported (SPEC.md 7.3).
_HALF_MS = WINDOW_S * 500
_KIND_PROOF = N_PROOF[0]
_NOT_ASKED = bytes(16)  # no N_c is that


class Session:
    # boot: already raised in stable memory. salt: 8 bytes, SPEC.md 5.
    def __init__(
        self, ident: "Identity", make: "Callable[[int, bytes], Any]", boot: int, salt: bytes
    ) -> None:
        self.make = make
        self._nonce = bytearray(12)
        self._prepared: "dict[tuple[bytes, int], Prepared]" = {}
        self.top = 0
        self.mask = 0
        self.epoch_seen = 0
        self.kseq_seen = 0
        self.due = False  # what outdated() says, for those who ask before each message
        self.boot_floor = 0
        self._sent = 0
        self._asked = _NOT_ASKED
        self._order = b""
        # Every attribute from the start: adding one later costs a device its heap's order.
        self._last: "Any" = None
        self._topic: "bytes | None" = None
        self._flags = 0
        self._control: "Any" = None
        self._down: "Any" = None
        self._publish: "Any" = None
        self._inner: "Any" = None
        self._link_input = bytearray()
        self._inner_input = bytearray()
        self._front1 = bytearray()
        self.begin(boot, salt)
        self.renew(ident)

    # A new boot session: of the last one only what the mediator said of epochs is kept.
    def begin(self, boot: int, salt: bytes) -> None:
        if len(salt) != 8:
            raise Misuse("a salt has 8 bytes, not %d" % len(salt))
        self.boot = boot
        self.salt = salt
        self.conn = 0
        self.ctr = 0
        self.top = 0
        self.mask = 0
        self.kg_time = False
        self.clock_conflict = False
        self._offset: "int | None" = None
        self._nonce[:8] = salt
        self._forget()

    # New roots of the same client. boot, salt and the counters go on: a key that stays meets no
    # nonce again. What of the keys and headers depends on roots alone is laid out here.
    def renew(self, ident: "Identity") -> None:
        self.ident = ident
        site, client, suite = ident.site, ident.client, ident.suite
        self._proof_aad = control.proof_aad(site, ident.mediator)
        self._down_aad = control.down_aad(site, client, ident.mediator)
        control.put_conn(self._down_aad, self.conn)
        self._time_input = time_input(site, suite, ident.ps)
        self._front2 = front_m2(suite, site, client, ident.mediator)
        own = ident.own
        self._link_input = bytearray()
        if ident.gen and own:
            self._link_input = link_input(site, ident.mediator, ident.km)
            self._inner_input = inner_input(site, own.suite, client, own.r_bar)
            self._front1 = front_m1(own.suite, own.epoch, client, site, own.label)
        self.due = self.outdated()
        self._forget()

    # Keys are made when they are first needed, then kept.
    def _forget(self) -> None:
        self._control = None
        self._topic = None
        if self._prepared:
            self._prepared = {}

    # The four that a publisher needs.
    def _derive(self) -> None:
        made = self._link_input
        if not made:
            raise Misuse("no roots yet: provision first")
        make, ident, boot, salt = self.make, self.ident, self.boot, self.salt
        suite = ident.suite
        in_session(made, boot, salt)
        self._down = make(suite, link_key_of(made, USE_DOWN, suite))
        self._publish = make(suite, link_key_of(made, USE_PUBLISH, suite))
        proofs = make(suite, link_key_of(made, USE_CONTROL, suite))
        made = self._inner_input
        in_session(made, boot, salt)
        self._inner = make(ident.own.suite, inner_key_of(made))
        in_session(self._front1, boot, salt, FRONT_SESSION)
        self._control = proofs

    def _link(self, use: int) -> "Any":
        if self._control is None:
            self._derive()
        return {USE_PUBLISH: self._publish, USE_CONTROL: self._control, USE_DOWN: self._down}[use]

    # The next counter. At its end the caller must start a new boot session.
    def next_ctr(self) -> int:
        if self.ctr >= U24:
            raise Misuse(_USED_UP)
        self.ctr += 1
        return self.ctr

    # --- time ---

    # Unix time in ms, or None before a welcome.
    def now_ms(self, mono: int) -> "int | None":
        return None if self._offset is None else mono + self._offset

    def has_time(self) -> bool:
        return self._offset is not None

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
        gen = i.gen
        salt = self.salt
        if not gen:
            return control.proof_head(i.suite, 0, 0, i.client, self.boot, salt, 0, 0)
        conn = self.conn + 1
        if conn > U24:
            raise Misuse("the boot session's connections are used up; start a new one")
        self.conn = conn
        control.put_conn(self._down_aad, conn)
        self._order = b""
        flags = 0
        asked = _NOT_ASKED
        if want_kg_time:
            flags = WANT_KG_TIME
            asked = time_nonce(salt, self.boot, conn)
        self._asked = asked
        low = low or self.ctr + 1
        return control.proof_head(i.suite, flags, gen, i.client, self.boot, salt, conn, low)

    # packet: the whole CONNECT, its last 22 bytes free. mono: now; the answer must come within 2 s
    # to set the clock.
    def sign(self, packet: bytearray, mono: int) -> None:
        nonce = self._nonce
        conn = self.conn
        pack_into(">BBH", nonce, 8, _KIND_PROOF, conn >> 16, conn & 0xFFFF)
        if self._control is None:
            self._derive()
        control.put_proof(self._control, nonce, self._proof_aad, packet)
        self._sent = mono

    # --- what goes out ---

    # Seals both layers in place. The plaintext's n bytes stand at buf[o + 36 + len(tlv):], behind
    # them is room for 32. Returns the length of m2 from buf[o]. flags: RETAIN and QoS bits of
    # PUBLISH.
    def seal_publish(
        self,
        buf: bytearray,
        o: int,
        n: int,
        topic: bytes,
        flags: int,
        kind_class: int,
        life: int,
        mono: int,
        tlv: bytes = EMPTY,
    ) -> int:
        if kind_class == WILL:
            t_pub = 0
            kind_class |= UNTIMED
        elif self._offset is None:
            raise Misuse("no time yet: connect first")
        else:
            t_pub = (mono + self._offset) // 1000
        if topic is not self._topic or flags != self._flags:
            self._prepare(topic, flags)
        ctr = self.ctr + 1
        if ctr > U24:
            raise Misuse(_USED_UP)
        self.ctr = ctr
        return seal(self._last, buf, o, n, kind_class, life, ctr, t_pub, tlv)

    def _prepare(self, topic: bytes, flags: int) -> None:
        key = topic, flags
        last = self._prepared.get(key)
        if last is None:
            if self._control is None:
                self._derive()
            if len(self._prepared) >= _TOPICS:
                self._prepared.clear()
            front2 = self._front2
            front2[-1] = flags
            last = prepare(self._front1, front2, topic, self._nonce, self._inner, self._publish)
            self._prepared[key] = last
        self._last = last
        self._topic = topic
        self._flags = flags

    # The filter as it goes into SUBSCRIBE (op 0) or UNSUBSCRIBE (op 1, qos 0), and its ctr.
    def token(self, filt: str, qos: int = 0, op: int = SUBSCRIBE) -> "tuple[str, int]":
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
    # bytes). Unknown ops -> (op, None). o: where the packet begins. A bytearray is used up.
    def down(self, packet: "bytes | bytearray", mono: int, o: int = 0) -> "tuple[int, Any]":
        buf = packet if isinstance(packet, bytearray) else bytearray(packet)
        if self._control is None:
            self._derive()
        order = control.open_down_at(self._down, self.ident.suite, self._down_aad, buf, o)
        if order <= self._order:
            raise Replay("control packet out of order")
        self._order = order
        o += DOWN_HEAD
        end = len(buf) - TAG
        op = buf[o]
        if op == OP_WELCOME:
            return op, self._welcome(buf, o, end, mono)
        body = bytes(buf[o:end])
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

    def _welcome(self, buf: bytearray, o: int, end: int, mono: int) -> int:
        status, ms, floor, top, mask, epoch, kseq, o = control.get_welcome(buf, o, end)
        if status != READY and status != BEHIND:
            raise Malformed("welcome with status %d" % status)
        found = items(buf, o, end, _KNOWN)
        if status == READY:
            self._clock(ms, found, mono)
        self.boot_floor = floor
        self.top = top
        self.mask = mask
        self._saw(epoch, kseq)
        return int(status)

    def _time(self, body: bytes, mono: int) -> int:
        if len(body) < 24:
            raise Malformed("time of %d bytes" % len(body))
        if self._asked is _NOT_ASKED or bytes(body[1:17]) != self._asked:
            raise Stale("time for another request")
        ms = int.from_bytes(body[17:23], "big")
        self._clock(ms, items(body, 23, len(body), _KNOWN), mono)
        return ms

    # The mediator's time, and the KG's where it is there; each request is answered once.
    def _clock(self, ms: int, found: "dict[int, bytes]", mono: int) -> None:
        i = self.ident
        blob = found.get(TLV_KG_TIME) or found.get(TLV_KG_TIME | 0x80)
        if blob:
            suite = i.suite
            aead = self.make(suite, time_key_of(self._time_input, self._asked))
            kg_ms, epoch, kseq = open_time(aead, i.site, suite, i.client, blob)
            if kseq < i.kseq:
                raise Stale("KG time with kseq %d, held: %d" % (kseq, i.kseq))
            self._saw(epoch, kseq)
            if abs(kg_ms - ms) > _HALF_MS:
                self.clock_conflict = True
            self._set_time(kg_ms, mono, True)
        else:
            self._set_time(ms, mono, False)
        self._asked = _NOT_ASKED

    def _saw(self, epoch: int, kseq: int) -> None:
        if epoch > self.epoch_seen:
            self.epoch_seen = epoch
            self.due = self.outdated()
        if kseq > self.kseq_seen:
            self.kseq_seen = kseq

    def _epoch(self, body: bytes) -> "tuple[int, int, int, int]":
        if len(body) != 15:
            raise Malformed("epoch notice of %d bytes" % len(body))
        label, epoch = int.from_bytes(body[1:4], "big"), int.from_bytes(body[4:7], "big")
        kseq, end = int.from_bytes(body[7:11], "big"), int.from_bytes(body[11:15], "big")
        if label == self.ident.own.label:
            self._saw(epoch, kseq)
        return label, epoch, kseq, end

    # The label has a newer epoch than the roots we hold: provision again.
    def outdated(self) -> bool:
        own = self.ident.own
        return own is not None and self.epoch_seen > own.epoch

    # True when a receipt shows that ctr was accepted.
    def receipted(self, ctr: int) -> bool:
        back = self.top - ctr
        return 0 <= back < 64 and bool(self.mask >> back & 1)
