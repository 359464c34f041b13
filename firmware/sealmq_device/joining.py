# From an enrolment file to an authenticated session: boot session, provisioning, CONNECT, welcome
# (SPEC.md 4.1, 5, 7). Every loop is bounded; roots are stored before they are used.
import errno

from micropython import const

from sealmq_spec.const import (
    ANSWER,
    CCM,
    CONTROL,
    M1_HEAD,
    M2_HEAD,
    M2_MIN,
    OP_WELCOME,
    READY,
    U24,
    USER,
    WILL,
)
from sealmq_spec.control import PROOF_FRONT, TAG_CHARS, proof_aad, proof_head
from sealmq_spec.errors import Denied, Malformed, SealError, TooLarge, Unavailable, Unsupported
from sealmq_spec.identity import Identity
from sealmq_spec.provision import ask
from sealmq_spec.reader import Reader
from sealmq_spec.session import Session

from . import entropy
from .link import Link, connect_packet, packet, text
from .store import FileStore

_TYPING = False
if _TYPING:
    from typing import Any

# Provision, jump the boot counter, a slow answer, a new epoch: each costs one round.
_ROUNDS = const(5)
_DAY_MS = const(86400000)
_LATER_MS = const(60000)  # between two attempts to get the roots of a new epoch
_KG_NONCE = const(12)
_PUBLISH = const(0x30)
_PAYLOAD = const(5)  # of a PUBLISH with QoS 0 on the control topic
_CONTROL = text(CONTROL)
_ANSWER = _CONTROL + bytes((ANSWER,))
_TAG_ROOM = bytes(22)
_FRONT = const(8)  # what the proof covers in front of a CONNECT
if PROOF_FRONT != _FRONT or len(_TAG_ROOM) != TAG_CHARS:
    raise ImportError("joining.py and SPEC.md 4.1 differ")


class Joined(Link):
    # Objects first, then, in steps that keep nothing, what they hold: a growing object and a long
    # function leave holes in the heap when they are done, and until small things have filled these
    # each larger allocation searches from the lowest one.
    def _set_up(
        self,
        store: "str | Any" = "/sealmq.json",
        make: "Any" = None,
        keepalive: int = 0,
        limit: int = 4096,
        timeout: int = 10,
    ) -> None:
        if make is None:
            from .aead import make
        Link.__init__(self, b"", "", 0, keepalive, limit, timeout)
        self.store = FileStore(store) if isinstance(store, str) else store
        self.make = make
        self._kg_nonce = b""
        self._kg_next = 0
        self._boot = 0
        self._begun = False
        self._clean = True
        self._present = False
        self._subscribed: "dict[str, int]" = {}  # {filter: QoS}
        # What no PUBACK came for: {ctr: (packet identifier, packet)}.
        self.unacked: "dict[int, tuple[int, bytes]]" = {}
        self._will: "tuple[bytes, bytes, int, int] | None" = None
        self._renew_at = 0
        self._hello = bytearray()
        self._hello_view = memoryview(self._hello)
        self.ident = Identity(bytes(4), 0, 0, bytes(32))
        self.session = Session(self.ident, make, 0, bytes(8))
        self.reader = Reader(self.ident, make)
        make(CCM, bytes(32))  # loads the usual suite's code now, not while connecting

    def _enrol(self) -> None:
        self._boot = self.store.boot()
        ident = self._load(self.store.enrolment())
        self._use(ident)

    def _load(self, enrolment: "dict[str, Any]") -> Identity:
        ident = Identity.from_enrolment(enrolment)
        try:
            at = enrolment["mediator"]
            self.server, self.port = at["host"], at["port"]
        except KeyError:
            raise Malformed("enrolment file: the mediator's host or port is missing") from None
        self.client_id = ("sealmq-%d" % ident.client).encode()
        blob = self.store.state()
        if ident.load(blob[:-_KG_NONCE]):
            self._kg_nonce = blob[-_KG_NONCE:]
        return ident

    def _use(self, ident: Identity) -> None:
        self.ident = ident
        self.session.renew(ident)
        self.reader.ident = ident
        self.reader.reset()
        # A CONNECT without a will, the proof's 54 characters still to come.
        self._hello, self._hello_view = self._connect(True, None, bytes(54))

    # --- boot session ---

    # A new one: the counter goes up in stable memory, then a salt is drawn. floor: the highest boot
    # that the mediator knows. What was not acknowledged cannot be sent under new keys.
    def _begin(self, floor: int = 0) -> None:
        boot = self._boot
        if boot < floor:
            boot = floor
        boot += 1
        over = boot > U24
        if over:
            boot = 1
        salt = entropy.salt(boot, self._kg_nonce)
        self.store.put_boot(boot)
        self._boot = boot
        self.session.begin(boot, salt)
        if self.unacked:
            self.unacked.clear()
        self._begun = True
        if over:
            # Only a higher gen may begin at 1 again (SPEC.md 5.2).
            self._provision_apart()

    # --- connect ---

    # A session that the mediator has proved and that has time. False: it holds nothing of an
    # earlier one; then subscriptions are made again. Denied, Unavailable, other SealErrors and
    # OSError say why not.
    def connect(self, clean_session: bool = True) -> bool:
        self._clean = clean_session
        try:
            self._join()
        except (OSError, SealError):
            self._close()
            raise
        if self._subscribed and not self._present:
            self._resubscribe()
        return self._present

    def _join(self) -> None:
        s = self.session
        if not self._begun or s.conn >= U24:
            self._begin()
        provisioned = s.ident.gen == 0
        if provisioned:
            self._provision_apart()
        why = "the mediator calls this client's boot counter behind"
        for _ in range(_ROUNDS):
            try:
                ready = self._log_in(s)
            except Denied:
                # Perhaps the roots are of an enrolment that is over: ask once for others.
                if provisioned:
                    raise
                self._provision_apart()
                provisioned = True
                continue
            if not ready:
                self._close()
                if s.boot > s.boot_floor and not provisioned:
                    # Not boot is too low, but gen (SPEC.md 4.1).
                    self._provision_apart()
                    provisioned = True
                else:
                    self._begin(s.boot_floor)
            elif not s.kg_time and s.now_ms(0) is None:
                self._close()
                why = "no answer came within two seconds"
            elif s.due and not provisioned and self._renewed():
                self.disconnect()
                provisioned = True
            else:
                if not s.kg_time:
                    self._ask_time(s)
                return
        raise Unavailable("no session after %d attempts: %s" % (_ROUNDS, why))

    # False: genuine, but this boot session is behind.
    def _log_in(self, s: Session) -> bool:
        self._open()
        now = self.mono()
        proof = s.begin_connect(not s.kg_time, min(self.unacked) if self.unacked else 0)
        if self._clean and self._will is None:
            hello = self._hello
            hello[-54:-22] = proof
            view = self._hello_view
        else:
            hello, view = self._connect(self._clean, self._sealed_will(s), proof + _TAG_ROOM)
        s.sign_with(view, hello, now)
        self.sock.write(hello, _FRONT, len(hello) - _FRONT)
        self._connack()
        first, body = self._read()
        if first != _PUBLISH or not body.startswith(_CONTROL):
            raise Malformed("packet %02x, %d bytes, instead of a welcome" % (first, len(body)))
        op, status = s.down(body, self.mono(), _PAYLOAD)
        if op != OP_WELCOME:
            raise Malformed("control operation %d instead of a welcome" % op)
        ready: bool = status == READY
        return ready

    # A CONNECT behind what its proof covers besides, and a view of all that the proof covers.
    def _connect(
        self, clean: bool, will: "tuple[bytes, bytes, int] | None", password: bytes
    ) -> "tuple[bytearray, memoryview]":
        i = self.ident
        raw = connect_packet(self.client_id, self.keepalive, clean, will, USER, password)
        hello = bytearray(proof_aad(i.site, i.mediator) + raw)
        return hello, memoryview(hello)[:-22]

    # The four bytes that have to come first.
    def _connack(self) -> None:
        four = self._four
        if self.sock.readinto(four) != 4:
            raise OSError(errno.ECONNRESET)
        if four[0] != 0x20 or four[1] != 2:
            raise Malformed("%r instead of a CONNACK" % bytes(four))
        code = four[3]
        if code:
            raise _refusal(code)
        self._present = four[2] & 1 == 1

    # Sealed anew for each CONNECT: its ctr must not be one that was used.
    def _sealed_will(self, s: Session) -> "tuple[bytes, bytes, int] | None":
        if self._will is None:
            return None
        topic, msg, flags, life = self._will
        buf = bytearray(M2_MIN + len(msg))
        at = M2_HEAD + 1 + M1_HEAD
        buf[at : at + len(msg)] = msg
        s.seal_publish(buf, 0, len(msg), topic, flags, WILL, life, 0)
        return topic, bytes(buf), flags

    # --- provisioning ---

    def _resubscribe(self) -> None:
        raise NotImplementedError

    # In a quarantine connection of its own.
    def _provision_apart(self) -> None:
        s = self.session
        i = self.ident
        self._open()
        proof = proof_head(i.suite, 0, 0, i.client, s.boot, s.salt, 0, 0)
        hello, _ = self._connect(True, None, proof)
        self._write(hello, _FRONT, len(hello) - _FRONT)
        try:
            self._connack()
            self._provision(True)
        finally:
            self.disconnect()

    # On the connection that is open. apart: nothing but the answer means anything.
    def _provision(self, apart: bool) -> None:
        i = self.ident
        boot = self.session.boot
        nonce_c = entropy.nonce()
        request = ask(self.make, i.site, i.ps, i.suite, i.client, i.gen, boot, nonce_c, i.mediator)
        self._send_control(request)
        until = self.mono() + 1000 * self.timeout
        while self.mono() <= until:
            try:
                first, body = self._read()
            except TooLarge as error:
                self._refuse(error)
                continue
            if first == _PUBLISH and body.startswith(_ANSWER):
                if self._answered(nonce_c, bytes(body[_PAYLOAD:])):
                    return
            elif not apart:
                self._take(first, body)
        self._close()
        raise OSError(errno.ETIMEDOUT)

    # Takes roots over, stored first. False: a packet that only looks like an answer.
    def _answered(self, nonce_c: bytes, answer: bytes) -> bool:
        fresh = self._load(self.store.enrolment())
        try:
            fresh.accept(self.make, nonce_c, answer)
        except (Denied, Unavailable):
            raise
        except SealError as error:
            self._refuse(error)
            return False
        self._kg_nonce = answer[2 : 2 + _KG_NONCE]
        blob = fresh.dump()
        if blob != self.store.state()[:-_KG_NONCE]:
            self.store.put_state(blob + self._kg_nonce)
        self.unacked.clear()
        self._use(fresh)
        return True

    # The roots of a new epoch over the session that is open. False: none to be had now; the old
    # ones serve until their hand-over ends.
    def _renewed(self) -> bool:
        if self.mono() < self._renew_at:
            return False
        self._renew_at = self.mono() + _LATER_MS
        try:
            self._provision(False)
        except Unavailable:
            return False
        return True

    # KG time over the session, when the welcome could bring none. check_msg takes the answer.
    def _ask_time(self, s: Session) -> None:
        now = self.mono()
        if s.conn > 1 and now >= self._kg_next:
            self._kg_next = now + _DAY_MS
            self._send_control(s.ask_time(entropy.nonce(), now))

    def _send_control(self, payload: bytes) -> None:
        raw = packet(_PUBLISH, _CONTROL + payload)
        self._write(raw, 0, len(raw))


def _refusal(code: int) -> SealError:
    if code == 3:
        return Unavailable("CONNACK 3: the mediator lacks its broker or its store")
    if code > 3:
        return Denied("CONNACK %d: unknown or disabled client, or a proof that fails" % code)
    return Unsupported("CONNACK %d" % code)
