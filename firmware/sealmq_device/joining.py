# From roots to an authenticated session: boot session, CONNECT, welcome (SPEC.md 4.1, 5, 7.3).
# Every loop is bounded.
import errno
import sys

from micropython import const

from sealmq_spec.const import M1_HEAD, M2_HEAD, M2_MIN, OP_WELCOME, READY, TAG, U24, WILL
from sealmq_spec.control import PROOF_FRONT, TAG_CHARS
from sealmq_spec.errors import Denied, Malformed, SealError, Unavailable
from sealmq_spec.session import Session

from .entropy import nonce, salt
from .link import CONNACK, CONTROL_TOPIC, IDLE, OPEN, PUBLISH, READ
from .provisioning import PAYLOAD, Provisioned

try:
    from .text64 import put_b64u
except (SyntaxError, NotImplementedError):
    from sealmq_spec.b64 import put_b64u

_TYPING = False
if _TYPING:
    from typing import Any

    from .link import Steps

# Provision, jump the boot counter, a slow answer, a new epoch: each costs one round.
_ROUNDS = const(5)
_DAY_MS = const(86400000)
_MINUTE_MS = const(60000)
_FRONT = const(8)  # what the proof covers in front of a CONNECT
_PROOF = const(24)  # bytes: 32 characters
_TAG = const(16)  # bytes: 22 characters
_TAG_CHARS = const(22)
_CHARS = const(54)
# A connection begins with some counters left: for its will, and to subscribe again.
_NEAR_END = const(0xFFFEFF)
if PROOF_FRONT != _FRONT or _TAG_CHARS != TAG_CHARS or _TAG != TAG:
    raise ImportError("joining.py and SPEC.md 4.1 differ")

# A method costs 1,500 instructions to look up, a name 100.
_begin_session = Session.begin
_begin_proof = Session.begin_proof
_tag_proof = Session.tag_proof
_down_in = Session.down_in
_run = Provisioned._run
_connack = Provisioned._connack


class Joined(Provisioned):
    _daily_at = 0
    # {filter: QoS} of what is subscribed and the session has not: refused for the moment as it was
    # asked for again, or not asked for yet. And the errors of what was refused for good.
    missing: "dict[bytes, int]" = {}
    _gone: "list[SealError]" = []

    # --- boot session ---

    # A new one: the counter goes up in stable memory, then a salt is drawn. floor: the highest boot
    # that the mediator knows. What was not acknowledged cannot be sent under new keys. True: only a
    # higher gen may begin at 1 again (SPEC.md 5.2), so provision.
    def _begin(self, floor: int = 0) -> bool:
        boot = self._boot
        if boot < floor:
            boot = floor
        boot += 1
        over = boot > U24
        if over:
            boot = 1
        drawn = salt(boot, self._kg_nonce)
        self.store.put_boot(boot)
        self._boot = boot
        _begin_session(self.session, boot, drawn)
        if self.unacked:
            self.unacked.clear()
        self._begun = True
        return over

    # A clock that is ahead can only be left with its boot session, at most once a minute (SPEC.md
    # 7.4).
    def _may_reset(self) -> bool:
        now = self.mono()
        if now < self._reset_at:
            return False
        self._reset_at = now + _MINUTE_MS
        self._astray = False
        return True

    # --- connect ---

    # A session that the mediator has proved and that has time. False: it holds nothing of an
    # earlier one; then subscriptions are made again. Denied, Unavailable, other SealErrors and
    # OSError say why not.
    def connect(self, clean_session: bool = True) -> bool:
        present: bool = _run(self, _joining(self, clean_session))
        return present

    def _joining(self, clean: bool) -> "Steps":
        self._clean = clean
        held = not clean
        try:
            if self._places:
                yield from self._places._next()
            s = self.session
            if not self._begun or s.conn >= U24 or s.ctr > _NEAR_END:
                if _begin(self):
                    yield from self._provision_apart()
            provisioned = s.ident.gen == 0
            if provisioned:
                yield from self._provision_apart()
                # Nothing was sealed under this salt. Another has the key generator's nonce in it.
                s.begin(s.boot, salt(s.boot, self._kg_nonce))
            why = "the boot counter stays behind"
            for again in range(_ROUNDS):
                conflict = s.clock_conflict
                if again and s.conn >= U24 and _begin(self):
                    yield from self._provision_apart()
                try:
                    if s.ident is not self.ident:
                        self._use(self.ident)
                    yield OPEN
                    _say_hello(self, s)
                    yield CONNACK
                    held = _connack(self) and held
                    if self._subscribed and not held:
                        self.missing = dict(self._subscribed)
                    first, body = yield READ
                    ready = _welcomed(self, s, first, body)
                except Denied as error:
                    # Perhaps the roots are of an enrolment that is over: ask once for others.
                    if provisioned:
                        raise
                    self._refuse(error)
                    yield from self._provision_apart()
                    provisioned = True
                    continue
                if ready and s.kg_time and not (s.due or s.clock_conflict):
                    break
                done, provisioned, what = yield from self._put_right(
                    s, ready, conflict, provisioned
                )
                if done:
                    break
                why = what or why
            else:
                raise Unavailable("no session: " + why)
        except (OSError, SealError) as error:
            self._close()
            raise told(self, error) from None
        # A set of files on trial is kept once it had a session (firmware/board/sealmq_slots.py).
        slots: "Any" = sys.modules.get("sealmq_slots")
        if slots:
            slots.confirm()
        if self._places:
            self._places._proved()
        self._present = held
        if self._subscribed and self.missing:
            yield from self._resubscribing()
        return held

    # After a welcome that leaves something to do: (done, provisioned, why not).
    def _put_right(self, s: Session, ready: bool, conflict: bool, provisioned: bool) -> "Steps":
        if not ready:
            self._close()
            # Either boot is too low, or gen (SPEC.md 4.1), or a boot over its end asks for one.
            apart = s.boot > s.boot_floor and not provisioned
            if apart:
                provisioned = True
            else:
                apart = self._begin(s.boot_floor)
            if apart:
                yield from self._provision_apart()
            return False, provisioned, ""
        if s.clock_conflict and not conflict and s.conn > 1 and self._may_reset():
            self._close()
            if self._begin():
                yield from self._provision_apart()
            return False, provisioned, ""
        if not s.kg_time and s.now_ms(0) is None:
            self._close()
            return False, provisioned, "no answer in two seconds"
        if s.due and not provisioned:
            if (yield from self._renewed()) and s.ident.own is not self.ident.own:
                yield IDLE
                self.disconnect()
                return False, True, ""
        if not s.kg_time:
            self._ask_time(s)
        return True, provisioned, ""

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

    # KG time over the session, when the welcome could bring none. check_msg takes the answer.
    def _ask_time(self, s: Session) -> None:
        now = self.mono()
        if s.conn > 1 and now >= self._kg_next:
            self._kg_next = now + _DAY_MS
            self._send_control(s.ask_time(nonce(s.salt), now))

    # Clocks drift, by seconds a day: a long connection asks for the time once a day. Called with
    # each PINGRESP and receipt.
    def _daily(self) -> None:
        now = self.mono()
        at = self._daily_at
        if now >= at:
            self._daily_at = now + _DAY_MS
            s = self.session
            if at and s.now_ms(0) is not None:
                self._send_control(s.ask_time(nonce(s.salt), now))

    def _resubscribing(self) -> "Steps":
        raise NotImplementedError


_begin = Joined._begin
_joining = Joined._joining


# What follows are no methods, as these cost more to look up.


# Sends CONNECT.
def _say_hello(self: Joined, s: Session) -> None:
    now = self.mono()
    proof = _begin_proof(s, not s.kg_time, min(self.unacked) if self.unacked else 0)
    if self._clean and self._will is None:
        hello = self._hello
        view = self._hello_view
    else:
        hello, view = self._connect(self._clean, self._sealed_will(s), bytes(_CHARS))
    n = len(hello)
    at = n - _CHARS
    hello[at : at + _PROOF] = proof
    put_b64u(hello, at, _PROOF)
    at = n - _TAG_CHARS
    _tag_proof(s, view, hello, at, now)
    put_b64u(hello, at, _TAG)
    self.sock.write(hello, _FRONT, n - _FRONT)


# What ended a connect, with words if it is one that an operator can mend.
def told(self: Joined, error: Exception) -> Exception:
    if not isinstance(error, OSError) or len(error.args) != 1:
        return error
    n = error.args[0]
    if n == errno.ECONNREFUSED or n == errno.EHOSTUNREACH:
        what = "nobody listens there; is the site up, and is that its address (sealmq status)?"
    elif self.ident.gen == 0 and (n == errno.ECONNRESET or n == errno.ETIMEDOUT):
        what = "no keys came for client %d of site %s; if that is up, bring its newest enrolment"
        what %= self.ident.client, self.ident.site.hex()
    else:
        return error
    return OSError(n, "%s:%d: %s" % (self.server, self.port, what))


# What comes after CONNACK. False: genuine, but this boot session is behind.
def _welcomed(self: Joined, s: Session, first: int, body: bytearray) -> bool:
    self._since = s.ctr
    if first != PUBLISH or not body.startswith(CONTROL_TOPIC):
        raise Malformed("packet %02x, %d bytes, instead of a welcome" % (first, len(body)))
    op, status = _down_in(s, body, self.mono(), PAYLOAD)
    if op != OP_WELCOME:
        raise Malformed("control operation %d instead of a welcome" % op)
    ready: bool = status == READY
    return ready
