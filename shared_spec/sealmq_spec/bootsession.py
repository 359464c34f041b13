# One boot session of a client: its counters, its keys, its clock, its CONNECT (SPEC.md 1, 4.1, 5,
# 7.3). No clock and no randomness of its own: `mono` is a millisecond counter that only rises, salt
# comes from the caller. Flat on purpose: on a device a call costs as much as ten operations.
from hashlib import sha256
from struct import pack, pack_into

from .b64 import b64u
from .const import (
    FRESH_TOKENS,
    N_PROOF,
    ROUND_TRIP_MS,
    TAG,
    U24,
    USE_CONTROL,
    USE_DOWN,
    USE_PUBLISH,
    WANT_KG_TIME,
    WINDOW_S,
)
from .control import (
    CONN_AT,
    PROOF_CONN,
    PROOF_SESSION,
    TAG_CHARS,
    down_aad,
    proof_aad,
    proof_head,
    proof_input,
    put_conn,
)
from .envelope import front_m1, front_m2
from .errors import Misuse
from .keys import (
    IN_M1,
    NONCE_AT,
    SESSION_AT,
    SESSION_LEN,
    USE_AT,
    inner_input,
    link_input,
    time_input,
)
from .provision import time_aad

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

    from .identity import Identity

    Prepared = tuple[int, bytearray, memoryview, bytearray, memoryview]

USED_UP = "no counter is left in this boot session"
# W/2: by how much KG time and another may differ before it is reported (SPEC.md 7.3).
HALF_MS = WINDOW_S * 500
NOT_ASKED = bytes(16)  # no N_c is that
IN_WELCOME = b""  # asked with the CONNECT; N_c stands in _time_input
_KIND_PROOF = N_PROOF[0]
_SESSION_END = SESSION_AT + SESSION_LEN
_IN_M1_END = IN_M1 + SESSION_LEN
_CONTROL = USE_CONTROL << 4
_DOWN = USE_DOWN << 4
_PUBLISH = USE_PUBLISH << 4


class BootSession:
    # boot: already raised in stable memory. salt: 8 bytes, SPEC.md 5.
    def __init__(
        self, ident: "Identity", make: "Callable[[int, bytes], Any]", boot: int, salt: bytes
    ) -> None:
        # All attributes from the start: adding one later costs a device its heap's order.
        self.make = make
        self.top = 0
        self.mask = 0
        self._label = 0  # that epoch_seen is about
        self.epoch_seen = 0
        self.kseq_seen = 0
        self.due = False  # what outdated() says, for those who ask before each message
        self.boot_floor = 0
        self._nonce = bytearray(12)
        self._prepared: "dict[tuple[bytes, int], Prepared]" = {}
        self._last: "Any" = None
        self._topic: "bytes | None" = None
        self._flags = 0
        self._sent = 0
        self._asked = NOT_ASKED
        self._order: "bytes | bytearray" = b""
        self._derived = False
        self._rekey = False
        self._time_aead: "Any" = None
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
        # Counters begin anew last: if this is interrupted, nothing of the last one's, keys or what
        # is laid out for its messages, meets them.
        self._derived = False
        self._topic = None
        self._prepared = {}
        self._session = pack(">BH8s", boot >> 16, boot & 0xFFFF, salt)
        self._nonce[:8] = salt
        self.boot = boot
        self.salt = salt
        self.top = 0
        self.mask = 0
        self.kg_time = False
        self.clock_conflict = False
        self._offset: "int | None" = None
        self.conn = 0
        self.ctr = 0

    # New roots of the same client. boot, salt and the counters go on: a key that stays meets no
    # nonce again. What of keys and headers depends on roots alone is laid out here.
    def renew(self, ident: "Identity") -> None:
        self.ident = ident
        own = ident.own
        label = own.label if own else 0
        if label != self._label:
            # Another label's epochs are others.
            self._label = label
            self.epoch_seen = 0
        site, client, suite, mediator = ident.site, ident.client, ident.suite, ident.mediator
        self._proof_front = proof_aad(site, mediator)
        self._down_aad = down_aad(site, client, mediator)
        put_conn(self._down_aad, self.conn)
        self._proof_input = proof_input(suite, ident.gen, client)
        self._time_input = time_input(site, suite, ident.ps)
        self._time_aad = time_aad(site, client)
        self._front2 = front_m2(suite, site, client, mediator)
        self._link_input = bytearray()
        if ident.gen and own:
            self._link_input = link_input(site, mediator, ident.km)
            self._inner_input = inner_input(site, own.suite, client, own.r_bar)
            self._front1 = front_m1(own.suite, own.epoch, client, site, own.label)
            self._make_ciphers(suite, own.suite)
        self.due = self.outdated()
        self._derived = False
        self._topic = None
        self._prepared = {}

    # Roots of a new epoch of σ(c), in the connection that is open: it keeps the gen, link root,
    # mediator and link suite of its CONNECT, and the next one needs renew() (SPEC.md 7.2). ident:
    # what the answer made, another object than the one in use. Misuse for another label.
    def turn(self, ident: "Identity") -> None:
        link = self.ident
        own = ident.own
        if ident is link or own.label != link.own.label:
            raise Misuse("roots of another label in a connection")
        suite = link.own.suite
        link.own = own
        link.kseq = ident.kseq
        self._inner_input = inner_input(link.site, own.suite, link.client, own.r_bar)
        self._front1 = front_m1(own.suite, own.epoch, link.client, link.site, own.label)
        if own.suite != suite:
            self._make_ciphers(link.suite, own.suite)
        self.due = self.outdated()
        self._derived = False
        self._topic = None
        self._prepared = {}

    # The keys that a publisher needs; made when the first one is needed.
    def _derive(self) -> None:
        made = self._link_input
        if not made:
            raise Misuse("no roots yet: provision first")
        suite = self.ident.suite
        inner = self._inner_input
        session = self._session
        made[SESSION_AT:_SESSION_END] = session
        inner[SESSION_AT:_SESSION_END] = session
        self._front1[IN_M1:_IN_M1_END] = session
        made[USE_AT] = _DOWN | suite
        key = sha256(made).digest()
        if self._rekey:
            self._down.rekey(key)
            made[USE_AT] = _PUBLISH | suite
            self._publish.rekey(sha256(made).digest())
            made[USE_AT] = _CONTROL | suite
            self._control.rekey(sha256(made).digest())
            self._inner.rekey(sha256(inner).digest())
        else:
            make = self.make
            self._down = make(suite, key)
            made[USE_AT] = _PUBLISH | suite
            self._publish = make(suite, sha256(made).digest())
            made[USE_AT] = _CONTROL | suite
            self._control = make(suite, sha256(made).digest())
            self._inner = make(self.ident.own.suite, sha256(inner).digest())
        self._derived = True

    # Ciphers that can be given another key are kept from one boot session to the next.
    def _make_ciphers(self, suite: int, own_suite: int) -> None:
        make = self.make
        none = bytes(32)
        self._time_aead = make(suite, none)
        self._rekey = hasattr(self._time_aead, "rekey")
        if self._rekey:
            self._down = make(suite, none)
            self._publish = make(suite, none)
            self._control = make(suite, none)
            self._inner = make(own_suite, none)
            self._rekey = hasattr(self._inner, "rekey")

    def _link(self, use: int) -> "Any":
        if not self._derived:
            _derive(self)
        return {USE_PUBLISH: self._publish, USE_CONTROL: self._control, USE_DOWN: self._down}[use]

    # The next counter. At its end the caller must start a new boot session.
    def next_ctr(self) -> int:
        if self.ctr >= U24:
            raise Misuse(USED_UP)
        self.ctr += 1
        return self.ctr

    # --- CONNECT ---

    # First 32 characters of the password; the packet ends with these and 22 more that `sign` fills
    # in.
    def begin_connect(self, want_kg_time: bool, low: int = 0) -> bytes:
        i = self.ident
        if not i.gen:
            return proof_head(i.suite, 0, 0, i.client, self.boot, self.salt, 0, 0)
        return b64u(self.begin_proof(want_kg_time, low))

    # The bytes that these characters stand for, of a client that has roots.
    def begin_proof(self, want_kg_time: bool, low: int = 0) -> bytearray:
        conn = self.conn + 1
        if conn > U24:
            raise Misuse("no connection is left in this boot session")
        self.conn = conn
        high = conn >> 16
        rest = conn & 0xFFFF
        pack_into(">BH", self._down_aad, CONN_AT, high, rest)
        self._order = b""
        flags = FRESH_TOKENS
        self._asked = NOT_ASKED
        # N_c of a later connection can be foreseen: a mediator could have KG time in hand for it.
        if want_kg_time and conn == 1:
            flags |= WANT_KG_TIME
            self._asked = IN_WELCOME
            # As time_nonce of provision.py has it; time_input has the rest, as conn is 1.
            boot = self.boot
            pack_into(">8sBH", self._time_input, NONCE_AT, self.salt, boot >> 16, boot & 0xFFFF)
        low = low or self.ctr + 1
        made = self._proof_input
        made[0] = self.ident.suite << 4 | flags
        made[PROOF_SESSION:PROOF_CONN] = self._session
        pack_into(">BHBH", made, PROOF_CONN, high, rest, low >> 16, low & 0xFFFF)
        return made

    # packet: the whole CONNECT, its last 22 bytes free. mono: now; the answer must come within 2 s
    # to set the clock.
    def sign(self, packet: bytearray, mono: int) -> None:
        end = len(packet) - TAG_CHARS
        # The tag lies for a moment where its text will.
        self.tag_proof(self._proof_front + packet[:end], packet, end, mono)
        packet[end:] = b64u(packet[end : end + TAG])

    # The tag alone, to buf[at:]. aad: what the proof covers, control.proof_aad and the packet up to
    # the tag; perhaps a view of the memory in which the packet stands.
    def tag_proof(self, aad: "bytes | memoryview", buf: bytearray, at: int, mono: int) -> None:
        if not self._derived:
            _derive(self)
        nonce = self._nonce
        conn = self.conn
        pack_into(">BBH", nonce, 8, _KIND_PROOF, conn >> 16, conn & 0xFFFF)
        self._control.seal_into(nonce, aad, buf, at, 0)
        self._sent = mono

    # --- time ---

    # Unix time in ms, or None before a welcome.
    def now_ms(self, mono: int) -> "int | None":
        return None if self._offset is None else mono + self._offset

    # Never backwards within a boot session; KG time is not overruled by a mediator's. A clock that
    # a mediator has set far ahead cannot be put right, so it never counts as KG time: a later time
    # far behind it is a conflict, whoever tells it, and a new boot session the way out.
    def _set_time(self, ms: int, mono: int, from_kg: bool) -> None:
        offset = ms - mono
        held = self._offset
        late = mono - self._sent
        if late > ROUND_TRIP_MS:
            # Too late to set a clock by, and yet it may show that ours is wrong.
            if held is not None and abs(offset - held) > HALF_MS + late:
                self.clock_conflict = True
            return
        if held is None:
            self._offset = offset
            self.kg_time = from_kg
            return
        far = abs(offset - held) > HALF_MS
        if far and (from_kg or self.kg_time or offset < held):
            self.clock_conflict = True
        if self.kg_time and not from_kg:
            return
        if offset > held:
            self._offset = offset
            far = False
        self.kg_time = from_kg and not far

    # --- epochs ---

    def _saw(self, epoch: int, kseq: int) -> None:
        if epoch > self.epoch_seen:
            self.epoch_seen = epoch
            own = self.ident.own
            self.due = own is not None and epoch > own.epoch
        if kseq > self.kseq_seen:
            self.kseq_seen = kseq

    # The label has a newer epoch than the roots we hold: provision again.
    def outdated(self) -> bool:
        own = self.ident.own
        return own is not None and self.epoch_seen > own.epoch


# On a device a method costs 1,500 instructions to look up, a name 100.
_derive = BootSession._derive
