# From roots to an authenticated session: boot session, CONNECT, welcome (SPEC.md 4.1, 5, 7.3).
# Every loop is bounded.
from micropython import const

from sealmq_spec.const import M1_HEAD, M2_HEAD, M2_MIN, OP_WELCOME, READY, U24, WILL
from sealmq_spec.control import PROOF_FRONT, TAG_CHARS
from sealmq_spec.errors import Denied, Malformed, SealError, Unavailable

from . import entropy
from .link import CONNACK, CONTROL_TOPIC, IDLE, OPEN, READ
from .provisioning import Provisioned

_TYPING = False
if _TYPING:
    from sealmq_spec.session import Session

    from .link import Steps

# Provision, jump the boot counter, a slow answer, a new epoch: each costs one round.
_ROUNDS = const(5)
_DAY_MS = const(86400000)
_MINUTE_MS = const(60000)
_PUBLISH = const(0x30)
_PAYLOAD = const(5)  # of a PUBLISH with QoS 0 on the control topic
_TAG_ROOM = bytes(22)
_FRONT = const(8)  # what the proof covers in front of a CONNECT
if PROOF_FRONT != _FRONT or len(_TAG_ROOM) != TAG_CHARS:
    raise ImportError("joining.py and SPEC.md 4.1 differ")


class Joined(Provisioned):
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
        salt = entropy.salt(boot, self._kg_nonce)
        self.store.put_boot(boot)
        self._boot = boot
        self.session.begin(boot, salt)
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
        present: bool = self._run(self._joining(clean_session))
        return present

    def _joining(self, clean: bool) -> "Steps":
        self._clean = clean
        try:
            yield from self._join()
        except (OSError, SealError):
            self._close()
            raise
        if self._subscribed and not self._present:
            yield from self._resubscribing()
        return self._present

    def _join(self) -> "Steps":
        s = self.session
        if not self._begun or s.conn >= U24:
            if self._begin():
                yield from self._provision_apart()
        provisioned = s.ident.gen == 0
        if provisioned:
            yield from self._provision_apart()
        why = "the mediator calls this client's boot counter behind"
        for _ in range(_ROUNDS):
            conflict = s.clock_conflict
            try:
                ready = yield from self._log_in(s)
            except Denied as error:
                # Perhaps the roots are of an enrolment that is over: ask once for others.
                if provisioned:
                    raise
                self._refuse(error)
                yield from self._provision_apart()
                provisioned = True
                continue
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
            elif s.clock_conflict and not conflict and s.conn > 1 and self._may_reset():
                self._close()
                if self._begin():
                    yield from self._provision_apart()
            elif not s.kg_time and s.now_ms(0) is None:
                self._close()
                why = "no answer came within two seconds"
            elif s.due and not provisioned:
                if not (yield from self._renewed()) or s.ident.own is self.ident.own:
                    self._ask_time(s)
                    return
                yield IDLE
                self.disconnect()
                provisioned = True
            else:
                self._ask_time(s)
                return
        raise Unavailable("no session after %d attempts: %s" % (_ROUNDS, why))

    # False: genuine, but this boot session is behind.
    def _log_in(self, s: "Session") -> "Steps":
        if s.ident is not self.ident:
            self._use(self.ident)
        yield OPEN
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
        yield CONNACK
        self._connack()
        self._since = s.ctr
        first, body = yield READ
        if first != _PUBLISH or not body.startswith(CONTROL_TOPIC):
            raise Malformed("packet %02x, %d bytes, instead of a welcome" % (first, len(body)))
        op, status = s.down(body, self.mono(), _PAYLOAD)
        if op != OP_WELCOME:
            raise Malformed("control operation %d instead of a welcome" % op)
        return status == READY

    # Sealed anew for each CONNECT: its ctr must not be one that was used.
    def _sealed_will(self, s: "Session") -> "tuple[bytes, bytes, int] | None":
        if self._will is None:
            return None
        topic, msg, flags, life = self._will
        buf = bytearray(M2_MIN + len(msg))
        at = M2_HEAD + 1 + M1_HEAD
        buf[at : at + len(msg)] = msg
        s.seal_publish(buf, 0, len(msg), topic, flags, WILL, life, 0)
        return topic, bytes(buf), flags

    # KG time over the session, when the welcome could bring none. check_msg takes the answer.
    def _ask_time(self, s: "Session") -> None:
        if s.kg_time:
            return
        now = self.mono()
        if s.conn > 1 and now >= self._kg_next:
            self._kg_next = now + _DAY_MS
            self._send_control(s.ask_time(entropy.nonce(s.salt), now))

    def _resubscribing(self) -> "Steps":
        raise NotImplementedError
