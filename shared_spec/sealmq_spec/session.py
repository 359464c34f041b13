# A client's session with its mediator, sans-IO: seals what goes out, opens what comes in on the
# control topic. Device and host use it alike. seal_publish runs for each message and the welcome
# before the first: both are flat on purpose.
from hashlib import sha256
from struct import pack_into, unpack_from

from . import control
from .bootsession import HALF_MS, IN_WELCOME, NOT_ASKED, USED_UP, BootSession
from .const import (
    BEHIND,
    DOWN_HEAD,
    KGTIME_LEN,
    M1_HEAD,
    M2_HEAD,
    N_INNER,
    N_LINK,
    N_TOKEN,
    OP_ASK_TIME,
    OP_EPOCH,
    OP_FETCH,
    OP_GRANT,
    OP_NEWS,
    OP_NOTICE,
    OP_RECEIPT,
    OP_RECORD,
    OP_REPLY,
    OP_TIME,
    OP_WELCOME,
    READY,
    SUBSCRIBE,
    TAG,
    TIME_MAX_MS,
    TLV_KG_TIME,
    TOKENED,
    U24,
    UNTIMED,
    USE_CONTROL,
    WILL,
)
from .control import WELCOME, WELCOME_LEAST, open_down_at
from .envelope import CTR1, CTR2, LIFE1
from .errors import Malformed, Misuse, Replay, Stale
from .keys import NONCE_AT, u24
from .provision import KG_TIME, open_time
from .tlv import EMPTY, block
from .topics import put_token

_TYPING = False
if _TYPING:
    from typing import Any

_TOPICS = 16
_WHAT_PUBLISH = 1
_KNOWN = (TLV_KG_TIME,)
_KG_ALONE = KGTIME_LEN + 3  # a block that holds KG time and nothing else, the usual one
_KIND_INNER = N_INNER[0]
_KIND_LINK = N_LINK[0]
_KIND_TOKEN = N_TOKEN[0]
_WHO = M2_HEAD - 5  # a token's header has five bytes
_TOKEN_QOS = 15


class Session(BootSession):
    # --- what goes out ---

    # Seals both layers in place. The plaintext's n bytes stand at buf[o + 36 + len(tlv):], after
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
            _prepare(self, topic, flags)
        # In one step: whoever publishes in between, a scheduled callback or another thread, gets
        # another one.
        self.ctr = ctr = self.ctr + 1
        if ctr > U24:
            self.ctr = U24
            raise Misuse(USED_UP)
        # What differs from the last message on this topic: counter, time, class, life.
        first, aad1, head1, aad2, head2 = self._last
        high = ctr >> 16
        low = ctr & 0xFFFF
        nonce = self._nonce
        aad1[1] = first | kind_class
        aad1[LIFE1] = life
        pack_into(">BHI", aad1, CTR1, high, low, t_pub)
        pack_into(">BBH", nonce, 8, _KIND_INNER, high, low)
        p = o + M2_HEAD
        q = p + len(tlv)
        buf[p:q] = tlv
        end = q + M1_HEAD
        buf[q:end] = head1
        self._inner.seal_into(nonce, aad1, buf, end, n)
        pack_into(">BHI", aad2, CTR2, high, low, t_pub)
        buf[o:p] = head2
        end += n + TAG
        # Whole again: sealing a long message may have let others run.
        pack_into(">BBH", nonce, 8, _KIND_LINK, high, low)
        self._publish.seal_into(nonce, aad2, buf, p, end - p)
        return end + TAG - o

    def _prepare(self, topic: bytes, flags: int) -> None:
        key = topic, flags
        prepared = self._prepared
        last = prepared.get(key)
        if last is None:
            if not self._derived:
                _derive(self)
            if len(prepared) >= _TOPICS:
                prepared.clear()
            text = len(topic).to_bytes(2, "big") + topic
            front = self._front2
            front[-1] = flags
            aad2 = front + text
            aad1 = self._front1 + text
            last = aad1[1], aad1, memoryview(aad1)[:M1_HEAD], aad2, memoryview(aad2)[:M2_HEAD]
            prepared[key] = last
        self._last = last
        self._topic = topic
        self._flags = flags

    # The filter as it goes into SUBSCRIBE (op 0) or UNSUBSCRIBE (op 1, qos 0), and its ctr.
    def token(self, filt: str, qos: int = 0, op: int = SUBSCRIBE) -> "tuple[str, int]":
        made = bytearray(3 + TAG)
        n = self.seal_token(made, 0, filt.encode(), qos, op)
        return put_token(bytes(made[:3]), bytes(made[3:]), filt), n

    # u24 ctr and the tag of such a token, to buf[at:]. Gives ctr. filt: a filter's bytes.
    def seal_token(self, buf: bytearray, at: int, filt: bytes, qos: int, op: int) -> int:
        if not self._derived:
            _derive(self)
        self.ctr = ctr = self.ctr + 1  # in one step
        if ctr > U24:
            self.ctr = U24
            raise Misuse(USED_UP)
        high = ctr >> 16
        low = ctr & 0xFFFF
        # As control.token_aad: what stands in the middle is in m2's associated data too.
        aad = self._front2[_WHO:] + b"\0\0" + filt
        pack_into(">BBBH", aad, 0, TOKENED, self.ident.suite << 4 | op, high, low)
        pack_into(">BH", aad, _TOKEN_QOS, qos, len(filt))
        nonce = self._nonce
        pack_into(">BBH", nonce, 8, _KIND_TOKEN, high, low)
        pack_into(">BH", buf, at, high, low)
        self._control.seal_into(nonce, aad, buf, at + 3, 0)
        return ctr

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
    # rule, reason), ctr 0 for a PUBLISH that a receipt has confirmed; epoch -> (label, epoch, kseq,
    # end); record, grant, news -> bytes; time -> ms; reply -> (ctr, bytes). Unknown ops -> (op,
    # None). o: where the packet begins.
    def down(self, packet: "bytes | bytearray", mono: int, o: int = 0) -> "tuple[int, Any]":
        return self.down_in(bytearray(packet), mono, o)

    # The same; buf is used up.
    def down_in(self, buf: bytearray, mono: int, o: int = 0) -> "tuple[int, Any]":
        if not self._derived:
            _derive(self)
        order = open_down_at(self._down, self.ident.suite, self._down_aad, buf, o)
        if order <= self._order:
            raise Replay("control packet out of order")
        self._order = order
        o += DOWN_HEAD
        end = len(buf) - TAG
        op = buf[o]
        if op == OP_WELCOME:
            return op, _welcome(self, buf, o, end, mono)
        if op == OP_TIME:
            return op, self._time(buf, o, end, mono)
        body = bytes(buf[o:end])
        if op == OP_RECEIPT:
            self.top, self.mask = control.get_receipt(body)
            return op, (self.top, self.mask)
        if op == OP_NOTICE:
            said = control.get_notice(body)
            if said[0] == _WHAT_PUBLISH and self.receipted(said[1]):
                said = (_WHAT_PUBLISH, 0) + said[2:]  # a receipt beats a notice
            return op, said
        if op == OP_EPOCH:
            return op, self._epoch(body)
        if op == OP_RECORD or op == OP_GRANT or op == OP_NEWS:
            return op, body[1:]
        if op == OP_REPLY:
            if len(body) < 4:
                raise Malformed("reply of %d bytes" % len(body))
            return op, (int.from_bytes(body[1:4], "big"), body[4:])
        return op, None

    # Fields as get_welcome has them; taken apart here because this stands before the first message.
    def _welcome(self, buf: bytearray, o: int, end: int, mono: int) -> int:
        status: int
        if end - o < WELCOME_LEAST:
            raise Malformed("welcome of %d bytes" % (end - o))
        _, status, ms, ms_low, a, floor, b, top, mask, c, epoch, kseq = unpack_from(WELCOME, buf, o)
        if status > BEHIND:
            raise Malformed("welcome with status %d" % status)
        o += WELCOME_LEAST - 1
        at = o + 3
        kg_end = end
        if end - o != _KG_ALONE or buf[o + 1] != TLV_KG_TIME or buf[o] != buf[o + 2] + 2:
            at, kg_end = _kg_time(buf, o, end)
        if status == READY:
            _clock(self, ms << 32 | ms_low, buf, at, kg_end, mono)
        self.boot_floor = a << 16 | floor
        self.top = b << 16 | top
        self.mask = mask
        epoch |= c << 16
        if epoch > self.epoch_seen or kseq > self.kseq_seen:
            self._saw(epoch, kseq)
        return status

    def _time(self, buf: bytearray, o: int, end: int, mono: int) -> int:
        if end - o < 24:
            raise Malformed("time of %d bytes" % (end - o))
        if (
            self._asked is NOT_ASKED
            or self._asked is IN_WELCOME
            or buf[o + 1 : o + 17] != self._asked
        ):
            raise Stale("time for another request")
        ms = int.from_bytes(buf[o + 17 : o + 23], "big")
        at, end = _kg_time(buf, o + 23, end)
        _clock(self, ms, buf, at, end, mono)
        return ms

    # The mediator's time, and the KG's at buf[at:end] where it is there; each request is answered
    # once.
    def _clock(self, ms: int, buf: bytearray, at: int, end: int, mono: int) -> None:
        if ms > TIME_MAX_MS:
            raise Malformed("a time that no message can carry")
        from_kg = at != end
        if from_kg:
            # Else it would be taken for the N_c that no question is: sixteen zeros.
            if self._asked is NOT_ASKED:
                raise Stale("KG time that nobody asked for")
            ident = self.ident
            suite = ident.suite
            made = self._time_input
            if self._asked is not IN_WELCOME:
                made = bytearray(made)
                made[NONCE_AT : NONCE_AT + 16] = self._asked
            aead = self._time_aead
            if self._rekey:
                aead.rekey(sha256(made).digest())
            else:
                aead = self.make(suite, sha256(made).digest())
            at = open_time(aead, self._time_aad, suite, buf, at, end)
            kg_ms, kg_low, epoch, low, kseq = unpack_from(KG_TIME, buf, at)
            kg_ms = kg_ms << 32 | kg_low
            epoch = epoch << 16 | low
            if kg_ms > TIME_MAX_MS:
                raise Malformed("a KG time that no message can carry")
            if kseq < ident.kseq:
                raise Stale("KG time with kseq %d, held: %d" % (kseq, ident.kseq))
            if epoch > self.epoch_seen:
                self.epoch_seen = epoch
                self.due = ident.own is not None and epoch > ident.own.epoch
            if kseq > self.kseq_seen:
                self.kseq_seen = kseq
            if not -HALF_MS <= kg_ms - ms <= HALF_MS:
                self.clock_conflict = True
            ms = kg_ms
        self._asked = NOT_ASKED
        _set_time(self, ms, mono, from_kg)

    def _epoch(self, body: bytes) -> "tuple[int, int, int, int]":
        if len(body) != 15:
            raise Malformed("epoch notice of %d bytes" % len(body))
        label, epoch = int.from_bytes(body[1:4], "big"), int.from_bytes(body[4:7], "big")
        kseq, end = int.from_bytes(body[7:11], "big"), int.from_bytes(body[11:15], "big")
        if label == self.ident.own.label:
            self._saw(epoch, kseq)
        return label, epoch, kseq, end

    # True when a receipt shows that ctr was accepted.
    def receipted(self, ctr: int) -> bool:
        back = self.top - ctr
        return 0 <= back < 64 and bool(self.mask >> back & 1)


# Where a TLV block has KG time; (0, 0): nowhere.
def _kg_time(buf: bytearray, o: int, end: int) -> "tuple[int, int]":
    found = block(buf, o, end, _KNOWN)
    return found.get(TLV_KG_TIME) or found.get(TLV_KG_TIME | 0x80) or (0, 0)


# On a device a method costs 1,500 instructions to look up, a name 100.
_clock = Session._clock
_derive = Session._derive
_prepare = Session._prepare
_set_time = Session._set_time
_welcome = Session._welcome
