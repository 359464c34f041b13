# Who a client is: what enrolment gave it, and what provisioning gave it (SPEC.md 7.1, 7.2).
# `dump` and `load` are the only form in which roots are stored; the caller stores it in one step
# (write, sync, rename).
import struct
from hashlib import sha256

from .const import CCM, CHACHA, U24
from .errors import Denied, Malformed, Stale, Unavailable
from .provision import DISABLED, OK, check_ps, get_body, open_answer
from .records import Roots

_TYPING = False
if _TYPING:
    from collections.abc import Mapping
    from typing import Any

    from .records import Make

_MAGIC = b"SMs2"
_FORM = ">4sIIIIBBI32s32s32s"
_CHECK = 8


class Identity:
    # site: 4 bytes. ps: 32 bytes. suite: for the link and everything under ps.
    def __init__(
        self,
        site: bytes,
        client: int,
        mediator: int,
        ps: bytes,
        name: str = "",
        suite: int = CCM,
    ) -> None:
        check_ps(ps)
        self.site = site
        self.client = client
        self.mediator = mediator
        self.ps = ps
        self.name = name
        self.suite = suite
        self.gen = 0
        self.kseq = 0
        self.km = b""
        # Roots of the client's own label; None before the first provisioning.
        self.own: Any = None

    # A parsed enrolment file: {"sealmq": 1, "site": hex, "client": n, "name": s, "ps": hex,
    # "mediator": {"number": n, …}, …}
    @staticmethod
    def from_enrolment(d: "Mapping[str, Any]") -> "Identity":
        try:
            if d["sealmq"] != 1:
                raise Malformed("enrolment of protocol %r, this is 1" % d["sealmq"])
            site, ps = bytes.fromhex(d["site"]), bytes.fromhex(d["ps"])
            if len(site) != 4:
                raise Malformed("enrolment with a site of %d bytes, not 4" % len(site))
            client, mediator, suite = d["client"], d["mediator"]["number"], d.get("suite", CCM)
            for number in (client, mediator):
                if not isinstance(number, int) or not 0 < number <= U24:
                    raise Malformed("enrolment with %r for a number of 1 to 2^24 - 1" % (number,))
            if suite not in (CCM, CHACHA):
                raise Malformed("enrolment with suite %r" % (suite,))
            return Identity(site, client, mediator, ps, d["name"], suite)
        except (KeyError, TypeError, ValueError):
            raise Malformed("enrolment file: a field is missing or has the wrong form") from None

    def dump(self) -> bytes:
        o = self.own
        b = struct.pack(
            _FORM,
            _MAGIC,
            self.gen,
            o.label,
            o.epoch,
            self.mediator,
            o.suite,
            self.suite,
            self.kseq,
            o.r,
            o.r_bar,
            self.km,
        )
        return b + self._check(b)

    # The enrolment is in it: roots of another site, client or ps are not for this one, and their
    # gen and kseq would refuse its answers for ever.
    def _check(self, b: bytes) -> bytes:
        whose = self.site + self.client.to_bytes(3, "big") + self.ps
        return sha256(b + whose).digest()[:_CHECK]

    # False when blob is torn or another enrolment's: then the client provisions again, which is
    # always safe.
    def load(self, blob: bytes) -> bool:
        n = struct.calcsize(_FORM)
        if len(blob) != n + _CHECK or self._check(blob[:n]) != blob[n:]:
            return False
        t = struct.unpack(_FORM, blob[:n])
        if t[0] != _MAGIC:
            return False
        self.gen, self.mediator, self.suite, self.kseq, self.km = t[1], t[4], t[6], t[7], t[10]
        self.own = Roots(t[2], t[3], t[5], t[8], t[9])
        return True

    # Takes the answer to nonce_c, or refuses it and changes nothing. Returns its time in ms.
    def accept(self, make: "Make", nonce_c: bytes, packet: bytes) -> int:
        status, plain = open_answer(
            make, self.site, self.ps, self.suite, self.client, nonce_c, packet
        )
        if status == DISABLED:
            raise Denied("this client is disabled")
        if status != OK:
            raise Unavailable("the key generator answers: try later")
        gen, label, epoch, s_label, s_link, mediator, kseq, ms, r, r_bar, km = get_body(plain)
        if gen < self.gen or kseq < self.kseq:
            raise Stale(
                "provisioning of gen %d kseq %d, held: %d, %d" % (gen, kseq, self.gen, self.kseq)
            )
        if self.own and label == self.own.label and epoch < self.own.epoch:
            raise Stale("provisioning of epoch %d, held: %d" % (epoch, self.own.epoch))
        self.gen, self.kseq, self.mediator, self.suite, self.km = gen, kseq, mediator, s_link, km
        self.own = Roots(label, epoch, s_label, r, r_bar)
        return ms
