# What a client is made of, and where its roots come from: enrolment and state files, the packets of
# SPEC.md 7.2. Every loop is bounded; roots are stored before they are used.
import errno

from micropython import const

from sealmq_spec.const import CCM, USER
from sealmq_spec.control import PROOF_FRONT, proof_aad, proof_head
from sealmq_spec.errors import (
    Denied,
    Malformed,
    SealError,
    TooLarge,
    Unavailable,
    Unsupported,
)
from sealmq_spec.identity import Identity
from sealmq_spec.provision import ask
from sealmq_spec.session import Session

from . import entropy
from .link import ANSWERED, CONNACK, CONTROL_TOPIC, OPEN, READ, ROOTS, Link, connect_packet, packet
from .store import FileStore

_TYPING = False
if _TYPING:
    from typing import Any

    from .link import Steps

# Between two attempts to get the roots of a new epoch: at first, at most.
_SOON_MS = const(5000)
_LATER_MS = const(60000)
_KG_NONCE = const(12)
_PUBLISH = const(0x30)
PAYLOAD = const(5)  # of a PUBLISH with QoS 0 on the control topic


class Provisioned(Link):
    # Types of items, 32 to 127, that a subclass takes with their critical bit (SPEC.md 3.4).
    known_tlv: "tuple[int, ...]" = ()

    # In steps that keep nothing, _enrol last: a growing object and a long function leave holes in
    # the heap when they are done, and until small things have filled these each larger allocation
    # searches from the lowest one.
    def _set_up(
        self,
        store: "str | Any" = None,
        make: "Any" = None,
        keepalive: int = 0,
        limit: int = 4096,
        timeout: int = 10,
    ) -> None:
        if make is None:
            from .aead import make
        Link.__init__(self, keepalive, limit, timeout)
        if store is None:
            from .given import given

            store = given()
        self.store = FileStore(store) if isinstance(store, str) else store
        self.make = make
        self._kg_nonce = b""
        self._kg_next = 0
        self._boot = 0
        self._begun = False
        self._clean = True
        self._subscribed: "dict[bytes, int]" = {}  # {filter: QoS}
        # What no PUBACK came for: {ctr: (packet identifier, packet)}.
        self.unacked: "dict[int, tuple[int, bytes]]" = {}
        self._will: "tuple[bytes, bytes, int, int] | None" = None
        self._renew_at = 0
        self._renew_wait = _SOON_MS
        # The clock is wrong for the mediator; when that may be put right again; the ctr from which
        # on a message went out as soon as it was sealed.
        self._astray = False
        self._reset_at = 0
        self._since = 0
        self._asking = False  # for roots, over the session
        self.reader: "Any" = None  # see _reads
        make(CCM, bytes(32))  # loads the usual suite's code now, not while connecting

    def _enrol(self) -> None:
        self._boot = self.store.boot()
        self.ident = self._load(self.store.enrolment())
        self.session = Session(self.ident, self.make, 0, bytes(8))
        self._greet()

    def _load(self, enrolment: "dict[str, Any]") -> Identity:
        ident = Identity.from_enrolment(enrolment)
        try:
            at = enrolment["mediator"]
            host, port = at["host"], at["port"]
        except KeyError:
            raise Malformed("enrolment file: the mediator's host or port is missing") from None
        if not isinstance(host, str) or not isinstance(port, int) or not 0 < port < 65536:
            raise Malformed("enrolment file: no host and port: %r, %r" % (host, port))
        if self._places is None:
            self.server, self.port = host, port
        self.client_id = ("sealmq-%d" % ident.client).encode()
        blob = self.store.state()
        if ident.load(blob[:-_KG_NONCE]):
            self._kg_nonce = blob[-_KG_NONCE:]
        if self._places is None and at.get("mdns"):
            try:
                from .finding import Places

                self._places = Places(self, ident.site)
            except ImportError:
                pass  # not among the board's files: the enrolment's address it is
        return ident

    # For a connection that is still to come.
    def _use(self, ident: Identity) -> None:
        self.ident = ident
        s = self.session
        if self.unacked:
            if ident.own.label == s.ident.own.label:
                self._relink(s.ident, ident)
            else:
                # Their m1 is under the old label's roots, which no mediator sees: in doubt.
                self.unacked.clear()
        if self.reader is not None or s.ident.own is not None:
            reader = self._made()
            if reader is not None:
                reader.ident = ident
                reader.reset()
        s.renew(ident)
        self._greet()

    # A CONNECT without a will, the proof's 54 characters still to come.
    def _greet(self) -> None:
        self._hello, self._hello_view = self._connect(True, None, bytes(54))

    # What was stored under the last gen goes on under this one: boot and salt stay.
    def _relink(self, old: Identity, new: Identity) -> None:
        from .stored import relinked

        s = self.session
        for ctr in list(self.unacked):
            pid, raw = self.unacked[ctr]
            self.unacked[ctr] = pid, relinked(self.make, old, new, s.boot, s.salt, raw)

    # In the connection that is open, which keeps its link; the new one begins with the next
    # CONNECT. Another label has to wait for that.
    def _turn(self, ident: Identity) -> None:
        self.ident = ident
        s = self.session
        if ident.own.label == s.ident.own.label:
            reader = self._made()
            s.turn(ident)
            if reader is not None:
                reader.ident = ident
                reader.reset()

    # The reader, for what came. Anyone on the way can send that, to boards without a reader too.
    def _reads(self) -> "Any":
        reader = self.reader
        if reader is None:
            reader = self._made()
            if reader is None:
                raise Unsupported("the files of this board open no messages")
        return reader

    # The reader, made when first needed, which is before roots are replaced: it keeps those of old
    # epochs. It opens messages of other sites where the board has the file for that. None: it is
    # not among the board's files.
    def _made(self) -> "Any":
        if self.reader is None:
            try:
                from sealmq_spec.origin import Reader
            except ImportError:
                try:
                    from sealmq_spec.reader import Reader  # type: ignore[assignment]
                except ImportError:
                    return None
            self.reader = Reader(self.session.ident, self.make, 64, self.known_tlv)
            self.reader.session = self.session
        return self.reader

    # In a quarantine connection of its own, where nothing but the answer means anything.
    def _provision_apart(self) -> "Steps":
        s = self.session
        i = self.ident
        yield OPEN
        proof = proof_head(i.suite, 0, 0, i.client, s.boot, s.salt, 0, 0)
        hello, _ = self._connect(True, None, proof)
        self._write(hello, PROOF_FRONT, len(hello) - PROOF_FRONT)
        try:
            yield CONNACK
            self._connack()
            nonce_c = self._ask()
            until = self.mono() + 1000 * self.timeout
            while self.mono() <= until:
                try:
                    first, body = yield READ
                except TooLarge as error:
                    self._refuse(error)
                    continue
                if first == _PUBLISH and body.startswith(ANSWERED):
                    if self._answered(nonce_c, bytes(body[PAYLOAD:]), True):
                        return
            self._close()
            raise OSError(errno.ETIMEDOUT)
        finally:
            self.disconnect()

    # On the connection that is open.
    def _provision(self) -> "Steps":
        nonce_c = self._ask()
        self._asking = True
        try:
            until = self.mono() + 1000 * self.timeout
            while self.mono() <= until:
                body = yield ROOTS
                if self._answered(nonce_c, bytes(body[PAYLOAD:]), False):
                    return
            raise Unavailable("no answer from the key generator")
        finally:
            self._asking = False

    # Asks the key generator; what its answer has to be for.
    def _ask(self) -> bytes:
        i = self.ident
        boot = self.session.boot
        nonce_c = entropy.nonce(self.session.salt)
        request = ask(self.make, i.site, i.ps, i.suite, i.client, i.gen, boot, nonce_c, i.mediator)
        self._send_control(request)
        return nonce_c

    # Takes roots over, stored first. False: a packet that only looks like an answer.
    def _answered(self, nonce_c: bytes, answer: bytes, apart: bool) -> bool:
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
        if apart:
            self._use(fresh)
        else:
            self._turn(fresh)
        return True

    # The roots of a new epoch over the session that is open. False: none to be had now; the old
    # ones serve until their hand-over ends.
    def _renewed(self) -> "Steps":
        now = self.mono()
        if now < self._renew_at:
            return False
        # First, as the connection may end before there is an answer.
        self._renew_at = now + self._renew_wait
        self._renew_wait = min(2 * self._renew_wait, _LATER_MS)
        try:
            yield from self._provision()
        except Denied:
            raise
        except SealError as error:
            self._refuse(error)
            return False
        s = self.session
        if s.due and s.ident.own is self.ident.own:
            return False
        self._renew_at = 0
        self._renew_wait = _SOON_MS
        return True

    def _send_control(self, payload: bytes) -> None:
        raw = packet(_PUBLISH, CONTROL_TOPIC + payload)
        self._write(raw, 0, len(raw))

    # A CONNECT after what its proof covers besides, and a view of all that the proof covers.
    def _connect(
        self, clean: bool, will: "tuple[bytes, bytes, int] | None", password: bytes
    ) -> "tuple[bytearray, memoryview]":
        i = self.ident
        raw = connect_packet(self.client_id, self.keepalive, clean, will, USER, password)
        hello = bytearray(proof_aad(i.site, i.mediator) + raw)
        return hello, memoryview(hello)[:-22]

    # The four bytes that had to come first. Whether the mediator says that it held a session.
    def _connack(self) -> bool:
        four = self._four
        if four[0] != 0x20 or four[1] != 2:
            raise Malformed("%r instead of a CONNACK" % bytes(four))
        code = four[3]
        if code:
            raise _refusal(code)
        return four[2] & 1 == 1


def _refusal(code: int) -> SealError:
    if code == 3:
        return Unavailable("CONNACK 3: the mediator lacks its broker or its store")
    if code > 3:
        return Denied("CONNACK %d: another site's or an old enrolment, or a disabled client" % code)
    return Unsupported("CONNACK %d" % code)
