# Operations in several steps on one object: a reader, a client's session, an identity.
# A refused step must leave no trace: flipped packets go to the same object before the genuine one.
from sealmq_spec.errors import SealError
from sealmq_spec.reader import Reader
from sealmq_spec.session import Session

from . import Wrong, hexed, ident_of, raw, roots_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ReaderScript:
    def __init__(self, make: "Any", d: "dict[str, Any]") -> None:
        reader = Reader
        if "origin" in d:
            from sealmq_spec.origin import Reader as reader
        self.reader = reader(ident_of(d["client"]), make, d["limit"], d["known_tlv"])
        # Of a case about a connection: whose link or grants messages are sealed to.
        if "boot" in d:
            session = Session(ident_of(d["client"]), make, d["boot"], raw(d["salt"]))
            self.reader.session = session

    def step(self, s: "dict[str, Any]") -> "dict[str, Any]":
        if s["do"] == "record":
            return {"added": self.reader.add_record(raw(s["packet"]))}
        if s["do"] == "roots":
            self.reader.ident.own = roots_of(s["own"])
            self.reader.reset()
            return {}
        if s["do"] == "connect":
            # Under what provisioning has brought meanwhile (SPEC.md 7.2).
            session: Any = self.reader.session
            if session.ident.gen != self.reader.ident.gen:
                session.renew(self.reader.ident)
            session.begin_connect(False)
            return {}
        if s["do"] == "boot":
            session = self.reader.session
            session.begin(s["boot"], raw(s["salt"]))
            return {}
        if s["do"] == "provisioned":
            self.reader.ident = ident_of(s["client"])
            self.reader.reset()
            return {}
        if s["do"] == "grant":
            self.reader.add_grant(raw(s["body"]))
            return {}
        if s["do"] == "manifest":
            self.reader.add_manifest(raw(s["packet"]))
            return {}
        m = self.reader.open(raw(s["topic"]), bytearray(raw(s["packet"])), s["now_ms"])
        return {
            "payload": hexed(m.payload),
            "label": m.label,
            "sender": m.sender,
            "age": m.age,
            "how": m.how,
            "tlv": [[t, hexed(m.tlv[t])] for t in sorted(m.tlv)],
        }


class IdentityScript:
    def __init__(self, make: "Any", d: "dict[str, Any]") -> None:
        self.make = make
        self.ident = ident_of(d["client"])

    def _stored(self) -> "bytes | None":
        return self.ident.dump() if self.ident.own else None

    def step(self, s: "dict[str, Any]") -> "dict[str, Any]":
        i = self.ident
        before = self._stored()
        try:
            ms = i.accept(self.make, raw(s["n_c"]), raw(s["packet"]))
        except SealError:
            if self._stored() != before:
                raise Wrong("a refused answer has changed the identity") from None
            raise
        return {
            "ms": ms,
            "gen": i.gen,
            "kseq": i.kseq,
            "label": i.own.label,
            "epoch": i.own.epoch,
            "suite": i.own.suite,
            "link_suite": i.suite,
            "mediator": i.mediator,
            "r": hexed(i.own.r),
            "r_bar": hexed(i.own.r_bar),
            "km": hexed(i.km),
        }


def _mask(mask: int) -> str:
    return hexed(mask.to_bytes(8, "big"))


class SessionScript:
    def __init__(self, make: "Any", d: "dict[str, Any]") -> None:
        self.session = Session(ident_of(d["client"]), make, d["boot"], raw(d["salt"]))

    def step(self, s: "dict[str, Any]") -> "dict[str, Any]":
        call: Any = getattr(self, "do_" + s["do"].replace("-", "_"))
        out: dict[str, Any] = call(s)
        return out

    def do_begin(self, s: "dict[str, Any]") -> "dict[str, Any]":
        return {"head": hexed(self.session.begin_connect(s["want_kg_time"], s["low"]))}

    def do_sign(self, s: "dict[str, Any]") -> "dict[str, Any]":
        packet = bytearray(raw(s["unsigned"]) + bytes(22))
        self.session.sign(packet, s["mono"])
        return {"packet": hexed(packet)}

    def do_down(self, s: "dict[str, Any]") -> "dict[str, Any]":
        op, says = self.session.down(raw(s["packet"]), s["mono"])
        if op == 2:
            says = [says[0], _mask(says[1])]
        elif op == 5 or op == 8 or op == 9:
            says = hexed(says)
        elif op == 7:
            says = [says[0], hexed(says[1])]
        elif op == 3 or op == 4:
            says = list(says)
        return {"op": op, "says": says}

    def do_clock(self, s: "dict[str, Any]") -> "dict[str, Any]":
        n = self.session
        out = {"now_ms": n.now_ms(s["mono"]), "kg_time": n.kg_time, "conflict": n.clock_conflict}
        return out

    def do_state(self, s: "dict[str, Any]") -> "dict[str, Any]":
        n = self.session
        if n.due != n.outdated():
            raise Wrong("due and outdated() differ")
        return {
            "boot_floor": n.boot_floor,
            "top": n.top,
            "mask": _mask(n.mask),
            "epoch": n.epoch_seen,
            "kseq": n.kseq_seen,
            "outdated": n.outdated(),
        }

    def do_turn(self, s: "dict[str, Any]") -> "dict[str, Any]":
        self.session.turn(ident_of(s["client"]))
        return {}

    def do_renew(self, s: "dict[str, Any]") -> "dict[str, Any]":
        self.session.renew(ident_of(s["client"]))
        return {}

    def do_publish(self, s: "dict[str, Any]") -> "dict[str, Any]":
        plain, block = raw(s["plain"]), raw(s["tlv"])
        at = 9 + len(block) + 27
        buf = bytearray(at + len(plain) + 32)
        buf[at : at + len(plain)] = plain
        topic = raw(s["topic"])
        n = self.session.seal_publish(
            buf, 0, len(plain), topic, s["flags"], s["class"], s["life"], s["mono"], block
        )
        return {"packet": hexed(buf[:n])}

    def do_token(self, s: "dict[str, Any]") -> "dict[str, Any]":
        text, ctr = self.session.token(text_of(raw(s["filter"])), s["qos"], s["op"])
        return {"text": hexed(text.encode()), "ctr": ctr}

    def do_up(self, s: "dict[str, Any]") -> "dict[str, Any]":
        return {"packet": hexed(self.session.up(raw(s["body"]), s["mono"]))}

    def do_ask_time(self, s: "dict[str, Any]") -> "dict[str, Any]":
        return {"packet": hexed(self.session.ask_time(raw(s["n_c"]), s["mono"]))}

    def do_fetch(self, s: "dict[str, Any]") -> "dict[str, Any]":
        return {"packet": hexed(self.session.fetch(s["label"], s["mono"]))}

    def do_receipted(self, s: "dict[str, Any]") -> "dict[str, Any]":
        return {"yes": self.session.receipted(s["ctr"])}


SCRIPTS = {"reader": ReaderScript, "session": SessionScript, "identity": IdentityScript}
